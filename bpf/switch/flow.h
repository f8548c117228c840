/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Choice of the port, of several behind a port, that takes a frame: the same for both directions of a flow. Behind a port
 * are its queues, or the members of a spread (docs/adr/0022-scale-out.md).
 */
#ifndef SWITCH_FLOW_H
#define SWITCH_FLOW_H

#include "frame.h"
#include "switch_maps.h"

#define ETHERTYPE_IPV4 0x0008ULL
#define ETHERTYPE_IPV6 0xdd86ULL
#define IPV4_OFFSET 0xff1f /* fragment offset, in network order */
#define FLOW_ICMP 1
#define FLOW_ICMPV6 58
/* An ICMPv6 error behind two tags, as far as the addresses of the quoted packet. A slot always has these
 * bytes, whatever the frame's length. */
#define FLOW_BYTES 112

/* The start of a frame. */
struct flow_head {
	__u8 bytes[FLOW_BYTES];
};

static __always_inline __u32 flow_mix(__u64 sum)
{
	return (sum * 0x9e3779b97f4a7c15ULL) >> 32;
}

/* A sum is the same with source and destination exchanged. */
static __always_inline __u64 ipv4_sum(const void *ip)
{
	return load32(ip + 12) + load32(ip + 16);
}

static __always_inline __u64 ipv6_sum(const void *ip)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 8; i < 40; i += 4)
		sum += load32(ip + i) << (i & 4);
	return sum;
}

/* RFC 792: destination unreachable, source quench, redirect, time exceeded, parameter problem. */
static __always_inline bool icmp_quotes(__u64 type)
{
	return type >= 3 && type <= 12 &&
	       1u << type & (1 << 3 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12);
}

/* An ICMP error goes where the quoted flow goes, whichever host sends the error. An error with IP options goes by
 * its own addresses. */
static __always_inline __u64 flow_ipv4(const void *ip)
{
	if (load8(ip) == 0x45 && load8(ip + 9) == FLOW_ICMP && !(load16(ip + 6) & IPV4_OFFSET) &&
	    icmp_quotes(load8(ip + 20)))
		ip += 28;
	return ipv4_sum(ip);
}

/* RFC 4443: the errors are those below 128. */
static __always_inline __u64 flow_ipv6(const void *ip)
{
	if (load8(ip + 6) == FLOW_ICMPV6 && load8(ip + 40) < 128)
		ip += 48;
	return ipv6_sum(ip);
}

/*
 * A symmetric hash of the IP addresses, behind up to two tags. Ports are left out, so that fragments stay with their
 * flow. Other frames are spread by their MAC addresses. A function of its own, which is checked once. Mirrored by
 * lib/ring/src/flow.rs.
 */
__noinline __u32 flow_hash(const struct flow_head *head)
{
	const volatile __u16 *halves = (const void *)head;
	const void *l3 = (const void *)head + 14;
	__u64 sum = 0;
	__u16 type;

	if (!head)
		return 0;
	type = halves[6];
	if (tag_type(type)) {
		type = halves[8];
		l3 += 4;
		if (tag_type(type)) {
			type = halves[10];
			l3 += 4;
		}
	}
	if (type == ETHERTYPE_IPV4)
		return flow_mix(flow_ipv4(l3));
	if (type == ETHERTYPE_IPV6)
		return flow_mix(flow_ipv6(l3));
#pragma unroll
	for (int i = 0; i < 3; i++)
		sum += (__u64)(halves[i] + halves[i + 3]) << (16 * i);
	return flow_mix(sum);
}

static __always_inline struct nfl_spread *spread_find(__u32 queues)
{
	__u32 key = queues & (NFL_SPREADS_MAX - 1);

	return bpf_map_lookup_elem(&nfl_spreads, &key);
}

/* Returns the member that takes the flows of this hash. */
__noinline __u32 spread_port(__u32 queues, __u32 hash)
{
	struct nfl_spread *spread = spread_find(queues);

	return spread ? READ_ONCE(spread->port[hash >> 24]) : NFL_PORTS_MAX;
}

/* The port that takes the frame, for port `first`, which says `queues`. */
static __always_inline __u32 flow_port(const void *head, __u32 first, __u32 queues)
{
	__u32 hash = flow_hash(head);

	if (queues & NFL_QUEUES_SPREAD)
		return spread_port(queues, hash);
	return first + (__u32)(((__u64)hash * queues) >> 32);
}

/*
 * Notes that an arrival from an interface looks into a table: the daemon, which changes the table, waits until all arrivals
 * are through that may have seen the former table. A port's own calls need not be counted, since the port is busy
 * meanwhile. Returns the argument for spread_leave(), never 0.
 */
static __noinline __u32 spread_enter(__u32 queues)
{
	struct nfl_spread *spread = spread_find(queues);
	__u32 turn;

	if (!spread)
		return queues;
	turn = READ_ONCE(spread->turn) & 1;
	__sync_fetch_and_add(&spread->inside[turn], 1);
	return queues | turn << NFL_QUEUES_TURN_SHIFT;
}

static __noinline __u32 spread_leave(__u32 entered)
{
	struct nfl_spread *spread = spread_find(entered);

	if (spread)
		__sync_fetch_and_add(&spread->inside[entered >> NFL_QUEUES_TURN_SHIFT & 1], -1);
	return 0;
}

#endif
