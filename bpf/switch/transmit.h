/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The switch: runs over the sender's TX ring in the sender's own context. Included once per loop
 * form (loop.h) with LOOP and FORM(name) defined; the code is the same.
 *
 * The burst is cut into runs of frames that go to the same port. A run reserves its RX slots with
 * one compare-and-swap, then copies and publishes slot by slot, the first slot last: the receiver
 * polls the first slot, and would take the cache line away at each publication (measured: 17.7
 * instead of 22.9 Mpps between two cores). Copying and flooding are global
 * functions with scalar arguments: the verifier checks each once, not once per path to it.
 */

static __always_inline long FORM(void_one)(struct voided *v)
{
	publish(&v->to, v->position, in_slot(rx_room(&v->to, v->position), 0));
	v->position++;
	return v->position == v->end;
}
LOOP_BODY(void_one, voided)

/* Copies a frame into its reserved slot. A frame that turns out to be wrong now is published as a hole:
 * the slot is taken, and the receiver skips it. */
static __always_inline long FORM(copy_one)(struct run *r)
{
	__u64 descriptor = tx_descriptor(&r->from, r->tx.position);
	__u64 len = descriptor & DESC_PLAIN_MASK;
	enum nfl_drop reason = NFL_DROP_BAD_INDEX;
	struct header h;
	void *from, *to;

	if (!length_ok(len)) {
		refuse_length(r->from_to, len);
		len = unlinked(0);
		goto publish;
	}
	from = cursor_slot(&r->tx, r->from.port, descriptor >> 32);
	to = cursor_slot(&r->rx, r->to.port, rx_slot(&r->to, r->rx.position));
	if (!from || !to)
		goto hole;
	if (r->address != RUN_LINK) {
		reason = NFL_DROP_CHANGED;
		header_read(&h, from);
		if (header_dst_address(&h) != r->address || (header_tagged(&h) && len < TAG_END))
			goto hole;
		reason = NFL_DROP_FOREIGN_MAC;
		if (!source_ok(&r->from, &h))
			goto hole;
	}
	copy_frame(to, from, len);
	len = (__u32)unlinked((__u32)len); /* the code that follows does not depend on the length */
	if (r->address != RUN_LINK)
		header_write(&h, to, len);
	r->frames++;
	r->bytes += len;
	goto publish;
hole:
	len = unlinked(0);
	count_drop(r->from.port, reason, 1);
publish:
	if (r->left == r->count)
		r->first_len = len;
	else
		publish(&r->to, r->rx.position, len);
	r->rx.position++;
	r->tx.position++;
	r->left--;
	return !r->left;
}
LOOP_BODY(copy_one, run)

/*
 * Carries out the actions on the frame at hand. All frames but the run's first are published, but the receiver,
 * which takes frames in order, has not begun. A receiver that takes frames out of order changes its own frames,
 * and the counters of its received frames.
 */
static __always_inline void FORM(finish_at)(struct open_run *a, __u32 what)
{
	__u32 word = a->first, slot, len;

	if (a->position != a->start)
		word = rx_word(&a->to, a->position);
	len = word & 0xffff;
	slot = a->to.port->group ? word >> 16 : rx_slot(&a->to, a->position);
	if (!length_ok(len) || run_actions(a->from_to, slot, len, what))
		return;
	a->frames++;
	a->bytes += len;
	word &= ~0xffff;
	if (a->position == a->start)
		a->first = word;
	else
		publish(&a->to, a->position, word);
}

/* Draws the random number for the frame at hand. The kernel's random number, one for the run, is drawn on by a
 * linear congruential generator (Knuth, MMIX), which costs less than a call for each frame. */
static __always_inline long FORM(finish_one)(struct open_run *a)
{
	__u32 what = a->what;

	a->random = a->random * 6364136223846793005ULL + 1442695040888963407ULL;
	if (a->probability && a->random >> 32 <= a->probability)
		what |= ACTION_SIGNAL;
	if (what)
		FORM(finish_at)(a, what);
	a->position++;
	return a->position == a->end;
}
LOOP_BODY(finish_one, open_run)

/* Publishes the first frame of a run that was left open, when all actions on its `count` frames are done.
 * Returns the sleep epoch of the receiver, 0 if it is awake. */
__noinline __u32 FORM(finish_run)(__u32 from_to, __u32 start, __u32 count, __u64 open)
{
	struct open_run a = { .position = start, .start = start, .first = open };
	__u32 frames = open_frames(open), bytes = open_bytes(open), me = from_to & 0xffff;
	struct nfl_port *from = bpf_map_lookup_elem(&nfl_ports, &me);

	a.from_to = from_to;
	a.end = start + count;
	a.frames = unknown_zero;
	a.bytes = unknown_zero;
	if (!from || !target_exists(&a.to, from_to >> 16))
		return 0;
	a.what = known_actions(from, a.to.port);
	a.probability = READ_ONCE(a.to.port->signal);
	a.random = (__u64)bpf_get_prandom_u32() << 32;
	LOOP(NFL_RUN_FRAMES, finish_one, &a);
	publish(&a.to, start, a.first);
	frames = frames > a.frames ? frames - a.frames : 0;
	bytes = bytes > a.bytes ? bytes - a.bytes : 0;
	return delivered(&a.to, frames, bytes);
}

/*
 * Publishes holes in all slots of a run that cannot be copied: what has been reserved is published whatever happens, else
 * the receiver would wait for ever, and with it every sender to it. Returns as copy_run.
 */
__noinline __u32 FORM(void_run)(__u32 me, __u32 to_count, __u32 slot)
{
	struct voided v = { .position = slot };
	struct nfl_port *from = bpf_map_lookup_elem(&nfl_ports, &me);

	v.end = slot + (to_count >> 16);
	if (!from || !target_exists(&v.to, to_count & 0xffff))
		return 0;
	LOOP(NFL_RUN_FRAMES, void_one, &v);
	count_drop(from, NFL_DROP_PORT_DOWN, to_count >> 16);
	return delivered(&v.to, 0, 0);
}

/* Copies a run of `to_count >> 16` frames to port `to_count & 0xffff`, publishes and counts it.
 * Returns the sleep epoch of the receiver, 0 if it is awake; or the run is left open, see run_open(). */
__noinline __u64 FORM(copy_run)(__u32 me, __u32 to_count, __u32 position, __u32 slot, __u64 address)
{
	struct run r = { .address = address };

	r.tx.position = unlinked(position);
	r.rx.position = unlinked(slot);
	r.count = to_count >> 16;
	r.left = unlinked(to_count >> 16);
	r.first_len = unlinked(0);
	r.from_to = me | to_count << 16;
	r.frames = unlinked(0);
	r.bytes = unlinked(0);
	if (!sender_exists(&r.from, me) || !target_exists(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */) ||
	    !cursor_block(&r.rx, r.to.port, rx_slot(&r.to, slot) / NFL_BLOCK_SLOTS))
		return FORM(void_run)(me, to_count, slot);
	LOOP(NFL_RUN_FRAMES, copy_one, &r);
	r.from.port->tx_bytes += r.bytes;
	if (may_need_actions(r.from.port, r.to.port))
		return run_open(r.first_len, r.frames, r.bytes);
	publish(&r.to, slot, r.first_len);
	return delivered(&r.to, r.frames, r.bytes);
}

/* As copy_one, between members of a group: the frame changes hands with its slot. */
static __always_inline long FORM(exchange_one)(struct run *r)
{
	__u64 descriptor = tx_descriptor(&r->from, r->tx.position);
	__u32 slot = descriptor >> 32, room = rx_named(&r->to, r->rx_position);
	__u64 len = descriptor & DESC_PLAIN_MASK;
	struct header h;

	if (!frame_checked(r->from_to, &r->from, &r->tx, r->address, slot, len, &h))
		return exchanged(r, room, 0);
	if (!owner_part(r->owners, slot, r->from.port)) {
		count_drop(r->from.port, NFL_DROP_BAD_INDEX, 1);
		return exchanged(r, room, 0);
	}
	if (!owner_exchange(r->owners, slot, r->from.port, room, r->to.port)) {
		count_drop(r->to.port, NFL_DROP_BAD_INDEX, 1);
		return exchanged(r, room, 0);
	}
	tx_return(&r->from, r->tx.position, room);
	r->frames++;
	r->bytes += len;
	return exchanged(r, slot, len);
}
LOOP_BODY(exchange_one, run)

/* As copy_run, between members of a group. */
__noinline __u64 FORM(exchange_run)(__u32 me, __u32 to_count, __u32 position, __u32 slot,
				    __u64 address)
{
	struct run r = { .address = address };
	__u32 first;

	r.tx.position = unlinked(position);
	r.rx_position = unlinked(slot);
	r.count = to_count >> 16;
	r.left = unlinked(to_count >> 16);
	r.first_len = unlinked(0);
	r.first_slot = unlinked(0);
	r.from_to = me | to_count << 16;
	r.frames = unlinked(0);
	r.bytes = unlinked(0);
	if (!sender_exists(&r.from, me) || !target_exists(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */))
		return FORM(void_run)(me, to_count, slot);
	r.owners = owners_find(r.to.port->group);
	if (!r.owners)
		return FORM(void_run)(me, to_count, slot);
	LOOP(NFL_RUN_FRAMES, exchange_one, &r);
	r.from.port->tx_bytes += r.bytes;
	first = in_slot(r.first_slot, r.first_len);
	if (may_need_actions(r.from.port, r.to.port))
		return run_open(first, r.frames, r.bytes);
	publish(&r.to, slot, first);
	return delivered(&r.to, r.frames, r.bytes);
}

/* One frame from port `from_to & 0xffff` to port `from_to >> 16`, a member of a group that the sender
 * is not in: it is copied, into the slot that the receiver names. */
__noinline int FORM(admit_frame)(__u32 from_to, __u32 position, __u32 rx, __u64 address)
{
	struct cursor tx;
	struct sender s;
	struct target t;
	struct header h;
	__u64 len;
	void *from, *to;
	__u32 room;

	if (!sender_exists(&s, from_to & 0xffff) || !target_exists(&t, from_to >> 16))
		return 0;
	room = rx_named(&t, rx);
	if (!cursor_block(&tx, s.port, 0)) {
		count_drop(s.port, NFL_DROP_PORT_DOWN, 1);
		goto hole;
	}
	len = tx_descriptor(&s, position);
	from = frame_checked(from_to, &s, &tx, address, len >> 32, len & DESC_PLAIN_MASK, &h);
	len &= 0xffff;
	if (!from)
		goto hole;
	to = slot_buffer(t.port, room);
	if (!to) {
		count_drop(t.port, NFL_DROP_BAD_INDEX, 1);
		goto hole;
	}
	copy_long(to, from, len);
	if (address != RUN_LINK)
		header_write(&h, to, len);
	s.port->tx_bytes += len;
	len = apply_actions(s.port, t.port, from_to, room, len);
	publish(&t, rx, in_slot(room, len));
	delivered(&t, len > 0, len);
	return 0;
hole:
	publish(&t, rx, in_slot(room, 0));
	return 0;
}

static __always_inline long FORM(admit_one)(struct admission *a)
{
	FORM(admit_frame)(a->from_to, a->position, a->rx, a->address);
	a->position++;
	a->rx++;
	return a->position == a->end;
}
LOOP_BODY(admit_one, admission)

/* As copy_run, to a member of a group that the sender is not in. Frame by frame in a function of its
 * own, else the verifier would follow too many paths. */
__noinline __u32 FORM(admit_run)(__u32 me, __u32 to_count, __u32 position, __u32 slot,
				 __u64 address)
{
	struct admission a = { .position = position, .rx = slot, .address = address };
	struct target t;

	a.from_to = me | to_count << 16;
	a.end = position + (to_count >> 16);
	LOOP(NFL_RUN_FRAMES, admit_one, &a);
	if (!target_exists(&t, to_count & 0xffff))
		return 0;
	return delivered(&t, 0, 0);
}

/* A copy to the next member of the switch. */
static __always_inline long FORM(flood_one)(struct flood *f)
{
	__u32 id, takes;

	if (f->member >= f->sw->members || f->port->copies >= NFL_CALL_COPIES)
		return 1;
	id = f->sw->port[f->member & (NFL_MEMBERS_MAX - 1)];
	f->member++;
	if (id == f->me)
		return 0;
	if (f->filter) {
		takes = group_takes(f->switch_id, f->address, id);
		f->joined += takes & GROUP_JOINED;
		if (f->filter == FLOOD_JOINED ? !takes : takes)
			return 0;
	}
	f->copies++;
	f->port->copies += 1 + (__u16)f->descriptor / NFL_SLOT_SIZE;
	FORM(pass_frame)(f->me | id << 16, f->descriptor, f->address, 0);
	return 0;
}
LOOP_BODY(flood_one, flood)

/*
 * Unknown unicast, broadcast, multicast: a copy to every other port of the switch, as long as the
 * call's budget of copies lasts. The frame is read again here and for each copy, so it is checked again: all copies
 * go to this address.
 */
__noinline int FORM(flood_frame)(__u32 me, __u32 position)
{
	struct flood f = { .me = me };
	struct header header;
	struct sender s;
	void *from;
	__u64 way;
	__u32 sw;

	if (!sender_exists(&s, me))
		return 0;
	way = port_way(s.port);
	if (way_kind(way) != NFL_DEST_SWITCH) {
		drop_frames(&s, NFL_DROP_NO_ROUTE, 1);
		return 0;
	}
	f.descriptor = tx_descriptor(&s, position);
	from = slot_buffer(s.port, f.descriptor >> 32);
	if (!from || (__u16)f.descriptor < NFL_FRAME_MIN) {
		drop_frames(&s, NFL_DROP_CHANGED, 1);
		return 0;
	}
	header_read(&header, from);
	f.address = header_dst_address(&header);
	f.member = unknown_zero;
	f.copies = unknown_zero;
	f.joined = unknown_zero;
	f.port = s.port;
	sw = way_dest(way);
	f.switch_id = sw;
	f.sw = bpf_map_lookup_elem(&nfl_switches, &sw);
	if (!f.sw) {
		drop_frames(&s, NFL_DROP_NO_ROUTE, 1);
		return 0;
	}
	if (is_ip_group(f.address) && !is_special(f.descriptor))
		snoop_slot(from, f.port, me, f.address);
	f.filter = flood_filter(f.sw, f.address);
	LOOP(NFL_MEMBERS_MAX, flood_one, &f);
	if (f.filter && !f.joined && f.member >= f.sw->members) {
		f.filter = FLOOD_REST;
		f.member = unknown_zero;
		LOOP(NFL_MEMBERS_MAX, flood_one, &f);
	}
	if (f.member < f.sw->members) {
		count_drop(f.port, NFL_DROP_FLOOD_LIMIT, 1);
		f.copies++;
	} else if (!f.copies) {
		count_drop(f.port, NFL_DROP_NO_ROUTE, 1);
		f.copies++;
	}
	f.port->tx_frames += f.copies;
	return 0;
}

/* Does the next frame belong to the run? Only a hint: copy_one checks what matters. */
static __always_inline long FORM(extend_run)(struct head *h)
{
	struct header header;
	void *from;

	__u64 descriptor;

	if (h->tx.position == h->end)
		return 1;
	descriptor = tx_descriptor(&h->from, h->tx.position);
	if (is_special(descriptor))
		return 1;
	if (h->address == RUN_LINK && h->queues <= 1) {
		h->tx.position++;
		return 0;
	}
	from = cursor_slot(&h->tx, h->from.port, descriptor >> 32);
	if (!from)
		return 1;
	header_read(&header, from);
	if (h->address != RUN_LINK && header_dst_address(&header) != h->address)
		return 1;
	if (h->queues > 1 && flow_port(from, h->first, h->queues) != h->to_id)
		return 1;
	h->tx.position++;
	return 0;
}
LOOP_BODY(extend_run, head)

/* One attempt to reserve the run's slots. */
static __always_inline long FORM(reserve_run)(struct head *h)
{
	reserve(&h->slots, &h->to);
	return h->slots.end != RESERVE_AGAIN;
}
LOOP_BODY(reserve_run, head)

/* Returns the destination of the frame at the head on a switch: a port, ROUTE_FLOOD, or ROUTE_DROPPED. */
static __always_inline __u32 FORM(route)(struct head *h, __u64 way)
{
	__u64 descriptor = tx_descriptor(&h->from, h->position);
	__u64 len = descriptor & 0xffff;
	void *from = slot_buffer(h->from.port, descriptor >> 32);
	enum nfl_drop reason = NFL_DROP_BAD_INDEX;
	struct header header;
	__u32 id;

	if (!from)
		goto drop;
	header_read(&header, from);
	reason = NFL_DROP_BAD_LENGTH;
	if (len < NFL_FRAME_MIN || len > NFL_LONG_MAX || (header_tagged(&header) && len < TAG_END))
		goto drop;
	reason = NFL_DROP_FOREIGN_MAC;
	if (!source_ok(&h->from, &header))
		goto drop;
	reason = NFL_DROP_RESERVED_MAC;
	if ((header_dst(&header) & MAC_RESERVED_MASK) == MAC_RESERVED)
		goto drop;
	h->address = header_dst_address(&header);
	id = h->address & MAC_GROUP ? ROUTE_FLOOD : fdb_find(way_dest(way), h->address);
	reason = NFL_DROP_SAME_PORT;
	if (id == h->from.me)
		goto drop;
	return id;
drop:
	drop_frames(&h->from, reason, 1);
	return ROUTE_DROPPED;
}

/* Returns the port, of the ports behind the target, that takes the frame at the head. */
static __always_inline bool FORM(choose_queue)(struct head *h)
{
	void *from = slot_buffer(h->from.port, tx_descriptor(&h->from, h->position) >> 32);

	if (from)
		h->to_id = flow_port(from, h->first, h->queues);
	return h->to_id == h->first || target_find(&h->to, h->to_id);
}

/*
 * Switches the run of frames that starts at `position`. Returns the number of frames that are
 * done with: delivered or dropped; fewer than the run, or 0, only if `keep` left them in the ring of
 * a sender whose link is full; and the slots of a long frame, see run_slots(). RUN_FLOOD: the first frame is to be
 * flooded.
 */
__noinline __u32 FORM(switch_run)(__u32 me, __u32 position, __u32 end, __u32 keep)
{
	struct head h = { .position = position, .end = end, .address = RUN_LINK };
	__u32 limit = end - position, epoch, rest;
	__u64 result, way, descriptor;
	bool link;

	if (!sender_find(&h.from, me))
		return 0;
	way = port_way(h.from.port); /* once: the daemon may lead the port elsewhere meanwhile */
	link = way_kind(way) == NFL_DEST_LINK;
	if (!link && way_kind(way) != NFL_DEST_SWITCH) {
		drop_frames(&h.from, NFL_DROP_NO_ROUTE, 1);
		return 1;
	}
	h.to_id = link ? way_dest(way) : FORM(route)(&h, way);
	if (h.to_id == ROUTE_FLOOD)
		return RUN_FLOOD;
	if (h.to_id == ROUTE_DROPPED)
		return 1;
	if (!target_find(&h.to, h.to_id))
		goto down;
	h.first = h.to_id;
	h.queues = h.to.port->queues;
	if (h.queues > 1 && !FORM(choose_queue)(&h))
		goto down;
	/* No frame leaves its switch, whatever the FDB says. */
	if (!link && !same_switch(way, port_way(h.to.port)))
		goto down;
	descriptor = tx_descriptor(&h.from, position);
	if (is_special(descriptor)) {
		rest = FORM(pass_frame)(me | h.to_id << 16, descriptor, h.address, keep);
		h.from.port->tx_frames += rest;
		return rest | run_slots(descriptor);
	}
	h.tx.position = position + 1;
	if (link && h.queues <= 1 && !(h.to.port->flags & NFL_PORT_TAKES_SPECIAL))
		h.tx.position = position + (limit < NFL_RUN_FRAMES ? limit : NFL_RUN_FRAMES);
	else if (cursor_block(&h.tx, h.from.port, 0))
		LOOP(NFL_RUN_FRAMES - 1, extend_run, &h);
	h.slots.want = h.tx.position - position;
	if (signal_refuses(h.to.port)) {
		count_drop(h.to.port, NFL_DROP_REFUSED, h.slots.want);
		h.from.port->tx_frames += h.slots.want;
		return h.slots.want;
	}
	LOOP(NFL_RESERVE_TRIES, reserve_run, &h);
	if (h.slots.end == RESERVE_AGAIN) {
		drop_frames(&h.from, NFL_DROP_CONTENDED, h.slots.want);
		return h.slots.want;
	}
	if (h.slots.end == RESERVE_DONE) {
		h.from.port->tx_frames += h.slots.got;
		h.to_id |= h.slots.got << 16;
		if (!h.to.port->group)
			result = FORM(copy_run)(me, h.to_id, position, h.slots.first, h.address);
		else if (h.to.port->group == h.from.port->group)
			result =
				FORM(exchange_run)(me, h.to_id, position, h.slots.first, h.address);
		else
			result = FORM(admit_run)(me, h.to_id, position, h.slots.first, h.address);
		h.to_id &= 0xffff;
		if (result & RUN_OPEN)
			result = FORM(finish_run)(me | h.to_id << 16, h.slots.first, h.slots.got,
						  result);
		epoch = coalesced_epoch(h.to.port, h.to_id, result);
		if (epoch && link && !(h.to.port->flags & NFL_PORT_KERNEL_DOORBELL))
			WRITE_ONCE(h.from.ring->peer_asleep, epoch);
		else
			ring_kernel_doorbell(h.to.port, h.to_id, epoch);
	}
	if (keep && link)
		return h.slots.got;
	rest = h.slots.want - h.slots.got;
	count_drop(h.to.port, NFL_DROP_RING_FULL, rest);
	h.from.port->tx_frames += rest;
	return h.slots.want;
down:
	drop_frames(&h.from, NFL_DROP_PORT_DOWN, 1);
	return 1;
}

/* The state of a call in the outermost loop. */
static __always_inline long FORM(call_step)(struct call *c)
{
	__u32 done;

	if (c->position == c->end || c->slots >= NFL_CALL_SLOTS)
		return 1;
	done = FORM(switch_run)(c->me, c->position, c->end, c->keep);
	if (done == RUN_FLOOD) {
		FORM(flood_frame)(c->me, c->position);
		done = 1;
	}
	c->slots += done >> RUN_SLOTS_SHIFT;
	done &= RUN_FLOOD - 1;
	c->position += done;
	return !done;
}
LOOP_BODY(call_step, call)

/* Runs the switch over the TX ring of port `me`. 0, or the error of the call. */
static __always_inline int FORM(call_run)(__u32 me, __u32 kind)
{
	struct call c;
	int error = call_begin(&c, me, kind);

	if (error)
		return error;
	LOOP(NFL_CALL_FRAMES + 1, call_step, &c);
	call_end(&c);
	return 0;
}
