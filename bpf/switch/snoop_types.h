/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What snoop.h reads, and the frame of a ring as one of its ways to read. */
#ifndef SWITCH_SNOOP_TYPES_H
#define SWITCH_SNOOP_TYPES_H

#include "flow.h"
#include "group.h"

#define IPPROTO_HOPOPTS_ 0
#define IPPROTO_IGMP_ 2
#define IPPROTO_ICMPV6_ 58

#define IGMP_QUERY 0x11
#define IGMP_REPORT_1 0x12
#define IGMP_REPORT_2 0x16
#define IGMP_LEAVE 0x17
#define IGMP_REPORT_3 0x22
#define MLD_QUERY 130
#define MLD_REPORT_1 131
#define MLD_DONE 132
#define MLD_REPORT_2 143

#define GROUPS_MAX 8
/* Records begin before this byte. */
#define SNOOPED_MAX 1000

/* Of a report of version 3, `group` is two bytes, and the number of records. */
struct igmp_header {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 group;
};

struct igmp_record {
	__u8 type;
	__u8 auxiliary; /* words behind the sources */
	__u16 sources;
	__u32 group;
};

struct mld_header {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 delay;
	__u16 records;
};

struct mld_record {
	__u8 type;
	__u8 auxiliary;
	__u16 sources;
	__u32 group[4];
};

/* The address of a group, as loaded; the VLAN is in bits 8..19 of `at_vlan`. */
static __always_inline __u64 ipv4_group(__u32 group, __u32 at_vlan)
{
	return MAC_IPV4_GROUP | (__u64)(group >> 8 & 0xffff7f) << 24 | (__u64)(at_vlan >> 8) << 48;
}

/* The same of an IPv6 group, by its last four bytes. */
static __always_inline __u64 ipv6_group(__u32 group, __u32 at_vlan)
{
	return MAC_IPV6_GROUP | (__u64)group << 16 | (__u64)(at_vlan >> 8) << 48;
}

static __always_inline __u32 host16(__u16 word)
{
	return (word >> 8 | word << 8) & 0xffff;
}

/* One group of an IGMPv3 or MLDv2 report: RFC 3376 4.2.12, RFC 3810 5.2.12. */
static __always_inline void snoop_record(__u32 me, __u64 address, __u8 type, __u16 sources)
{
	/* Sources are not looked at: who has joined for some of them gets the frames of all. */
	bool includes = type == 1 || type == 3;

	if (type < 1 || type > 5)
		return;
	group_note(me, address, includes && !sources ? LEAVING_AGEING : MEMBERSHIP_AGEING);
}

/* A frame in a slot: the sender may write there meanwhile, and then says something else of its own port. */
static __always_inline long frame_load_slot(void *slot, __u32 at, void *to, __u32 bytes)
{
	void *from = slot + (at & 0x7ff);
	__u32 i = 0;

	if (at > NFL_FRAME_MAX - 32)
		return -1;
	for (; i + 4 <= bytes; i += 4)
		*(__u32 *)(to + i) = load32(from + i);
	for (; i < bytes; i++)
		*(__u8 *)(to + i) = load8(from + i);
	return 0;
}

static __always_inline bool frame_types_slot(void *slot, __u16 *words)
{
	return !frame_load_slot(slot, 12, words, 10);
}

#endif
