/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The hook that a program is compiled for, and all that differs between hooks.
 *
 * XDP: a packet is its bytes. The ingress of tc (EVNF_TC): a packet is a socket buffer. Its payload may be
 * elsewhere, its VLAN tag is beside it, its checksum may be left for later, and it may be several
 * segments that are cut later. All that stays as it is: only headers are read and changed. The egress of
 * tc (EVNF_TC, EVNF_EGRESS): the same on the way out. Routing, and the kernel's rules if it was asked for
 * them, are behind it.
 */
#ifndef EVNF_HOOK_H
#define EVNF_HOOK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "evnf_consts.h"

/* Beside an interface's number: its other end can be given packets directly. */
#define HOOK_PEER (1U << 31)

#ifdef EVNF_TC

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

/* HOOK_LEAVES: packets are on their way out. */
#ifdef EVNF_EGRESS
#define EVNF_SECTION "tcx/egress"
#define HOOK_LEAVES true
#else
#define EVNF_SECTION "tcx/ingress"
#define HOOK_LEAVES false
#endif
/* The context of programs: struct evnf_packet. */
#define evnf_packet __sk_buff

/* Undecided: programs behind this one, of whomever, see the packet too, then the kernel. */
#define HOOK_PASS TC_ACT_UNSPEC
#define HOOK_DROP TC_ACT_SHOT

/*
 * Interfaces of kind veth whose other end is in another namespace. The kernel drops what is to be
 * given to another one's other end, so who is not in here is sent packets in the usual way. Key: its
 * number. Writer: user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, EVNF_PEERS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} evnf_peers SEC(".maps");

/* Brings so many bytes to where they can be read and written. Pointers into the packet are void after it. */
static __always_inline void expose(struct evnf_packet *ctx, __u32 bytes)
{
	__u32 wanted = ctx->len < bytes ? ctx->len : bytes;

	/* A packet that fails here is too short for the parser. */
	if (ctx->data_end - ctx->data < wanted)
		bpf_skb_pull_data(ctx, wanted);
}

/* Copies bytes of the packet, wherever they are. 0: done. */
static __always_inline long load_bytes(struct evnf_packet *ctx, __u32 at, void *to, __u32 length)
{
	return bpf_skb_load_bytes(ctx, at, to, length);
}

static __always_inline bool has_tag_beside(struct evnf_packet *ctx)
{
	return ctx->vlan_present;
}

/* Bytes on the wire, the Ethernet header of the first segment included. */
static __always_inline __u64 packet_bytes(struct evnf_packet *ctx)
{
	return ctx->len;
}

/* Bytes of the segments that it is going to be cut into, without headers; 0: it is none of several. */
static __always_inline __u32 segment_bytes(struct evnf_packet *ctx)
{
	return ctx->gso_size;
}

/* The interface that the packet came in by; on its way out 0: the host has made it. */
static __always_inline __u32 came_by(struct evnf_packet *ctx)
{
	return HOOK_LEAVES ? ctx->ingress_ifindex : ctx->ifindex;
}

/* An interface, with HOOK_PEER if so. */
static __always_inline __u32 with_peer(__u32 interface)
{
	return bpf_map_lookup_elem(&evnf_peers, &interface) ? interface | HOOK_PEER : interface;
}

/*
 * Has the packet sent out of an interface (with_peer), and returns the program's return value. The other end of a veth
 * gets the packet as if it had just come in there: no queue, no second turn of the network stack. The other end does not
 * check again whether the packet is for it: if that was not clear before, the packet has to come in the usual way.
 */
static __always_inline int send_out(struct evnf_packet *ctx, __u32 interface)
{
	if (interface & HOOK_PEER && ctx->pkt_type == PACKET_HOST)
		return bpf_redirect_peer(interface & ~HOOK_PEER, 0);
	return bpf_redirect(interface & ~HOOK_PEER, 0);
}

#else

#define EVNF_SECTION "xdp"
#define evnf_packet xdp_md
#define HOOK_LEAVES false

#define HOOK_PASS XDP_PASS
#define HOOK_DROP XDP_DROP

static __always_inline void expose(struct evnf_packet *ctx, __u32 bytes)
{
}

static __always_inline long load_bytes(struct evnf_packet *ctx, __u32 at, void *to, __u32 length)
{
	return bpf_xdp_load_bytes(ctx, at, to, length);
}

static __always_inline bool has_tag_beside(struct evnf_packet *ctx)
{
	return false;
}

static __always_inline __u64 packet_bytes(struct evnf_packet *ctx)
{
	return ctx->data_end - ctx->data;
}

static __always_inline __u32 segment_bytes(struct evnf_packet *ctx)
{
	return 0;
}

static __always_inline __u32 came_by(struct evnf_packet *ctx)
{
	return ctx->ingress_ifindex;
}

static __always_inline __u32 with_peer(__u32 interface)
{
	return interface;
}

static __always_inline int send_out(struct evnf_packet *ctx, __u32 interface)
{
	return bpf_redirect(interface, 0);
}

#endif
#endif
