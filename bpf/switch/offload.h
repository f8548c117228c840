/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Offload metadata beside a frame: what a sender says of checksum and segments is read once, checked, and the checked
 * words are what the receiver gets. Mirrored by Offload::check() of lib/ring/src/offload.rs.
 *
 * The kernel checks the same again where the frame leaves the platform. The check here is for the receivers on the way:
 * they find headers where the metadata says. Segments are computed, never believed: a small segment makes more than a
 * thousand packets of one frame, and they count as its sender's.
 */
#ifndef SWITCH_OFFLOAD_H
#define SWITCH_OFFLOAD_H

#include "frame.h"
#include "loop.h"

/* virtio_net.h */
#define OFFLOAD_NEEDS_CSUM 1
#define OFFLOAD_TCPV4 1
#define OFFLOAD_TCPV6 4
#define OFFLOAD_UDP_L4 5
#define OFFLOAD_ECN 0x80

#define OFFLOAD_CSUM_TCP 16 /* of the checksum in a TCP header */
#define OFFLOAD_CSUM_UDP 6
#define OFFLOAD_HEADERS_MAX 256
#define OFFLOAD_TCP_HEADER 20
#define OFFLOAD_UDP_HEADER 8
#define OFFLOAD_TCP_SEGMENT_MIN 48 /* TCP_MIN_SND_MSS, net/tcp.h */
#define OFFLOAD_UDP_SEGMENTS_MAX 128 /* UDP_MAX_SEGMENTS, linux/udp.h */

/* The metadata in two words, as it lies beside a frame; `segments` is in the second. */
struct offload {
	__u64 w0; /* flags, gso_type, hdr_len, gso_size, csum_start */
	__u64 w1; /* csum_offset, segments */
};

static __always_inline __u32 offload_flags(const struct offload *o)
{
	return o->w0 & 0xff;
}

static __always_inline __u32 offload_type(const struct offload *o)
{
	return o->w0 >> 8 & 0xff;
}

static __always_inline __u32 offload_headers(const struct offload *o)
{
	return o->w0 >> 16 & 0xffff;
}

static __always_inline __u32 offload_size(const struct offload *o)
{
	return o->w0 >> 32 & 0xffff;
}

static __always_inline __u32 offload_start(const struct offload *o)
{
	return o->w0 >> 48;
}

static __always_inline __u32 offload_offset(const struct offload *o)
{
	return o->w1 & 0xffff;
}

/* Packets that the frame will be: 0 if it has no metadata, 1 if a checksum alone is missing. */
static __always_inline __u32 offload_segments(const struct offload *o)
{
	return o->w1 >> 16 & 0xffff;
}

static __always_inline void offload_read(struct offload *o, const void *at)
{
	const volatile __u64 *words = at;

	o->w0 = words[0];
	o->w1 = words[1];
}

static __always_inline void offload_write(const struct offload *o, void *at)
{
	volatile __u64 *words = at;

	words[0] = o->w0;
	words[1] = o->w1;
}

/* The flags that the port of a receiver must have for such a frame. */
static __always_inline __u32 offload_needs(const struct offload *o)
{
	if (!o->w0)
		return 0;
	return offload_type(o) ? NFL_PORT_SUPER : NFL_PORT_CHECKSUMS;
}

static __always_inline bool offload_cut_ok(const struct offload *o, __u32 payload)
{
	__u32 type = offload_type(o), start = offload_start(o), size = offload_size(o);

	if (type == OFFLOAD_UDP_L4)
		return offload_offset(o) == OFFLOAD_CSUM_UDP &&
		       offload_headers(o) == start + OFFLOAD_UDP_HEADER && size &&
		       payload <= size * OFFLOAD_UDP_SEGMENTS_MAX;
	type &= ~OFFLOAD_ECN;
	return (type == OFFLOAD_TCPV4 || type == OFFLOAD_TCPV6) &&
	       offload_offset(o) == OFFLOAD_CSUM_TCP &&
	       offload_headers(o) >= start + OFFLOAD_TCP_HEADER && size >= OFFLOAD_TCP_SEGMENT_MIN;
}

/*
 * Checks the metadata of a frame of `len` bytes, leaves what counts, and computes the segments. False: no frame of this
 * length can have it.
 */
static __always_inline bool offload_check(struct offload *o, __u32 len)
{
	__u32 start = offload_start(o), offset = offload_offset(o), headers = offload_headers(o);
	__u32 segments = 1;

	if (!(o->w0 & 0xffff)) {
		o->w0 = 0;
		o->w1 = 0;
		return true;
	}
	if (offload_flags(o) != OFFLOAD_NEEDS_CSUM || start < NFL_FRAME_MIN ||
	    start > OFFLOAD_HEADERS_MAX ||
	    (offset != OFFLOAD_CSUM_TCP && offset != OFFLOAD_CSUM_UDP))
		return false;
	if (!offload_type(o)) {
		if (start + offset + 2 > len)
			return false;
		o->w0 &= 0xffff0000000000ffULL; /* nothing of headers and segments */
	} else {
		if (headers > OFFLOAD_HEADERS_MAX || headers >= len ||
		    !offload_cut_ok(o, len - headers))
			return false;
		segments = (len - headers + offload_size(o) - 1) / offload_size(o);
	}
	/* The code that follows does not depend on the words: the verifier follows it once. */
	o->w0 = unlinked(o->w0);
	o->w1 = unlinked(offset | segments << 16);
	return true;
}

/* Bytes of the headers of all segments but the first: the frame has these once. */
static __always_inline __u64 offload_more_bytes(const struct offload *o)
{
	__u32 segments = offload_segments(o);

	return segments > 1 ? (__u64)(segments - 1) * offload_headers(o) : 0;
}

static __always_inline __u64 offload_more_segments(const struct offload *o)
{
	__u32 segments = offload_segments(o);

	return segments > 1 ? segments - 1 : 0;
}

#endif
