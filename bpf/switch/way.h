/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Where a port's frames go, in one word: bits 0..31 the port or switch, 32..39 enum nfl_dest, 40..63 the generation,
 * which counts how often the word has changed. Nobody sees half of a change.
 *
 * What was learned about a port holds for the generation in which it was learned: when a port leaves a switch, all of
 * its addresses are forgotten by that one store, whoever is about to learn another one just then.
 */
#ifndef SWITCH_WAY_H
#define SWITCH_WAY_H

#include "frame.h"

#define WAY_KIND_SHIFT 32
#define WAY_GENERATION_SHIFT 40
/* Of an FDB entry's owner: the daemon has pinned the address to the port, in whatever generation. */
#define OWNER_PINNED (1ULL << 63)
/* Bits 32..55 of an owner are the port's generation. */
#define OWNER_GENERATION_SHIFT 32

static __always_inline __u64 port_way(const struct nfl_port *port)
{
	return READ_ONCE(port->way);
}

static __always_inline __u32 way_kind(__u64 way)
{
	return way >> WAY_KIND_SHIFT & 0xff;
}

static __always_inline __u32 way_dest(__u64 way)
{
	return way;
}

/* Are both ports on one switch? */
static __always_inline bool same_switch(__u64 one, __u64 other)
{
	return way_kind(one) == NFL_DEST_SWITCH && !((one ^ other) << (64 - WAY_GENERATION_SHIFT));
}

/* The owner of what is learned on port `me`. */
static __always_inline __u64 owner_on(__u32 me, __u64 way)
{
	return me | way >> WAY_GENERATION_SHIFT << OWNER_GENERATION_SHIFT;
}

#endif
