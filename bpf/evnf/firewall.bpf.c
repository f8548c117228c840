// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * eFW: the rules of the host's firewall that can be decided before the kernel sees a packet.
 *
 * A stage is a chain of the host's rule set (lib/evnf/src/nft says which packets pass which). In
 * each the rule with the lowest number wins; a packet is dropped by the first stage that drops it,
 * and left to the kernel by the first that cannot tell. Rules are found by tuple space search
 * (Srinivasan, Suri, Varghese: Packet Classification using Tuple Space Search, SIGCOMM 1999), once
 * for each flow; a cache of flows, one for each CPU, remembers what was found.
 *
 * A rule set is a program of its own with maps of its own: to replace one is to replace the program,
 * in one step. So nothing here can be of two rule sets at once.
 */
#include <linux/bpf.h>

#include "chain.h"
#include "count.h"
#include "flow.h"
#include "parse.h"
#include "way.h"
#ifndef EVNF_TC
#include "slow.h"
#endif

#define STAGE_LOCAL (1 << 31) /* this stage is for packets to the host itself, or from it */
#define STAGE_FORWARDED (1 << 30)
#define NO_RULE 0xffffffff

/* Set before the program is loaded. */
SEC(".rodata.firewall") volatile const struct {
	__u32 tuples;
	__u32 seed;
	struct evnf_tuple tuple[EVNF_TUPLES_MAX];
} firewall;

/* Every rule, by the bits that its tuple asks for. Writer: user space, before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, union evnf_key);
	__type(value, struct evnf_rule);
} evnf_rules SEC(".maps");

/* Addresses of the host. Writer: user space. An address that is not in it is not known to be local. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct evnf_address);
	__type(value, __u32);
} evnf_local SEC(".maps");

/* Drops of each rule. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evnf_count);
} evnf_rule_counts SEC(".maps");

/* How packets left. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} evnf_exits SEC(".maps");

/* The cache of flows. Each has one place: a new one takes that of the one before it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_CACHE_SLOTS);
	__type(key, __u32);
	__type(value, struct evnf_cached);
} evnf_cache SEC(".maps");

/* A search through the tuples. */
struct search {
	union evnf_key key;
	struct evnf_decision decision;
	__u32 next; /* tuple */
	__u32 stage;
	struct evnf_rule best; /* of the stage so far */
};

/* The stage's verdict counts for packets of its kind that no earlier stage has decided. */
static __always_inline void end_stage(struct search *s)
{
	if (!(s->stage & STAGE_LOCAL) && s->decision.forwarded == EVNF_ACCEPT) {
		s->decision.forwarded = s->best.verdict;
		s->decision.forwarded_rule = s->best.number;
	}
	if (!(s->stage & STAGE_FORWARDED) && s->decision.local == EVNF_ACCEPT) {
		s->decision.local = s->best.verdict;
		s->decision.local_rule = s->best.number;
	}
	s->best.number = NO_RULE;
	s->best.verdict = EVNF_ACCEPT;
}

/* Looks into one tuple. Called by bpf_loop. */
static long try_tuple(__u32 index, struct search *s)
{
	const volatile struct evnf_tuple *tuple;
	struct evnf_rule *rule;
	union evnf_key key;

	if (index >= EVNF_TUPLES_MAX || index >= firewall.tuples)
		return 1;
	tuple = &firewall.tuple[index];
	if (tuple->stage != s->stage) {
		end_stage(s);
		s->stage = tuple->stage;
	}
	if (tuple->first >= s->best.number)
		return 0;
#pragma unroll
	for (int i = 0; i < EVNF_FLOW_WORDS; i++)
		key.word[i] = s->key.word[i] & tuple->mask.word[i];
	key.flow.tuple = index;
	rule = bpf_map_lookup_elem(&evnf_rules, &key);
	if (rule && rule->number < s->best.number)
		s->best = *rule;
	return 0;
}

/* The search for the verdict of the rules. */
static __noinline int decide(struct evnf_cached *into)
{
	struct search s = { .best.number = NO_RULE };

	if (!into)
		return 0;
	s.key = into->key;
	s.stage = firewall.tuple[0].stage;
	s.decision.forwarded_rule = NO_RULE;
	s.decision.local_rule = NO_RULE;
	bpf_loop(EVNF_TUPLES_MAX, try_tuple, &s, 0);
	end_stage(&s);
	s.decision.known = 1;
	into->decision = s.decision;
	return 0;
}

static __always_inline bool is_local(const struct evnf_flow *flow)
{
	struct evnf_address address = { .family = flow->family };

	__builtin_memcpy(address.word, flow->dst, sizeof(address.word));
	return bpf_map_lookup_elem(&evnf_local, &address);
}

/*
 * Returns 1 if the host forwards the packet, 0 if the host takes it itself, -1 if neither can be seen
 * here: also when the host would answer before its rules are asked (no route, too long, to be
 * redirected). On the way out both are known.
 */
static __always_inline int is_forwarded(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	struct bpf_fib_lookup fib = {
		.sport = bpf_htons(flow->sport),
		.dport = bpf_htons(flow->dport),
	};

	if (HOOK_LEAVES)
		return came_by(ctx) != 0;
	switch (find_way(ctx, flow, flow->src, flow->dst, &fib)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return fib.ifindex == came_by(ctx) ? -1 : 1;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return is_local(flow) ? 0 : -1;
	}
	return -1;
}

/* The place of a packet's flow in the cache. */
static __always_inline struct evnf_cached *place_of(const union evnf_key *key)
{
	__u32 slot = flow_hash(key, firewall.seed) >> 32 & (EVNF_CACHE_SLOTS - 1);

	return bpf_map_lookup_elem(&evnf_cache, &slot);
}

/* How a packet leaves, by what the rules say of its flow. */
static __always_inline enum evnf_exit judge(struct evnf_packet *ctx, const union evnf_key *key,
					    struct evnf_cached *cached, __u64 bytes)
{
	struct evnf_decision decision;

	if (!cached->decision.known || !same_flow(&cached->key, key)) {
		cached->key = *key;
		cached->settled = 0;
		decide(cached);
	}
	decision = cached->decision;
	/* Accepted by both, or left to the kernel: it need not be known which. */
	if (decision.forwarded != EVNF_DROP && decision.local != EVNF_DROP)
		return decision.forwarded | decision.local ? EVNF_EXIT_ASK : EVNF_EXIT_ACCEPT;
	if (decision.forwarded != decision.local ||
	    decision.forwarded_rule != decision.local_rule) {
		switch (is_forwarded(ctx, &key->flow)) {
		case 0:
			decision.forwarded = decision.local;
			decision.forwarded_rule = decision.local_rule;
			break;
		case -1:
			return EVNF_EXIT_NO_ROUTE;
		}
	}
	switch (decision.forwarded) {
	case EVNF_DROP:
		count(&evnf_rule_counts, decision.forwarded_rule, bytes);
		return EVNF_EXIT_DROP;
	case EVNF_ASK:
		return EVNF_EXIT_ASK;
	}
	return EVNF_EXIT_ACCEPT;
}

#ifndef EVNF_TC

/*
 * Returns true if the slow path gets a packet, where the slow path is one of its own. Packets by which the host finds
 * its neighbours are the kernel's still. `cached`: the place of the flow, NULL: it has none.
 */
static __always_inline bool goes_up(enum evnf_exit by, const union evnf_key *key,
				    struct evnf_cached *cached)
{
	switch (by) {
	case EVNF_EXIT_DROP:
	case EVNF_EXIT_NOT_IP:
	case EVNF_EXIT_GROUP:
		return false;
	case EVNF_EXIT_ACCEPT:
		if (!cached || (!cached->settled && !may_go_fast(key)))
			return true;
		cached->settled = 1;
		return false;
	default:
		/* The next accepted packet of this flow may be behind this packet. */
		if (cached)
			cached->settled = 0;
		return true;
	}
}

/* Hands a packet to the slow path, of a flow if there is one. Returns the program's return value. */
static __always_inline int send_up(struct evnf_packet *ctx, enum evnf_exit by,
				   const union evnf_key *flow, __u64 bytes)
{
	bool waits = by == EVNF_EXIT_ACCEPT;
	int action = hand_up(ctx, bytes);

	if (action != XDP_REDIRECT)
		return action;
	if (flow)
		note_in(flow, waits);
	if (waits)
		count(&evnf_slow_exits, EVNF_SLOW_BEHIND, bytes);
	else
		count(&evnf_exits, by, bytes);
	return action;
}

#endif

SEC(EVNF_SECTION)
int evnf_firewall(struct evnf_packet *ctx)
{
	__u64 bytes = packet_bytes(ctx);
	struct evnf_cached *cached = NULL;
	union evnf_key key = {};
	enum evnf_exit by = parse(ctx, &key.flow);
	bool has_flow = is_of_flow(by);

	if (has_flow)
		cached = place_of(&key);
	if (by == EVNF_EXIT_ACCEPT)
		by = cached ? judge(ctx, &key, cached, bytes) : EVNF_EXIT_ASK;
#ifndef EVNF_TC
	if (slow_path.on && goes_up(by, &key, cached) && !is_discovery(ctx, &key.flow))
		return send_up(ctx, by, has_flow ? &key : NULL, bytes);
#endif
	count(&evnf_exits, by, bytes);
	switch (by) {
	case EVNF_EXIT_DROP:
		return HOOK_DROP;
	case EVNF_EXIT_ACCEPT:
		return go_on(ctx);
	default:
		return HOOK_PASS;
	}
}

char LICENSE[] SEC("license") = "GPL";
