/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whose frames a program of an interface receives, and what it says of each. */
#ifndef SWITCH_VERDICT_H
#define SWITCH_VERDICT_H

#include "switch_types.h"

/* What a program receives for: set before it is loaded. */
struct receiver {
	/* The port whose receive side this is. The index of the interface would not do: every network namespace counts
	 * from 1. NFL_PORTS_MAX: of the interfaces in nfl_interfaces. */
	__u32 port;
	/* The namespace in which the program receives: see nfl_port. */
	__u32 netns;
};
SEC(".rodata.uplink") volatile const struct receiver receiver;

/* The verdict about a frame: taken, or left to the host's own stack; or the hook's own verdict. */
#define ARRIVAL_TAKEN 0
#define ARRIVAL_LEFT 1
/* It does not go out of an interface at once. */
#define ARRIVAL_ELSEWHERE (-2)

#endif
