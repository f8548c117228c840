/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Learning and look-up (IEEE 802.1D), key (switch, VLAN, MAC). */
#ifndef SWITCH_FDB_H
#define SWITCH_FDB_H

#include "frame.h"
#include "switch_maps.h"
#include "way.h"

/* Time in units of 2^30 ns, about a second: an entry is written once per unit. */
static __always_inline __u32 fdb_now(void)
{
	return bpf_ktime_get_ns() >> 30;
}

/* The port of `address`, or NFL_PORTS_MAX if it is unknown, has aged out, or was learned before its port was connected
 * as it is now. A function of its own: its key would take stack from all that the caller calls, and kernels before 6.8
 * are strict. */
static __noinline __u32 fdb_find(__u32 sw, __u64 address)
{
	struct nfl_fdb_key key = { .address = address, .sw = sw };
	struct nfl_fdb_entry *entry = bpf_map_lookup_elem(&nfl_fdb, &key);
	struct nfl_port *port;
	__u64 owner;
	__u32 id;

	if (!entry)
		return NFL_PORTS_MAX;
	owner = READ_ONCE(entry->owner);
	id = owner;
	if (owner & OWNER_PINNED)
		return id;
	if (fdb_now() - entry->seen > entry->ageing)
		return NFL_PORTS_MAX;
	port = bpf_map_lookup_elem(&nfl_ports, &id);
	if (!port || owner_on(id, port_way(port)) != owner)
		return NFL_PORTS_MAX;
	return id;
}

/* Takes an entry over from its owner, also in the count of addresses. False: the port has as many addresses as
 * it may have. Of several calls that do so at once, one succeeds. */
static __always_inline bool fdb_move(struct nfl_fdb_entry *entry, __u64 was, __u64 owner,
				     struct nfl_port *port)
{
	__u32 id = was;
	struct nfl_port *before = bpf_map_lookup_elem(&nfl_ports, &id);
	bool is_own = id == (__u32)owner; /* and is counted already */

	if (!is_own && port->fdb_used >= port->fdb_limit) {
		__sync_fetch_and_add(&port->fdb_refused, 1);
		return false;
	}
	if (__sync_val_compare_and_swap(&entry->owner, was, owner) != was || is_own)
		return true;
	entry->ageing = port->ageing;
	if (before && before->fdb_used) /* the daemon may have counted it down just now */
		__sync_fetch_and_add(&before->fdb_used, -1);
	__sync_fetch_and_add(&port->fdb_used, 1);
	return true;
}

/*
 * Learns that `address` is behind port `me`, on its switch. Returns false if the address is pinned to
 * another port: no port can take a tenant's address. A full table or limit refuses the entry, and counts the
 * refusal: frames to that address are flooded instead, and cannot push out the addresses that are known.
 */
static __noinline bool fdb_learn(struct nfl_port *port, __u32 me, __u64 address)
{
	__u64 way = port_way(port); /* once: the switch and the generation belong together */
	struct nfl_fdb_key key = { .address = address, .sw = way_dest(way) };
	struct nfl_fdb_entry fresh = {
		.owner = owner_on(me, way),
		.seen = fdb_now(),
		.ageing = port->ageing,
	};
	struct nfl_fdb_entry *entry;
	__u64 owner;

	if (address & MAC_GROUP) /* not a valid source, and never a valid entry */
		return false;
	if (way_kind(way) != NFL_DEST_SWITCH) /* the port has left the switch */
		return true;
	entry = bpf_map_lookup_elem(&nfl_fdb, &key);
	if (entry) {
		owner = READ_ONCE(entry->owner);
		if (owner & OWNER_PINNED)
			return (__u32)owner == me;
		if (owner != fresh.owner && !fdb_move(entry, owner, fresh.owner, port))
			return true;
		if (entry->seen != fresh.seen)
			entry->seen = fresh.seen;
		return true;
	}
	if (port->fdb_used >= port->fdb_limit ||
	    bpf_map_update_elem(&nfl_fdb, &key, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(&port->fdb_refused, 1);
	else
		__sync_fetch_and_add(&port->fdb_used, 1);
	return true;
}

#endif
