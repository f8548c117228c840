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

/* Whose the frame is. False: it says nothing of that. */
static __always_inline bool client_of(struct xdp_md *ctx, const struct nfl_flow *flow, __u32 dest,
				      struct nfl_client *client)
{
	bool back = dest & NFL_RULE_BACK;

	client->template = dest << 1 >> (NFL_RULE_TEMPLATE_SHIFT + 1);
	switch (dest & 3) {
	case NFL_CLIENT_BY_ADDRESS:
		client->id[0] = back ? flow->dst[0] : flow->src[0];
		client->id[1] = back ? flow->dst[1] : flow->src[1];
		client->ether = flow->ether;
		return flow->has & NFL_HAS_IP;
	case NFL_CLIENT_BY_VLAN:
		client->id[0] = flow->vlan;
		return flow->vlan;
	case NFL_CLIENT_BY_MAC:
		return !bpf_xdp_load_bytes(ctx, back ? 0 : 6, client->id, 6);
	}
	return false;
}

/* Lets the frame wait. False: there is no room. */
static __noinline bool client_waits(struct xdp_md *ctx, __u32 me, const struct nfl_client *client)
{
	__u64 len = bpf_xdp_get_buff_len(ctx);
	struct nfl_arrival *arrival = bpf_ringbuf_reserve(&nfl_arrivals, sizeof(*arrival), 0);

	if (!arrival)
		return false;
	if (!client || !length_proven(len) || bpf_xdp_load_bytes(ctx, 0, arrival->frame, len)) {
		bpf_ringbuf_discard(arrival, 0);
		return false;
	}
	arrival->client = *client;
	arrival->uplink = me;
	arrival->len = len;
	bpf_ringbuf_submit(arrival, 0);
	return true;
}

/* The port that takes the frame of a flow, by what the rules say of it. */
static __always_inline __u32 client_port(struct xdp_md *ctx, __u32 me, const struct nfl_flow *flow,
					 __u32 dest)
{
	struct nfl_client client = {};
	struct nfl_client_ports *ports;
	__u64 word = 0;

	if (!(dest & NFL_RULE_CLIENTS))
		return dest;
	if (!client_of(ctx, flow, dest, &client))
		return NFL_PORTS_MAX;
	ports = bpf_map_lookup_elem(&nfl_clients, &client);
	if (ports)
		word = READ_ONCE(*(dest & NFL_RULE_BACK ? &ports->back : &ports->entry));
	if (word && word >> 16 == client_digest(&client))
		return word & 0xffff;
	if (dest & NFL_RULE_BACK)
		return NFL_PORTS_MAX;
	return client_waits(ctx, me, &client) ? CLIENT_WAITS : CLIENT_REFUSED;
}

#endif
