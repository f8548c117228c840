/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where the kernel would send a packet. */
#ifndef EVNF_WAY_H
#define EVNF_WAY_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>

#include "evnf_types.h"
#include "hook.h"

#define AF_INET_ 2
#define AF_INET6_ 10

/*
 * Bytes of the packet from its network header on, which the way has to take; of one that is going to be
 * cut, those of a segment.
 */
static __always_inline __u32 network_bytes(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	__u32 l3_bytes = flow->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 segment = segment_bytes(ctx);
	struct tcphdr *tcp;

	if (!segment)
		return packet_bytes(ctx) - ETH_HLEN;
	if (flow->proto != IPPROTO_TCP)
		return l3_bytes + sizeof(struct udphdr) + segment;
	tcp = (void *)(long)ctx->data + ETH_HLEN + l3_bytes;
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return packet_bytes(ctx) - ETH_HLEN;
	return l3_bytes + tcp->doff * 4 + segment;
}

/*
 * Asks for the way of this packet from `src` to `dst`. A BPF_FIB_LKUP_RET_; `fib` is zero, but for the
 * ports, where routes may depend on them.
 */
static __always_inline int find_way(struct evnf_packet *ctx, const struct evnf_flow *flow,
				    const __u32 *src, const __u32 *dst, struct bpf_fib_lookup *fib)
{
	fib->ifindex = came_by(ctx);
	fib->tot_len = network_bytes(ctx, flow);
	fib->l4_protocol = flow->proto;
	if (flow->family == 4) {
		fib->family = AF_INET_;
		fib->ipv4_src = src[0];
		fib->ipv4_dst = dst[0];
	} else {
		fib->family = AF_INET6_;
		__builtin_memcpy(fib->ipv6_src, src, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, dst, sizeof(fib->ipv6_dst));
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

#endif
