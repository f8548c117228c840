/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Sizes and bounds of the switch. Shared with lib/switch, which asserts what it mirrors. */
#ifndef SWITCH_CONSTS_H
#define SWITCH_CONSTS_H

#define NFL_PORTS_MAX 16384
#define NFL_SWITCHES_MAX 1024
/* Ports per switch, and so copies per flooded frame. */
#define NFL_MEMBERS_MAX 1024
#define NFL_FDB_MAX 65536
#define NFL_RULES_MAX 16384
#define NFL_FLOWS_MAX 65536
/* Rules that are tried one by one without a look at the flow cache. */
#define NFL_RULES_LINEAR 8
#define NFL_VLAN_ANY 0xffff
#define NFL_HAS_IP (1u << 0)
#define NFL_HAS_PORTS (1u << 1)
/* Frames per call: bounds how long a sender that is preempted in mid-copy can hold the slots behind it. */
#define NFL_CALL_FRAMES 256
/* Frames per run: one reservation, one destination. */
#define NFL_RUN_FRAMES 64
/* Copies that the flooded frames of one call may make together. */
#define NFL_CALL_COPIES 4096
/* Compare-and-swap attempts of one reservation before its frames are dropped. */
#define NFL_RESERVE_TRIES 8

/* enum nfl_port.flags */
#define NFL_PORT_UP (1u << 0)
/* Frames must carry the port's own MAC as source. */
#define NFL_PORT_PINNED (1u << 1)
/* Source addresses seen on this port enter the FDB. */
#define NFL_PORT_LEARN (1u << 2)
/* The switch itself wakes the receiver, even where a link's sender could. */
#define NFL_PORT_KERNEL_BELL (1u << 3)
/* An uplink: frames that no rule takes go to the host's own stack instead of being dropped. */
#define NFL_PORT_PASS (1u << 4)
/* Copies of the frames that the port sends or receives go to the daemon. */
#define NFL_PORT_CAPTURE (1u << 5)

#endif
