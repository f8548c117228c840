/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A slow path of its own, between the fast path and the kernel's stack (docs/adr/0027-slow-path.md):
 * what is handed up goes into a tap, and what comes out of one goes on as if it had just come in.
 *
 * A flow changes its path when rules or routes change. For that, packets in the slow path are counted, flow by
 * flow, on their way in and out. A flow goes fast when none of it is in there; if that does not come to pass,
 * after a while all the same, and what comes out later is dropped: no packet is overtaken.
 */
#ifndef EVNF_SLOW_H
#define EVNF_SLOW_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "evnf_types.h"
#include "hook.h"

/*
 * Flows that have been handed up, those that were not the longest leave first. Writers: the fast path, and
 * what sees packets return.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EVNF_SLOW_FLOWS_MAX);
	__type(key, union evnf_key);
	__type(value, struct evnf_slow_flow);
} evnf_slow_flows SEC(".maps");

/* Counters of packets on the way to the slow path and back. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVNF_SLOW_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} evnf_slow_exits SEC(".maps");

/* Returns true if a counter has come as far as another; both wrap. */
static __always_inline bool has_reached(__u32 counter, __u32 other)
{
	return (__s32)(counter - other) >= 0;
}

#ifdef EVNF_TC

/*
 * Returns true if a packet that returns from the slow path may go on: its flow has not taken the fast path since. The
 * slow path keeps the order of a flow's packets, so earlier packets come out first.
 */
static __always_inline bool is_in_time(const union evnf_key *key)
{
	struct evnf_slow_flow *flow = bpf_map_lookup_elem(&evnf_slow_flows, key);
	__u32 number;

	/* Unknown: it was forgotten, or the slow path has made the packet. */
	if (!flow)
		return true;
	number = __sync_fetch_and_add(&flow->out, 1);
	return !flow->fast && has_reached(number, flow->late);
}

#else

/* Set before the program is loaded. */
SEC(".rodata.slow") volatile const struct {
	__u64 patience_ns; /* how long a flow that may go fast waits for its packets */
	__u64 lost_ns; /* what has not come out for so long never will */
	__u32 on; /* 0: the slow path is the kernel's stack */
	__u32 unused;
} slow_path;

/* The tap. Writer: user space; empty while there is none. The kernel empties it when the tap goes. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} evnf_slow SEC(".maps");

/*
 * Returns true if a packet that the fast path accepts overtakes no packet of its flow. From the first such packet on
 * the flow is the fast path's.
 */
static __always_inline bool may_go_fast(const union evnf_key *key)
{
	struct evnf_slow_flow *flow = bpf_map_lookup_elem(&evnf_slow_flows, key);
	__u64 now;

	if (!flow || flow->fast)
		return true;
	now = bpf_ktime_get_ns();
	if (!has_reached(flow->out, flow->in)) {
		if (!flow->since)
			flow->since = now;
		if (now - flow->since < slow_path.patience_ns)
			return false;
		flow->late = flow->in;
	}
	flow->since = now;
	flow->fast = 1;
	return true;
}

/* Notes that a packet of a flow is in the slow path. `waits`: because of those that are there already. */
static __always_inline void note_in(const union evnf_key *key, bool waits)
{
	struct evnf_slow_flow *flow = bpf_map_lookup_elem(&evnf_slow_flows, key);
	struct evnf_slow_flow fresh = { .in = 1 };

	if (!flow) {
		if (!bpf_map_update_elem(&evnf_slow_flows, key, &fresh, BPF_NOEXIST))
			return;
		flow = bpf_map_lookup_elem(&evnf_slow_flows, key);
		if (!flow)
			return;
	}
	if (flow->fast) {
		if (bpf_ktime_get_ns() - flow->since >= slow_path.lost_ns) {
			flow->out = flow->in;
			flow->late = flow->in;
		}
		flow->fast = 0;
	}
	if (!waits)
		flow->since = 0;
	__sync_fetch_and_add(&flow->in, 1);
}

/* Hands a packet to the slow path, and returns the program's return value. Without a slow path the packet is dropped: only the slow path may decide. */
static __always_inline int hand_up(struct evnf_packet *ctx, __u64 bytes)
{
	int action = bpf_redirect_map(&evnf_slow, 0, XDP_DROP);

	count(&evnf_slow_exits, action == XDP_REDIRECT ? EVNF_SLOW_HANDED : EVNF_SLOW_ABSENT,
	      bytes);
	return action;
}

#endif
#endif
