/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The classifier: which port takes a frame that came in on an uplink. Included once per loop form; the search begins in
 * uplink.h. What cannot be parsed (arrival.h) has no IP fields: only rules that ask for none match it.
 *
 * The first matching rule wins. Long tables have a flow cache before them; an entry counts only
 * under the generation of the table that it came from.
 */

#ifndef SWITCH_CLASSIFY_H
#define SWITCH_CLASSIFY_H

#include "client.h"
#include "flow.h"
#include "frame.h"
#include "switch_maps.h"

/* A search through a table of rules. */
struct search {
	struct nfl_flow flow;
	void *rules;
	__u32 index;
	__u32 count;
	__u32 dest;
};

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
