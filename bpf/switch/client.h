/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Rules behind which each client has an instance of its own, made when its first frame comes (docs/adr/0014). The frame of
 * a client without an instance waits for the daemon, in a buffer of bounded size; a frame for such a client has no route.
 */
#ifndef SWITCH_CLIENT_H
#define SWITCH_CLIENT_H

#include "frame.h"
#include "switch_maps.h"

/* Results of classify() other than a port. */
#define CLIENT_WAITS (NFL_PORTS_MAX + 1)
#define CLIENT_REFUSED (NFL_PORTS_MAX + 2)

/* Any number will do that spreads bits upwards (Knuth, MMIX); mirrored by lib/switch/src/client.rs. */
#define CLIENT_MIX 6364136223846793005ULL

/* 48 bits that differ for any two clients by IPv4 address, VLAN or MAC of one template, and likely so for others. */
static __always_inline __u64 client_digest(const struct nfl_client *client)
{
	__u64 mixed = client->id[1] * CLIENT_MIX + client->template * (CLIENT_MIX | 1ULL << 32);

	return (client->id[0] ^ mixed ^ mixed >> 48) << 16 >> 16;
}

#endif
