/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A received frame at tc: a socket buffer. Its outer VLAN tag is beside it, and what is still to be done to it is in
 * fields of the kernel's own, which are read by their names in the kernel's BTF.
 *
 * The context of such a program is the socket buffer itself. The program reads it with bpf_probe_read_kernel, which every
 * supported kernel takes; bpf_cast_to_kern_ctx would need Linux 6.2.
 */
#ifndef SWITCH_HOOK_TC_H
#define SWITCH_HOOK_TC_H

#include <bpf/bpf_core_read.h>

#include "deliver.h"
#include "offload.h"
#include "verdict.h"

/* Verdicts of tcx, which are the same for clsact: linux/pkt_cls.h. */
#define TC_NEXT (-1)
#define TC_DROP 2
#define TC_REDIRECT 7

/* linux/if_packet.h */
#define PACKET_HOST_ 0

#define TAG_AT 12
#define TAG_BYTES 4

/* include/linux/skbuff.h */
struct sk_buff___nfl {
	__u8 ip_summed : 2;
	__u16 csum_start;
	__u16 csum_offset;
	__u32 end;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

struct skb_shared_info___nfl {
	unsigned int gso_type;
} __attribute__((preserve_access_index));

#define SKB_CHECKSUM_PARTIAL 3
#define SKB_GSO_TCPV4 (1u << 0)
#define SKB_GSO_DODGY (1u << 1)
#define SKB_GSO_TCP_ECN (1u << 2)
#define SKB_GSO_TCP_FIXEDID (1u << 3)
#define SKB_GSO_TCPV6 (1u << 4)
#define SKB_GSO_UDP_L4 (1u << 17)

/* Bytes up to `len`, without the tag that is beside the frame. */
static __always_inline __u32 frame_tag(struct __sk_buff *ctx)
{
	return ctx->vlan_present ? TAG_BYTES : 0;
}

/* The frame's length with its tag. */
static __always_inline __u64 frame_len_tc(struct __sk_buff *ctx)
{
	return (__u64)ctx->len + frame_tag(ctx);
}

/* Loads bytes of the addresses, or bytes behind the first tag. Offsets count the tag. */
static __always_inline long frame_load_tc(struct __sk_buff *ctx, __u32 at, void *to, __u32 bytes)
{
	return bpf_skb_load_bytes(ctx, at < TAG_AT ? at : at - frame_tag(ctx), to, bytes);
}

static __always_inline __u32 tag_tpid(struct __sk_buff *ctx)
{
	return (__u16)ctx->vlan_proto;
}

static __always_inline __u32 tag_tci(struct __sk_buff *ctx)
{
	__u32 tci = ctx->vlan_tci;

	return (tci >> 8 & 0xff) | (tci & 0xff) << 8;
}

/* Loads the first 16 bytes, or 14 if there are no more. */
static __always_inline bool frame_header_tc(struct __sk_buff *ctx, struct header *h)
{
	if (!ctx->vlan_present)
		return !bpf_skb_load_bytes(ctx, 0, h, sizeof(*h)) ||
		       !bpf_skb_load_bytes(ctx, 0, h, NFL_FRAME_MIN);
	if (bpf_skb_load_bytes(ctx, 0, h, TAG_AT))
		return false;
	h->w1 = (__u32)h->w1 | (__u64)tag_tpid(ctx) << 32 | (__u64)tag_tci(ctx) << 48;
	return true;
}

/* Loads type, TCI, type, TCI, type: as many of them as the frame has. */
static __always_inline bool frame_types_tc(struct __sk_buff *ctx, __u16 *words)
{
	if (!ctx->vlan_present)
		return !bpf_skb_load_bytes(ctx, TAG_AT, words, 10) ||
		       !bpf_skb_load_bytes(ctx, TAG_AT, words, 6) ||
		       !bpf_skb_load_bytes(ctx, TAG_AT, words, 2);
	words[0] = tag_tpid(ctx);
	words[1] = tag_tci(ctx);
	return !bpf_skb_load_bytes(ctx, TAG_AT, words + 2, 6) ||
	       !bpf_skb_load_bytes(ctx, TAG_AT, words + 2, 2);
}

/* Copies the whole frame of `len` bytes, its tag in it, to memory of `most` bytes. False: `len` is not within
 * NFL_FRAME_MIN..most. */
#define frame_copy_tc(ctx, to, len, most)                                                          \
	({                                                                                         \
		bool copied = false;                                                               \
		if (!(ctx)->vlan_present) {                                                        \
			copied = is_within(len, NFL_FRAME_MIN, most) &&                            \
				 !bpf_skb_load_bytes(ctx, 0, to, len);                             \
		} else {                                                                           \
			__u64 rest = (len) - (TAG_AT + TAG_BYTES);                                 \
			copied =                                                                   \
				is_within(rest, 2, (most) - (TAG_AT + TAG_BYTES)) &&               \
				!bpf_skb_load_bytes(ctx, 0, to, TAG_AT) &&                         \
				!bpf_skb_load_bytes(ctx, TAG_AT, (to) + TAG_AT + TAG_BYTES, rest); \
			frame_put_tag(ctx, to);                                                    \
		}                                                                                  \
		copied;                                                                            \
	})

static __always_inline void frame_put_tag(struct __sk_buff *ctx, void *frame)
{
	*(volatile __u16 *)(frame + TAG_AT) = tag_tpid(ctx);
	*(volatile __u16 *)(frame + TAG_AT + 2) = tag_tci(ctx);
}

/* The type of segments in virtio_net_hdr; 0: there is none. Segments with the same IP ID in all (FIXEDID) get IDs that
 * count up, as everywhere where a frame passes a virtio_net_hdr. */
static __always_inline __u64 offload_type_of(unsigned int gso_type)
{
	gso_type &= ~(SKB_GSO_DODGY | SKB_GSO_TCP_FIXEDID);
	switch (gso_type & ~SKB_GSO_TCP_ECN) {
	case SKB_GSO_TCPV4:
		return OFFLOAD_TCPV4 | (gso_type & SKB_GSO_TCP_ECN ? OFFLOAD_ECN : 0);
	case SKB_GSO_TCPV6:
		return OFFLOAD_TCPV6 | (gso_type & SKB_GSO_TCP_ECN ? OFFLOAD_ECN : 0);
	case SKB_GSO_UDP_L4:
		return OFFLOAD_UDP_L4;
	}
	return 0;
}

/* Describes what is still to be done to a frame of `len` bytes. False: it has no words for that. A function of its own, to
 * save stack. */
static __noinline bool frame_offload_tc(struct __sk_buff *ctx, struct offload *o, __u64 len)
{
	struct sk_buff___nfl *skb = (void *)ctx;
	__u64 start, offset, headers, tag = frame_tag(ctx), size = ctx->gso_size;
	struct skb_shared_info___nfl *shared;
	unsigned char *head;
	__u64 type;
	__u8 doff;

	o->w0 = 0;
	o->w1 = 0;
	if (BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) != SKB_CHECKSUM_PARTIAL)
		return !size;
	head = BPF_CORE_READ(skb, head);
	start = BPF_CORE_READ(skb, csum_start) - (BPF_CORE_READ(skb, data) - head);
	start = (start + tag) & 0xffff;
	offset = BPF_CORE_READ(skb, csum_offset);
	o->w0 = OFFLOAD_NEEDS_CSUM | start << 48;
	o->w1 = offset;
	if (size) {
		shared = (void *)(head + BPF_CORE_READ(skb, end));
		type = offload_type_of(BPF_CORE_READ(shared, gso_type));
		headers = start + OFFLOAD_UDP_HEADER;
		if (type != OFFLOAD_UDP_L4) {
			if (!type || bpf_skb_load_bytes(ctx, start - tag + 12, &doff, 1))
				return false;
			headers = start + (doff >> 4) * 4;
		}
		o->w0 |= type << 8 | (headers & 0xffff) << 16 | size << 32;
	}
	return offload_check(o, len);
}

/* A program that many interfaces share finds the port behind the one on which the frame came in. */
static __always_inline __u32 arrival_owner_tc(struct __sk_buff *ctx)
{
	struct nfl_interface_key key = { .interface = ctx->ifindex, .netns = receiver.netns };
	__u32 *port;

	if (receiver.port != NFL_PORTS_MAX)
		return receiver.port;
	port = bpf_map_lookup_elem(&nfl_interfaces, &key);
	return port ? *port : NFL_PORTS_MAX;
}

/*
 * Sends the frame out of the interface behind port `to`, if that is in this namespace and takes a frame of this length: no
 * process is in between, and the frame stays as the kernel has it. A frame for the stack at the other end of a veth enters
 * that stack at once. Its kind ("for another host") was found for the interface on which the frame came in.
 *
 * Returns the verdict; ARRIVAL_ELSEWHERE: the frame goes by the port's ring. A copy that the interface refuses is counted.
 */
static __noinline int frame_forward_tc(struct __sk_buff *ctx, struct nfl_port *to, bool is_copy)
{
	__u32 interface = READ_ONCE(to->interface), index = interface & ~NFL_INTERFACE_PEER;
	__u32 mtu = 0;
	__u64 address = 0;

	if (!interface || READ_ONCE(to->netns) != receiver.netns)
		return ARRIVAL_ELSEWHERE;
	if (bpf_check_mtu(ctx, index, &mtu, 0, BPF_MTU_CHK_SEGS))
		return ARRIVAL_ELSEWHERE;
	if (is_copy) {
		if (bpf_clone_redirect(ctx, index, 0)) {
			count_drop(to, NFL_DROP_UPLINK, 1);
			return ARRIVAL_TAKEN;
		}
		return TC_REDIRECT;
	}
	if (interface & NFL_INTERFACE_PEER && !bpf_skb_load_bytes(ctx, 0, &address, 6) &&
	    address == to->mac && !bpf_skb_change_type(ctx, PACKET_HOST_))
		return bpf_redirect_peer(index, 0);
	return bpf_redirect(index, 0);
}

/* Frames that a NIC has classified come by XDP. */
static __always_inline __u32 frame_queue_tc(struct __sk_buff *ctx)
{
	return NFL_QUEUES_MAX;
}

#endif
