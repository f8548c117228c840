/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Trusted state: in maps that no instance can map. Mirrored by lib/switch/src/abi.rs. */
#ifndef SWITCH_TYPES_H
#define SWITCH_TYPES_H

#include "../include/nfluid_abi.h"
#include "switch_consts.h"

/* Destination of the frames that a port sends: nfl_port.way, see way.h. */
enum nfl_dest {
	NFL_DEST_NONE = 0,
	NFL_DEST_LINK = 1, /* dest: port */
	NFL_DEST_SWITCH = 2, /* dest: switch */
	NFL_DEST_CLASSIFIER = 3, /* the port's rules; uplinks only */
};

/* Every frame that enters is delivered or counted under exactly one of these, on the port that is
 * named in brackets. */
enum nfl_drop {
	NFL_DROP_RING_FULL = 0, /* [receiver] no free RX slot */
	NFL_DROP_BAD_LENGTH = 1, /* [sender] outside 14..65520, or cut within a VLAN tag */
	NFL_DROP_BAD_INDEX =
		2, /* [whose descriptor] names a slot outside the pool, or another member's; or a long
		    * frame crosses a block */
	NFL_DROP_FOREIGN_MAC = 3, /* [sender] source is not the pinned one, or is another port's */
	NFL_DROP_NO_ROUTE = 4, /* [sender] not connected, or no rule of the classifier matches */
	NFL_DROP_PORT_DOWN = 5, /* [sender] the destination is down or gone */
	NFL_DROP_SAME_PORT = 6, /* [sender] the destination is where the frame came from */
	NFL_DROP_FLOOD_LIMIT = 7, /* [sender] the call's flooded frames made too many copies */
	NFL_DROP_RESERVED_MAC = 8, /* [sender] IEEE 802.1D reserved address: never forwarded */
	NFL_DROP_CONTENDED = 9, /* [sender] lost the race for slots too often */
	NFL_DROP_CHANGED = 10, /* [sender] changed its frame while it was being switched */
	NFL_DROP_UPLINK =
		11, /* [receiver] the interface refused it; mostly counted by the daemon */
	NFL_DROP_RECLAIMED =
		12, /* [receiver] in the ring of an instance that ended; by the daemon */
	NFL_DROP_CONGESTION =
		13, /* [receiver] a congestion signal on a frame that cannot be marked */
	NFL_DROP_REFUSED =
		14, /* [receiver] the entry of a chain, further on in which a ring is full */
	NFL_DROP_CLIENT =
		15, /* [sender] of a client without an instance: no room to wait; or refused, by the daemon */
	NFL_DROP_TOO_LONG =
		16, /* [receiver] longer than a slot, and the port has none for long frames */
	NFL_DROP_BAD_OFFLOAD = 17, /* [sender] metadata that no frame of this length can have */
	NFL_DROP_NO_OFFLOAD =
		18, /* [receiver] the port takes no partial checksums, or no super-frames */
	NFL_DROPS = 32, /* rows of the table, a power of two: some are free */
};

struct nfl_port {
	/* configuration, written by the daemon */
	__u32 flags;
	__u32 mask; /* ring slots - 1 */
	__u32 pool; /* key in nfl_pools */
	__u32 rx_base; /* first RX slot in the pool, a multiple of NFL_BLOCK_SLOTS */
	__u64 way; /* where the port's frames go: see way.h */
	__u64 mac; /* as the first six bytes of a little-endian load */
	__u32 queues; /* this port and the queues-1 that follow share its traffic by flow; 0 or 1: none;
		       * or NFL_QUEUES_SPREAD */
	__u32 fdb_limit; /* addresses that the port may have in the FDB */
	__u32 ageing; /* of addresses learned on the port, in units of 2^30 ns */
	__u32 wake_frames; /* that a sleeping receiver is woken for; up to 1: each */
	__u32 wake_after_us; /* the first of them, when it is woken for fewer */
	__u32 group; /* of instances that share the pool; 0: none */
	__u64 signal; /* NFL_SIGNAL_*: treatment of frames to the port, and until when; 0: none */
	/* as a sender: written under `busy`, or atomically by an uplink's XDP program */
	__u32 busy;
	__u32 tx_pos;
	__u64 tx_frames; /* entered, each copy of a flooded frame counted */
	__u64 tx_bytes;
	__u64 tx_calls;
	union {
		__u64 tx_bad_heads; /* calls whose tx_head was nonsense: nothing entered */
		__u64 steered; /* of an uplink: frames that its NIC had classified */
	};
	__u64 last_source; /* last address learned, to skip the look-up */
	__u32 fdb_used;
	__u32 fdb_refused; /* addresses not learned: limit or full table */
	__u32 copies; /* made by the flooded frames of the current call; of an uplink: unit of time */
	__u32 copies_since; /* of an uplink: the unit, 2^20 ns */
	/* as a receiver: all senders, by atomics */
	__u64 rx_reserved; /* positions after what was reserved, as in nfl_ring.rx_released */
	__u64 rx_frames;
	__u64 rx_bytes;
	__u32 rung; /* last sleep epoch for which the kernel doorbell was rung */
	__u32 timed; /* last sleep epoch for which the timer was started */
	__u64 doorbells;
	__u64 passed; /* of an uplink, as a sender: frames left to the host's own stack */
	__u64 marked; /* frames that carried a congestion signal into the ring */
	__u64 signal_checked; /* jiffy in which the time of `signal` was looked at last */
	__u64 drops[NFL_DROPS];
	/* of long frames */
	__u32 long_base; /* first slot in the pool, a multiple of NFL_BLOCK_SLOTS */
	__u32 long_slots; /* a power of two of whole blocks; 0: none */
	/* Super-frames are counted as frames above. Beyond that, their packets and the bytes of the headers of these: */
	__u64 tx_more_segments; /* less one for each frame */
	__u64 tx_more_bytes;
	__u64 rx_more_segments;
	__u64 rx_more_bytes;
	__u32 querier_seen; /* when a query of multicast groups came in last, in units of 2^30 ns; 0: never */
	/* The interface behind the port, if frames that come in at tc in the same namespace may go out of it at once: */
	__u32 interface; /* its number, and NFL_INTERFACE_PEER; 0: none */
	__u32 netns; /* inode of its namespace */
	__u32 pad;
	__u64 forwarded; /* received frames that went out of it at once */
};

_Static_assert(sizeof(struct nfl_port) == 512, "mirrored by lib/switch");

/*
 * The owner of each slot of a group's pool: the instance's pool number + 1, 0: none. No instance can write the
 * table. An exchange swaps two entries, so each instance owns as many slots as it was given.
 */
struct nfl_owners {
	__u32 owner[NFL_GROUP_SLOTS];
};

/* The members that take the flows of a port behind which there are several instances. */
struct nfl_spread {
	__u32 front; /* the port; 0: the table is free. Only the daemon looks at it */
	__u32 turn; /* its lowest bit names the one of the two that counts arrivals */
	__u32 inside
		[2]; /* arrivals that are looking into the table; two, so that they end one day */
	__u16 port[NFL_BUCKETS];
};

_Static_assert(sizeof(struct nfl_spread) == 528, "mirrored by lib/switch");

/* Rings for frames that wait for more frames in vain. */
struct nfl_timer {
	struct bpf_timer timer;
};

/* Request of an I/O thread: a run over the TX rings of `count` ports, or a ring for the first of them. */
struct nfl_serve {
	__u32 count; /* or enum nfl_serve_ring */
	__u32 port[NFL_SERVE_PORTS];
};

/* The sleeper to wake by the kernel doorbell, because its pipe takes no more. */
enum nfl_serve_ring {
	NFL_SERVE_RING_PEER = 0x100, /* the peer of the port's link, which waits for frames */
	NFL_SERVE_RING_OWNER = 0x101, /* the port's owner, whatever event it sleeps for */
	NFL_SERVE_PREPARE_TIMER = 0x102, /* no sleeper: the port's timer is made */
};

/* The fields of a frame that identify its flow. Key of nfl_flows. */
struct nfl_flow {
	__u64 src[2]; /* IPv4: in the first four bytes */
	__u64 dst[2];
	__u16 sport;
	__u16 dport;
	__u16 ether; /* type behind the tags, in network order */
	__u16 vlan; /* outer VLAN id, 0 if untagged or priority-tagged */
	__u8 proto;
	__u8 has; /* NFL_HAS_* */
	__u16 pad[3];
};

_Static_assert(sizeof(struct nfl_flow) == 48, "no hidden padding: it is a key");

/* What was decided about a flow. */
struct nfl_decision {
	__u32 dest;
	__u32 generation;
};

/* A rule of an uplink's classifier. A frame matches if every field does. */
struct nfl_rule {
	__u64 src[2]; /* as in nfl_flow */
	__u64 src_mask[2];
	__u64 dst[2];
	__u64 dst_mask[2];
	__u16 sport[2]; /* first, last */
	__u16 dport[2];
	__u16 ether; /* in network order; 0: any */
	__u16 vlan; /* 0: untagged; NFL_VLAN_ANY */
	__u8 proto;
	__u8 match_proto;
	__u8 needs; /* NFL_HAS_* that the frame must have */
	__u8 pad;
	__u32 dest; /* port; NFL_PORTS_MAX: no route */
	__u32 count; /* rules in the table, the same in all of them */
	__u32 generation; /* of the table, the same in all of them */
	__u32 pad1;
};

_Static_assert(sizeof(struct nfl_rule) == 96, "mirrored by lib/switch");

/* What tells a template's clients apart. */
enum nfl_client_by {
	NFL_CLIENT_BY_ADDRESS = 0, /* as in nfl_flow */
	NFL_CLIENT_BY_VLAN = 1,
	NFL_CLIENT_BY_MAC = 2, /* as the first six bytes of a little-endian load */
};

struct nfl_client {
	__u64 id[2]; /* enum nfl_client_by; what is shorter has zeros */
	__u32 template;
	__u32 ether; /* of an address, as in nfl_flow: whose address it is */
};

/*
 * A client's ports, each in bits 0..15 with a digest of the client above it: an entry that is removed while a frame's way is
 * looked up may be another client's the next moment, whose port is then not taken for this one's.
 */
struct nfl_client_ports {
	__u64 entry; /* for frames of the client */
	__u64 back; /* for frames to it */
};

/* The frame of a client that has no instance. */
struct nfl_arrival {
	struct nfl_client client;
	__u32 uplink; /* port */
	__u32 len;
	__u8 frame[NFL_SLOT_SIZE];
};

_Static_assert(sizeof(struct nfl_arrival) == 32 + NFL_SLOT_SIZE, "mirrored by lib/switch");

/* What the record of a captured frame has in its last bytes, behind the longest frame in one slot. Of a longer frame
 * the record has the first bytes. */
struct nfl_captured {
	__u16 from; /* ports */
	__u16 to;
	__u32 len; /* of the whole frame */
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

_Static_assert(sizeof(struct nfl_captured) + NFL_FRAME_MAX == NFL_SLOT_SIZE,
	       "a record is as long as a slot");

struct nfl_switch {
	__u32 members; /* used entries of port[] */
	__u32 querier_seen; /* of any port: see nfl_port */
	__u32 pad[2];
	__u32 port[NFL_MEMBERS_MAX];
};

struct nfl_fdb_key {
	__u64 address; /* MAC in bits 0..47, VLAN id in bits 48..59 */
	__u32 sw;
	__u32 member; /* of a group that was joined from a port: the port + 1; of an address: 0 */
};

/* An interface behind a port whose frames come in by a program that many such interfaces share. */
struct nfl_interface_key {
	__u32 interface;
	__u32 netns; /* as in nfl_port */
};

struct nfl_fdb_entry {
	__u64 owner; /* the port, and how it was connected: see way.h */
	__u32 seen; /* in units of 2^30 ns */
	__u32 ageing; /* in units of 2^30 ns */
};

#endif
