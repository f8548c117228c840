/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The classifier: which port takes a frame that came in on an uplink. Included once per loop form.
 *
 * Parsed: Ethernet, up to two VLAN tags, IPv4 with options, IPv6 with up to four hop-by-hop,
 * destination-options or fragment headers. A later fragment, or a longer row of extension headers,
 * has no ports. What cannot be parsed has no IP fields: only rules that ask for none match it.
 *
 * The first matching rule wins. Long tables have a flow cache before them; an entry counts only
 * under the generation of the table that it came from.
 */

#define IPV6_EXTENSIONS 4

#ifndef SWITCH_CLASSIFY_H
#define SWITCH_CLASSIFY_H

#include "client.h"
#include "flow.h"
#include "frame.h"
#include "switch_maps.h"

#define IPPROTO_HOPOPTS_ 0
#define IPPROTO_TCP_ 6
#define IPPROTO_UDP_ 17
#define IPPROTO_FRAGMENT_ 44
#define IPPROTO_DSTOPTS_ 60
#define IPPROTO_SCTP_ 132

#define IPV4_HEADER_MIN 20
#define IPV6_OFFSET 0xf8ff

struct ipv4_header {
	__u8 version_ihl;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 proto;
	__u16 checksum;
	__u32 src;
	__u32 dst;
};

struct ipv6_header {
	__u32 version_flow;
	__u16 length;
	__u8 next;
	__u8 hops;
	__u64 src[2];
	__u64 dst[2];
};

struct ipv6_extension {
	__u8 next;
	__u8 length; /* hop-by-hop, destination: in units of 8 bytes beyond the first */
	__u16 fragment;
	__u32 rest;
};

/* A search through a table of rules. */
struct search {
	struct nfl_flow flow;
	void *rules;
	__u32 index;
	__u32 count;
	__u32 dest;
};

/* Reads the tags. Returns where the network header starts. */
static __always_inline __u32 parse_ethernet(struct xdp_md *ctx, struct nfl_flow *flow)
{
	__u16 words[5] = {}; /* type, TCI, type, TCI, type */
	__u32 at = 14;

	/* As much as the frame has. */
	if (bpf_xdp_load_bytes(ctx, 12, words, 10) && bpf_xdp_load_bytes(ctx, 12, words, 6) &&
	    bpf_xdp_load_bytes(ctx, 12, words, 2))
		return at;
	flow->ether = words[0];
	if (tag_type(words[0])) {
		flow->vlan = (words[1] >> 8 | words[1] << 8) & 0xfff;
		flow->ether = words[2];
		at = 18;
		if (tag_type(words[2])) {
			flow->ether = words[4];
			at = 22;
		}
	}
	return at;
}

static __always_inline void parse_ports(struct xdp_md *ctx, __u32 at, struct nfl_flow *flow)
{
	__u16 ports[2];

	if (flow->proto != IPPROTO_TCP_ && flow->proto != IPPROTO_UDP_ &&
	    flow->proto != IPPROTO_SCTP_)
		return;
	if (bpf_xdp_load_bytes(ctx, at, ports, sizeof(ports)))
		return;
	flow->sport = ports[0] >> 8 | ports[0] << 8;
	flow->dport = ports[1] >> 8 | ports[1] << 8;
	flow->has |= NFL_HAS_PORTS;
}

static __always_inline void parse_ipv4(struct xdp_md *ctx, __u32 at, struct nfl_flow *flow)
{
	struct ipv4_header ip;
	__u32 length;

	if (bpf_xdp_load_bytes(ctx, at, &ip, sizeof(ip)))
		return;
	length = (ip.version_ihl & 0xf) * 4;
	if (ip.version_ihl >> 4 != 4 || length < IPV4_HEADER_MIN)
		return;
	flow->src[0] = ip.src;
	flow->dst[0] = ip.dst;
	flow->proto = ip.proto;
	flow->has |= NFL_HAS_IP;
	if (!(ip.fragment & IPV4_OFFSET))
		parse_ports(ctx, at + length, flow);
}

static __always_inline void parse_ipv6(struct xdp_md *ctx, __u32 at, struct nfl_flow *flow)
{
	struct ipv6_extension extension;
	struct ipv6_header ip;

	if (bpf_xdp_load_bytes(ctx, at, &ip, sizeof(ip)) || (ip.version_flow & 0xf0) != 0x60)
		return;
	flow->src[0] = ip.src[0];
	flow->src[1] = ip.src[1];
	flow->dst[0] = ip.dst[0];
	flow->dst[1] = ip.dst[1];
	flow->proto = ip.next;
	flow->has |= NFL_HAS_IP;
	at += sizeof(ip);
#pragma unroll
	for (int i = 0; i < IPV6_EXTENSIONS; i++) {
		bool fragment = flow->proto == IPPROTO_FRAGMENT_;

		if (!fragment && flow->proto != IPPROTO_HOPOPTS_ && flow->proto != IPPROTO_DSTOPTS_)
			break;
		if (bpf_xdp_load_bytes(ctx, at, &extension, sizeof(extension)))
			return;
		flow->proto = extension.next;
		if (fragment && extension.fragment & IPV6_OFFSET)
			return;
		at += fragment ? 8 : (extension.length + 1) * 8;
	}
	parse_ports(ctx, at, flow);
}

static __always_inline bool address_matches(const __u64 *address, const __u64 *want,
					    const __u64 *mask)
{
	return !(((address[0] ^ want[0]) & mask[0]) | ((address[1] ^ want[1]) & mask[1]));
}

static __always_inline bool rule_matches(const struct nfl_rule *rule, const struct nfl_flow *flow)
{
	if (rule->needs & ~flow->has)
		return false;
	if (rule->ether && rule->ether != flow->ether)
		return false;
	if (rule->vlan != NFL_VLAN_ANY && rule->vlan != flow->vlan)
		return false;
	if (rule->match_proto && rule->proto != flow->proto)
		return false;
	if (flow->sport < rule->sport[0] || flow->sport > rule->sport[1])
		return false;
	if (flow->dport < rule->dport[0] || flow->dport > rule->dport[1])
		return false;
	return address_matches(flow->src, rule->src, rule->src_mask) &&
	       address_matches(flow->dst, rule->dst, rule->dst_mask);
}

#endif

static __always_inline long FORM(try_rule)(struct search *s)
{
	struct nfl_rule *rule;

	if (s->index >= s->count)
		return 1;
	rule = bpf_map_lookup_elem(s->rules, &s->index);
	if (!rule)
		return 1;
	s->index++;
	if (!rule_matches(rule, &s->flow))
		return 0;
	s->dest = rule->dest;
	return 1;
}
LOOP_BODY(try_rule, search)

/* The port that takes the frame; NFL_PORTS_MAX if no rule does; or CLIENT_WAITS, CLIENT_REFUSED. */
__noinline __u32 FORM(classify)(struct xdp_md *ctx, __u32 me)
{
	struct search s = { .dest = NFL_PORTS_MAX };
	struct nfl_decision fresh, *cached;
	struct nfl_rule *head;
	void *flows;
	__u32 at;

	s.rules = bpf_map_lookup_elem(&nfl_rules, &me);
	if (!s.rules)
		return NFL_PORTS_MAX;
	s.index = unknown_zero;
	head = bpf_map_lookup_elem(s.rules, &s.index);
	if (!head)
		return NFL_PORTS_MAX;
	s.count = head->count;
	fresh.generation = head->generation;
	at = parse_ethernet(ctx, &s.flow);
	if (s.flow.ether == ETHERTYPE_IPV4)
		parse_ipv4(ctx, at, &s.flow);
	else if (s.flow.ether == ETHERTYPE_IPV6)
		parse_ipv6(ctx, at, &s.flow);
	flows = bpf_map_lookup_elem(&nfl_flows, &me);
	if (flows) {
		cached = bpf_map_lookup_elem(flows, &s.flow);
		if (cached && cached->generation == fresh.generation)
			return client_port(ctx, me, &s.flow, cached->dest);
	}
	LOOP(NFL_RULES_MAX, try_rule, &s);
	if (flows) {
		fresh.dest = s.dest;
		bpf_map_update_elem(flows, &s.flow, &fresh, BPF_ANY);
	}
	return client_port(ctx, me, &s.flow, s.dest);
}
