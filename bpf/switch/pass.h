/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A frame that goes to a port alone: a long frame, a frame with offload metadata, or a copy of a flooded frame. Included
 * once per loop form (loop.h), like transmit.h. Plain frames in one slot go in runs (transmit.h), which have no branch
 * for anything else.
 */
#ifndef SWITCH_PASS_H
#define SWITCH_PASS_H

#include "long.h"
#include "run.h"

/* A frame on its way out of a ring. */
struct passage {
	struct sender from;
	void *block; /* of the sender's pool, in which the frame lies */
	__u32 slot; /* of the block */
};

/* Counts a frame that goes nowhere. */
static __always_inline __u32 pass_refuse(struct nfl_port *port, enum nfl_drop reason)
{
	count_drop(port, reason, 1);
	return 1;
}

/* Finds the sender's frame, and reads and checks its metadata. False: the frame is refused, and counted. */
static __always_inline bool pass_find(struct passage *p, struct offload *o, __u64 descriptor)
{
	__u32 len = descriptor & 0xffff, slots = (descriptor >> NFL_DESC_SLOTS_SHIFT & 31) + 1;
	__u32 slot = descriptor >> 32, last;
	enum nfl_drop reason = NFL_DROP_BAD_LENGTH;
	struct cursor c;

	o->w0 = 0;
	o->w1 = 0;
	if (len < NFL_FRAME_MIN || len > NFL_LONG_MAX)
		goto refused;
	reason = NFL_DROP_BAD_INDEX;
	p->slot = slot % NFL_BLOCK_SLOTS;
	last = p->slot + slots - 1;
	if (last >= NFL_BLOCK_SLOTS || len + sizeof(struct nfl_offload) > slots * NFL_SLOT_SIZE ||
	    !cursor_block(&c, p->from.port, slot / NFL_BLOCK_SLOTS))
		goto refused;
	p->block = c.base;
	if (!(descriptor & NFL_DESC_OFFLOAD))
		return true;
	reason = NFL_DROP_BAD_OFFLOAD;
	offload_read(o, c.base + last * NFL_SLOT_SIZE + NFL_FRAME_MAX);
	if (offload_check(o, len))
		return true;
refused:
	count_drop(p->from.port, reason, 1);
	return false;
}

/* Reads and checks the header of a frame for a switch. False: the frame is refused, and counted. */
static __always_inline bool pass_header(struct passage *p, struct header *h, __u64 address,
					__u32 len)
{
	enum nfl_drop reason = NFL_DROP_CHANGED;

	header_read(h, block_slot(p->block, p->slot));
	if (header_dst_address(h) != address || (header_tagged(h) && len < TAG_END))
		goto refused;
	reason = NFL_DROP_FOREIGN_MAC;
	if (source_ok(&p->from, h))
		return true;
refused:
	count_drop(p->from.port, reason, 1);
	return false;
}

#endif

static __always_inline long FORM(reserve_room)(struct room *r)
{
	return room_reserve(r);
}
LOOP_BODY(reserve_room, room)

/*
 * Brings a frame of port `me_to & 0xffff`, whose TX descriptor was read once, into port `me_to >> 16`. `address`: as in
 * struct run. Returns 0 if the receiver, at the other end of a link, has no room and `keep` leaves the frame with its
 * sender; else 1: it is delivered, or dropped and counted.
 */
__noinline __u32 FORM(pass_frame)(__u32 me_to, __u64 descriptor, __u64 address, __u32 keep)
{
	struct header header;
	struct offload offload;
	struct passage p;
	struct room room;
	struct place at;
	__u64 len = descriptor & 0xffff;
	__u32 id = me_to >> 16, epoch;

	if (!sender_exists(&p.from, me_to & 0xffff))
		return 1;
	if (!target_find(&room.to, id) ||
	    (address != RUN_LINK && !same_switch(port_way(p.from.port), port_way(room.to.port))))
		return pass_refuse(p.from.port, NFL_DROP_PORT_DOWN);
	if (!pass_find(&p, &offload, descriptor) ||
	    (address != RUN_LINK && !pass_header(&p, &header, address, len)) ||
	    !room_fits(&room, &offload, len))
		return 1;
	if (signal_refuses(room.to.port))
		return pass_refuse(room.to.port, NFL_DROP_REFUSED);
	LOOP(NFL_RESERVE_TRIES, reserve_room, &room);
	if (room.end == RESERVE_FULL) {
		if (keep && address == RUN_LINK)
			return 0;
		return pass_refuse(room.to.port, NFL_DROP_RING_FULL);
	}
	if (room.end == RESERVE_AGAIN)
		return pass_refuse(p.from.port, NFL_DROP_CONTENDED);
	if (!room_find(&room, &at)) {
		room_publish(&room, &at, 0, 0);
		return pass_refuse(room.to.port, NFL_DROP_BAD_INDEX);
	}
	if (!copy_frame_between(at.block, at.slot, p.block, p.slot, len)) {
		room_publish(&room, &at, 0, 0);
		return pass_refuse(p.from.port, NFL_DROP_BAD_INDEX);
	}
	if (address != RUN_LINK)
		header_write(&header, block_slot(at.block, at.slot), len);
	p.from.port->tx_bytes += len;
	p.from.port->tx_more_bytes += offload_more_bytes(&offload);
	p.from.port->tx_more_segments += offload_more_segments(&offload);
	epoch = room_deliver(&room, &at, p.from.port, me_to, &offload, len);
	if (address == RUN_LINK && !(room.to.port->flags & NFL_PORT_KERNEL_DOORBELL)) {
		if (epoch)
			WRITE_ONCE(p.from.ring->peer_asleep, epoch);
	} else {
		ring_kernel_doorbell(room.to.port, id, epoch);
	}
	return 1;
}
