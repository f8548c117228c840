/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The state of the loops of a hyperio call. */
#ifndef SWITCH_RUN_H
#define SWITCH_RUN_H

#include "actions.h"
#include "coalesce.h"
#include "deliver.h"
#include "exchange.h"
#include "fdb.h"
#include "flow.h"
#include "loop.h"

/* The sender: its trusted state and its shared ring. */
struct sender {
	struct nfl_port *port;
	struct nfl_ring *ring; /* the sender's words: read each once */
	__u32 me;
};

static __always_inline void sender_set(struct sender *s, const struct target *t, __u32 me)
{
	s->port = t->port;
	s->ring = t->ring;
	s->me = me;
}

static __always_inline bool sender_find(struct sender *s, __u32 me)
{
	struct target t;

	if (!target_find(&t, me))
		return false;
	sender_set(s, &t, me);
	return true;
}

/* Finds the sender in the middle of a call: a sender that has gone down since goes on to the end of the run. */
static __always_inline bool sender_exists(struct sender *s, __u32 me)
{
	struct target t;

	if (!target_exists(&t, me))
		return false;
	sender_set(s, &t, me);
	return true;
}

/* The TX descriptor at `position`, read once. */
static __always_inline __u64 tx_descriptor(struct sender *s, __u32 position)
{
	return READ_ONCE(s->ring->tx[position & s->port->mask & (NFL_RING_MAX - 1)]);
}

/* Reports to the sender which slot came back for the slot that it sent. */
static __always_inline void tx_return(struct sender *s, __u32 position, __u32 slot)
{
	WRITE_ONCE(s->ring->tx[position & s->port->mask & (NFL_RING_MAX - 1)], (__u64)slot << 32);
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
	if (!fdb_learn(s->port, s->me, source))
		return false;
	s->port->last_source = source;
	return true;
}

/* Counts frames that enter and are dropped here. */
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
	__u32 slots; /* of long frames, so far */
};

/* A run being copied: `left` frames from where `tx` stands to where `rx` stands. */
struct run {
	struct sender from;
	struct target to;
	struct cursor tx;
	union {
		struct cursor rx;
		struct { /* of an exchange, which reads no slot of the receiver's */
			struct nfl_owners *owners; /* of the group's slots */
			__u32 first_slot; /* of the run's first frame, which is published last */
			__u32 rx_position;
		};
	};
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
/*
 * A run whose first frame is not yet published, because some of its frames may need an action: see
 * finish_run(). Bits 0..31: the first's descriptor, see in_slot(); 32..38: frames that are no holes;
 * 40..57: their bytes.
 */
#define RUN_OPEN (1ULL << 63)

static __always_inline __u64 run_open(__u32 first, __u64 frames, __u64 bytes)
{
	return RUN_OPEN | bytes << 40 | frames << 32 | first;
}

static __always_inline __u32 open_frames(__u64 open)
{
	return open >> 32 & 0x7f;
}

static __always_inline __u32 open_bytes(__u64 open)
{
	return open >> 40 & 0x3ffff;
}

/* No run is that long. */
#define RUN_FLOOD (1u << 16)
#define RUN_SLOTS_SHIFT 20

/* The slots of a frame, above the frames that are done with. */
static __always_inline __u32 run_slots(__u64 descriptor)
{
	return ((__u16)descriptor / NFL_SLOT_SIZE + 1) << RUN_SLOTS_SHIFT;
}
/* Results of a look-up other than a port. */
#define ROUTE_FLOOD NFL_PORTS_MAX
#define ROUTE_DROPPED (NFL_PORTS_MAX + 1)

/* A copied run, of which few frames need an action: see actions.h. */
struct open_run {
	struct target to;
	__u32 from_to; /* as in struct run */
	__u32 position; /* in the RX ring, of the frame at hand */
	__u32 start; /* of the run */
	__u32 end;
	__u32 first; /* descriptor of its first frame, not yet published; see in_slot() */
	__u32 what; /* that all frames need: ACTION_CAPTURE or nothing */
	__u32 probability; /* of a signal, as in nfl_port.signal */
	__u64 random; /* its upper half decides */
	__u32 frames; /* dropped */
	__u32 bytes; /* of them */
};

/* A run that cannot be copied. */
struct voided {
	struct target to;
	__u32 position; /* in the RX ring, of the slot at hand */
	__u32 end;
};

/* Frames on their way into a group from outside of it. */
struct admission {
	__u64 address; /* as in struct run */
	__u32 from_to;
	__u32 position; /* of the frame at hand */
	__u32 end;
	__u32 rx; /* the position that takes it */
};

/*
 * Counts a frame that no run takes, from port `from_to & 0xffff` to port `from_to >> 16`: `bits` are those of its TX
 * descriptor, within DESC_PLAIN_MASK. A receiver that takes such frames gets them alone: here is only one whose sender has
 * changed it meanwhile.
 */
__noinline int refuse_length(__u32 from_to, __u64 bits)
{
	__u32 me = from_to & 0xffff, id = from_to >> 16, len = bits & 0xffff;
	struct nfl_port *from = bpf_map_lookup_elem(&nfl_ports, &me);
	struct nfl_port *to = bpf_map_lookup_elem(&nfl_ports, &id);

	if (!from || !to)
		return 0;
	if (len < NFL_FRAME_MIN || len > NFL_LONG_MAX)
		count_drop(from, NFL_DROP_BAD_LENGTH, 1);
	else if (bits & NFL_DESC_OFFLOAD && !(to->flags & NFL_PORT_CHECKSUMS))
		count_drop(to, NFL_DROP_NO_OFFLOAD, 1);
	else if (len > NFL_FRAME_MAX && !(to->flags & NFL_PORT_LONG))
		count_drop(to, NFL_DROP_TOO_LONG, 1);
	else
		count_drop(from, NFL_DROP_CHANGED, 1);
	return 0;
}

/*
 * Returns the sender's frame in `slot`, checked, and its header, where the frame goes into a switch. NULL: the
 * frame is refused, and counted. `bits`: its length, and what DESC_PLAIN_MASK has besides. copy_one spells this out, for
 * speed.
 */
static __always_inline void *frame_checked(__u32 from_to, struct sender *s, struct cursor *tx,
					   __u64 address, __u32 slot, __u64 bits, struct header *h)
{
	enum nfl_drop reason = NFL_DROP_BAD_INDEX;
	void *from;

	if (!length_ok(bits)) {
		refuse_length(from_to, bits);
		return NULL;
	}
	from = cursor_slot(tx, s->port, slot);
	if (!from)
		goto refused;
	if (address == RUN_LINK)
		return from;
	reason = NFL_DROP_CHANGED;
	header_read(h, from);
	if (header_dst_address(h) != address || (header_tagged(h) && bits < TAG_END))
		goto refused;
	reason = NFL_DROP_FOREIGN_MAC;
	if (source_ok(s, h))
		return from;
refused:
	count_drop(s->port, reason, 1);
	return NULL;
}

/* In an exchange: the RX position at hand has `slot` from now on, with a frame of `len` bytes or
 * none. Returns nonzero if the frame was the run's last. */
static __always_inline long exchanged(struct run *r, __u32 slot, __u32 len)
{
	if (r->left == r->count) {
		r->first_len = len;
		r->first_slot = slot;
	} else {
		publish(&r->to, r->rx_position, in_slot(slot, len));
	}
	r->rx_position++;
	r->tx.position++;
	r->left--;
	return !r->left;
}

/* The start of a run: frames from `position` on that have the same destination. */
struct head {
	struct sender from;
	struct target to;
	__u32 to_id;
	__u32 position;
	__u32 end; /* of the call */
	struct cursor tx; /* after the last frame of the run */
	__u64 address; /* FDB address that the frames share, or RUN_LINK */
	__u32 first; /* port to which the frames are sent, which may be one of several that share its flows */
	__u32 queues; /* `queues` of that port */
	struct reservation slots;
};

/* A frame being flooded to the members of a switch. */
struct flood {
	struct nfl_port *port; /* the sender's */
	struct nfl_switch *sw;
	__u64 descriptor;
	__u64 address; /* FDB address to which the frame goes */
	__u32 me;
	__u32 member; /* next to get a copy */
	__u32 copies; /* made, or dropped with a reason */
	__u32 switch_id;
	__u32 filter; /* FLOOD_* */
	__u32 joined; /* members that have joined the frame's group */
};

#endif
