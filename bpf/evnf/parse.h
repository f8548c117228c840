/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The parser: what a packet is, or why the fast path cannot say.
 *
 * Read: untagged Ethernet, IPv4 without options, IPv6 without extension headers, the ports of TCP,
 * UDP and SCTP: what nearly all packets are. Everything else is handed up, each by a name. A tunnel's packet
 * is one of its outer headers, as it is to the kernel here: what is in it comes in by the tunnel's interface.
 */
#ifndef EVNF_PARSE_H
#define EVNF_PARSE_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "evnf_consts.h"
#include "evnf_types.h"
#include "hook.h"

#define IPPROTO_HOPOPTS_ 0
#define IPPROTO_DSTOPTS_ 60
#define IPPROTO_ICMPV6_ 58
#define IPPROTO_SCTP_ 132
#define IP_FRAGMENT_MASK 0x3fff /* more fragments, offset */

/* Router and neighbour solicitations and advertisements, redirects. */
#define ND_FIRST 133
#define ND_LAST 137
#define ND_HOPS 255

/* How far a packet has been read. */
struct cursor {
	void *at;
	void *end;
};

/* The next `size` bytes, or NULL when the packet has fewer. */
static __always_inline void *take(struct cursor *c, __u32 size)
{
	void *taken = c->at;

	if (taken + size > c->end)
		return NULL;
	c->at = taken + size;
	return taken;
}

/* Returns true if the host answers a packet with so few hops left: not if the packet is on its way out. */
static __always_inline bool ends_here(__u8 hops)
{
	return !HOOK_LEAVES && hops <= 1;
}

/* Reads the ports, if the protocol has some. */
static __always_inline enum evnf_exit parse_ports(struct cursor *c, struct evnf_flow *flow)
{
	__be16 *ports;

	if (flow->proto != IPPROTO_TCP && flow->proto != IPPROTO_UDP &&
	    flow->proto != IPPROTO_SCTP_)
		return EVNF_EXIT_ACCEPT;
	ports = take(c, 4);
	if (!ports)
		return EVNF_EXIT_MALFORMED;
	flow->sport = bpf_ntohs(ports[0]);
	flow->dport = bpf_ntohs(ports[1]);
	flow->has = EVNF_HAS_PORTS;
	return EVNF_EXIT_ACCEPT;
}

static __always_inline enum evnf_exit parse_ipv4(struct cursor *c, struct evnf_flow *flow)
{
	struct iphdr *ip = take(c, sizeof(*ip));
	enum evnf_exit found;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return EVNF_EXIT_MALFORMED;
	flow->family = 4;
	flow->src[0] = ip->saddr;
	flow->dst[0] = ip->daddr;
	if (ip->ihl != 5)
		return EVNF_EXIT_OPTIONS;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_MASK))
		return EVNF_EXIT_FRAGMENT;
	flow->proto = ip->protocol;
	found = parse_ports(c, flow);
	return found == EVNF_EXIT_ACCEPT && ends_here(ip->ttl) ? EVNF_EXIT_TTL : found;
}

static __always_inline enum evnf_exit parse_ipv6(struct cursor *c, struct evnf_flow *flow)
{
	struct ipv6hdr *ip = take(c, sizeof(*ip));
	enum evnf_exit found;

	if (!ip || ip->version != 6)
		return EVNF_EXIT_MALFORMED;
	flow->family = 6;
	__builtin_memcpy(flow->src, &ip->saddr, sizeof(flow->src));
	__builtin_memcpy(flow->dst, &ip->daddr, sizeof(flow->dst));
	flow->proto = ip->nexthdr;
	switch (ip->nexthdr) {
	case IPPROTO_FRAGMENT:
		return EVNF_EXIT_FRAGMENT;
	case IPPROTO_HOPOPTS_:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS_:
	case IPPROTO_AH:
	case IPPROTO_MH:
		return EVNF_EXIT_EXTENSION;
	}
	found = parse_ports(c, flow);
	return found == EVNF_EXIT_ACCEPT && ends_here(ip->hop_limit) ? EVNF_EXIT_TTL : found;
}

/* Returns true if the frame is for several hosts of this network. */
static __always_inline bool is_for_group(struct evnf_packet *ctx)
{
	__u8 *to = (void *)(long)ctx->data;

	return (void *)(to + 1) <= (void *)(long)ctx->data_end && *to & 1;
}

/* As parse(), of a packet whose headers are exposed, and whomever the frame is for. */
static __always_inline enum evnf_exit parse_frame(struct evnf_packet *ctx, struct evnf_flow *flow)
{
	struct cursor c = {
		.at = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth)
		return EVNF_EXIT_MALFORMED;
	if (has_tag_beside(ctx))
		return EVNF_EXIT_TAGGED;
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return parse_ipv4(&c, flow);
	case bpf_htons(ETH_P_IPV6):
		return parse_ipv6(&c, flow);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
		return EVNF_EXIT_TAGGED;
	}
	return EVNF_EXIT_NOT_IP;
}

/*
 * Fills `flow` from the packet. EVNF_EXIT_ACCEPT: it was understood, as with EVNF_EXIT_TTL; any
 * other: why it was not, or who has to see it. Of options, fragments and extension headers `flow` has
 * the addresses.
 */
static __always_inline enum evnf_exit parse(struct evnf_packet *ctx, struct evnf_flow *flow)
{
	expose(ctx, EVNF_HEADERS_MAX);
	/* A packet that goes out to a group meets the same rules as a packet to a single host. */
	if (!HOOK_LEAVES && is_for_group(ctx))
		return EVNF_EXIT_GROUP;
	return parse_frame(ctx, flow);
}

/* Neighbour discovery of this network: no router has forwarded it. */
static __always_inline bool is_discovery(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	struct ipv6hdr *ip = (void *)(long)ctx->data + ETH_HLEN;
	__u8 *type = (void *)(ip + 1);

	if (flow->family != 6 || flow->proto != IPPROTO_ICMPV6_ ||
	    (void *)(type + 1) > (void *)(long)ctx->data_end)
		return false;
	return ip->hop_limit == ND_HOPS && *type >= ND_FIRST && *type <= ND_LAST;
}

/* Returns true if a packet was read so far that its flow is known, by the result of parse(). */
static __always_inline bool is_of_flow(enum evnf_exit parsed)
{
	return parsed == EVNF_EXIT_ACCEPT || parsed == EVNF_EXIT_TTL;
}

#endif
