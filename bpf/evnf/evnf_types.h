/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The interface of the fast path and its user half; lib/evnf/src/abi.rs mirrors it. */
#ifndef EVNF_TYPES_H
#define EVNF_TYPES_H

#include <linux/types.h>

#include "evnf_consts.h"

#define EVNF_HAS_PORTS (1 << 0)

/*
 * The fields of a packet that rules match. Addresses in network order, those of IPv4 in the first word; ports
 * in host order, so that ranges become prefixes of them.
 */
struct evnf_flow {
	__u32 src[4];
	__u32 dst[4];
	__u16 sport;
	__u16 dport;
	__u8 family; /* 4 or 6 */
	__u8 proto;
	__u8 has; /* EVNF_HAS_ */
	__u8 tuple; /* of a rule: which tuple it is in; of a packet: 0 */
};

#define EVNF_FLOW_WORDS 5

union evnf_key {
	struct evnf_flow flow;
	__u64 word[EVNF_FLOW_WORDS];
};

/* Verdict of a rule. The numbers are the order in which stages overrule each other. */
enum evnf_verdict {
	EVNF_ACCEPT,
	EVNF_DROP,
	EVNF_ASK, /* only the slow path can tell */
};

/* Rules that ask for the same bits: one look-up finds the only one that can match. */
struct evnf_tuple {
	union evnf_key mask; /* mask.flow.tuple is 0xff */
	__u32 first; /* the lowest number of its rules */
	__u32 stage;
};

/* A rule. Those with lower numbers win. */
struct evnf_rule {
	__u32 number;
	__u32 verdict;
};

/* An address as in struct evnf_flow. */
struct evnf_address {
	__u32 word[4];
	__u32 family;
};

/* A decision: what happens to packets that the host forwards, and to those for itself. */
struct evnf_decision {
	__u8 forwarded;
	__u8 local;
	__u16 known; /* 1: the entry is in use */
	__u32 forwarded_rule;
	__u32 local_rule;
};

/* An entry of the cache of flows. */
struct evnf_cached {
	union evnf_key key;
	struct evnf_decision decision;
	__u32 settled; /* 1: accepted, and none of its packets is in a slow path */
};

struct evnf_count {
	__u64 packets;
	__u64 bytes;
};

/* So much and no more: the time between two tokens, 0 for no limit, and that of all that a bucket holds but one. */
struct evnf_limit {
	__u64 gap_ns;
	__u64 burst_ns;
};

/* A token bucket, and whose it is. */
struct evnf_bucket {
	__u64 subject; /* a hash */
	__u64 full_at; /* monotonic time in ns */
};

/* The places that a subject's bucket may have: as much as a line of a cache. */
struct evnf_buckets {
	struct evnf_bucket bucket[EVNF_BUCKET_WAYS];
};

/* Where a packet left the fast path. Each packet is counted under exactly one of these. */
enum evnf_exit {
	EVNF_EXIT_DROP, /* a rule of the fast path drops it */
	EVNF_EXIT_ACCEPT, /* all rules accept it */
	EVNF_EXIT_ASK, /* a rule that only the slow path can decide may match it */
	EVNF_EXIT_NOT_IP,
	EVNF_EXIT_TAGGED, /* belongs to another interface of the host */
	EVNF_EXIT_MALFORMED,
	EVNF_EXIT_OPTIONS,
	EVNF_EXIT_FRAGMENT,
	EVNF_EXIT_EXTENSION, /* an IPv6 extension header that is not followed */
	EVNF_EXIT_GROUP, /* to several hosts, or not to this one */
	EVNF_EXIT_TTL, /* the host answers it */
	EVNF_EXIT_NO_ROUTE, /* neither forwarded nor local as far as the fast path can see */
	EVNF_EXITS,
};

/* Packets of a flow in a slow path. Counters go round. */
struct evnf_slow_flow {
	__u64 since; /* monotonic time in ns: fast: when it became so; else: when it first might, 0 for not yet */
	__u32 in; /* packets handed to it */
	__u32 out; /* packets that it has given back */
	__u32 late; /* what it gives back before this one is overtaken */
	__u32 fast; /* 1: packets take the fast path: what the slow path gives back is overtaken */
};

/* Results of packets between the fast path and a slow path of its own. */
enum evnf_slow_exit {
	EVNF_SLOW_BEHIND, /* accepted, but handed up: earlier ones of its flow are there still */
	EVNF_SLOW_ABSENT, /* dropped: there is no slow path */
	EVNF_SLOW_HANDED, /* handed up: each of those is counted by its reason as well */
	EVNF_SLOW_RETURNED, /* given back, on its way into the kernel's stack */
	EVNF_SLOW_ANSWERED, /* sent out by the slow path, where packets come in */
	EVNF_SLOW_LATE, /* given back when its flow had gone fast: dropped */
	EVNF_SLOW_EXITS,
};

#endif
