/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A received frame at XDP: as it is on the wire. The functions are those of hook_tc.h. */
#ifndef SWITCH_HOOK_XDP_H
#define SWITCH_HOOK_XDP_H

#include "deliver.h"
#include "offload.h"
#include "verdict.h"

static __always_inline __u64 frame_len_xdp(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline long frame_load_xdp(struct xdp_md *ctx, __u32 at, void *to, __u32 bytes)
{
	return bpf_xdp_load_bytes(ctx, at, to, bytes);
}

static __always_inline bool frame_header_xdp(struct xdp_md *ctx, struct header *h)
{
	return !bpf_xdp_load_bytes(ctx, 0, h, sizeof(*h)) ||
	       !bpf_xdp_load_bytes(ctx, 0, h, NFL_FRAME_MIN);
}

static __always_inline bool frame_types_xdp(struct xdp_md *ctx, __u16 *words)
{
	return !bpf_xdp_load_bytes(ctx, 12, words, 10) || !bpf_xdp_load_bytes(ctx, 12, words, 6) ||
	       !bpf_xdp_load_bytes(ctx, 12, words, 2);
}

#define frame_copy_xdp(ctx, to, len, most)                                                         \
	(is_within(len, NFL_FRAME_MIN, most) && !bpf_xdp_load_bytes(ctx, 0, to, len))

static __always_inline bool frame_offload_xdp(struct xdp_md *ctx, struct offload *o, __u64 len)
{
	o->w0 = 0;
	o->w1 = 0;
	return true;
}

static __always_inline __u32 arrival_owner_xdp(struct xdp_md *ctx)
{
	return receiver.port;
}

/* What has come to XDP is no socket buffer, which another interface would take. */
static __always_inline int frame_forward_xdp(struct xdp_md *ctx, struct nfl_port *to, bool is_copy)
{
	return ARRIVAL_ELSEWHERE;
}

static __always_inline __u32 frame_queue_xdp(struct xdp_md *ctx)
{
	return ctx->rx_queue_index;
}

#endif
