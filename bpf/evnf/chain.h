/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Programs in a row on one interface, each the next one's caller by tail call.
 *
 * A packet that passes a member by the fast path goes to the next member; a packet that a member hands up
 * goes to the kernel, and no member behind sees it. Only the packet is handed on: each member parses it
 * itself, which costs less than a trusted form of another member's result, and so any program can be
 * followed by any other.
 */
#ifndef EVNF_CHAIN_H
#define EVNF_CHAIN_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "hook.h"

/*
 * The member behind this one; empty in the last one. Writer: user space, one entry at a time, so that
 * each packet meets the old member or the new one. The index is a constant: the kernel makes a jump
 * of it. The map forgets its entry when the last descriptor for it is closed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} evnf_next SEC(".maps");

/* Goes on to the next member; behind the last one it is the kernel's. */
static __always_inline int go_on(struct evnf_packet *ctx)
{
	bpf_tail_call(ctx, &evnf_next, 0);
	return HOOK_PASS;
}

#endif
