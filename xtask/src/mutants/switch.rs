//! Faults in the switch, each of which a test has to detect.

use super::Mutant;

const TRANSMIT: &str = "switch/transmit.h";

/// Programs of tests/tests that test the switch alone, the fastest first.
pub const TESTS: &[&str] = &[
    "guest_dataplane",
    "guest_switch",
    "guest_model",
    "guest_long",
    "guest_wake",
    "guest_hostile",
    "guest_storm",
    "guest_groups",
    "guest_marking",
    "guest_uplink_rules",
    "guest_uplink_frames",
];

/// The faults.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "a run to a port that has gone down is not published",
        file: TRANSMIT,
        from: "if (!sender_exists(&r.from, me) || !target_exists(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */) ||
	    !cursor_block(&r.rx, r.to.port, rx_slot(&r.to, slot) / NFL_BLOCK_SLOTS))
		return FORM(void_run)(me, to_count, slot);",
        to: "if (!sender_find(&r.from, me) || !target_find(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */) ||
	    !cursor_block(&r.rx, r.to.port, rx_slot(&r.to, slot) / NFL_BLOCK_SLOTS))
		return 0;",
        hidden: None,
    },
    Mutant {
        what: "an exchange with a port that has gone down is not published",
        file: TRANSMIT,
        from: "if (!sender_exists(&r.from, me) || !target_exists(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */))
		return FORM(void_run)(me, to_count, slot);",
        to: "if (!sender_find(&r.from, me) || !target_find(&r.to, to_count & 0xffff) ||
	    !cursor_block(&r.tx, r.from.port, 0 /* every pool has it */))
		return 0;",
        hidden: None,
    },
    Mutant {
        what: "a frame into a group is not published when a port has gone down",
        file: TRANSMIT,
        from: "if (!sender_exists(&s, from_to & 0xffff) || !target_exists(&t, from_to >> 16))",
        to: "if (!sender_find(&s, from_to & 0xffff) || !target_find(&t, from_to >> 16))",
        hidden: None,
    },
    Mutant {
        what: "a flooded frame of a sender that has gone down is not counted",
        file: "switch/pass.h",
        from: "if (!sender_exists(&p.from, me_to & 0xffff))",
        to: "if (!sender_find(&p.from, me_to & 0xffff))",
        hidden: None,
    },
    Mutant {
        what: "frames leave their switch: neither the receiver's nor the entry's generation is looked at",
        file: "switch/way.h",
        from: "return way_kind(one) == NFL_DEST_SWITCH && !((one ^ other) << (64 - WAY_GENERATION_SHIFT));",
        to: "return true;",
        hidden: None,
    },
    Mutant {
        what: "an address holds although its port has been connected anew",
        file: "switch/fdb.h",
        from: "if (!port || owner_on(id, port_way(port)) != owner)",
        to: "if (!port)",
        hidden: Some(
            "what is learned between a change and the purge behind it takes a call that stands still there",
        ),
    },
    Mutant {
        what: "two senders reserve the same slots",
        file: "switch/deliver.h",
        from: "if (__sync_val_compare_and_swap(&t->port->rx_reserved, reserved, next) != reserved) {",
        to: "if (__sync_val_compare_and_swap(&t->port->rx_reserved, reserved, next) == ~0ULL) {",
        hidden: None,
    },
    Mutant {
        what: "a full ring takes frames",
        file: "switch/deliver.h",
        from: "if (used >= slots) {",
        to: "if (0) {",
        hidden: None,
    },
    Mutant {
        what: "the first 16 bytes are not written over",
        file: TRANSMIT,
        from: "	if (r->address != RUN_LINK)
		header_write(&h, to, len);
	r->frames++;",
        to: "	r->frames++;",
        hidden: None,
    },
    Mutant {
        what: "a frame that has changed under way is delivered",
        file: TRANSMIT,
        from: "if (header_dst_address(&h) != r->address || (header_tagged(&h) && len < TAG_END))",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "any source may send",
        file: "switch/run.h",
        from: "if (s->port->flags & NFL_PORT_PINNED && header_src(h) != s->port->mac)",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "frames to reserved addresses pass",
        file: TRANSMIT,
        from: "if ((header_dst(&header) & MAC_RESERVED_MASK) == MAC_RESERVED)",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "frames go back to where they came from",
        file: TRANSMIT,
        from: "if (id == h->from.me)",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "the VLAN is no part of an address",
        file: "switch/frame.h",
        from: "return header_dst(h) | header_vlan(h) << 48;",
        to: "return header_dst(h);",
        hidden: None,
    },
    Mutant {
        what: "learned addresses do not age",
        file: "switch/fdb.h",
        from: "if (fdb_now() - entry->seen > entry->ageing)",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "a pinned address moves",
        file: "switch/fdb.h",
        from: "		if (owner & OWNER_PINNED)
			return (__u32)owner == me;",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a port learns without a limit",
        file: "switch/fdb.h",
        from: "if (port->fdb_used >= port->fdb_limit ||",
        to: "if (",
        hidden: None,
    },
    Mutant {
        what: "an address that moves is not counted where it was",
        file: "switch/fdb.h",
        from: "		__sync_fetch_and_add(&before->fdb_used, -1);",
        to: "		;",
        hidden: None,
    },
    Mutant {
        what: "a call floods without end",
        file: TRANSMIT,
        from: "if (f->member >= f->sw->members || f->port->copies >= NFL_CALL_COPIES)",
        to: "if (f->member >= f->sw->members)",
        hidden: None,
    },
    Mutant {
        what: "a flooded frame comes back to its sender",
        file: TRANSMIT,
        from: "	if (id == f->me)
		return 0;",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "two calls over one ring",
        file: "switch/call.h",
        from: "if (__sync_val_compare_and_swap(&port->busy, 0, 1))",
        to: "if (0)",
        hidden: Some(
            "the kernel's socket lock keeps apart two calls of one socket; an instance's and an I/O thread's meet in the moment in which the port changes hands",
        ),
    },
    Mutant {
        what: "a nonsensical head is believed",
        file: "switch/call.h",
        from: "if (frames > s.port->mask + 1) {",
        to: "if (0) {",
        hidden: None,
    },
    Mutant {
        what: "an exchange gives a slot that the receiver does not own",
        file: "switch/exchange.h",
        from: "__sync_val_compare_and_swap(owner_of(owners, room), receiver, sender) == receiver;",
        to: "(WRITE_ONCE(*owner_of(owners, room), sender), true);",
        hidden: None,
    },
    Mutant {
        what: "a member sends what another one owns",
        file: "switch/exchange.h",
        from: "return __sync_val_compare_and_swap(owner_of(owners, slot), me, NFL_OWNER_MOVING) == me;",
        to: "return WRITE_ONCE(*owner_of(owners, slot), NFL_OWNER_MOVING), me;",
        hidden: None,
    },
    Mutant {
        what: "a sleeping receiver is not rung for",
        file: "switch/deliver.h",
        from: "	bpf_ringbuf_output(doorbell, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);",
        to: "	if (0)
		bpf_ringbuf_output(doorbell, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);",
        hidden: None,
    },
    Mutant {
        what: "a receiver that waits for several frames is rung for the first",
        file: "switch/coalesce.h",
        from: "return epoch && port->wake_frames > 1 ? coalesce(id, epoch) : epoch;",
        to: "return 0 ? coalesce(id, epoch) : epoch;",
        hidden: None,
    },
    Mutant {
        what: "signals do not end with their time",
        file: "switch/signal.h",
        from: "if (!left || left > NFL_SIGNAL_UNITS_MAX)",
        to: "if (left && 0)",
        hidden: None,
    },
    Mutant {
        what: "a mark leaves the checksum as it was",
        file: "switch/signal.h",
        from: "	store16(ip + 10, ~sum);",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a decision of an older table of rules counts",
        file: "switch/uplink.h",
        from: "if (cached && cached->generation == fresh.generation)",
        to: "if (cached)",
        hidden: None,
    },
    Mutant {
        what: "a frame goes back through the uplink by which it came",
        file: "switch/uplink.h",
        from: "	if (id == me)
		return drop_arrival(port, NFL_DROP_SAME_PORT);",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "any source may come in through an uplink",
        file: "switch/uplink.h",
        from: "	if (port->flags & NFL_PORT_PINNED && header_src(h) != port->mac)
		return false;",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a frame for a switch leaves it by an uplink",
        file: "switch/uplink.h",
        from: "(way_kind(way) == NFL_DEST_SWITCH && !same_switch(way, port_way(room.to.port)))",
        to: "0",
        hidden: Some(
            "the receiver has to leave the switch between two looks at it; the model finds the same in a call",
        ),
    },
];
