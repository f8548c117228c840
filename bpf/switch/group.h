/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Multicast groups on a switch (RFC 4541). A frame to a group goes to the ports from which the group was joined, and
 * to those from which queries come: routers are there. The frame goes to all ports, as any frame to a group does, while
 * nobody queries on the switch, for then nobody says again that it has joined; if nobody has joined; and if the group is
 * one that stations need not join: 224.0.0.x, ff02::x and solicited nodes, so those of OSPF, VRRP, mDNS and neighbour
 * discovery.
 *
 * A membership is an entry of the FDB: it counts as an address of its port, ages, and is forgotten when the port leaves the
 * switch. Queries are believed from ports that learn: an instance cannot make a switch filter unless the deployment
 * trusts it with addresses.
 */
#ifndef SWITCH_GROUP_H
#define SWITCH_GROUP_H

#include "fdb.h"

/* In units of 2^30 ns: a membership (RFC 3376, 8.4: 260 s), a querier (8.5: 255 s), and a membership that was given up, of
 * which other stations behind the port may say until then that they have it. */
#define MEMBERSHIP_AGEING 243
#define QUERIER_AGEING 238
#define LEAVING_AGEING 3

#define MAC_IPV4_GROUP 0x5e0001ULL
#define MAC_IPV4_GROUP_MASK 0x80ffffffULL
#define MAC_IPV6_GROUP 0x3333ULL
#define MAC_IPV6_GROUP_MASK 0xffffULL
/* Memberships of a port that may not teach addresses: it fills no table that others need. */
#define MEMBERSHIPS_MAX 64

/* The group's bytes that are 0 where stations need not join. */
#define MAC_IPV4_LOCAL_MASK 0xffff000000ULL
#define MAC_IPV6_LOCAL_MASK 0xffffff0000ULL
#define MAC_IPV6_SOLICITED 0xff0000ULL

/* How a frame is flooded. */
#define FLOOD_ALL 0
#define FLOOD_JOINED 1 /* to those who have joined, and to routers */
#define FLOOD_REST 2 /* nobody has joined: to all but routers, who have it */

/* What a port is for a group. */
#define GROUP_JOINED 1
#define GROUP_ROUTER 2

/* Is this the address of an IP group? */
static __always_inline bool is_ip_group(__u64 address)
{
	return (address & MAC_IPV4_GROUP_MASK) == MAC_IPV4_GROUP ||
	       (address & MAC_IPV6_GROUP_MASK) == MAC_IPV6_GROUP;
}

/* Do stations have to join this IP group to get its frames? */
static __always_inline bool is_joined_group(__u64 address)
{
	if ((address & MAC_IPV6_GROUP_MASK) == MAC_IPV6_GROUP)
		return (address & MAC_IPV6_LOCAL_MASK) &&
		       (address & MAC_IPV6_SOLICITED) != MAC_IPV6_SOLICITED;
	return address & MAC_IPV4_LOCAL_MASK;
}

static __always_inline bool is_fresh(__u32 seen, __u32 now, __u32 ageing)
{
	return seen && now - seen <= ageing;
}

/* How a frame to this address is flooded on the switch. */
static __always_inline __u32 flood_filter(const struct nfl_switch *sw, __u64 address)
{
	if (!is_ip_group(address) || !is_joined_group(address) ||
	    !is_fresh(READ_ONCE(sw->querier_seen), fdb_now(), QUERIER_AGEING))
		return FLOOD_ALL;
	return FLOOD_JOINED;
}

/* GROUP_*: what port `id` is for the group of this address. */
static __noinline __u32 group_takes(__u32 sw, __u64 address, __u32 id)
{
	struct nfl_fdb_key key = { .address = address, .sw = sw, .member = id + 1 };
	struct nfl_port *port = bpf_map_lookup_elem(&nfl_ports, &id);
	struct nfl_fdb_entry *entry;
	__u32 takes = 0;

	if (!port)
		return 0;
	if (is_fresh(READ_ONCE(port->querier_seen), fdb_now(), QUERIER_AGEING))
		takes = GROUP_ROUTER;
	entry = bpf_map_lookup_elem(&nfl_fdb, &key);
	if (entry && fdb_now() - READ_ONCE(entry->seen) <= READ_ONCE(entry->ageing) &&
	    READ_ONCE(entry->owner) == owner_on(id, port_way(port)))
		takes |= GROUP_JOINED;
	return takes;
}

/* The group was joined from port `me`, or given up. With scalars, so that the verifier follows it once, and not for each
 * group of a report. */
__noinline int group_note(__u32 me, __u64 address, __u32 ageing)
{
	struct nfl_port *port = bpf_map_lookup_elem(&nfl_ports, &me);
	struct nfl_fdb_key key = { .address = address, .member = me + 1 };
	struct nfl_fdb_entry *entry, fresh = { .ageing = ageing };
	__u32 most;
	__u64 way;

	if (!port)
		return 0;
	way = port_way(port); /* once, as in fdb_learn() */
	if (way_kind(way) != NFL_DEST_SWITCH || !is_joined_group(address))
		return 0;
	key.sw = way_dest(way);
	fresh.owner = owner_on(me, way);
	fresh.seen = fdb_now();
	most = port->fdb_limit;
	if (!(port->flags & NFL_PORT_LEARN) && most > MEMBERSHIPS_MAX)
		most = MEMBERSHIPS_MAX;
	entry = bpf_map_lookup_elem(&nfl_fdb, &key);
	if (entry) {
		/* Another owner is the port before it came to the switch again. */
		WRITE_ONCE(entry->owner, fresh.owner);
		WRITE_ONCE(entry->seen, fresh.seen);
		WRITE_ONCE(entry->ageing, fresh.ageing);
		return 0;
	}
	if (ageing == LEAVING_AGEING)
		return 0;
	if (port->fdb_used >= most || bpf_map_update_elem(&nfl_fdb, &key, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(&port->fdb_refused, 1);
	else
		__sync_fetch_and_add(&port->fdb_used, 1);
	return 0;
}

/* A query has come in at this port. */
static __noinline void group_query(struct nfl_port *port)
{
	__u64 way = port_way(port);
	__u32 sw = way_dest(way), now = fdb_now();
	struct nfl_switch *on;

	if (way_kind(way) != NFL_DEST_SWITCH || !(port->flags & NFL_PORT_LEARN))
		return;
	on = bpf_map_lookup_elem(&nfl_switches, &sw);
	if (!on)
		return;
	WRITE_ONCE(port->querier_seen, now ? now : 1);
	/* Gone when the daemon changes the members, until the next query: until then frames go to all. */
	WRITE_ONCE(on->querier_seen, now ? now : 1);
}

#endif
