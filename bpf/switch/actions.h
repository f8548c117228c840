/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What only some frames need once they lie in the receiver's slot: a congestion signal, a copy for an
 * operator. In a function of its own, with scalars: the verifier follows what comes after it once,
 * whatever happened in it. A run of frames is looked after as a whole (finish_run), when it is copied.
 */
#ifndef SWITCH_ACTIONS_H
#define SWITCH_ACTIONS_H

#include "capture.h"
#include "signal.h"

#define ACTION_CAPTURE NFL_PORT_CAPTURE
#define ACTION_SIGNAL (1u << 31)

/* What every frame from one port to the other needs. */
static __always_inline __u32 known_actions(const struct nfl_port *from, const struct nfl_port *to)
{
	return (from->flags | to->flags) & ACTION_CAPTURE;
}

/* May a frame from one port to the other need something? */
static __always_inline bool may_need_actions(const struct nfl_port *from, const struct nfl_port *to)
{
	return known_actions(from, to) || READ_ONCE(to->signal);
}

/* Does what is needed, ACTION_*, for the frame of `len` bytes in pool slot `slot` of port `from_to >> 16`.
 * Returns its length, or 0: it is dropped, and that is counted. */
__noinline __u32 run_actions(__u32 from_to, __u32 slot, __u32 len, __u32 what)
{
	__u32 to = from_to >> 16;
	struct nfl_port *port = bpf_map_lookup_elem(&nfl_ports, &to);
	void *frame = port ? slot_buffer(port, slot) : NULL;

	if (!frame)
		return len;
	if (what & ACTION_SIGNAL && !signal_frame(port, frame, len))
		return 0;
	if (what & ACTION_CAPTURE)
		capture(from_to, frame, len);
	return len;
}

/* The same for a frame of which it is not yet known what it needs, if anything. */
static __always_inline __u32 apply_actions(const struct nfl_port *from, struct nfl_port *to,
					   __u32 from_to, __u32 slot, __u32 len)
{
	__u32 what = known_actions(from, to);

	if (signal_chosen(to))
		what |= ACTION_SIGNAL;
	return what ? run_actions(from_to, slot, len, what) : len;
}

#endif
