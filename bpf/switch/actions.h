/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Actions on frames in the receiver's slot that only some frames need: a congestion signal, a copy for an
 * operator. The actions are a function of their own, with scalars: the verifier follows the code behind the call
 * once, whatever happened in it. The actions on a run of frames are done together (finish_run), when it is copied.
 */
#ifndef SWITCH_ACTIONS_H
#define SWITCH_ACTIONS_H

#include "capture.h"
#include "signal.h"

#define ACTION_CAPTURE NFL_PORT_CAPTURE
#define ACTION_SIGNAL (1u << 31)

/* Returns the actions on every frame from one port to the other. */
static __always_inline __u32 known_actions(const struct nfl_port *from, const struct nfl_port *to)
{
	return (from->flags | to->flags) & ACTION_CAPTURE;
}

/* Returns true if a frame from one port to the other may need an action. */
static __always_inline bool may_need_actions(const struct nfl_port *from, const struct nfl_port *to)
{
	return known_actions(from, to) || READ_ONCE(to->signal);
}

/* Does the actions `what`, ACTION_*, on the frame of `len` bytes in pool slot `slot` of port `from_to >> 16`.
 * Returns the length of the frame, or 0: the frame is dropped, and the drop is counted. */
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

/* Does the actions that a single frame needs, if it needs any. */
static __always_inline __u32 apply_actions(const struct nfl_port *from, struct nfl_port *to,
					   __u32 from_to, __u32 slot, __u32 len)
{
	__u32 what = known_actions(from, to);

	if (signal_chosen(to))
		what |= ACTION_SIGNAL;
	return what ? run_actions(from_to, slot, len, what) : len;
}

#endif
