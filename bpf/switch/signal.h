/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Congestion signals (docs/adr/0010): a frame on its way into a ring is marked or dropped with the
 * probability that the daemon keeps in the receiver's port, or refused at the entry of a chain.
 *
 * The mark is in the receiver's copy. A word that the daemon has not renewed is ignored, and the first
 * sender that finds it takes it away: without a daemon nothing is marked.
 */
#ifndef SWITCH_SIGNAL_H
#define SWITCH_SIGNAL_H

#include "deliver.h"
#include "flow.h"

#define ECN_MASK 3 /* RFC 3168, section 5: 0 is Not-ECT, 3 is CE, the others are ECT */
#define IPV4_HEADER_LEAST 20
#define IPV6_HEADER 40

static __always_inline void store16(void *p, __u16 value)
{
	*(volatile __u16 *)p = value;
}

/* Returns true if the port's word is still to be followed. The clock costs as much as two small frames, so it is read
 * once per jiffy. */
static __always_inline bool signal_counts(struct nfl_port *to, __u64 word)
{
	__u64 jiffy = bpf_jiffies64();
	__u32 left;

	if (READ_ONCE(to->signal_checked) == jiffy)
		return true;
	left = (__u32)(word >> 32) - (__u32)(bpf_ktime_get_ns() >> NFL_SIGNAL_UNIT_SHIFT);
	left &= NFL_SIGNAL_UNTIL_MASK;
	if (!left || left > NFL_SIGNAL_UNITS_MAX)
		return false;
	WRITE_ONCE(to->signal_checked, jiffy);
	return true;
}

/* Returns true if frames to the port are refused. Called once per run; later code relies on this function to
 * take the word away when its time is over. */
static __always_inline bool signal_refuses(struct nfl_port *to)
{
	__u64 word = READ_ONCE(to->signal);

	if (!word)
		return false;
	if (signal_counts(to, word))
		return word & NFL_SIGNAL_REFUSE;
	__sync_val_compare_and_swap(&to->signal, word, 0);
	return false;
}

/* Returns true, by chance, if this frame to the port is to carry a signal. */
static __always_inline bool signal_chosen(struct nfl_port *to)
{
	__u32 probability = READ_ONCE(to->signal);

	return probability && bpf_get_prandom_u32() <= probability;
}

/* The CE mark and the header checksum that belongs to it (RFC 1624, equation 3), in a packet of `len`
 * bytes. False: the packet cannot be marked. */
static __always_inline bool mark_ipv4(void *ip, __u32 len)
{
	__u32 word = load16(ip), header = (word & 0xf) * 4,
	      sum; /* version, IHL; TOS in the high byte */

	if ((word & 0xf0) != 0x40 || header < IPV4_HEADER_LEAST || header > len ||
	    !(word >> 8 & ECN_MASK))
		return false;
	sum = (~load16(ip + 10) & 0xffff) + (~word & 0xffff) + (word | ECN_MASK << 8);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	store16(ip, word | ECN_MASK << 8);
	store16(ip + 10, ~sum);
	return true;
}

static __always_inline bool mark_ipv6(void *ip)
{
	__u32 word =
		load16(ip); /* version and traffic class, whose ECN bits are 4 and 5 of byte 1 */

	if ((word & 0xf0) != 0x60 || !(word >> 12 & ECN_MASK))
		return false;
	store16(ip, word | ECN_MASK << 12);
	return true;
}

/* Marks a frame behind up to two VLAN tags. A slot has the bytes that are read, whatever `len` is. */
static __always_inline bool mark_frame(void *frame, __u32 len)
{
	__u64 type = load16(frame + 12);
	__u32 at = 14;

	if (tag_type(type)) {
		type = load16(frame + 16);
		at = 18;
		if (tag_type(type)) {
			type = load16(frame + 20);
			at = 22;
		}
	}
	if (type == ETHERTYPE_IPV4)
		return len >= at + IPV4_HEADER_LEAST && mark_ipv4(frame + at, len - at);
	return type == ETHERTYPE_IPV6 && len >= at + IPV6_HEADER && mark_ipv6(frame + at);
}

/* Gives the signal to a frame that is about to enter the port's ring. False: the frame cannot be marked, and is
 * to be dropped; the drop is counted. A frame that is marked already needs no more. */
static __always_inline bool signal_frame(struct nfl_port *to, void *frame, __u32 len)
{
	if (mark_frame(frame, len)) {
		__sync_fetch_and_add(&to->marked, 1);
		return true;
	}
	count_drop(to, NFL_DROP_CONGESTION, 1);
	return false;
}

#endif
