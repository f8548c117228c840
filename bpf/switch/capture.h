/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Copies of frames for an operator who looks at a port. */
#ifndef SWITCH_CAPTURE_H
#define SWITCH_CAPTURE_H

#include "frame.h"
#include "switch_maps.h"

/*
 * `slot` is the receiver's, not yet published: nobody else writes it. Costs a look at flags that are
 * in cache anyway, as long as nobody captures. Inlined: the chain of calls has no stack to spare.
 */
static __always_inline void capture(const struct nfl_port *from, const struct nfl_port *to,
				    __u32 from_to, void *slot, __u32 len)
{
	struct nfl_captured *tail = slot + NFL_FRAME_MAX;

	if (!((from->flags | to->flags) & NFL_PORT_CAPTURE))
		return;
	tail->from = from_to;
	tail->to = from_to >> 16;
	tail->len = len;
	tail->time_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&nfl_captures, slot, NFL_SLOT_SIZE, 0);
}

#endif
