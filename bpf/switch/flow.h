/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which of a port's queues takes a frame: the same one for both directions of a flow. */
#ifndef SWITCH_FLOW_H
#define SWITCH_FLOW_H

#include "frame.h"

#define ETHERTYPE_IPV4 0x0008ULL
#define ETHERTYPE_IPV6 0xdd86ULL
#define FLOW_BYTES 64 /* a slot always has these, whatever the frame's length */

static __always_inline __u32 flow_mix(__u64 sum)
{
	return (sum * 0x9e3779b97f4a7c15ULL) >> 32;
}

static __always_inline __u64 load32(const void *p)
{
	return *(const volatile __u32 *)p;
}

/*
 * A symmetric hash of the addresses: sums do not mind which is source and which destination.
 * Ports are left out, so that fragments stay with their flow. Tagged and non-IP frames are spread
 * by their MAC addresses.
 */
static __always_inline __u32 flow_hash(const void *slot)
{
	const volatile __u16 *halves = slot;
	const void *l3 = slot + 14;
	__u64 sum = 0;

	switch (halves[6]) {
	case ETHERTYPE_IPV4:
		sum = load32(l3 + 12) + load32(l3 + 16);
		break;
	case ETHERTYPE_IPV6:
#pragma unroll
		for (int i = 8; i < 40; i += 4)
			sum += load32(l3 + i) << (i & 4);
		break;
	default:
#pragma unroll
		for (int i = 0; i < 3; i++)
			sum += (__u64)(halves[i] + halves[i + 3]) << (16 * i);
	}
	return flow_mix(sum);
}

/* The queue, 0..queues-1. */
static __always_inline __u32 flow_queue(const void *slot, __u32 queues)
{
	return queues > 1 ? ((__u64)flow_hash(slot) * queues) >> 32 : 0;
}

#endif
