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
