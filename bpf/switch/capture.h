/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Copies of frames for an operator who looks at a port. */
#ifndef SWITCH_CAPTURE_H
#define SWITCH_CAPTURE_H

#include "frame.h"
#include "switch_maps.h"

/* `slot` is the receiver's, not yet published: nobody else writes it. */
static __always_inline void capture(__u32 from_to, void *slot, __u32 len)
{
	struct nfl_captured *tail = slot + NFL_FRAME_MAX;

	tail->from = from_to;
	tail->to = from_to >> 16;
	tail->len = len;
	tail->time_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&nfl_captures, slot, NFL_SLOT_SIZE, 0);
}

#endif
