/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Delivery without a copy, among instances that share a pool: the receiver gets the slot in which the
 * frame lies, the sender the free slot that the receiver had for it.
 *
 * Both slot numbers are the instances' words. The table of owners is trusted: the slot that a member sends,
 * or receives into, must be its own in the table. So an exchange never gives a slot to two members, and each
 * member keeps as many slots as it was given, whatever is written into the rings.
 */
#ifndef SWITCH_EXCHANGE_H
#define SWITCH_EXCHANGE_H

#include "frame.h"
#include "switch_maps.h"

static __always_inline struct nfl_owners *owners_find(__u32 group)
{
	__u32 key = group;
	void *owners = bpf_map_lookup_elem(&nfl_owners, &key);

	key = 0;
	return owners ? bpf_map_lookup_elem(owners, &key) : NULL;
}

static __always_inline __u32 *owner_of(struct nfl_owners *owners, __u32 slot)
{
	return &owners->owner[slot & (NFL_GROUP_SLOTS - 1)];
}

/* Takes `slot` from its owner, which is about to send it. False: the slot is not `from`'s. */
static __always_inline bool owner_part(struct nfl_owners *owners, __u32 slot, struct nfl_port *from)
{
	__u32 me = from->pool + 1;

	return __sync_val_compare_and_swap(owner_of(owners, slot), me, NFL_OWNER_MOVING) == me;
}

/* Gives `slot`, taken from `from`, to `to`, and `room` to `from`. False: `room` is not `to`'s, and
 * nothing has changed hands. */
static __always_inline bool owner_exchange(struct nfl_owners *owners, __u32 slot,
					   struct nfl_port *from, __u32 room, struct nfl_port *to)
{
	__u32 sender = from->pool + 1, receiver = to->pool + 1;
	bool is_done =
		__sync_val_compare_and_swap(owner_of(owners, room), receiver, sender) == receiver;

	WRITE_ONCE(*owner_of(owners, slot), is_done ? receiver : sender);
	return is_done;
}

#endif
