/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Room for one frame at a receiver: a position of its ring, and the slots of a long frame. A long frame lies in slots of
 * the port's area for long frames, which follow each other within a block of the pool: so one copy suffices, and the
 * verifier sees its bounds.
 */
#ifndef SWITCH_LONG_H
#define SWITCH_LONG_H

#include "actions.h"
#include "coalesce.h"
#include "deliver.h"
#include "offload.h"

/* Room at a receiver. */
struct room {
	struct target to;
	__u32 end; /* enum reservation_end */
	__u32 position; /* in the ring */
	__u32 start; /* of a long frame: the position of its first slot, in the area */
	__u32 slots; /* of a long frame; else 0: the position's own */
};

/* Where the room is: see room_find(). */
struct place {
	void *block; /* of the pool */
	__u32 slot; /* of the block, the frame's first */
	__u32 pool_slot; /* the same in the pool */
};

/* The slots that a long frame of `len` bytes takes at its receiver. */
static __always_inline __u32 long_slots(__u32 len)
{
	__u32 slots = (len + NFL_LONG_SPARE + sizeof(struct nfl_offload) + NFL_SLOT_SIZE - 1) /
		      NFL_SLOT_SIZE;

	return slots < NFL_LONG_SLOTS ? slots : NFL_LONG_SLOTS;
}

/* Does the receiver take such a frame, and in how many slots? False: it is counted there. */
static __always_inline bool room_fits(struct room *r, const struct offload *o, __u32 len)
{
	struct nfl_port *port = r->to.port;
	__u32 needs = offload_needs(o);

	r->slots = 0;
	if (needs & ~port->flags) {
		count_drop(port, NFL_DROP_NO_OFFLOAD, 1);
		return false;
	}
	if (len <= NFL_FRAME_MAX)
		return true;
	if (!(port->flags & NFL_PORT_LONG) || port->group) {
		count_drop(port, NFL_DROP_TOO_LONG, 1);
		return false;
	}
	r->slots = long_slots(len);
	return true;
}

/* One attempt to reserve, by one compare-and-swap; see reserve(). Returns nonzero if it was the last. */
static __always_inline long room_reserve(struct room *r)
{
	struct nfl_port *port = r->to.port;
	__u64 reserved = READ_ONCE(port->rx_reserved);
	__u64 released = READ_ONCE(r->to.ring->rx_released);
	__u32 used = (__u32)reserved - (__u32)released;
	__u32 end = reserved >> LONG_SHIFT, start = end;

	if (r->slots) {
		start = long_start(end);
		end = start + r->slots;
	}
	r->end = RESERVE_FULL;
	if (used > port->mask ||
	    (r->slots && end - (__u32)(released >> LONG_SHIFT) > port->long_slots))
		return 1;
	r->end = RESERVE_AGAIN;
	if (__sync_val_compare_and_swap(&port->rx_reserved, reserved,
					(__u64)end << LONG_SHIFT | (__u32)((__u32)reserved + 1)) !=
	    reserved)
		return 0;
	r->end = RESERVE_DONE;
	r->position = reserved;
	r->start = start;
	return 1;
}

/* The slot of the pool at a position of a port's area. */
static __always_inline __u32 long_slot(const struct nfl_port *port, __u32 position)
{
	return port->long_base + (position & (port->long_slots - 1));
}

/* Finds the slots that were reserved. False: the pool has no such block, or a group's member names no slot of it. */
static __always_inline bool room_find(struct room *r, struct place *at)
{
	struct cursor c;

	at->pool_slot = r->slots ? long_slot(r->to.port, r->start) : rx_room(&r->to, r->position);
	if (!cursor_block(&c, r->to.port, at->pool_slot / NFL_BLOCK_SLOTS))
		return false;
	at->block = c.base;
	at->slot = at->pool_slot % NFL_BLOCK_SLOTS;
	return true;
}

/*
 * Publishes a frame of `len` bytes in the room, or a hole: `len` 0. Of a long frame's position in the area 16 bits are
 * published, more than an area has slots: holes may have all of the slots, of which a slot's number would say nothing.
 */
static __always_inline void room_publish(struct room *r, const struct place *at, __u32 len,
					 __u32 has_offload)
{
	__u32 start = r->start;

	if (!r->slots) {
		publish(&r->to, r->position,
			r->to.port->group ? in_slot(at->pool_slot, len)
					  : len | (has_offload ? NFL_DESC_OFFLOAD : 0));
		return;
	}
	if (!len) {
		start += r->slots;
		len = NFL_LONG_HOLE;
	}
	publish(&r->to, r->position, in_slot(start, len));
}

/* Slot `slot` of a block. */
static __always_inline void *block_slot(void *block, __u32 slot)
{
	return block + (slot & (NFL_BLOCK_SLOTS - 1)) * NFL_SLOT_SIZE;
}

/* A long frame from slot to slot, in one piece. A function of its own, which is checked once. */
static __noinline bool copy_slots(void *to, __u32 to_slot, void *from, __u32 from_slot, __u64 len)
{
	struct bpf_dynptr block;
	__u64 at = from_slot;

	if (at > NFL_LONG_START_MAX || !is_within(len, NFL_FRAME_MIN, NFL_LONG_MAX))
		return false;
	bpf_dynptr_from_mem(to, NFL_BLOCK_SIZE, 0, &block);
	return !bpf_dynptr_write(&block, to_slot * NFL_SLOT_SIZE, from + at * NFL_SLOT_SIZE, len,
				 0);
}

/* Copies a frame of any length. False: the frame crosses its block. */
static __always_inline bool copy_frame_between(void *to, __u32 to_slot, void *from, __u32 from_slot,
					       __u64 len)
{
	if (len > NFL_FRAME_MAX)
		return copy_slots(to, to_slot, from, from_slot, len);
	copy_long(block_slot(to, to_slot), block_slot(from, from_slot), len);
	return true;
}

/* Counts the packets of a received super-frame beyond one. */
static __always_inline void count_more_received(struct nfl_port *port, const struct offload *o)
{
	if (offload_segments(o) > 1) {
		__sync_fetch_and_add(&port->rx_more_segments, offload_more_segments(o));
		__sync_fetch_and_add(&port->rx_more_bytes, offload_more_bytes(o));
	}
}

/* Does the actions on a frame that was copied into its room, publishes and counts it. Returns the sleep epoch for which
 * the receiver is to be rung, or 0. */
static __always_inline __u32 room_deliver(struct room *r, const struct place *at,
					  const struct nfl_port *from, __u32 from_to,
					  const struct offload *o, __u32 len)
{
	struct nfl_port *port = r->to.port;
	__u32 slots = r->slots ? r->slots : 1;
	__u32 last = (at->slot + slots - 1) & (NFL_BLOCK_SLOTS - 1);

	if (o->w0 || r->slots)
		offload_write(o, at->block + last * NFL_SLOT_SIZE + NFL_FRAME_MAX);
	len = apply_actions(from, port, from_to, at->pool_slot, len);
	room_publish(r, at, len, o->w0 != 0);
	if (len)
		count_more_received(port, o);
	return coalesced_epoch(port, from_to >> 16, delivered(&r->to, len > 0, len));
}

#endif
