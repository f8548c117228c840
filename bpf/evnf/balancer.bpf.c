// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * eLB: connections to the address of a service go to one of its servers.
 *
 * A new connection's server is the one that the service's Maglev table has for its hash (Eisenbud et
 * al., Maglev, NSDI 2016); the table of connections keeps it there, whatever becomes of the table.
 * Packets are translated both ways (DNAT), or sent on to the server's MAC address as they are, and
 * the server answers by itself (direct return). What cannot be translated goes to the kernel, by a
 * name that is counted.
 */
#include <linux/bpf.h>

#include "count.h"
#include "parse.h"
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
	__u64 until; /* coarse monotonic time in ns */
	struct evnf_end end; /* to whom it leads */
	__u32 interface;
	__u32 mtu;
	__u8 dst[ETH_ALEN];
	__u8 src[ETH_ALEN];
	__u32 unused;
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
	__type(value, struct lb_way);
} lb_ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LB_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} lb_exits SEC(".maps");

/* How long a way is taken without asking the kernel again: a look-up costs as much as all else. */
#define WAY_NS 10000000

#define TRIES 4 /* servers that a new connection is tried with */

/* A packet on its way. */
struct passage {
	struct xdp_md *ctx;
	union evnf_key key;
	struct evnf_end service;
	struct evnf_end to;
	__u32 server;
	__u32 mode;
};

static __always_inline int leave(struct xdp_md *ctx, enum balancer_exit by, int action)
{
	count(&lb_exits, by, ctx->data_end - ctx->data);
	return action;
}

static __always_inline bool same_end(const struct evnf_end *a, const struct evnf_end *b)
{
	return !((a->address[0] ^ b->address[0]) | (a->address[1] ^ b->address[1]) |
		 (a->address[2] ^ b->address[2]) | (a->address[3] ^ b->address[3]) |
		 (a->port ^ b->port));
}

static __always_inline __u32 slot_of(const union evnf_key *key)
{
	__u64 hash = 0;

#pragma unroll
	for (int i = 0; i < EVNF_FLOW_WORDS; i++)
		hash = (hash ^ key->word[i]) * 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 32;
	return (__u32)hash % EVNF_MAGLEV_SLOTS;
}

/* The way back of a connection with `server`: what its server sends. False: another's. */
static __always_inline int enter_return(struct passage *p, const struct lb_server *server)
{
	struct lb_connection back = { .end = p->service, .server = p->server, .returns = 1 };
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
	if (other && !same_end(&other->end, &p->service))
		return LB_EXIT_CONFLICT;
	return bpf_map_update_elem(&lb_connections, &key, &back, BPF_ANY) ? LB_EXIT_FULL
									  : LB_EXIT_SENT;
}

/* Finds a server for a new connection, and enters it. LB_EXIT_SENT: there is one. */
static __noinline int begin(struct passage *p)
{
	struct lb_connection new = {};
	struct lb_service *service;
	struct lb_server *server;
	int found = LB_EXIT_NO_SERVER;
	__u32 slot, *number;
	void *table;

	if (!p)
		return found;
	__builtin_memcpy(p->service.address, p->key.flow.dst, sizeof(p->service.address));
	p->service.port = p->key.flow.dport;
	p->service.proto = p->key.flow.proto;
	p->service.family = p->key.flow.family;
	service = bpf_map_lookup_elem(&lb_services, &p->service);
	if (!service)
		return LB_EXIT_OTHER;
	p->mode = service->mode;
	table = bpf_map_lookup_elem(&lb_tables, &service->id);
	if (!table)
		return found;
	slot = slot_of(&p->key);
	for (int i = 0; i < TRIES; i++) {
		__u32 at = (slot + i * (EVNF_MAGLEV_SLOTS / TRIES)) % EVNF_MAGLEV_SLOTS;

		number = bpf_map_lookup_elem(table, &at);
		if (!number)
			return LB_EXIT_NO_SERVER;
		p->server = *number;
		server = bpf_map_lookup_elem(&lb_servers, &p->server);
		if (!server || server->state != SERVER_UP)
			continue;
		found = p->mode == MODE_DIRECT ? LB_EXIT_SENT : enter_return(p, server);
		if (found == LB_EXIT_CONFLICT)
			continue;
		if (found != LB_EXIT_SENT)
			return found;
		new.end = server->end;
		new.server = p->server;
		new.mode = p->mode;
		if (bpf_map_update_elem(&lb_connections, &p->key, &new, BPF_ANY))
			return LB_EXIT_FULL;
		p->to = server->end;
		return LB_EXIT_SENT;
	}
	return found;
}

/* Asks the kernel for the way of the packet. 0: it is in `way`; else how the packet leaves. */
static __noinline int ask_way(struct passage *p, struct lb_way *way, bool back)
{
	struct bpf_fib_lookup fib = {};
	int result;

	if (!p || !way)
		return LB_EXIT_NO_ROUTE;
	result = find_way(p->ctx, &p->key.flow, back ? p->to.address : p->key.flow.src,
			  back ? p->key.flow.dst : p->to.address, &fib);
	way->until = 0;
	switch (result) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return LB_EXIT_TOO_LONG;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (p->mode != MODE_DIRECT)
			return LB_EXIT_NEIGHBOUR;
		/* fall through: only this host's kernel could ask, and the packet is not its own */
	default:
		return LB_EXIT_NO_ROUTE;
	}
	way->interface = fib.ifindex;
	way->mtu = fib.mtu_result;
	__builtin_memcpy(way->dst, fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->src, fib.smac, ETH_ALEN);
	return 0;
}

/* The way to the server: as it was a moment ago, or is now. */
static __always_inline int way_to_server(struct passage *p, struct lb_way **way)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u64 length = p->ctx->data_end - p->ctx->data - ETH_HLEN;
	int leaves;

	*way = bpf_map_lookup_elem(&lb_ways, &p->server);
	if (!*way)
		return LB_EXIT_NO_ROUTE;
	if (now < (*way)->until && same_end(&(*way)->end, &p->to))
		return length > (*way)->mtu ? LB_EXIT_TOO_LONG : 0;
	leaves = ask_way(p, *way, false);
	if (leaves)
		return leaves;
	(*way)->end = p->to;
	(*way)->until = now + WAY_NS;
	return 0;
}

static __always_inline bool put_macs(struct xdp_md *ctx, const struct lb_way *way)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return false;
	__builtin_memcpy(eth->h_dest, way->dst, ETH_ALEN);
	__builtin_memcpy(eth->h_source, way->src, ETH_ALEN);
	return true;
}

/* Sends the packet on its way, `by` saying which. */
static __always_inline int send(struct passage *p, enum balancer_exit by)
{
	bool back = by == LB_EXIT_RETURNED;
	struct lb_way own = {}, *way = &own;
	int leaves = back ? ask_way(p, way, true) : way_to_server(p, &way);

	if (leaves && leaves != LB_EXIT_NEIGHBOUR)
		return leave(p->ctx, leaves, XDP_DROP);
	if (p->mode != MODE_DIRECT && !put_end(p->ctx, &p->key.flow, &p->to, back))
		return leave(p->ctx, LB_EXIT_MALFORMED, XDP_DROP);
	if (leaves)
		return leave(p->ctx, LB_EXIT_NEIGHBOUR, XDP_PASS);
	if ((p->mode != MODE_DIRECT && !take_hop(p->ctx, &p->key.flow)) || !put_macs(p->ctx, way))
		return leave(p->ctx, LB_EXIT_MALFORMED, XDP_DROP);
	return leave(p->ctx, by, bpf_redirect(way->interface, 0));
}

/* Whether a connection's server still takes its packets. */
static __always_inline bool goes_on(struct passage *p, const struct lb_connection *known)
{
	struct lb_server *server;

	p->server = known->server;
	p->mode = known->mode;
	p->to = known->end;
	server = bpf_map_lookup_elem(&lb_servers, &p->server);
	return server && server->state != SERVER_DOWN && same_end(&server->end, &p->to);
}

SEC("xdp")
int evnf_balancer(struct xdp_md *ctx)
{
	struct passage p = { .ctx = ctx };
	struct lb_connection *known;
	int found;

	if (parse(ctx, &p.key.flow) != EVNF_EXIT_ACCEPT)
		return leave(ctx, LB_EXIT_UNREADABLE, XDP_PASS);
	if (p.key.flow.proto != IPPROTO_TCP && p.key.flow.proto != IPPROTO_UDP)
		return leave(ctx, LB_EXIT_OTHER, XDP_PASS);
	known = bpf_map_lookup_elem(&lb_connections, &p.key);
	if (known && known->returns) {
		p.to = known->end;
		return send(&p, LB_EXIT_RETURNED);
	}
	if (!known || !goes_on(&p, known)) {
		found = begin(&p);
		if (found == LB_EXIT_OTHER)
			return leave(ctx, found, XDP_PASS);
		if (found != LB_EXIT_SENT)
			return leave(ctx, found, XDP_DROP);
	}
	count(&lb_server_counts, p.server, ctx->data_end - ctx->data);
	return send(&p, LB_EXIT_SENT);
}

char LICENSE[] SEC("license") = "GPL";
