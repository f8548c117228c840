/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Sizes and bounds of the switch. Shared with lib/switch, which asserts what it mirrors. */
#ifndef SWITCH_CONSTS_H
#define SWITCH_CONSTS_H

#define NFL_PORTS_MAX 32768
#define NFL_SWITCHES_MAX 1024
/* Ports per switch, and so copies per flooded frame. */
#define NFL_MEMBERS_MAX 1024
#define NFL_FDB_MAX 65536
#define NFL_RULES_MAX 16384
/* Flows of one uplink that are remembered. */
#define NFL_FLOWS_MAX 65536
#define NFL_VLAN_ANY 0xffff
/* Clients that have an instance of a template, all templates together. */
#define NFL_CLIENTS_MAX 16384
/*
 * nfl_rule.dest with this bit: each client has a port of its own, see nfl_clients. Bits 0..1: enum nfl_client_by; bit 2:
 * the frame is for the client, not of it; bits 8..30: number of the template.
 */
#define NFL_RULE_CLIENTS (1u << 31)
#define NFL_RULE_BACK (1u << 2)
#define NFL_RULE_TEMPLATE_SHIFT 8
/* Bytes of frames that may wait for instances to be made: 8 and a slot for each frame, and its key. */
#define NFL_ARRIVAL_BYTES (1u << 20)
/* Receive queues of an interface that can be somebody's own: those with the lowest numbers. */
#define NFL_QUEUES_MAX 256
#define NFL_HAS_IP (1u << 0)
#define NFL_HAS_PORTS (1u << 1)
/* Frames per call: bounds how long a sender that is preempted in mid-copy can hold the slots behind it. */
#define NFL_CALL_FRAMES 256
/* Slots of long frames per call, for the same reason: such frames take longer. */
#define NFL_CALL_SLOTS 1024
/* Ports per call of an I/O thread. */
#define NFL_SERVE_PORTS 63
/* Frames per run: one reservation, one destination. */
#define NFL_RUN_FRAMES 64
/* Copies that the flooded frames of one call may make together. */
#define NFL_CALL_COPIES 4096
/* Compare-and-swap attempts of one reservation before its frames are dropped. */
#define NFL_RESERVE_TRIES 8

/* Groups of instances that share a pool. 0 is no group. */
#define NFL_GROUPS_MAX 1024
/* Slots of a group's pool: what 16 bits of an RX descriptor can name, less one. */
#define NFL_GROUP_SLOTS 65536
/* Owner of a slot between two: nobody may send it, nobody is given it. */
#define NFL_OWNER_MOVING (~0u)

/*
 * nfl_port.signal. Bits 0..31: p of a congestion signal, of 2^32 - 1; 0: none. Bits 32..62: until when the
 * word counts, in units of 2^20 ns of CLOCK_MONOTONIC. Bit 63: every frame is refused.
 */
#define NFL_SIGNAL_REFUSE (1ULL << 63)
#define NFL_SIGNAL_UNIT_SHIFT 20
#define NFL_SIGNAL_UNTIL_MASK 0x7fffffffu
/* No word counts for longer than so many units from now on. */
#define NFL_SIGNAL_UNITS_MAX 1024

/* nfl_port.queues with this bit: not queues follow, but a table says which port takes a frame; its number is in the lowest
 * bits. */
#define NFL_QUEUES_SPREAD (1u << 31)
/* Of the word by which an arrival remembers that it is in a table. */
#define NFL_QUEUES_TURN_SHIFT 30
/* Tables: ports behind which are several instances. */
#define NFL_SPREADS_MAX 1024
/* Entries of each, by the upper bits of a flow's hash: the units in which flows are given from one instance to another. */
#define NFL_BUCKETS 256

/* nfl_port.interface with this bit: an end of a veth, and the frames are for the stack at the other end. */
#define NFL_INTERFACE_PEER (1u << 31)

/* linux/time.h */
#define NFL_CLOCK_MONOTONIC 1

/* enum nfl_port.flags */
#define NFL_PORT_UP (1u << 0)
/* Frames must carry the port's own MAC as source. */
#define NFL_PORT_PINNED (1u << 1)
/* Source addresses seen on this port enter the FDB. */
#define NFL_PORT_LEARN (1u << 2)
/* The switch itself wakes the receiver, even where a link's sender could. */
#define NFL_PORT_KERNEL_DOORBELL (1u << 3)
/* An uplink: frames that no rule takes go to the host's own stack instead of being dropped. */
#define NFL_PORT_PASS (1u << 4)
/* Copies of the frames that the port sends or receives go to the daemon. */
#define NFL_PORT_CAPTURE (1u << 5)
/* The port has slots for long frames. */
#define NFL_PORT_LONG (1u << 6)
/* The port takes frames with a partial checksum. */
#define NFL_PORT_CHECKSUMS (1u << 7)
/* The port takes super-frames: frames that are to become several packets. */
#define NFL_PORT_SUPER (1u << 8)
#define NFL_PORT_TAKES_SPECIAL (NFL_PORT_LONG | NFL_PORT_CHECKSUMS | NFL_PORT_SUPER)

#endif
