/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The first 16 bytes of a frame, read once: the checked bytes are the delivered bytes. */
#ifndef SWITCH_FRAME_H
#define SWITCH_FRAME_H

#include "switch_types.h"

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

#define MAC_MASK 0xffffffffffffULL
#define MAC_GROUP 1ULL /* group bit of the first byte */
#define MAC_RESERVED 0x0000c28001ULL /* 01:80:c2:00:00:0x, IEEE 802.1D table 7-10 */
#define MAC_RESERVED_MASK 0xf0ffffffffffULL
#define TPID_8021Q 0x0081ULL
#define TPID_8021AD 0xa888ULL
#define TAG_END 18 /* bytes up to the end of the first tag */

static __always_inline __u64 load8(const void *p)
{
	return *(const volatile __u8 *)p;
}

static __always_inline __u64 load16(const void *p)
{
	return *(const volatile __u16 *)p;
}

static __always_inline __u64 load32(const void *p)
{
	return *(const volatile __u32 *)p;
}

struct header {
	__u64 w0; /* destination, first two bytes of the source */
	__u64 w1; /* rest of the source, type, first tag's TCI */
};

static __always_inline __u64 header_dst(const struct header *h)
{
	return h->w0 & MAC_MASK;
}

static __always_inline __u64 header_src(const struct header *h)
{
	return h->w0 >> 48 | (h->w1 & 0xffffffffULL) << 16;
}

static __always_inline bool tag_type(__u64 type)
{
	return type == TPID_8021Q || type == TPID_8021AD;
}

static __always_inline bool header_tagged(const struct header *h)
{
	return tag_type(h->w1 >> 32 & 0xffff);
}

/* Outer VLAN id, 0 if untagged. */
static __always_inline __u64 header_vlan(const struct header *h)
{
	__u64 tci = h->w1 >> 48;

	return header_tagged(h) ? (tci >> 8 | tci << 8) & 0xfff : 0;
}

/* FDB addresses: MAC in bits 0..47, VLAN id in bits 48..59. */
static __always_inline __u64 header_dst_address(const struct header *h)
{
	return header_dst(h) | header_vlan(h) << 48;
}

static __always_inline __u64 header_src_address(const struct header *h)
{
	return header_src(h) | header_vlan(h) << 48;
}

static __always_inline void header_read(struct header *h, const void *slot)
{
	const volatile __u64 *words = slot;

	h->w0 = words[0];
	h->w1 = words[1];
}

/* Puts the checked header over the copied one, without writing beyond the frame's end. */
static __always_inline void header_write(const struct header *h, void *slot, __u64 len)
{
	volatile __u64 *words = slot;
	__u64 w1 = h->w1;

	words[0] = h->w0;
	/* A copy of which nothing else is known: the loops' next turns do not depend on the comparison. */
	asm volatile("%0 |= 0" : "+r"(len));
	if (len < 16)
		w1 &= ~0ULL >> ((16 - len) << 3);
	words[1] = w1;
}

/* Is this the length of a frame in one slot? */
static __always_inline bool length_ok(__u64 len)
{
	return len >= NFL_FRAME_MIN && len <= NFL_FRAME_MAX;
}

/* The bits of a TX descriptor that are within the bounds of length_ok() for a plain frame in one slot alone. */
#define DESC_PLAIN_MASK 0x1ffffULL

/* Is the frame long, or does it have metadata? Such frames are switched one by one: see pass.h. */
static __always_inline bool is_special(__u64 descriptor)
{
	return (descriptor & DESC_PLAIN_MASK) > NFL_FRAME_MAX;
}

/*
 * Repeats the bound for the register that a helper gets next. The compiler would make one comparison of
 * the two, on a difference, from which verifiers before 6.11 learn nothing about the length.
 */
#define length_proven(len) is_within(len, NFL_FRAME_MIN, NFL_FRAME_MAX)
#define is_within(len, least, most)                                                                \
	({                                                                                         \
		bool proven = false;                                                               \
		asm volatile("" : "+r"(len));                                                      \
		if ((len) >= (least)) {                                                            \
			asm volatile("" : "+r"(len));                                              \
			if ((len) <= (most))                                                       \
				proven = true;                                                     \
		}                                                                                  \
		proven;                                                                            \
	})

#endif
