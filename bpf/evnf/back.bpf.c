// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The return path from a slow path: on a tap, for packets that the slow path has put into it. Such a packet goes on
 * where it had come in, into the kernel's stack, or out there.
 */
#include <linux/bpf.h>

#include "count.h"
#include "parse.h"
#include "slow.h"

/* Set before the program is loaded. */
SEC(".rodata.back") volatile const struct {
	__u32 interface; /* where the fast path is */
	__u32 outward; /* 1: packets are sent out there, 0: they have come in there */
} back;

SEC(EVNF_SECTION)
int evnf_back(struct evnf_packet *ctx)
{
	__u64 bytes = packet_bytes(ctx);
	union evnf_key key = {};

	if (back.outward) {
		count(&evnf_slow_exits, EVNF_SLOW_ANSWERED, bytes);
		return bpf_redirect(back.interface, 0);
	}
	if (is_of_flow(parse(ctx, &key.flow)) && !is_in_time(&key)) {
		count(&evnf_slow_exits, EVNF_SLOW_LATE, bytes);
		return HOOK_DROP;
	}
	count(&evnf_slow_exits, EVNF_SLOW_RETURNED, bytes);
	return bpf_redirect(back.interface, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
