/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Learning and look-up (IEEE 802.1D), key (switch, VLAN, MAC). */
#ifndef SWITCH_FDB_H
#define SWITCH_FDB_H

#include "frame.h"
#include "switch_maps.h"

/* Time in units of 2^30 ns, about a second: an entry is written once per unit. */
static __always_inline __u32 fdb_now(void)
{
	return bpf_ktime_get_ns() >> 30;
}

/* The port of `address`, or NFL_PORTS_MAX if it is unknown or has aged out. A function of its own:
 * its key would take stack from all that the caller calls, and kernels before 6.8 are strict. */
static __noinline __u32 fdb_find(__u32 sw, __u64 address)
{
	struct nfl_fdb_key key = { .address = address, .sw = sw };
	struct nfl_fdb_entry *entry = bpf_map_lookup_elem(&nfl_fdb, &key);

	if (!entry)
		return NFL_PORTS_MAX;
	if (!entry->pinned && fdb_now() - entry->seen > entry->ageing)
		return NFL_PORTS_MAX;
	return entry->port;
}

/* Takes an entry over to port `me`, whose it is from now on, also in the count of addresses. False: the
 * port has as many as it may have. Of several that do so at once, one does. */
static __always_inline bool fdb_move(struct nfl_fdb_entry *entry, struct nfl_port *port, __u32 me)
{
	__u32 was = entry->port;
	struct nfl_port *before = bpf_map_lookup_elem(&nfl_ports, &was);

	if (port->fdb_used >= port->fdb_limit) {
		__sync_fetch_and_add(&port->fdb_refused, 1);
		return false;
	}
	if (__sync_val_compare_and_swap(&entry->port, was, me) != was)
		return true;
	if (before && before->fdb_used) /* the daemon may have counted it down just now */
		__sync_fetch_and_add(&before->fdb_used, -1);
	__sync_fetch_and_add(&port->fdb_used, 1);
	return true;
}

/*
 * Learns that `address` is behind port `me`. Returns false if the address is pinned to another
 * port: nobody moves a tenant's address. A full table or limit refuses the entry, counted: its
 * frames are flooded instead, and cannot push out the addresses that are known.
 */
static __noinline bool fdb_learn(struct nfl_port *port, __u32 me, __u32 sw, __u64 address)
{
	struct nfl_fdb_key key = { .address = address, .sw = sw };
	struct nfl_fdb_entry fresh = { .port = me, .seen = fdb_now(), .ageing = port->ageing };
	struct nfl_fdb_entry *entry;

	if (address & MAC_GROUP) /* not a valid source, and never a valid entry */
		return false;
	entry = bpf_map_lookup_elem(&nfl_fdb, &key);
	if (entry) {
		if (entry->pinned)
			return entry->port == me;
		if (entry->port != me && !fdb_move(entry, port, me))
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
