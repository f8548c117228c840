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

/* One hop less. */
static __always_inline bool take_hop(struct xdp_md *ctx, const struct evnf_flow *flow)
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

/* Writes `to` over the source or the destination. False: the packet is too short for its protocol. */
static __always_inline bool put_end(struct xdp_md *ctx, const struct evnf_flow *flow,
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
	change = sum_change(change, old_port, new_port);
	/* UDP without a checksum has none afterwards either. */
	if (flow->proto == IPPROTO_TCP || *check) {
		*check = sum_fold((__u16) ~*check + change);
		if (flow->proto != IPPROTO_TCP && !*check)
			*check = 0xffff;
	}
	ports[source ? 0 : 1] = new_port;
	return true;
}

#endif
