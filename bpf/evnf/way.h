/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where the kernel would send a packet. */
#ifndef EVNF_WAY_H
#define EVNF_WAY_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "evnf_types.h"

#define AF_INET_ 2
#define AF_INET6_ 10

/*
 * Asks for the way of this packet from `src` to `dst`. A BPF_FIB_LKUP_RET_; `fib` is zero, but for the
 * ports, where routes may depend on them.
 */
static __always_inline int find_way(struct xdp_md *ctx, const struct evnf_flow *flow,
				    const __u32 *src, const __u32 *dst, struct bpf_fib_lookup *fib)
{
	fib->ifindex = ctx->ingress_ifindex;
	fib->tot_len = ctx->data_end - ctx->data - ETH_HLEN;
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
