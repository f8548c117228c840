//! Faults in the switching of long frames and of offload metadata.

use super::Mutant;

const LONG: &str = "switch/long.h";
const OFFLOAD: &str = "switch/offload.h";
const PASS: &str = "switch/pass.h";
const TRANSMIT: &str = "switch/transmit.h";

/// The faults.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "two senders reserve the same room",
        file: LONG,
        from: "(__u64)end << LONG_SHIFT | (__u32)((__u32)reserved + 1)) !=
	    reserved)",
        to: "(__u64)end << LONG_SHIFT | (__u32)((__u32)reserved + 1)) ==
	    ~0ULL)",
        hidden: None,
    },
    Mutant {
        what: "a plain frame forgets how far the slots for long frames are reserved",
        file: "switch/deliver.h",
        from: "next = (reserved & LONG_HALF) | (__u32)((__u32)reserved + take);",
        to: "next = (__u32)((__u32)reserved + take);",
        hidden: None,
    },
    Mutant {
        what: "a long frame starts at any slot",
        file: LONG,
        from: "		start = long_start(end);",
        to: "		start = end;",
        hidden: None,
    },
    Mutant {
        what: "an area for long frames is a frame too large",
        file: LONG,
        from: "> port->long_slots))",
        to: "> port->long_slots + r->slots))",
        hidden: None,
    },
    Mutant {
        what: "a hole does not say that it has slots for long frames",
        file: LONG,
        from: "		start += r->slots;
		len = NFL_LONG_HOLE;",
        to: "		start = 0;",
        hidden: None,
    },
    Mutant {
        what: "a hole ends where its slots begin",
        file: LONG,
        from: "		start += r->slots;
",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a long frame that cannot be copied leaves its room unpublished",
        file: PASS,
        from: "		room_publish(&room, &at, 0, 0);
		return pass_refuse(p.from.port, NFL_DROP_BAD_INDEX);",
        to: "		return pass_refuse(p.from.port, NFL_DROP_BAD_INDEX);",
        hidden: None,
    },
    Mutant {
        what: "a long frame lies where no slots are its own",
        file: PASS,
        from: " || len + sizeof(struct nfl_offload) > slots * NFL_SLOT_SIZE ||",
        to: " ||",
        hidden: None,
    },
    Mutant {
        what: "a long frame goes to a port that has no slots for it",
        file: LONG,
        from: "if (!(port->flags & NFL_PORT_LONG) || port->group) {",
        to: "if (0) {",
        hidden: None,
    },
    Mutant {
        what: "no receiver is asked which metadata it takes",
        file: LONG,
        from: "if (needs & ~port->flags) {",
        to: "if (needs & 0) {",
        hidden: None,
    },
    Mutant {
        what: "a super-frame is taken for a partial checksum",
        file: OFFLOAD,
        from: "return offload_type(o) ? NFL_PORT_SUPER : NFL_PORT_CHECKSUMS;",
        to: "return NFL_PORT_CHECKSUMS;",
        hidden: None,
    },
    Mutant {
        what: "metadata is not checked",
        file: PASS,
        from: "if (offload_check(o, len))",
        to: "if (offload_check(o, len) || o->w0)",
        hidden: None,
    },
    Mutant {
        what: "metadata is read again for the receiver",
        file: PASS,
        from: "	p.from.port->tx_bytes += len;
",
        to: "	if (offload.w0)
		offload_read(&offload, block_slot(p.block, p.slot + (descriptor >> NFL_DESC_SLOTS_SHIFT & 31)) +
					       NFL_FRAME_MAX);
	p.from.port->tx_bytes += len;
",
        hidden: None,
    },
    Mutant {
        what: "segments are the sender's word",
        file: OFFLOAD,
        from: "(offset | segments << 16);",
        to: "(offset | (o->w1 & 0xffff0000) | (segments & 0));",
        hidden: None,
    },
    Mutant {
        what: "flags that have no meaning pass",
        file: OFFLOAD,
        from: "if (offload_flags(o) != OFFLOAD_NEEDS_CSUM ||",
        to: "if (!(offload_flags(o) & OFFLOAD_NEEDS_CSUM) ||",
        hidden: None,
    },
    Mutant {
        what: "a checksum lies behind the frame's end",
        file: OFFLOAD,
        from: "		if (start + offset + 2 > len)
			return false;
",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a checksum alone keeps what is said of segments",
        file: OFFLOAD,
        from: "		o->w0 &= 0xffff0000000000ffULL; /* nothing of headers and segments */",
        to: "		;",
        hidden: None,
    },
    Mutant {
        what: "headers are longer than the frame",
        file: OFFLOAD,
        from: "headers > OFFLOAD_HEADERS_MAX || headers >= len ||",
        to: "headers > OFFLOAD_HEADERS_MAX ||",
        hidden: None,
    },
    Mutant {
        what: "a TCP segment is shorter than Linux sends",
        file: OFFLOAD,
        from: "size >= OFFLOAD_TCP_SEGMENT_MIN;",
        to: "size;",
        hidden: None,
    },
    Mutant {
        what: "a frame becomes more datagrams than Linux takes",
        file: OFFLOAD,
        from: "payload <= size * OFFLOAD_UDP_SEGMENTS_MAX;",
        to: "payload;",
        hidden: None,
    },
    Mutant {
        what: "the flag of metadata is published without the metadata",
        file: LONG,
        from: "	if (o->w0 || r->slots)
		offload_write",
        to: "	if (r->slots)
		offload_write",
        hidden: None,
    },
    Mutant {
        what: "a plain long frame has the metadata of the frame before",
        file: LONG,
        from: "	if (o->w0 || r->slots)
		offload_write",
        to: "	if (o->w0)
		offload_write",
        hidden: None,
    },
    Mutant {
        what: "metadata is published without its flag",
        file: LONG,
        from: "len | (has_offload ? NFL_DESC_OFFLOAD : 0));",
        to: "len | (has_offload ? 0 : 0));",
        hidden: None,
    },
    Mutant {
        what: "a frame that goes alone has changed under way and is delivered",
        file: PASS,
        from: "if (header_dst_address(h) != address || (header_tagged(h) && len < TAG_END))",
        to: "if (0)",
        hidden: None,
    },
    Mutant {
        what: "a frame that goes alone may have any source",
        file: PASS,
        from: "	if (source_ok(&p->from, h))
		return true;",
        to: "	return true;",
        hidden: None,
    },
    Mutant {
        what: "the first 16 bytes of a frame that goes alone are not written over",
        file: PASS,
        from: "	if (address != RUN_LINK)
		header_write(",
        to: "	if (0)
		header_write(",
        hidden: None,
    },
    Mutant {
        what: "a frame that goes alone leaves its switch",
        file: PASS,
        from: "!same_switch(port_way(p.from.port), port_way(room.to.port))))",
        to: "0))",
        hidden: Some(
            "the receiver has to leave the switch between two looks at it; the model finds the same",
        ),
    },
    Mutant {
        what: "a link that is full of long frames keeps none with its sender",
        file: PASS,
        from: "		if (keep && address == RUN_LINK)
			return 0;
",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "the segments that a port sends are not counted",
        file: PASS,
        from: "	p.from.port->tx_more_segments += offload_more_segments(&offload);",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "the segments that a port receives are not counted",
        file: LONG,
        from: "	if (len)
		count_more_received(port, o);",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a call is not bounded by the slots of long frames",
        file: TRANSMIT,
        from: "if (c->position == c->end || c->slots >= NFL_CALL_SLOTS)",
        to: "if (c->position == c->end)",
        hidden: None,
    },
    Mutant {
        what: "a long frame is flooded as often as a short one",
        file: TRANSMIT,
        from: "	f->port->copies += 1 + (__u16)f->descriptor / NFL_SLOT_SIZE;",
        to: "	f->port->copies += 1;",
        hidden: None,
    },
    Mutant {
        what: "a run takes a long frame along",
        file: TRANSMIT,
        from: "	if (is_special(descriptor))
		return 1;
",
        to: "",
        hidden: None,
    },
    Mutant {
        what: "a frame that no run takes is not counted at a receiver without slots for it",
        file: "switch/run.h",
        from: "		count_drop(to, NFL_DROP_TOO_LONG, 1);",
        to: "		;",
        hidden: None,
    },
    Mutant {
        what: "a receiver waits for more although the longest frame has no room",
        file: "switch/coalesce.h",
        from: " || w.long_full)",
        to: ")",
        hidden: None,
    },
    Mutant {
        what: "a port that is being entered or removed has the ring of no port",
        file: "switch/deliver.h",
        from: "if (!rings || !port_is_up(t->port))",
        to: "if (!rings)",
        hidden: Some(
            "the daemon has to remove the port between two look-ups; the model finds the same in a call",
        ),
    },
];
