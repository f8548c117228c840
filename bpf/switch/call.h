/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Begin and end of a call over a TX ring, by a sender or an I/O thread. */
#ifndef SWITCH_CALL_H
#define SWITCH_CALL_H

#include "run.h"

#define EBUSY_ 16
#define ENETDOWN_ 100

/* The kind of an I/O thread's call, beside the kinds of an instance: the call does as the port's instance
 * says in its ring. */
#define CALL_SERVE 0x100

/* Takes the port for the call and reads how far to go. Returns 0, or the error of the call. */
static __always_inline int call_begin(struct call *c, __u32 me, __u32 kind)
{
	struct nfl_port *port;
	struct sender s;
	__u32 head, frames, to;

	port = bpf_map_lookup_elem(&nfl_ports, &me);
	if (!port || !(port->flags & NFL_PORT_UP))
		return ENETDOWN_;
	if (__sync_val_compare_and_swap(&port->busy, 0, 1))
		return EBUSY_;
	port->tx_calls++;
	/* The check is repeated: a daemon that took the port down before `busy` was set does not wait for this call. */
	if (!sender_find(&s, me)) {
		barrier();
		WRITE_ONCE(port->busy, 0);
		return ENETDOWN_;
	}
	to = way_kind(port_way(s.port));
	WRITE_ONCE(s.ring->peer_asleep, 0);
	s.port->copies = 0;
	s.port->last_source = 0; /* look it up once per call: an address in use does not age */
	head = READ_ONCE(s.ring->tx_head);
	frames = head - s.port->tx_pos;
	if (frames > s.port->mask + 1) {
		s.port->tx_bad_heads++;
		s.port->tx_pos = head;
		frames = 0;
	} else if (to != NFL_DEST_LINK && to != NFL_DEST_SWITCH) {
		drop_frames(&s, NFL_DROP_NO_ROUTE, frames);
		s.port->tx_pos = head;
		frames = 0;
	}
	c->me = me;
	c->keep = kind == NFL_CALL_TX_KEEP;
	if (kind == CALL_SERVE)
		c->keep = READ_ONCE(s.ring->tx_keep);
	c->slots = 0;
	c->position = s.port->tx_pos;
	c->end = c->position + (frames < NFL_CALL_FRAMES ? frames : NFL_CALL_FRAMES);
	return 0;
}

/*
 * Gives the port back, also if the port went down meanwhile: a sender that does not learn how far the call has come would
 * fill slots again that are done with, and the next call would take its head for nonsense.
 */
static __always_inline void call_end(struct call *c)
{
	struct nfl_port *port;
	struct sender s;
	__u32 key = c->me;

	port = bpf_map_lookup_elem(&nfl_ports, &key);
	if (!port)
		return;
	port->tx_pos = c->position;
	if (sender_exists(&s, c->me))
		WRITE_ONCE(s.ring->tx_tail, c->position);
	barrier();
	WRITE_ONCE(port->busy, 0);
}

/* Wakes the sleeping peer of a link by its kernel doorbell, once per sleep, as for any sender that is not
 * trusted to ring. Of a peer with several queues, the first. A function of its own: where loops are calls,
 * its caller has no stack left for it. */
__noinline int ring_peer(__u32 me)
{
	struct target peer;
	struct sender s;
	__u64 way;

	if (!sender_find(&s, me))
		return 0;
	way = port_way(s.port);
	if (way_kind(way) != NFL_DEST_LINK || !target_find(&peer, way_dest(way)))
		return 0;
	ring_kernel_doorbell(peer.port, way_dest(way), READ_ONCE(peer.ring->rx_sleep));
	return 0;
}

/* Wakes the owner of the port, which sleeps until frames arrive, or until an I/O thread has consumed its frames. */
__noinline int ring_owner(__u32 me)
{
	struct target owner;
	__u32 epoch;

	if (!target_find(&owner, me))
		return 0;
	epoch = READ_ONCE(owner.ring->rx_sleep);
	if (!epoch)
		epoch = READ_ONCE(owner.ring->tx_sleep);
	ring_kernel_doorbell(owner.port, me, epoch);
	return 0;
}

#endif
