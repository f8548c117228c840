// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * eDPI: what a flow carries is found out by a program that gets copies of its packets; packets never
 * wait for it. Flows that it has decided about are in the table: their packets are counted, passed
 * on, sent out, marked or dropped here.
 *
 * Each packet is counted once: here, under its flow, if that is in the table; by the program, if it
 * got a copy that does not say otherwise; as unseen, if there was no room for the copy. At tc what is
 * cut later is one packet, and its copy has its beginning. Whatever is passed goes on to the next
 * member of a chain; where it is the last one, to the kernel.
 */
#include <linux/bpf.h>

#include "chain.h"
#include "count.h"
#include "parse.h"
#include "rewrite.h"
#include "way.h"

enum flow_action {
	FLOW_PASS,
	FLOW_FORWARD, /* straight out, where the kernel would send it */
	FLOW_DROP,
};

#define FLOW_COPY (1 << 0) /* counted here, and looked at once more */
#define FLOW_MARK (1 << 1) /* gets a DSCP */
#define DSCP_MAX 63

/* How packets left; each is counted under exactly one. */
enum inspector_exit {
	DPI_EXIT_PASSED, /* of a flow in the table, to the kernel */
	DPI_EXIT_FORWARDED, /* the same, sent out */
	DPI_EXIT_DROPPED, /* the same, dropped */
	DPI_EXIT_COPIED, /* of another flow: to the kernel, and a copy to the program */
	DPI_EXIT_UNREADABLE, /* the same: fragments, options, tags ... */
	DPI_EXIT_UNSEEN, /* to the kernel; no room for a copy */
	DPI_EXIT_NOT_IP, /* to the kernel */
	DPI_EXITS,
};

struct dpi_flow {
	__u32 slot; /* of its counters */
	__u8 action;
	__u8 flags;
	__u8 dscp;
	__u8 unused;
	__u64 note; /* for the process that has entered it, or its successor */
};

/* Before the bytes of a copy. */
struct dpi_copy {
	__u64 time_ns; /* monotonic */
	__u32 length; /* of the frame */
	__u32 kept; /* of it, in this copy */
	__u32 counted; /* 1: under its flow */
	__u32 unused;
};

/* Flows that are decided, both ways under one key: the end that is lower, word by word, comes first. Writer: user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, union evnf_key);
	__type(value, struct dpi_flow);
} dpi_flows SEC(".maps");

/*
 * Counters of every application, and how far each slot has been added to them: a program that dies leaves them to its
 * successor. Writer: user space. lib/dpi/src/ledger.rs has the layout.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} dpi_ledger SEC(".maps");

/*
 * Forbidden actions, whatever the entry of a flow says: a bit for each action. Writer: the loader of the program. The loader
 * hands other tables to the classifier, which may be hostile by now, and not this table.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} dpi_forbidden SEC(".maps");

/* Their counters. Never cleared: who uses a slot remembers where it began. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct evnf_count);
} dpi_counts SEC(".maps");

/* Copies, in the order in which packets came. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} dpi_copies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DPI_EXITS);
	__type(key, __u32);
	__type(value, struct evnf_count);
} dpi_exits SEC(".maps");

/* Where packets of a flow in the table go next, each way, as the kernel has said it last. */
struct dpi_way {
	__u64 until; /* coarse monotonic time in ns */
	__u32 dst[4]; /* to whom it leads */
	__u32 from; /* the interface that the packet came in by */
	__u32 interface; /* with_peer */
	__u32 mtu;
	__u32 unused;
	__u8 mac[2 * ETH_ALEN]; /* as a frame begins */
	__u8 unused2[4];
};

#define WAYS 4096 /* a power of two; flows that share one ask more often */
#define WAY_NS 10000000

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct dpi_way);
} dpi_ways SEC(".maps");

/* Sizes of copies: nDPI wants whole packets of 1500 bytes; most are acknowledgements. */
#define COPY_SHORT 256
#define COPY_LONG 2048

static __always_inline int leave(enum inspector_exit by, __u64 bytes, int action)
{
	count(&dpi_exits, by, bytes);
	return action;
}

/* To the next member of a chain, or the kernel. */
static __always_inline int pass(struct evnf_packet *ctx, enum inspector_exit by, __u64 bytes)
{
	count(&dpi_exits, by, bytes);
	return go_on(ctx);
}

/* `room` is a constant. False: there is none. */
static __always_inline bool copy_into(struct evnf_packet *ctx, __u32 length, __u32 room,
				      bool counted)
{
	struct dpi_copy *record = bpf_ringbuf_reserve(&dpi_copies, sizeof(*record) + room, 0);
	__u32 kept = length < room ? length : room;

	if (!record)
		return false;
	record->time_ns = bpf_ktime_get_ns();
	record->length = length;
	record->kept = kept;
	record->counted = counted;
	record->unused = 0;
	/*
	 * The compiler knows the bounds, and would leave out the checks that show them to the kernel, or
	 * make one of two that 6.1 and 6.12 do not understand.
	 */
	barrier_var(kept);
	if (kept > room)
		goto failed;
	barrier_var(kept);
	if (kept < ETH_HLEN || load_bytes(ctx, 0, record + 1, kept))
		goto failed;
	bpf_ringbuf_submit(record, 0);
	return true;
failed:
	bpf_ringbuf_discard(record, 0);
	return false;
}

static __noinline int copy(struct evnf_packet *ctx, __u32 length, bool counted)
{
	if (length <= COPY_SHORT)
		return copy_into(ctx, length, COPY_SHORT, counted);
	return copy_into(ctx, length, COPY_LONG, counted);
}

static __always_inline bool is_reversed(const struct evnf_flow *flow)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (flow->src[i] != flow->dst[i])
			return flow->src[i] > flow->dst[i];
	return flow->sport > flow->dport;
}

/* The key of both ways. */
static __always_inline void key_of(const struct evnf_flow *flow, union evnf_key *key)
{
	bool back = is_reversed(flow);
	bool ports = flow->proto == IPPROTO_TCP || flow->proto == IPPROTO_UDP;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		key->flow.src[i] = back ? flow->dst[i] : flow->src[i];
		key->flow.dst[i] = back ? flow->src[i] : flow->dst[i];
	}
	if (ports) {
		key->flow.sport = back ? flow->dport : flow->sport;
		key->flow.dport = back ? flow->sport : flow->dport;
		key->flow.has = EVNF_HAS_PORTS;
	}
	key->flow.family = flow->family;
	key->flow.proto = flow->proto;
}

/* Writes the DSCP; the two bits of ECN stay. */
static __always_inline void mark(struct evnf_packet *ctx, const struct evnf_flow *flow, __u8 dscp)
{
	void *l3 = (void *)(long)ctx->data + ETH_HLEN;
	void *end = (void *)(long)ctx->data_end;

	if (flow->family == 4) {
		struct iphdr *ip = l3;
		__u8 tos;

		if ((void *)(ip + 1) > end)
			return;
		tos = (ip->tos & 3) | dscp << 2;
		ip->check =
			sum_fold(sum_change((__u16)~ip->check, bpf_htons(ip->tos), bpf_htons(tos)));
		ip->tos = tos;
	} else {
		__be16 *word = l3, before;

		if ((void *)(word + 1) > end)
			return;
		before = *word;
		/* Version, DSCP, ECN, the first bits of the flow label. */
		*word = (before & bpf_htons(0xf03f)) | bpf_htons(dscp << 6);
		sum_moved(ctx, sum_32(sum_change(0, before, *word)));
	}
}

/* Asks the kernel for the way. False: it is to send the packet itself. */
static __noinline int ask_way(struct evnf_packet *ctx, const struct evnf_flow *flow,
			      struct dpi_way *way)
{
	struct bpf_fib_lookup fib = {};

	if (!flow || !way)
		return false;
	fib.sport = bpf_htons(flow->sport);
	fib.dport = bpf_htons(flow->dport);
	if (find_way(ctx, flow, flow->src, flow->dst, &fib) != BPF_FIB_LKUP_RET_SUCCESS ||
	    fib.ifindex == came_by(ctx)) {
		way->until = 0;
		return false;
	}
	__builtin_memcpy(way->dst, flow->dst, sizeof(way->dst));
	way->from = came_by(ctx);
	way->interface = with_peer(fib.ifindex);
	way->mtu = fib.mtu_result;
	__builtin_memcpy(way->mac, fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->mac + ETH_ALEN, fib.smac, ETH_ALEN);
	way->until = bpf_ktime_get_coarse_ns() + WAY_NS;
	return true;
}

/* Sends the packet out. HOOK_PASS: the kernel has to do it. */
static __always_inline int forward(struct evnf_packet *ctx, const struct evnf_flow *flow,
				   __u32 slot)
{
	__u32 at = (slot * 2 + is_reversed(flow)) & (WAYS - 1);
	struct dpi_way *way = bpf_map_lookup_elem(&dpi_ways, &at);
	struct ethhdr *eth;

	if (!way)
		return HOOK_PASS;
	if (way->until < bpf_ktime_get_coarse_ns() || way->from != came_by(ctx) ||
	    way->dst[0] != flow->dst[0] || way->dst[1] != flow->dst[1] ||
	    way->dst[2] != flow->dst[2] || way->dst[3] != flow->dst[3]) {
		if (!ask_way(ctx, flow, way))
			return HOOK_PASS;
	}
	if (network_bytes(ctx, flow) > way->mtu || !take_hop(ctx, flow))
		return HOOK_PASS;
	eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return HOOK_PASS;
	__builtin_memcpy(eth, way->mac, sizeof(way->mac));
	return send_out(ctx, way->interface);
}

static __always_inline bool is_forbidden(__u8 action)
{
	__u32 only = 0;
	const __u32 *bits = bpf_map_lookup_elem(&dpi_forbidden, &only);

	return !bits || *bits >> (action & 31) & 1;
}

static __always_inline int treat(struct evnf_packet *ctx, const struct evnf_flow *flow,
				 const struct dpi_flow *known, __u64 bytes)
{
	__u8 wanted = known->action;
	int action;

	if (wanted != FLOW_PASS && is_forbidden(wanted))
		wanted = FLOW_PASS;
	count(&dpi_counts, known->slot, bytes);
	if (known->flags & FLOW_COPY)
		copy(ctx, bytes, true);
	if (wanted == FLOW_DROP)
		return leave(DPI_EXIT_DROPPED, bytes, HOOK_DROP);
	if (known->flags & FLOW_MARK)
		mark(ctx, flow, known->dscp & DSCP_MAX);
	if (wanted == FLOW_FORWARD) {
		action = forward(ctx, flow, known->slot);
		if (action != HOOK_PASS)
			return leave(DPI_EXIT_FORWARDED, bytes, action);
	}
	return pass(ctx, DPI_EXIT_PASSED, bytes);
}

SEC(EVNF_SECTION)
int evnf_inspector(struct evnf_packet *ctx)
{
	__u64 bytes = packet_bytes(ctx);
	enum inspector_exit by = DPI_EXIT_COPIED;
	struct evnf_flow flow = {};
	union evnf_key key = {};
	struct dpi_flow *known;

	switch (parse(ctx, &flow)) {
	case EVNF_EXIT_ACCEPT:
		key_of(&flow, &key);
		known = bpf_map_lookup_elem(&dpi_flows, &key);
		if (known)
			return treat(ctx, &flow, known, bytes);
		break;
	case EVNF_EXIT_NOT_IP:
		return pass(ctx, DPI_EXIT_NOT_IP, bytes);
	default:
		by = DPI_EXIT_UNREADABLE;
	}
	if (!copy(ctx, bytes, false))
		by = DPI_EXIT_UNSEEN;
	return pass(ctx, by, bytes);
}

char LICENSE[] SEC("license") = "GPL";
