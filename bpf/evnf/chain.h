/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Programs in a row on one interface, each the next one's caller by tail call.
 *
 * What a member lets pass by the fast path is the next one's; what it hands up is the kernel's, and no
 * member behind it sees it. The packet is all that is handed on: each member reads it itself, which
 * costs less than what it would take to trust another one's word for it, and so any program can be
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
