/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the loops of one hyperio call work on. */
#ifndef SWITCH_RUN_H
#define SWITCH_RUN_H

#include "capture.h"
#include "deliver.h"
#include "fdb.h"
#include "flow.h"

/* The sender: its trusted state and what it shares. */
struct sender {
	struct nfl_port *port;
	struct nfl_ring *ring; /* the sender's words: read each once */
	__u32 me;
};

static __always_inline bool sender_find(struct sender *s, __u32 me)
{
	struct target t;

	if (!target_find(&t, me))
		return false;
	s->port = t.port;
	s->ring = t.ring;
	s->me = me;
	return true;
}

/* The TX descriptor at `position`, read once. */
static __always_inline __u64 tx_descriptor(struct sender *s, __u32 position)
{
	return READ_ONCE(s->ring->tx[position & s->port->mask & (NFL_RING_MAX - 1)]);
}

/* May the sender's frame on a switch carry this source? */
static __always_inline bool source_ok(struct sender *s, const struct header *h)
{
	__u64 source = header_src_address(h);

	if (s->port->flags & NFL_PORT_PINNED && header_src(h) != s->port->mac)
		return false;
	/* A pinned port's untagged address is in the FDB already; it is learned in other VLANs. */
	if (source == s->port->last_source || source == s->port->mac)
		return true;
	if (!(s->port->flags & (NFL_PORT_LEARN | NFL_PORT_PINNED)))
		return true;
	if (!fdb_learn(s->port, s->me, s->port->dest, source))
		return false;
	s->port->last_source = source;
	return true;
}

/* Counts frames that enter and end here. */
static __always_inline void drop_frames(struct sender *s, enum nfl_drop reason, __u32 frames)
{
	count_drop(s->port, reason, frames);
	s->port->tx_frames += frames;
}

/* A call: the frames from `position` to `end` in the TX ring of port `me`. */
struct call {
	__u32 me;
	__u32 position;
	__u32 end;
	__u32 keep; /* stop at a full link instead of dropping */
};

/* A run being copied: `left` frames from where `tx` stands to where `rx` stands. */
struct run {
	struct sender from;
	struct target to;
	struct cursor tx;
	struct cursor rx;
	__u16 count; /* frames of the run */
	__u16 left; /* of them */
	__u32 from_to; /* port, and port << 16 */
	__u64 address; /* FDB address that the frames share, or RUN_LINK */
	__u16 first_len; /* of the run's first frame, which is published last; 0: a hole */
	__u16 frames; /* delivered */
	__u32 bytes;
};

/* No FDB address has bits 60..63. */
#define RUN_LINK (~0ULL)
/* No run is that long. */
#define RUN_FLOOD (1u << 16)
/* What a look-up may say instead of a port. */
#define ROUTE_FLOOD NFL_PORTS_MAX
#define ROUTE_DROPPED (NFL_PORTS_MAX + 1)

/* The start of a run: frames from `position` on that have the same way. */
struct head {
	struct sender from;
	struct target to;
	__u32 to_id;
	__u32 position;
	__u32 end; /* of the call */
	struct cursor tx; /* after the last frame of the run */
	__u64 address; /* FDB address that the frames share, or RUN_LINK */
	__u32 queue; /* flow queue that the frames share */
	struct reservation slots;
};

/* A frame being flooded to the members of a switch. */
struct flood {
	struct nfl_port *port; /* the sender's */
	struct nfl_switch *sw;
	struct header header;
	__u64 position_len;
	__u32 me;
	__u32 member; /* next to get a copy */
	__u32 copies; /* made, or dropped with a reason */
};

/* One copy of it. */
struct copy {
	struct sender from;
	struct target to;
	struct reservation slots;
};

#endif
