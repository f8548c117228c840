/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Echo requests (ping), and answers made of them. */
#ifndef EVNF_ECHO_H
#define EVNF_ECHO_H

#include "quote.h"

#define ICMP_ECHO_ 8
#define ICMP_ECHO_REPLY_ 0
#define ICMPV6_ECHO_ 128
#define ICMPV6_ECHO_REPLY_ 129
#define ECHO_HOPS 64

/* Returns true if a packet's source can be a host's address: no group, not this host, not all. */
static __always_inline bool is_from_a_host(const struct evnf_flow *flow)
{
	const __u8 *address = (const void *)flow->src;

	if (flow->family == 4)
		return address[0] != 0 && address[0] != 127 && address[0] < 224;
	return address[0] != 0xff && (flow->src[0] | flow->src[1] | flow->src[2]);
}

static __always_inline bool is_echo_request(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	bool v4 = flow->family == 4;
	__u32 l3_bytes = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u8 *icmp = (void *)(long)ctx->data + ETH_HLEN + l3_bytes;

	if (!is_icmp(flow) || (void *)icmp + ICMP_HLEN > (void *)(long)ctx->data_end)
		return false;
	return icmp[0] == (v4 ? ICMP_ECHO_ : ICMPV6_ECHO_) && icmp[1] == 0;
}

/* Makes an echo request its own answer, to be sent back where it came from. False: it is too short. */
static __always_inline bool answer_echo(struct evnf_packet *ctx, const struct evnf_flow *flow)
{
	bool v4 = flow->family == 4;
	__u32 l3_bytes = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	void *l3 = data + ETH_HLEN;
	/* Type and code, checksum. */
	__u16 *icmp = l3 + l3_bytes;
	__u16 reply = bpf_htons((v4 ? ICMP_ECHO_REPLY_ : ICMPV6_ECHO_REPLY_) << 8);

	if ((void *)icmp + ICMP_HLEN > end)
		return false;
	turn_round(data);
	icmp[1] = sum_fold(sum_change((__u16)~icmp[1], icmp[0], reply));
	icmp[0] = reply;
	if (v4) {
		struct iphdr *ip = l3;

		ip->check = sum_fold(sum_change((__u16)~ip->check, bpf_htons(ip->ttl << 8),
						bpf_htons(ECHO_HOPS << 8)));
		ip->ttl = ECHO_HOPS;
		ip->saddr = flow->dst[0];
		ip->daddr = flow->src[0];
	} else {
		struct ipv6hdr *ip = l3;
		__u8 hops = ip->hop_limit;

		ip->hop_limit = ECHO_HOPS;
		__builtin_memcpy(&ip->saddr, flow->dst, sizeof(ip->saddr));
		__builtin_memcpy(&ip->daddr, flow->src, sizeof(ip->daddr));
		sum_moved(ctx, sum_32(sum_change(0, bpf_htons(hops), bpf_htons(ECHO_HOPS))));
	}
	return true;
}

#endif
