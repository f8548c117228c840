// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A row's part of libxdp's dispatcher: all it does is to go to the row's first member. So members come and go
 * without the dispatcher, which is made anew for each change, being touched.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/*
 * The row's first member; empty while there is none. Writer: user space. The map is made before the program is
 * loaded, and handed over: the library that loads this program has another libbpf.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} evnf_first SEC(".maps");

SEC("xdp")
int nfluid_row(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &evnf_first, 0);
	/* The programs behind this one in the dispatcher, then the kernel. */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
