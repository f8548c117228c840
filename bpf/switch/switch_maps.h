/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The switch's maps. An instance holds the fds of its own rings and pool and of no other map. */
#ifndef SWITCH_MAPS_H
#define SWITCH_MAPS_H

#include "switch_types.h"

/* Which port a socket is the capability of. Key: socket. Value: port. Writer: daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} nfl_identity SEC(".maps");

/* Trusted state of every port. Writers: the switch, the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nfl_port);
} nfl_ports SEC(".maps");

/* A port's rings: one element, mapped by its instance. */
struct nfl_ring_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct nfl_ring));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_ring_map);
} nfl_rings SEC(".maps");

/* An instance's frame slots: any number of blocks. Of a group, each member has the same under its own
 * number. */
struct nfl_pool_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, NFL_BLOCK_SIZE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_pool_map);
} nfl_pools SEC(".maps");

/* Who owns which slot of a group's pool. */
struct nfl_owners_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct nfl_owners));
};

/* Key: group. Writers: the switch (exchanges), the daemon (members that join and leave). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_GROUPS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_owners_map);
} nfl_owners SEC(".maps");

/* The kernel doorbell of each port that has one: the only doorbell that no sender must be trusted to
 * ring. 4 KiB is the smallest ring buffer; its content does not matter. */
struct nfl_doorbell_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_doorbell_map);
} nfl_bells SEC(".maps");

/* The timer of each port whose receiver is woken for several frames at once. Writer: the switch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct nfl_timer);
} nfl_timers SEC(".maps");

/* Captured frames: as long as slots, the last bytes a struct nfl_captured. Reader: daemon. When it is
 * full, frames are left out of the capture, never held up. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} nfl_captures SEC(".maps");

/* Key: number of the table, see nfl_port.queues. Writers: the daemon; uplinks' programs, of `inside`. An entry changes while
 * frames pass: each frame goes by what it finds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NFL_SPREADS_MAX);
	__type(key, __u32);
	__type(value, struct nfl_spread);
} nfl_spreads SEC(".maps");

/* Members of each switch. Writer: daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NFL_SWITCHES_MAX);
	__type(key, __u32);
	__type(value, struct nfl_switch);
} nfl_switches SEC(".maps");

/* Forwarding data base of all switches. Writers: the daemon (pinned, ageing), the switch (learned). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NFL_FDB_MAX);
	__type(key, struct nfl_fdb_key);
	__type(value, struct nfl_fdb_entry);
} nfl_fdb SEC(".maps");

/* The port behind which an interface is, for the program that many interfaces share. Writer: daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, struct nfl_interface_key);
	__type(value, __u32);
} nfl_interfaces SEC(".maps");

/* The rules of one uplink, in order. A table is never changed, only replaced. */
struct nfl_rule_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct nfl_rule));
};

/* Key: uplink's port. Writer: daemon. Replacing a table is atomic, and cheap: no port is scanned. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_rule_map);
} nfl_rules SEC(".maps");

/* The port that gets the frames of a receive queue, because the NIC has classified them: port + 1; 0: the rules
 * decide. */
struct nfl_queue_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NFL_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
};

/* Key: uplink's port; absent: no queue belongs to a port. Writers: the uplink's process; the daemon, which takes the
 * queues back before a port that frames are steered to can become another's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_queue_map);
} nfl_queues SEC(".maps");

/* Clients that have an instance. Writer: daemon, before the instance may get frames, and before it ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NFL_CLIENTS_MAX);
	__type(key, struct nfl_client);
	__type(value, struct nfl_client_ports);
} nfl_clients SEC(".maps");

/* Frames of clients that have no instance, in the order in which they came: struct nfl_arrival. Reader: daemon. When it is full,
 * such frames are dropped; those of other clients do not pass through here. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, NFL_ARRIVAL_BYTES);
} nfl_arrivals SEC(".maps");

/* The flow cache of one classifier. Writer: the uplink's program. Least recently used ones go first. */
struct nfl_flow_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, NFL_FLOWS_MAX);
	__uint(key_size, sizeof(struct nfl_flow));
	__uint(value_size, sizeof(struct nfl_decision));
};

/* Key: uplink's port; absent: the table is so short that it is searched. Writer: daemon. Each uplink has its own, so a
 * flood of new flows on one costs the flows of others neither their place nor a search. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, NFL_PORTS_MAX);
	__type(key, __u32);
	__array(values, struct nfl_flow_map);
} nfl_flows SEC(".maps");

#endif
