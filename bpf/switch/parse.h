/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Headers of the network layer, as far as arrival.h parses them. */
#ifndef SWITCH_PARSE_H
#define SWITCH_PARSE_H

#include "flow.h"

#define IPV6_EXTENSIONS 4
#define IPPROTO_HOPOPTS_ 0
#define IPPROTO_TCP_ 6
#define IPPROTO_UDP_ 17
#define IPPROTO_FRAGMENT_ 44
#define IPPROTO_DSTOPTS_ 60
#define IPPROTO_SCTP_ 132

#define IPV4_HEADER_MIN 20
#define IPV6_OFFSET 0xf8ff

struct ipv4_header {
	__u8 version_ihl;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 proto;
	__u16 checksum;
	__u32 src;
	__u32 dst;
};

struct ipv6_header {
	__u32 version_flow;
	__u16 length;
	__u8 next;
	__u8 hops;
	__u64 src[2];
	__u64 dst[2];
};

struct ipv6_extension {
	__u8 next;
	__u8 length; /* hop-by-hop, destination: in units of 8 bytes beyond the first */
	__u16 fragment;
	__u32 rest;
};

#endif
