/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Copies of frames for an operator that captures at a port. */
#ifndef SWITCH_CAPTURE_H
#define SWITCH_CAPTURE_H

#include "frame.h"
#include "switch_maps.h"

/* The receiver may write `slot` at any time: its content is read once, into a record that only the switch writes. The frame's
 * destination, length and time are the switch's words. */
static __always_inline void capture(__u32 from_to, const void *slot, __u32 len)
{
	struct nfl_captured tail = {
		.from = from_to,
		.to = from_to >> 16,
		.len = len,
		.time_ns = bpf_ktime_get_ns(),
	};
	struct bpf_dynptr record;

	/* Without room the record is empty: nothing is written, but the record has to be submitted. */
	bpf_ringbuf_reserve_dynptr(&nfl_captures, NFL_SLOT_SIZE, 0, &record);
	bpf_dynptr_write(&record, 0, (void *)slot, NFL_FRAME_MAX, 0);
	bpf_dynptr_write(&record, NFL_FRAME_MAX, &tail, sizeof(tail), 0);
	bpf_ringbuf_submit_dynptr(&record, 0);
}

#endif
