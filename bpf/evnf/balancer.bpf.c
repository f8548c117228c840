// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * eLB: connections to the address of a service go to one of its servers.
 *
 * A new connection's server is the one that the service's Maglev table has for its hash (Eisenbud et
 * al., Maglev, NSDI 2016); the table of connections keeps it there, whatever becomes of the table.
 * Packets are translated both ways (DNAT), or sent on to the server's MAC address as they are, and
 * the server answers by itself (direct return). ICMP errors go with the connection that they are about;
 * a service's address answers pings. Packets that cannot be translated go to the kernel, by a counted
 * exit.
 *
 * Each CPU remembers of the connections that it has sent last all that their packets need, the way
 * included, for a few ticks: the next packet of one costs no look-up in a table that CPUs share, and
 * no question to the kernel.
 */
#include <linux/bpf.h>

#include "chain.h"
#include "count.h"
#include "echo.h"
#include "flow.h"
#include "parse.h"
#include "quote.h"
#include "rewrite.h"
#include "way.h"

enum service_mode {
	MODE_TRANSLATE,
	MODE_DIRECT,
};

enum server_state {
	SERVER_UP,
	SERVER_DRAINING, /* keeps its connections, gets no new ones */
	SERVER_DOWN, /* its connections go to others */
};

/* How packets left; each is counted under exactly one. */
enum balancer_exit {
	LB_EXIT_SENT,
	LB_EXIT_RETURNED, /* from a server, to its client */
	LB_EXIT_OTHER, /* of no service: the kernel's */
	LB_EXIT_UNREADABLE, /* fragments, options, tags ...: the kernel's */
	LB_EXIT_NO_SERVER, /* dropped: none is up */
	LB_EXIT_CONFLICT, /* dropped: the client uses its port with another service on that server */
	LB_EXIT_FULL, /* dropped: the table of connections takes no more */
	LB_EXIT_NEIGHBOUR, /* translated; the kernel, which finds the next hop's address, sends it on */
	LB_EXIT_NO_ROUTE, /* dropped: no way there, or for direct return no neighbour yet */
	LB_EXIT_TOO_LONG, /* dropped: longer than the way there takes */
	LB_EXIT_MALFORMED, /* dropped: shorter than its headers */
	LB_EXIT_ICMP_ERROR, /* about a connection: sent to its server, or to its client */
	LB_EXIT_ECHO, /* a ping to a service's address: answered */
	LB_EXITS,
};

struct lb_service {
	__u32 id;
	__u32 mode;
};

struct lb_server {
	struct evnf_end end; /* proto is not used */
	__u32 state;
};

/* Of a packet to a service: its server. Of a packet from a server: the service's end. */
struct lb_connection {
	struct evnf_end end;
	__u32 server;
	__u16 mode;
	__u16 returns;
};

/* Where a packet goes next. */
struct lb_way {
	__u32 interface; /* with HOOK_PEER, if so */
	__u32 mtu;
	__u8 dst[ETH_ALEN];
	__u8 src[ETH_ALEN];
};

/* The way to a server. */
struct lb_known_way {
	__u64 until; /* ticks */
	struct evnf_end end; /* to whom it leads */
	struct lb_way way;
};

/* All that the next packet of a connection needs, in one direction. */
struct lb_recent {
	__u64 until; /* ticks; 0: nothing */
	union evnf_key key;
	struct evnf_end to;
	struct lb_way way;
	__u32 server;
	__u32 generation;
	__u16 mode;
	__u16 returns;
};

/* Servers, by number. Writer: user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EVNF_SERVERS_MAX);
	__type(key, __u32);
	__type(value, struct lb_server);
} lb_servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVNF_SERVICES_MAX);
	__type(key, struct evnf_end);
	__type(value, struct lb_service);
} lb_services SEC(".maps");

/* Addresses of services: these answer pings. Value: not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVNF_SERVICES_MAX);
	__type(key, struct evnf_address);
	__type(value, __u32);
} lb_addresses SEC(".maps");

/* A Maglev table: numbers of servers. Never changed, only replaced. */
struct lb_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EVNF_MAGLEV_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
};

/* Key: id of a service. Absent: it has no server that is up. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, EVNF_SERVICES_MAX);
	__type(key, __u32);
	__array(values, struct lb_table);
} lb_tables SEC(".maps");

/* Both ways of each connection. The least recently used go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, union evnf_key);
	__type(value, struct lb_connection);
} lb_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_SERVERS_MAX);
	__type(key, __u32);
	__type(value, struct evnf_count);
} lb_server_counts SEC(".maps");

/* The way to each server, as the kernel has said it last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_SERVERS_MAX);
	__type(key, __u32);
	__type(value, struct lb_known_way);
} lb_ways SEC(".maps");

/* Connections in the order of nothing: each has one place, a new one takes that of the one before it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_RECENT_SLOTS);
	__type(key, __u32);
	__type(value, struct lb_recent);
} lb_recent SEC(".maps");

/*
 * Goes up after each change of a server: what is remembered from before is looked up again. Writer:
 * user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lb_generation SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} lb_exits SEC(".maps");

/*
 * TCP connections that have begun here with another packet than their first: they were forgotten for want of room,
 * or their server is down, or they are from before.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evnf_count);
} lb_midway SEC(".maps");

/*
 * Ticks for which a connection's server and way are taken as they were, the one that is running
 * included: 2 to 30 ms. The table of connections sees it used that often, so it is not one of those
 * that go first.
 */
#define RECENT_TICKS 3

#define TRIES 4 /* servers that a new connection is tried with */

/* A packet on its way. */
struct passage {
	struct evnf_packet *ctx;
	union evnf_key key;
	struct evnf_end service; /* to which it goes, if it goes to one */
	struct lb_recent *recent; /* of its connection, or what will be */
	bool is_error; /* an ICMP error; `key` is that of packets of its connection, which it begins none of */
};

static __always_inline bool same_end(const struct evnf_end *a, const struct evnf_end *b)
{
	return !((a->address[0] ^ b->address[0]) | (a->address[1] ^ b->address[1]) |
		 (a->address[2] ^ b->address[2]) | (a->address[3] ^ b->address[3]) |
		 (a->port ^ b->port));
}

/*
 * The way back of a connection with `server`: what its server sends. LB_EXIT_SENT: it is entered. A function of its own, as
 * what it has on the stack is not needed by what is called after it.
 */
static __noinline int enter_return(struct passage *p, const struct lb_server *server)
{
	struct lb_connection back = {
		.end = p->service,
		.server = p->recent->server,
		.returns = 1,
	};
	union evnf_key key = {};
	struct lb_connection *other;

	__builtin_memcpy(key.flow.src, server->end.address, sizeof(key.flow.src));
	__builtin_memcpy(key.flow.dst, p->key.flow.src, sizeof(key.flow.dst));
	key.flow.sport = server->end.port;
	key.flow.dport = p->key.flow.sport;
	key.flow.family = p->key.flow.family;
	key.flow.proto = p->key.flow.proto;
	key.flow.has = p->key.flow.has;
	other = bpf_map_lookup_elem(&lb_connections, &key);
	if (other)
		return same_end(&other->end, &p->service) ? LB_EXIT_SENT : LB_EXIT_CONFLICT;
	return bpf_map_update_elem(&lb_connections, &key, &back, BPF_ANY) ? LB_EXIT_FULL
									  : LB_EXIT_SENT;
}

/* The role of a TCP packet in its connection. */
enum tcp_part {
	TCP_NONE, /* it is of UDP, or an ICMP error */
	TCP_FIRST,
	TCP_LATER,
};

static __always_inline enum tcp_part part_of(const struct passage *p)
{
	__u32 l3_bytes = p->key.flow.family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	struct tcphdr *tcp = (void *)(long)p->ctx->data + ETH_HLEN + l3_bytes;

	if (p->is_error || p->key.flow.proto != IPPROTO_TCP ||
	    (void *)(tcp + 1) > (void *)(long)p->ctx->data_end)
		return TCP_NONE;
	return tcp->syn && !tcp->ack ? TCP_FIRST : TCP_LATER;
}

/*
 * Finds a server for a new connection, and enters it. LB_EXIT_SENT: there is one. For an ICMP error: the one that
 * it would be; a balancer that has forgotten a connection, or another one beside it, finds the same.
 */
static __always_inline int begin(struct passage *p)
{
	struct lb_recent *recent = p->recent;
	struct lb_connection new = {};
	struct lb_service *service;
	struct lb_server *server;
	int found = LB_EXIT_NO_SERVER;
	__u32 slot, *number;
	void *table;
	__u64 hash;

	service = bpf_map_lookup_elem(&lb_services, &p->service);
	if (!service)
		return LB_EXIT_OTHER;
	recent->mode = service->mode;
	recent->returns = 0;
	table = bpf_map_lookup_elem(&lb_tables, &service->id);
	if (!table)
		return found;
	hash = flow_hash(&p->key, 0);
	hash ^= hash >> 32;
	slot = (__u32)hash % EVNF_MAGLEV_SLOTS;
	for (int i = 0; i < TRIES; i++) {
		__u32 at = (slot + i * (EVNF_MAGLEV_SLOTS / TRIES)) % EVNF_MAGLEV_SLOTS;

		number = bpf_map_lookup_elem(table, &at);
		if (!number)
			return LB_EXIT_NO_SERVER;
		recent->server = *number;
		server = bpf_map_lookup_elem(&lb_servers, number);
		if (!server || server->state != SERVER_UP)
			continue;
		if (p->is_error) {
			recent->to = server->end;
			return LB_EXIT_SENT;
		}
		found = recent->mode == MODE_DIRECT ? LB_EXIT_SENT : enter_return(p, server);
		if (found == LB_EXIT_CONFLICT)
			continue;
		if (found != LB_EXIT_SENT)
			return found;
		new.end = server->end;
		new.server = recent->server;
		new.mode = recent->mode;
		if (bpf_map_update_elem(&lb_connections, &p->key, &new, BPF_ANY))
			return LB_EXIT_FULL;
		if (part_of(p) == TCP_LATER)
			count(&lb_midway, 0, packet_bytes(p->ctx));
		recent->to = server->end;
		return LB_EXIT_SENT;
	}
	return found;
}

/* Asks the kernel for the way of the packet. LB_EXIT_SENT: it is in `way`. */
static __noinline int ask_way(struct passage *p, struct lb_way *way)
{
	struct bpf_fib_lookup fib = {};
	bool back;
	int result;

	if (!p || !way)
		return LB_EXIT_NO_ROUTE;
	back = p->recent->returns;
	result = find_way(p->ctx, &p->key.flow, back ? p->recent->to.address : p->key.flow.src,
			  back ? p->key.flow.dst : p->recent->to.address, &fib);
	switch (result) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return LB_EXIT_TOO_LONG;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (p->recent->mode != MODE_DIRECT)
			return LB_EXIT_NEIGHBOUR;
		/* fall through: only this host's kernel could ask, and the packet is not its own */
	default:
		return LB_EXIT_NO_ROUTE;
	}
	way->interface = with_peer(fib.ifindex);
	way->mtu = fib.mtu_result;
	__builtin_memcpy(way->dst, fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->src, fib.smac, ETH_ALEN);
	return LB_EXIT_SENT;
}

/* The way to the server: as it was a moment ago, for whichever client, or is now. */
static __always_inline int way_to_server(struct passage *p, __u64 now)
{
	struct lb_recent *recent = p->recent;
	struct lb_known_way *known = bpf_map_lookup_elem(&lb_ways, &recent->server);
	int found;

	if (!known)
		return LB_EXIT_NO_ROUTE;
	if (now >= known->until || !same_end(&known->end, &recent->to)) {
		known->until = 0;
		found = ask_way(p, &known->way);
		if (found != LB_EXIT_SENT)
			return found;
		known->end = recent->to;
		known->until = now + RECENT_TICKS;
	}
	recent->way = known->way;
	return LB_EXIT_SENT;
}

/*
 * Returns true if a connection is there, and its server still takes its packets. A client that uses its port once more
 * begins another connection, which is not for a server that gets no new connections.
 */
static __always_inline bool goes_on(struct passage *p)
{
	struct lb_connection *known = bpf_map_lookup_elem(&lb_connections, &p->key);
	struct lb_recent *recent = p->recent;
	struct lb_server *server;

	if (!known)
		return false;
	recent->to = known->end;
	recent->server = known->server;
	recent->mode = known->mode;
	recent->returns = known->returns;
	if (known->returns)
		return true;
	server = bpf_map_lookup_elem(&lb_servers, &recent->server);
	if (!server || server->state == SERVER_DOWN || !same_end(&server->end, &recent->to))
		return false;
	if (server->state == SERVER_DRAINING && part_of(p) == TCP_FIRST)
		return false;
	/* Both ways are used, but one may have been forgotten while the other is not. */
	return recent->mode == MODE_DIRECT || p->is_error ||
	       enter_return(p, server) == LB_EXIT_SENT;
}

/* Finds out about the packet's connection; `recent` has it then. LB_EXIT_SENT: it may be sent. */
static __noinline int look_up(struct passage *p, __u32 generation, __u64 now)
{
	struct lb_recent *recent;
	bool is_known;
	int found;

	if (!p || !p->recent)
		return LB_EXIT_NO_ROUTE;
	recent = p->recent;
	recent->until = 0;
	__builtin_memcpy(p->service.address, p->key.flow.dst, sizeof(p->service.address));
	p->service.port = p->key.flow.dport;
	p->service.proto = p->key.flow.proto;
	p->service.family = p->key.flow.family;
	is_known = goes_on(p);
	if (!is_known) {
		found = begin(p);
		if (found != LB_EXIT_SENT)
			return found;
	}
	found = recent->returns ? ask_way(p, &recent->way) : way_to_server(p, now);
	if (found != LB_EXIT_SENT || (p->is_error && !is_known))
		return found;
	recent->key = p->key;
	recent->generation = generation;
	recent->until = now + RECENT_TICKS;
	return LB_EXIT_SENT;
}

static __always_inline bool put_macs(struct evnf_packet *ctx, const struct lb_way *way)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return false;
	__builtin_memcpy(eth->h_dest, way->dst, ETH_ALEN);
	__builtin_memcpy(eth->h_source, way->src, ETH_ALEN);
	return true;
}

/* Translates the packet and sends it, or leaves it to the kernel, which `found` says. `is_error`: that of the passage. */
static __always_inline enum balancer_exit send(struct passage *p, int found, bool is_error,
					       int *action)
{
	const struct lb_recent *recent = p->recent;
	const struct evnf_flow *flow = &p->key.flow;
	bool translated = recent->returns || recent->mode == MODE_TRANSLATE;
	struct evnf_packet *ctx = p->ctx;

	if (found == LB_EXIT_SENT && network_bytes(ctx, flow) > recent->way.mtu)
		return LB_EXIT_TOO_LONG;
	if (translated && !(is_error ? put_quoted_end(ctx, flow, &recent->to, recent->returns)
				     : put_end(ctx, flow, &recent->to, recent->returns)))
		return LB_EXIT_MALFORMED;
	if (found == LB_EXIT_NEIGHBOUR) {
		*action = HOOK_PASS;
		return found;
	}
	if ((translated && !take_hop(ctx, flow)) || !put_macs(ctx, &recent->way))
		return LB_EXIT_MALFORMED;
	*action = send_out(ctx, recent->way.interface);
	return recent->returns ? LB_EXIT_RETURNED : LB_EXIT_SENT;
}

static __always_inline __u32 recent_slot(const union evnf_key *key)
{
	return flow_hash(key, 0) >> 32 & (EVNF_RECENT_SLOTS - 1);
}

/* Returns true if `recent` is of the packet's connection, and still valid. */
static __always_inline bool is_remembered(const struct passage *p, __u32 generation, __u64 now)
{
	return now < p->recent->until && p->recent->generation == generation &&
	       same_flow(&p->recent->key, &p->key);
}

/* Returns true if the packet is a ping to the address of a service, from a host that can be answered. */
static __always_inline bool is_ping(struct passage *p)
{
	struct evnf_address to = {};

	if (!is_echo_request(p->ctx, &p->key.flow) || !is_from_a_host(&p->key.flow))
		return false;
	__builtin_memcpy(to.word, p->key.flow.dst, sizeof(to.word));
	to.family = p->key.flow.family;
	return bpf_map_lookup_elem(&lb_addresses, &to);
}

/*
 * Reads an ICMP packet. LB_EXIT_SENT: it is an error about a connection, whose next packet would go where it has to; any
 * other: how it leaves.
 */
static __noinline int read_icmp(struct passage *p, int *action)
{
	if (!p || !action)
		return LB_EXIT_OTHER;
	if (is_ping(p)) {
		if (!answer_echo(p->ctx, &p->key.flow))
			return LB_EXIT_MALFORMED;
		*action = bpf_redirect(came_by(p->ctx), 0);
		return LB_EXIT_ECHO;
	}
	switch (parse_quote(p->ctx, &p->key.flow)) {
	case QUOTE_READ:
		p->is_error = true;
		return LB_EXIT_SENT;
	case QUOTE_UNREADABLE:
		*action = HOOK_PASS;
		return LB_EXIT_UNREADABLE;
	default:
		return LB_EXIT_OTHER;
	}
}

/* Sends an ICMP error the way of its connection. */
static __noinline int send_error(struct passage *p, int found, int *action)
{
	if (!p || !p->recent || !action)
		return LB_EXIT_NO_ROUTE;
	found = send(p, found, true, action);
	return found == LB_EXIT_SENT || found == LB_EXIT_RETURNED ? LB_EXIT_ICMP_ERROR : found;
}

/* How the packet leaves; dropped, unless `action` says something else then. */
static __always_inline enum balancer_exit balance(struct evnf_packet *ctx, __u64 bytes, int *action)
{
	struct passage p = { .ctx = ctx };
	__u64 now = bpf_jiffies64();
	__u32 slot = 0, *generation;
	int found = LB_EXIT_SENT;

	if (parse(ctx, &p.key.flow) != EVNF_EXIT_ACCEPT) {
		*action = HOOK_PASS;
		return LB_EXIT_UNREADABLE;
	}
	generation = bpf_map_lookup_elem(&lb_generation, &slot);
	if (!generation)
		return LB_EXIT_NO_ROUTE;
	if (p.key.flow.proto != IPPROTO_TCP && p.key.flow.proto != IPPROTO_UDP) {
		if (!is_icmp(&p.key.flow))
			return LB_EXIT_OTHER;
		found = read_icmp(&p, action);
		if (found != LB_EXIT_SENT)
			return found;
	}
	slot = recent_slot(&p.key);
	p.recent = bpf_map_lookup_elem(&lb_recent, &slot);
	if (!p.recent)
		return LB_EXIT_NO_ROUTE;
	if (!is_remembered(&p, *generation, now)) {
		found = look_up(&p, *generation, now);
		if (found != LB_EXIT_SENT && found != LB_EXIT_NEIGHBOUR)
			return found;
	}
	if (p.is_error)
		return send_error(&p, found, action);
	if (!p.recent->returns)
		count(&lb_server_counts, p.recent->server, bytes);
	return send(&p, found, false, action);
}

SEC(EVNF_SECTION)
int evnf_balancer(struct evnf_packet *ctx)
{
	__u64 bytes = packet_bytes(ctx);
	int action = HOOK_DROP;
	enum balancer_exit by = balance(ctx, bytes, &action);

	count(&lb_exits, by, bytes);
	return by == LB_EXIT_OTHER ? go_on(ctx) : action;
}

char LICENSE[] SEC("license") = "GPL";
