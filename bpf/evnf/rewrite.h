/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Another address and port in a packet that the parser has understood, and its checksums. */
#ifndef EVNF_REWRITE_H
#define EVNF_REWRITE_H

#include <linux/tcp.h>
#include <linux/udp.h>

#include "parse.h"

/* An address and a port, as in struct evnf_flow. */
struct evnf_end {
	__u32 address[4];
	__u16 port;
	__u8 proto;
	__u8 family;
};

/* Adds what a word of 32 bits changes to a sum of ones' complements (RFC 1624). */
static __always_inline __u64 sum_change(__u64 sum, __u32 old, __u32 new)
{
	return sum + (__u32)~old + new;
}

static __always_inline __u16 sum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* As 32 bits of a sum of ones' complements. */
static __always_inline __u32 sum_32(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/*
 * The packet's sum has changed by this much, and no checksum in it by as much less. The receiving interface may
 * have noted the sum beside the packet.
 */
static __always_inline void sum_moved(struct evnf_packet *ctx, __u32 change)
{
#ifdef EVNF_TC
	/* Fails if nothing is noted. */
	bpf_csum_update(ctx, change);
#endif
}

/* Turns a frame round: to whom it came from. */
static __always_inline void turn_round(struct ethhdr *eth)
{
	__u8 mac[ETH_ALEN];

	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
}

/* Decrements the hops left. */
static __always_inline bool take_hop(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	void *l3 = (void *)(long)ctx->data + ETH_HLEN;
	void *end = (void *)(long)ctx->data_end;

	if (flow->family == 4) {
		struct iphdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return false;
		ip->check = sum_fold(sum_change((__u16)~ip->check, bpf_htons(ip->ttl << 8),
						bpf_htons((ip->ttl - 1) << 8)));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return false;
		ip->hop_limit--;
		sum_moved(ctx, ~(__u32)bpf_htons(1));
	}
	return true;
}

/* The checksum of TCP or UDP, behind a network header of `l3_len` bytes. */
static __always_inline __u16 *transport_checksum(void *l4, void *end, __u8 proto)
{
	__u16 *check;

	if (proto == IPPROTO_TCP)
		check = &((struct tcphdr *)l4)->check;
	else
		check = &((struct udphdr *)l4)->check;
	return (void *)(check + 1) > end ? NULL : check;
}

/*
 * Changes the checksum of TCP or UDP as addresses and port have changed; UDP without one has none afterwards
 * either. Pointers into the packet are void after it.
 */
static __always_inline bool put_checksum(struct evnf_packet *ctx, const struct evnf_flow *flow,
					 __u16 *check, __u64 change, __u16 old_port, __u16 new_port)
{
#ifdef EVNF_TC
	/* Which part of it is there already, and what is noted beside the packet, only the kernel knows. */
	__u32 at = (void *)check - (void *)(long)ctx->data;
	__u64 flags = flow->proto == IPPROTO_TCP ? 0 : BPF_F_MARK_MANGLED_0;

	if (bpf_l4_csum_replace(ctx, at, 0, sum_32(change), flags | BPF_F_PSEUDO_HDR))
		return false;
	/* The call takes the packet for IPv4, whose own checksum makes up for another address. */
	if (flow->family == 6)
		sum_moved(ctx, sum_32(change));
	return old_port == new_port ||
	       !bpf_l4_csum_replace(ctx, at, old_port, new_port, flags | sizeof(new_port));
#else
	change = sum_change(change, old_port, new_port);
	if (flow->proto == IPPROTO_TCP || *check) {
		*check = sum_fold((__u16) ~*check + change);
		if (flow->proto != IPPROTO_TCP && !*check)
			*check = 0xffff;
	}
	return true;
#endif
}

/* Writes `to` over the source or the destination. False: the packet is too short for its protocol. */
static __always_inline bool put_end(struct evnf_packet *ctx, const struct evnf_flow *flow,
				    const struct evnf_end *to, bool source)
{
	const __u32 *old = source ? flow->src : flow->dst;
	__u16 old_port = bpf_htons(source ? flow->sport : flow->dport);
	__u16 new_port = bpf_htons(to->port);
	void *l3 = (void *)(long)ctx->data + ETH_HLEN;
	void *end = (void *)(long)ctx->data_end;
	bool v4 = flow->family == 4;
	void *l4 = l3 + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	__u16 *ports = l4, *check;
	__u64 change = 0;

	if (l4 + 4 > end)
		return false;
	check = transport_checksum(l4, end, flow->proto);
	if (!check)
		return false;
#pragma unroll
	for (int i = 0; i < 4; i++)
		change = sum_change(change, old[i], to->address[i]);
	if (v4) {
		struct iphdr *ip = l3;

		ip->check = sum_fold((__u16)~ip->check + change);
		if (source)
			ip->saddr = to->address[0];
		else
			ip->daddr = to->address[0];
	} else {
		struct ipv6hdr *ip = l3;

		__builtin_memcpy(source ? &ip->saddr : &ip->daddr, to->address, sizeof(ip->daddr));
	}
	ports[source ? 0 : 1] = new_port;
	return put_checksum(ctx, flow, check, change, old_port, new_port);
}

#endif
