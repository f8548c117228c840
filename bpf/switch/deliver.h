/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The receiving side: slots, publication, doorbell. */
#ifndef SWITCH_DELIVER_H
#define SWITCH_DELIVER_H

#include "copy.h"
#include "frame.h"
#include "loop.h"
#include "switch_maps.h"

/* A destination port, looked up. */
struct target {
	struct nfl_port *port;
	struct nfl_ring *ring;
};

static __always_inline bool port_is_up(struct nfl_port *port)
{
	return READ_ONCE(port->flags) & NFL_PORT_UP;
}

/*
 * One word of stack serves as the key of every look-up: on 6.1 a call has 512 bytes in all. The port is up before and after
 * the look-up of its ring: while a port is being entered or removed, the table may have the ring of no port.
 */
static __always_inline bool target_find(struct target *t, __u32 id)
{
	__u32 key = id;
	void *rings;

	t->port = bpf_map_lookup_elem(&nfl_ports, &key);
	if (!t->port || !port_is_up(t->port))
		return false;
	rings = bpf_map_lookup_elem(&nfl_rings, &key);
	if (!rings || !port_is_up(t->port))
		return false;
	key = 0;
	t->ring = bpf_map_lookup_elem(rings, &key);
	key = t->port->pool;
	return t->ring && bpf_map_lookup_elem(&nfl_pools, &key);
}

/* Finds a port that may be down: a sender that has begun there brings its run to an end. */
static __always_inline bool target_exists(struct target *t, __u32 id)
{
	__u32 key = id;
	void *rings;

	t->port = bpf_map_lookup_elem(&nfl_ports, &key);
	rings = bpf_map_lookup_elem(&nfl_rings, &key);
	key = 0;
	t->ring = rings ? bpf_map_lookup_elem(rings, &key) : NULL;
	return t->port && t->ring;
}

/*
 * A walk over one of a port's rings. Slots next to each other mostly lie in one block of the pool,
 * which is looked up once.
 */
struct cursor {
	void *base; /* of the block used last */
	__u32 block;
	__u32 position; /* in the ring */
};

/* Moves to another block, whose number may be an NF's word. False: the pool has no such block, and the
 * old block stays. */
static __always_inline bool cursor_block(struct cursor *c, struct nfl_port *port, __u32 block)
{
	__u32 key = port->pool;
	void *pool = bpf_map_lookup_elem(&nfl_pools, &key);
	void *base;

	if (!pool)
		return false;
	key = block;
	base = bpf_map_lookup_elem(pool, &key);
	if (!base)
		return false;
	c->base = base;
	c->block = unlinked(block);
	return true;
}

/* The buffer of pool slot `slot`; NULL if the pool has no such slot. */
static __always_inline void *cursor_slot(struct cursor *c, struct nfl_port *port, __u32 slot)
{
	__u32 block = slot / NFL_BLOCK_SLOTS;

	if (block != c->block && !cursor_block(c, port, block))
		return NULL;
	return c->base + (slot % NFL_BLOCK_SLOTS) * NFL_SLOT_SIZE;
}

/* Returns the buffer without a walk. */
static __always_inline void *slot_buffer(struct nfl_port *port, __u32 slot)
{
	struct cursor c;

	if (!cursor_block(&c, port, slot / NFL_BLOCK_SLOTS))
		return NULL;
	return cursor_slot(&c, port, slot);
}

enum reservation_end {
	RESERVE_AGAIN, /* another sender was faster */
	RESERVE_DONE,
	RESERVE_FULL,
};

/* A reservation of RX positions. */
struct reservation {
	__u32 want;
	__u32 got;
	__u32 first; /* the first position */
	__u32 end; /* enum reservation_end */
};

/* nfl_port.rx_reserved and nfl_ring.rx_released: positions of frames, and of slots for long frames. */
#define LONG_SHIFT 32
#define LONG_HALF (~0ULL << LONG_SHIFT)

/* The first position from `position` on at which a long frame may start. */
static __always_inline __u32 long_start(__u32 position)
{
	if (position % NFL_BLOCK_SLOTS > NFL_LONG_START_MAX)
		return (position | (NFL_BLOCK_SLOTS - 1)) + 1;
	return position;
}

/*
 * One attempt to reserve, by one compare-and-swap. rx_released is the receiver's word: a nonsensical
 * value makes its own ring look full, or its own frames overwritten, and nobody else's.
 */
static __always_inline void reserve(struct reservation *r, struct target *t)
{
	__u64 reserved = READ_ONCE(t->port->rx_reserved);
	__u32 used = (__u32)reserved - (__u32)READ_ONCE(t->ring->rx_released);
	__u32 slots = t->port->mask + 1;
	__u32 take = slots - used;
	__u64 next;

	if (used >= slots) {
		r->end = RESERVE_FULL;
		return;
	}
	if (take > r->want)
		take = r->want;
	next = (reserved & LONG_HALF) | (__u32)((__u32)reserved + take);
	if (__sync_val_compare_and_swap(&t->port->rx_reserved, reserved, next) != reserved) {
		r->end = RESERVE_AGAIN;
		return;
	}
	r->first = reserved;
	r->got = take;
	r->end = RESERVE_DONE;
}

static __always_inline __u32 ring_index(struct target *t, __u32 position)
{
	return position & t->port->mask & (NFL_RING_MAX - 1);
}

/* The slot of the target's pool that belongs to an RX position. */
static __always_inline __u32 rx_slot(struct target *t, __u32 position)
{
	return t->port->rx_base + ring_index(t, position);
}

/* The lower half of an RX descriptor, see in_slot(). */
static __always_inline __u32 rx_word(struct target *t, __u32 position)
{
	return READ_ONCE(t->ring->rx[ring_index(t, position)]);
}

/* Of a group's member: the slot that it names for an RX position. */
static __always_inline __u32 rx_named(struct target *t, __u32 position)
{
	return rx_word(t, position) >> 16;
}

/* The slot for an RX position of any port. */
static __always_inline __u32 rx_room(struct target *t, __u32 position)
{
	return t->port->group ? rx_named(t, position) : rx_slot(t, position);
}

/* The length of a frame, or 0, with the slot that belongs to its position from now on: members of a
 * group read the slot here, others know it. */
static __always_inline __u32 in_slot(__u32 slot, __u32 len)
{
	return slot << 16 | len;
}

/* One 64-bit store makes the slot visible; x86 keeps it behind the copy. `len` 0 is a hole; see
 * in_slot() for receivers that may be of a group. */
static __always_inline void publish(struct target *t, __u32 position, __u32 len)
{
	barrier();
	WRITE_ONCE(t->ring->rx[ring_index(t, position)], len | (__u64)(position + 1) << 32);
}

/*
 * Counts what was delivered, and finds out whether the receiver sleeps. The locked addition orders
 * the publication before the look at rx_sleep; the receiver orders its store to rx_sleep before its
 * last look at the ring. So the sender sees the sleep, or the receiver sees the frame: no wake-up is lost.
 */
static __always_inline __u32 delivered(struct target *t, __u64 frames, __u64 bytes)
{
	__sync_fetch_and_add(&t->port->rx_bytes, bytes);
	__sync_fetch_and_add(&t->port->rx_frames, frames);
	return READ_ONCE(t->ring->rx_sleep);
}

/*
 * Rings the kernel doorbell, once per sleep. The epoch is noted after the ring: a second sender that
 * sees the note can rely on the ring. A full ring buffer is an unanswered ring.
 */
static __always_inline void ring_kernel_doorbell(struct nfl_port *port, __u32 id, __u32 epoch)
{
	__u64 record = 0;
	void *doorbell;

	if (!epoch || READ_ONCE(port->rung) == epoch)
		return;
	doorbell = bpf_map_lookup_elem(&nfl_bells, &id);
	if (!doorbell)
		return;
	bpf_ringbuf_output(doorbell, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
	WRITE_ONCE(port->rung, epoch);
	__sync_fetch_and_add(&port->doorbells, 1);
}

static __always_inline void count_drop(struct nfl_port *port, enum nfl_drop reason, __u64 frames)
{
	if (frames)
		__sync_fetch_and_add(&port->drops[reason & (NFL_DROPS - 1)], frames);
}

#endif
