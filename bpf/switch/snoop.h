/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The switch reads IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810), behind at most one VLAN tag, and notes who has
 * joined which multicast group, and who queries. Of a report with several groups, the first GROUPS_MAX count. Included
 * once per way in which a frame's bytes are read, with HOOK(name) and FRAME_CTX, as arrival.h.
 */

static __noinline void HOOK(snoop_igmp)(FRAME_CTX *ctx, struct nfl_port *port, __u32 me,
					__u32 at_vlan)
{
	__u32 at = at_vlan & 0xff, source = 0, i, records, sources;
	struct igmp_header igmp = {};
	struct igmp_record record = {};
	__u8 byte = 0, proto = 0;

	if (HOOK(frame_load)(ctx, at, &byte, 1) || HOOK(frame_load)(ctx, at + 9, &proto, 1) ||
	    HOOK(frame_load)(ctx, at + 12, &source, 4) || proto != IPPROTO_IGMP_)
		return;
	at += (byte & 15) * 4;
	if (HOOK(frame_load)(ctx, at, &igmp, sizeof(igmp)))
		return;
	switch (igmp.type) {
	case IGMP_QUERY:
		/* One without a source is that of a switch, and no router is there: RFC 4541, 2.1.1. */
		if (source)
			group_query(port);
		return;
	case IGMP_REPORT_1:
	case IGMP_REPORT_2:
		group_note(me, ipv4_group(igmp.group, at_vlan), MEMBERSHIP_AGEING);
		return;
	case IGMP_LEAVE:
		group_note(me, ipv4_group(igmp.group, at_vlan), LEAVING_AGEING);
		return;
	case IGMP_REPORT_3:
		break;
	default:
		return;
	}
	records = host16(igmp.group >> 16);
	at += sizeof(igmp);
	for (i = 0; i < GROUPS_MAX; i++) {
		if (i >= records || at > SNOOPED_MAX ||
		    HOOK(frame_load)(ctx, at, &record, sizeof(record)))
			return;
		sources = host16(record.sources);
		snoop_record(me, ipv4_group(record.group, at_vlan), record.type, sources);
		at += sizeof(record) + (record.auxiliary + (sources & 0xff)) * 4;
	}
}

static __noinline void HOOK(snoop_mld)(FRAME_CTX *ctx, struct nfl_port *port, __u32 me,
				       __u32 at_vlan)
{
	__u32 at = at_vlan & 0xff, group = 0, i, records, sources;
	struct mld_record record = {};
	struct mld_header mld = {};
	__u8 next = 0, options[2] = {};

	/* Behind the router alert option. */
	if (HOOK(frame_load)(ctx, at + 6, &next, 1) || next != IPPROTO_HOPOPTS_)
		return;
	at += 40;
	if (HOOK(frame_load)(ctx, at, options, 2) || options[0] != IPPROTO_ICMPV6_)
		return;
	at += 8 + (options[1] & 7) * 8;
	if (HOOK(frame_load)(ctx, at, &mld, sizeof(mld)))
		return;
	if (mld.type == MLD_QUERY) {
		group_query(port);
		return;
	}
	if (mld.type == MLD_REPORT_1 || mld.type == MLD_DONE) {
		if (!HOOK(frame_load)(ctx, at + 20, &group, 4))
			group_note(me, ipv6_group(group, at_vlan),
				   mld.type == MLD_DONE ? LEAVING_AGEING : MEMBERSHIP_AGEING);
		return;
	}
	if (mld.type != MLD_REPORT_2)
		return;
	records = host16(mld.records);
	at += sizeof(mld);
	for (i = 0; i < GROUPS_MAX; i++) {
		if (i >= records || at > SNOOPED_MAX ||
		    HOOK(frame_load)(ctx, at, &record, sizeof(record)))
			return;
		sources = host16(record.sources);
		snoop_record(me, ipv6_group(record.group[3], at_vlan), record.type, sources);
		at += sizeof(record) + record.auxiliary * 4 + (sources & 0xff) * 16;
	}
}

/* Notes what a frame to an IP group says of groups. */
static __always_inline void HOOK(snoop)(FRAME_CTX *ctx, struct nfl_port *port, __u32 me,
					__u64 address)
{
	__u32 at_vlan = 14 | address >> 48 << 8;
	__u16 words[5] = {}; /* type, TCI, type, TCI, type */
	__u16 ether;

	if (HOOK(frame_types)(ctx, words)) {
		ether = words[0];
		if (tag_type(ether)) {
			ether = words[2];
			at_vlan += TAG_END - 14;
		}
		if (ether == ETHERTYPE_IPV4)
			HOOK(snoop_igmp)(ctx, port, me, at_vlan);
		else if (ether == ETHERTYPE_IPV6)
			HOOK(snoop_mld)(ctx, port, me, at_vlan);
	}
}
