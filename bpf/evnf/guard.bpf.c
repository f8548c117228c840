// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The guard: so many packets of a source, to a destination, of unknown sources; and SYNs to
 * protected ends are answered here, by cookies, when there are more than the kernel is to see.
 *
 * A protected end is an address and port where this host listens. A SYN for it goes to
 * the kernel as long as the end's own bucket has a token; else it is answered by a cookie and forgotten.
 * Every other packet has to be of a known connection, of a socket of this host, or acknowledge a
 * cookie. A source that acknowledges a cookie gets packets at its address: from then on it is known.
 *
 * The kernel must answer by cookies itself (net.ipv4.tcp_syncookies=2): its listening socket believes in
 * cookies for two minutes after it has sent one, and the SYNs that it is left see to that. A flood may be
 * made of SYNs that it cannot answer, as no route leads to their sources; so known sources have a
 * bucket of their own: a source whose cookie was not accepted passes when it tries again.
 */
#include <linux/bpf.h>

#include "bucket.h"
#include "chain.h"
#include "cookie.h"
#include "count.h"
#include "flow.h"
#include "parse.h"

/* States of sockets in the kernel (include/net/tcp_states.h). */
#define STATE_TIME_WAIT 6
#define STATE_LISTEN 10
#define STATE_NEW_SYN_RECV 12

/* Exits of packets; each packet is counted under exactly one. A packet goes on, is answered, or is dropped. */
enum guard_exit {
	GUARD_EXIT_PASSED, /* within its limits */
	GUARD_EXIT_CONNECTION, /* of a connection to a protected end */
	GUARD_EXIT_ACKNOWLEDGED, /* it acknowledges a cookie */
	GUARD_EXIT_SYN, /* to a protected end, for the kernel to answer */
	/* fragments, options, extension headers, tags, one host's address in a frame for several: within their limits */
	GUARD_EXIT_UNREADABLE,
	GUARD_EXIT_NEIGHBOUR, /* neighbour discovery: not limited */
	GUARD_EXIT_NOT_IP,
	GUARD_EXIT_GROUP, /* to several hosts of this network */
	GUARD_EXIT_ANSWERED, /* a SYN, by a cookie */
	GUARD_EXIT_SOURCE, /* dropped: its source sends too much */
	GUARD_EXIT_DESTINATION, /* dropped: its destination gets too much */
	GUARD_EXIT_UNKNOWN, /* dropped: unknown sources together send too much */
	GUARD_EXIT_TOO_UNREADABLE, /* dropped: too much of what cannot be read */
	GUARD_EXIT_CROWDED, /* dropped: no place for its bucket */
	GUARD_EXIT_NO_CONNECTION, /* dropped: of none that is known, and no cookie */
	GUARD_EXIT_FLAGS, /* dropped: a SYN that also ends something */
	GUARD_EXIT_MALFORMED, /* dropped: shorter than its headers */
	GUARD_EXIT_NO_COOKIE, /* dropped: the kernel makes none, or there is no room for the answer */
	GUARD_EXITS,
};

/* Set before the program is loaded. */
SEC(".rodata.guard") volatile const struct {
	__u64 seed;
	struct evnf_limit source;
	struct evnf_limit destination;
	struct evnf_limit unknown;
	struct evnf_limit unreadable;
	struct evnf_limit syn; /* of each protected end, to the kernel */
	__u64 mask[2]; /* bits of an address that tell IPv6 sources apart, in network order */
	__u32 mask4; /* the same for IPv4 */
	__u32 mss; /* for an answer over IPv4; 20 less over IPv6 */
	__u32 sets; /* of each table of buckets */
	__u32 ends; /* how many are protected */
} guard;

/* A bucket of each source, shared by all CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evnf_buckets);
} guard_sources SEC(".maps");

/* A bucket of each destination: sources cannot crowd them out. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evnf_buckets);
} guard_destinations SEC(".maps");

enum guard_common {
	COMMON_UNKNOWN,
	COMMON_UNREADABLE,
	COMMONS,
};

/* The buckets that all share: times, as in struct evnf_bucket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COMMONS);
	__type(key, __u32);
	__type(value, __u64);
} guard_common SEC(".maps");

/* Buckets of the SYNs that the kernel gets of a protected end: times, as in struct evnf_bucket. */
struct guard_end {
	__u64 of_all;
	__u64 of_known; /* beyond those */
};

/* Protected ends. Writer: user space, before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVNF_ENDS_MAX);
	__type(key, struct evnf_end);
	__type(value, struct guard_end);
} guard_ends SEC(".maps");

/*
 * Connections to protected ends, as their clients' packets are, and when they were entered. The least
 * recently used go first; what is sent on one that is gone finds its socket.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, union evnf_key);
	__type(value, __u64);
} guard_connections SEC(".maps");

/* Sources that have acknowledged a cookie, as far as their addresses count. The same. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct evnf_address);
	__type(value, __u64);
} guard_known SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GUARD_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} guard_exits SEC(".maps");

/* A packet that is looked at. */
struct passage {
	union evnf_key key;
	__u64 now;
	__u64 bytes;
};

/* The part of a source's address that identifies the source. */
static __always_inline void source_of(const struct evnf_flow *flow, struct evnf_address *source)
{
	source->family = flow->family;
	if (flow->family == 4) {
		source->word[0] = flow->src[0] & guard.mask4;
		return;
	}
	source->word[0] = flow->src[0] & (__u32)guard.mask[0];
	source->word[1] = flow->src[1] & (__u32)(guard.mask[0] >> 32);
	source->word[2] = flow->src[2] & (__u32)guard.mask[1];
	source->word[3] = flow->src[3] & (__u32)(guard.mask[1] >> 32);
}

static __always_inline __u64 subject_of(const struct evnf_address *address)
{
	const __u32 *word = address->word;
	__u64 hash = bucket_mix(guard.seed + address->family, word[0] | (__u64)word[1] << 32);

	return bucket_mix(hash, word[2] | (__u64)word[3] << 32);
}

/* Checks the limit of a source. GUARD_EXIT_PASSED: the packet is within the limit. */
static __always_inline int check_source(const struct evnf_address *source, __u64 now)
{
	if (!guard.source.gap_ns)
		return GUARD_EXIT_PASSED;
	switch (take_token_of(&guard_sources, guard.sets, subject_of(source), &guard.source, now)) {
	case BUCKET_TAKEN:
		return GUARD_EXIT_PASSED;
	case BUCKET_EMPTY:
		return GUARD_EXIT_SOURCE;
	default:
		return GUARD_EXIT_CROWDED;
	}
}

/* Checks the limit of a destination. */
static __always_inline int check_destination(const struct evnf_flow *flow, __u64 now)
{
	struct evnf_address to = { .family = flow->family };

	if (!guard.destination.gap_ns)
		return GUARD_EXIT_PASSED;
	__builtin_memcpy(to.word, flow->dst, sizeof(to.word));
	switch (take_token_of(&guard_destinations, guard.sets, subject_of(&to), &guard.destination,
			      now)) {
	case BUCKET_TAKEN:
		return GUARD_EXIT_PASSED;
	case BUCKET_EMPTY:
		return GUARD_EXIT_DESTINATION;
	default:
		return GUARD_EXIT_CROWDED;
	}
}

static __always_inline bool within(enum guard_common which, const volatile struct evnf_limit *limit,
				   __u64 now)
{
	__u32 at = which;
	__u64 *full_at;

	if (!limit->gap_ns)
		return true;
	full_at = bpf_map_lookup_elem(&guard_common, &at);
	return full_at && take_token(full_at, limit, now);
}

/* Checks the limit of all unknown sources together; a known source passes. */
static __always_inline bool is_wanted(const struct evnf_address *source, __u64 now)
{
	if (!guard.unknown.gap_ns || bpf_map_lookup_elem(&guard_known, source))
		return true;
	return within(COMMON_UNKNOWN, &guard.unknown, now);
}

/* Enters a connection, and its source. A table that takes none for the moment has the next packet find its socket. */
static __always_inline void enter(const struct passage *p)
{
	struct evnf_address source = {};

	source_of(&p->key.flow, &source);
	bpf_map_update_elem(&guard_connections, &p->key, &p->now, BPF_ANY);
	bpf_map_update_elem(&guard_known, &source, &p->now, BPF_ANY);
}

/* The state of this host's socket for a packet: its connection's, else a listening one; 0: none. */
static __always_inline __u32 socket_state(struct xdp_md *ctx, const struct evnf_flow *flow)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;
	__u32 state;

	if (flow->family == 4) {
		tuple.ipv4.saddr = flow->src[0];
		tuple.ipv4.daddr = flow->dst[0];
		tuple.ipv4.sport = bpf_htons(flow->sport);
		tuple.ipv4.dport = bpf_htons(flow->dport);
		socket =
			bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, flow->src, sizeof(tuple.ipv6.saddr));
		__builtin_memcpy(tuple.ipv6.daddr, flow->dst, sizeof(tuple.ipv6.daddr));
		tuple.ipv6.sport = bpf_htons(flow->sport);
		tuple.ipv6.dport = bpf_htons(flow->dport);
		socket =
			bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!socket)
		return 0;
	state = socket->state;
	bpf_sk_release(socket);
	return state;
}

/* Decides about a packet to a protected end that begins no connection. */
static __noinline int continue_connection(struct xdp_md *ctx, struct passage *p)
{
	if (!p)
		return GUARD_EXIT_NO_CONNECTION;
	if (bpf_map_lookup_elem(&guard_connections, &p->key))
		return GUARD_EXIT_CONNECTION;
	switch (socket_state(ctx, &p->key.flow)) {
	case 0:
	case STATE_LISTEN:
		if (!has_cookie(ctx, &p->key.flow))
			return GUARD_EXIT_NO_CONNECTION;
		enter(p);
		return GUARD_EXIT_ACKNOWLEDGED;
	case STATE_TIME_WAIT:
	case STATE_NEW_SYN_RECV: /* it may be in this state for another host's address */
		return GUARD_EXIT_CONNECTION;
	}
	enter(p);
	return GUARD_EXIT_CONNECTION;
}

/* Answers a SYN by a cookie. */
static __always_inline int answer(struct xdp_md *ctx, const struct passage *p)
{
	const struct evnf_flow *flow = &p->key.flow;
	__u32 mss = flow->family == 4 ? guard.mss : guard.mss - 20;

	switch (answer_syn(ctx, flow, p->bytes, mss)) {
	case COOKIE_ANSWERED:
		return GUARD_EXIT_ANSWERED;
	case COOKIE_MALFORMED:
		return GUARD_EXIT_MALFORMED;
	}
	return GUARD_EXIT_NO_COOKIE;
}

/* Returns true if the kernel gets a SYN. */
static __always_inline bool is_for_kernel(const struct evnf_address *source, struct guard_end *end,
					  __u64 now)
{
	return take_token(&end->of_all, &guard.syn, now) ||
	       (bpf_map_lookup_elem(&guard_known, source) &&
		take_token(&end->of_known, &guard.syn, now));
}

/* Decides about a TCP packet to a protected end. */
static __always_inline int protect(struct xdp_md *ctx, struct passage *p,
				   const struct evnf_address *source, struct guard_end *end)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + ETH_HLEN + l3_length(&p->key.flow);

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end || tcp->doff < 5)
		return GUARD_EXIT_MALFORMED;
	if (!tcp->syn || tcp->ack)
		return continue_connection(ctx, p);
	if (tcp->rst || tcp->fin)
		return GUARD_EXIT_FLAGS;
	if (is_for_kernel(source, end, p->now))
		return GUARD_EXIT_SYN;
	return answer(ctx, p);
}

/* The protected end that a packet is for; NULL: it is for none. */
static __always_inline struct guard_end *protected_end(const struct evnf_flow *flow)
{
	struct evnf_end end = {
		.port = flow->dport,
		.proto = IPPROTO_TCP,
		.family = flow->family,
	};

	if (!guard.ends || flow->proto != IPPROTO_TCP)
		return NULL;
	__builtin_memcpy(end.address, flow->dst, sizeof(end.address));
	return bpf_map_lookup_elem(&guard_ends, &end);
}

/* Decides about an unreadable packet, whose addresses may be known. */
static __always_inline int check_unreadable(const struct evnf_flow *flow, __u64 now)
{
	struct evnf_address source = {};
	int found;

	if (flow->family) {
		source_of(flow, &source);
		found = check_source(&source, now);
		if (found != GUARD_EXIT_PASSED)
			return found;
		if (!is_wanted(&source, now))
			return GUARD_EXIT_UNKNOWN;
	}
	if (!within(COMMON_UNREADABLE, &guard.unreadable, now))
		return GUARD_EXIT_TOO_UNREADABLE;
	if (flow->family) {
		found = check_destination(flow, now);
		if (found != GUARD_EXIT_PASSED)
			return found;
	}
	return GUARD_EXIT_UNREADABLE;
}

/* Returns true if a packet's destination is a group. A network's broadcast address looks like that of a host. */
static __always_inline bool is_group(const struct evnf_flow *flow)
{
	if (flow->family == 4)
		return bpf_ntohl(flow->dst[0]) >= 0xe0000000;
	return (bpf_ntohl(flow->dst[0]) & 0xff000000) == 0xff000000;
}

/* How the packet leaves. */
static __always_inline int judge(struct xdp_md *ctx, __u64 bytes)
{
	struct passage p = { .bytes = bytes };
	struct evnf_address source = {};
	enum evnf_exit read = parse_frame(ctx, &p.key.flow);
	int found, left = GUARD_EXIT_PASSED;
	struct guard_end *end;

	p.now = bpf_ktime_get_ns();
	/*
	 * A sender chooses the frame's address and the packet's: the kernel takes UDP for one of its own addresses from
	 * a frame for several hosts, too.
	 */
	if (is_for_group(ctx)) {
		if (read == EVNF_EXIT_MALFORMED)
			return GUARD_EXIT_MALFORMED;
		/* Behind a tag there may be IP: the kernel takes off a tag of VLAN 0. */
		if (read == EVNF_EXIT_NOT_IP || (p.key.flow.family && is_group(&p.key.flow)))
			return GUARD_EXIT_GROUP;
		return check_unreadable(&p.key.flow, p.now);
	}
	switch (read) {
	case EVNF_EXIT_ACCEPT:
	case EVNF_EXIT_TTL:
		break;
	case EVNF_EXIT_NOT_IP:
		return GUARD_EXIT_NOT_IP;
	case EVNF_EXIT_MALFORMED:
		return GUARD_EXIT_MALFORMED;
	default:
		return check_unreadable(&p.key.flow, p.now);
	}
	if (is_discovery(ctx, &p.key.flow))
		return GUARD_EXIT_NEIGHBOUR;
	source_of(&p.key.flow, &source);
	found = check_source(&source, p.now);
	if (found != GUARD_EXIT_PASSED)
		return found;
	end = protected_end(&p.key.flow);
	if (end) {
		left = protect(ctx, &p, &source, end);
		/* Packets of a proven connection do not count against their destination. */
		if (left != GUARD_EXIT_SYN)
			return left;
	} else if (!is_wanted(&source, p.now)) {
		return GUARD_EXIT_UNKNOWN;
	}
	found = check_destination(&p.key.flow, p.now);
	return found == GUARD_EXIT_PASSED ? left : found;
}

SEC("xdp")
int evnf_guard(struct xdp_md *ctx)
{
	__u64 bytes = ctx->data_end - ctx->data;
	int by = judge(ctx, bytes);

	count(&guard_exits, by, bytes);
	if (by < GUARD_EXIT_ANSWERED)
		return go_on(ctx);
	if (by != GUARD_EXIT_ANSWERED)
		return XDP_DROP;
	/* By XDP_TX a veth would hand it to its other end and not tell, unless that has a program too. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
