/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The receive side of an uplink: a program at XDP or tc that writes a frame from the interface straight into the
 * slots of the port that takes it. Included once per hook (arrival.h) and loop form (loop.h), like transmit.h.
 *
 * The uplink's port is the sender. Several CPUs may run this at once, so every word of the port is
 * written atomically here. Entered frames (tx_frames) are frames that were delivered or dropped with a reason;
 * frames left to the host's own stack have a counter of their own (passed).
 */

#ifndef SWITCH_UPLINK_H
#define SWITCH_UPLINK_H

#include "actions.h"
#include "coalesce.h"
#include "fdb.h"
#include "group.h"
#include "long.h"
#include "verdict.h"

/* A frame on its way to all members of a switch. */
struct broadcast {
	void *ctx;
	struct nfl_port *port;
	struct nfl_switch *sw;
	__u64 way; /* the uplink's */
	__u32 me;
	__u64 address; /* FDB address to which the frame goes */
	__u32 member; /* next to get a copy */
	__u32 copies;
	__u32 filter; /* FLOOD_* */
	__u32 joined; /* members that have joined the frame's group */
};

static __always_inline void count_entered(struct nfl_port *port, __u64 bytes)
{
	__sync_fetch_and_add(&port->tx_bytes, bytes);
	__sync_fetch_and_add(&port->tx_frames, 1);
}

/* Counts a frame that went out of the interface of the port that takes it, unless the interface refused it. */
static __always_inline void count_forwarded(struct nfl_port *to, const struct offload *o, __u64 len,
					    int verdict)
{
	if (verdict == ARRIVAL_TAKEN)
		return;
	__sync_fetch_and_add(&to->rx_bytes, len);
	__sync_fetch_and_add(&to->rx_frames, 1);
	__sync_fetch_and_add(&to->forwarded, 1);
	count_more_received(to, o);
}

static __always_inline int drop_arrival(struct nfl_port *port, enum nfl_drop reason)
{
	count_entered(port, 0);
	count_drop(port, reason, 1);
	return ARRIVAL_TAKEN;
}

/* Returns true if a frame with this source may come in here, and learns the source. */
static __always_inline bool arrival_source_ok(struct nfl_port *port, __u32 me,
					      const struct header *h)
{
	if (port->flags & NFL_PORT_PINNED && header_src(h) != port->mac)
		return false;
	if (!(port->flags & NFL_PORT_LEARN))
		return true;
	return fdb_learn(port, me, header_src_address(h));
}

/* Copies that flooding may make are bounded per port and unit of time, about a millisecond. Two
 * CPUs at once may overrun the bound by a few frames, which is no harm. */
static __always_inline void renew_copies(struct nfl_port *port)
{
	__u32 now = bpf_ktime_get_ns() >> 20;

	if (port->copies_since != now) {
		WRITE_ONCE(port->copies_since, now);
		WRITE_ONCE(port->copies, 0);
	}
}

#endif

/* The port that takes the frame; NFL_PORTS_MAX if no rule does; or CLIENT_WAITS, CLIENT_REFUSED. */
__noinline __u32 FORM(HOOK(classify))(struct FRAME_CTX *ctx, __u32 me)
{
	struct search s = { .dest = NFL_PORTS_MAX };
	struct nfl_decision fresh, *cached;
	struct nfl_rule *head;
	void *flows;
	__u32 at;

	s.rules = bpf_map_lookup_elem(&nfl_rules, &me);
	if (!s.rules)
		return NFL_PORTS_MAX;
	s.index = unknown_zero;
	head = bpf_map_lookup_elem(s.rules, &s.index);
	if (!head)
		return NFL_PORTS_MAX;
	s.count = head->count;
	fresh.generation = head->generation;
	at = HOOK(parse_ethernet)(ctx, &s.flow);
	if (s.flow.ether == ETHERTYPE_IPV4)
		HOOK(parse_ipv4)(ctx, at, &s.flow);
	else if (s.flow.ether == ETHERTYPE_IPV6)
		HOOK(parse_ipv6)(ctx, at, &s.flow);
	flows = bpf_map_lookup_elem(&nfl_flows, &me);
	if (flows) {
		cached = bpf_map_lookup_elem(flows, &s.flow);
		if (cached && cached->generation == fresh.generation)
			return HOOK(client_port)(ctx, me, &s.flow, cached->dest);
	}
	LOOP(NFL_RULES_MAX, try_rule, &s);
	if (flows) {
		fresh.dest = s.dest;
		bpf_map_update_elem(flows, &s.flow, &fresh, BPF_ANY);
	}
	return HOOK(client_port)(ctx, me, &s.flow, s.dest);
}

/* Returns the port, of the ports behind port `id`, that takes the frame. */
static __always_inline bool FORM(HOOK(choose_arrival_queue))(struct FRAME_CTX *ctx,
							     struct target *to, __u32 *id)
{
	__u32 port = HOOK(arrival_port)(ctx, *id, to->port->queues);

	if (port == *id)
		return true;
	*id = port;
	return target_find(to, port);
}

/*
 * Brings the frame, or a copy, into port `id`, or drops and counts it. `way`: the uplink's own when the frame came in; read
 * once, because it may be another one by now. `entered`: the table of a spread that it looks into. Returns the verdict.
 */
static __always_inline int FORM(HOOK(bring))(struct FRAME_CTX *ctx, __u32 me, __u32 id, __u64 way,
					     bool is_copy, __u32 *entered)
{
	struct nfl_port *port = bpf_map_lookup_elem(&nfl_ports, &me);
	__u64 len = HOOK(frame_len)(ctx);
	struct offload offload;
	struct room room;
	struct place at;
	int verdict;

	if (!port)
		return 0;
	count_entered(port, len);
	if (!HOOK(frame_offload)(ctx, &offload, len)) {
		count_drop(port, NFL_DROP_BAD_OFFLOAD, 1);
		return 0;
	}
	if (offload_segments(&offload) > 1) {
		__sync_fetch_and_add(&port->tx_more_segments, offload_more_segments(&offload));
		__sync_fetch_and_add(&port->tx_more_bytes, offload_more_bytes(&offload));
	}
	if (!target_find(&room.to, id))
		goto down;
	if (room.to.port->queues & NFL_QUEUES_SPREAD)
		*entered = spread_enter(room.to.port->queues);
	if ((room.to.port->queues > 1 && !FORM(HOOK(choose_arrival_queue))(ctx, &room.to, &id)) ||
	    (way_kind(way) == NFL_DEST_SWITCH && !same_switch(way, port_way(room.to.port))))
		goto down;
	if (room.to.port->interface && !may_need_actions(port, room.to.port)) {
		verdict = HOOK(frame_forward)(ctx, room.to.port, is_copy);
		if (verdict != ARRIVAL_ELSEWHERE) {
			count_forwarded(room.to.port, &offload, len, verdict);
			return is_copy ? ARRIVAL_TAKEN : verdict;
		}
	}
	if (!room_fits(&room, &offload, len))
		return 0;
	if (signal_refuses(room.to.port)) {
		count_drop(room.to.port, NFL_DROP_REFUSED, 1);
		return 0;
	}
	LOOP(NFL_RESERVE_TRIES, reserve_room, &room);
	if (room.end == RESERVE_FULL) {
		count_drop(room.to.port, NFL_DROP_RING_FULL, 1);
		return 0;
	}
	if (room.end == RESERVE_AGAIN) {
		count_drop(port, NFL_DROP_CONTENDED, 1);
		return 0;
	}
	if (!room_find(&room, &at)) {
		room_publish(&room, &at, 0, 0);
		count_drop(room.to.port, NFL_DROP_BAD_INDEX, 1);
		return 0;
	}
	if (!HOOK(load_frame)(ctx, at.block, at.slot, len)) {
		room_publish(&room, &at, 0, 0);
		count_drop(port, NFL_DROP_BAD_LENGTH, 1);
		return 0;
	}
	ring_kernel_doorbell(room.to.port, id,
			     room_deliver(&room, &at, port, me | id << 16, &offload, len));
	return 0;
down:
	count_drop(port, NFL_DROP_PORT_DOWN, 1);
	return 0;
}

__noinline int FORM(HOOK(uplink_deliver))(struct FRAME_CTX *ctx, __u32 me, __u32 id, __u64 way,
					  bool is_copy)
{
	__u32 entered = 0;
	int verdict = FORM(HOOK(bring))(ctx, me, id, way, is_copy, &entered);

	if (entered)
		spread_leave(entered);
	return verdict;
}

/* A copy to the next member of the switch. */
static __always_inline long FORM(HOOK(broadcast_one))(struct broadcast *b)
{
	__u32 id, takes;

	if (b->member >= b->sw->members || b->port->copies >= NFL_CALL_COPIES)
		return 1;
	id = b->sw->port[b->member & (NFL_MEMBERS_MAX - 1)];
	b->member++;
	if (id == b->me)
		return 0;
	if (b->filter) {
		takes = group_takes(way_dest(b->way), b->address, id);
		b->joined += takes & GROUP_JOINED;
		if (b->filter == FLOOD_JOINED ? !takes : takes)
			return 0;
	}
	b->copies++;
	__sync_fetch_and_add(&b->port->copies, 1 + HOOK(frame_len)(b->ctx) / NFL_SLOT_SIZE);
	FORM(HOOK(uplink_deliver))(b->ctx, b->me, id, b->way, true);
	return 0;
}
LOOP_BODY(HOOK(broadcast_one), broadcast)

/* Unknown unicast, broadcast, multicast: a copy to every other port of the switch. */
__noinline int FORM(HOOK(uplink_flood))(struct FRAME_CTX *ctx, __u32 me, __u64 way)
{
	struct broadcast b = { .ctx = ctx, .me = me, .way = way };
	struct header header = {};
	__u32 sw = way_dest(way);

	b.member = unknown_zero;
	b.copies = unknown_zero;
	b.joined = unknown_zero;
	b.port = bpf_map_lookup_elem(&nfl_ports, &me);
	if (!b.port)
		return 0;
	b.sw = bpf_map_lookup_elem(&nfl_switches, &sw);
	if (!b.sw)
		return 0;
	renew_copies(b.port);
	HOOK(frame_header)(ctx, &header);
	b.address = header_dst_address(&header);
	if (is_ip_group(b.address))
		HOOK(snoop)(ctx, b.port, me, b.address);
	b.filter = flood_filter(b.sw, b.address);
	LOOP(NFL_MEMBERS_MAX, HOOK(broadcast_one), &b);
	if (b.filter && !b.joined && b.member >= b.sw->members) {
		b.filter = FLOOD_REST;
		b.member = unknown_zero;
		LOOP(NFL_MEMBERS_MAX, HOOK(broadcast_one), &b);
	}
	if (b.member < b.sw->members)
		drop_arrival(b.port, NFL_DROP_FLOOD_LIMIT);
	else if (!b.copies)
		drop_arrival(b.port, NFL_DROP_NO_ROUTE);
	return 0;
}

/* A frame for a switch. */
static __always_inline int FORM(HOOK(uplink_bridge))(struct FRAME_CTX *ctx, struct nfl_port *port,
						     __u32 me, __u64 way, __u64 len)
{
	struct header header = {};
	__u64 address;
	__u32 id;

	if (!HOOK(frame_header)(ctx, &header))
		return drop_arrival(port, NFL_DROP_BAD_LENGTH);
	if (header_tagged(&header) && len < TAG_END)
		return drop_arrival(port, NFL_DROP_BAD_LENGTH);
	if (!arrival_source_ok(port, me, &header))
		return drop_arrival(port, NFL_DROP_FOREIGN_MAC);
	if ((header_dst(&header) & MAC_RESERVED_MASK) == MAC_RESERVED)
		return drop_arrival(port, NFL_DROP_RESERVED_MAC);
	address = header_dst_address(&header);
	id = address & MAC_GROUP ? NFL_PORTS_MAX : fdb_find(way_dest(way), address);
	if (id == me)
		return drop_arrival(port, NFL_DROP_SAME_PORT);
	if (id >= NFL_PORTS_MAX)
		return FORM(HOOK(uplink_flood))(ctx, me, way);
	return FORM(HOOK(uplink_deliver))(ctx, me, id, way, false);
}

static __always_inline int FORM(HOOK(uplink_receive))(struct FRAME_CTX *ctx)
{
	__u32 me = HOOK(arrival_owner)(ctx), id = NFL_PORTS_MAX;
	struct nfl_port *port = bpf_map_lookup_elem(&nfl_ports, &me);
	__u64 len = HOOK(frame_len)(ctx), way;

	if (!port)
		return ARRIVAL_TAKEN;
	way = port_way(port);
	if (!(port->flags & NFL_PORT_UP))
		return drop_arrival(port, NFL_DROP_PORT_DOWN);
	if (len < NFL_FRAME_MIN || len > NFL_LONG_MAX)
		return drop_arrival(port, NFL_DROP_BAD_LENGTH);
	if (way_kind(way) == NFL_DEST_SWITCH)
		return FORM(HOOK(uplink_bridge))(ctx, port, me, way, len);
	if (way_kind(way) == NFL_DEST_LINK)
		id = way_dest(way);
	else if (way_kind(way) == NFL_DEST_CLASSIFIER) {
		id = HOOK(steered_to)(ctx, me);
		if (id < NFL_PORTS_MAX)
			__sync_fetch_and_add(&port->steered, 1);
		else
			id = FORM(HOOK(classify))(ctx, me);
	}
	if (id < NFL_PORTS_MAX)
		return FORM(HOOK(uplink_deliver))(ctx, me, id, way, false);
	if (id == CLIENT_WAITS) {
		count_entered(port, len);
		return ARRIVAL_TAKEN;
	}
	if (id == CLIENT_REFUSED)
		return drop_arrival(port, NFL_DROP_CLIENT);
	if (!(port->flags & NFL_PORT_PASS))
		return drop_arrival(port, NFL_DROP_NO_ROUTE);
	__sync_fetch_and_add(&port->passed, 1);
	return ARRIVAL_LEFT;
}
