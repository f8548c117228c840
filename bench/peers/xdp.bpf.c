// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * XDP as a user would write it by hand: frames of one interface go out of another one, or vanish.
 * And the traffic generator of the kernel's peers, which is run on live frames.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Key 0: the interface that frames leave by. Written once by the benchmark. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

/* Ethernet and IPv4. */
#define HEADERS 34

/* Key 0: the headers of the frames that are generated. Written once by the benchmark. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[HEADERS]);
} headers SEC(".maps");

/* Key 0: how many destinations the frames go to in turn; 0 and 1: to that in the headers. Written once by the
 * benchmark. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} destinations SEC(".maps");

/* Key 0: whose turn it is. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/* The last two bytes of the addresses, as far as IPv4's first 20 bytes, and the sum over its header. */
#define MAC_END 4
#define IPV4_SUM 24
#define IPV4_END 32

static __always_inline void add(void *at, __u16 more)
{
	*(__u16 *)at = __builtin_bswap16(__builtin_bswap16(*(__u16 *)at) + more);
}

/* Addresses the frame to the next destination: hardware and IPv4 address, both counted on from the first. The
 * sum is changed as RFC 1624 says. */
static __always_inline void address(void *frame)
{
	__u32 key = 0;
	__u32 *count = bpf_map_lookup_elem(&destinations, &key);
	__u32 *next = bpf_map_lookup_elem(&turn, &key);
	__u32 sum;

	if (!count || !next || *count < 2)
		return;
	sum = (__u16)~__builtin_bswap16(*(__u16 *)(frame + IPV4_SUM)) + (*next & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(frame + IPV4_SUM) = __builtin_bswap16(~sum);
	add(frame + MAC_END, *next);
	add(frame + IPV4_END, *next);
	*next = *next + 1 < *count ? *next + 1 : 0;
}

/* A frame comes round again as its last receiver left it: with another address and a lower TTL. */
SEC("xdp")
int generate(struct xdp_md *frame)
{
	void *data = (void *)(long)frame->data;
	void *end = (void *)(long)frame->data_end;
	__u32 key = 0;
	void *fresh = bpf_map_lookup_elem(&headers, &key);

	if (!fresh || data + HEADERS > end)
		return XDP_ABORTED;
	__builtin_memcpy(data, fresh, HEADERS);
	address(data);
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

SEC("xdp")
int redirect(struct xdp_md *frame)
{
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

/* Makes a veth take XDP frames for the kernel's own forwarding. */
SEC("xdp")
int pass(struct xdp_md *frame)
{
	return XDP_PASS;
}

SEC("xdp")
int drop(struct xdp_md *frame)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
