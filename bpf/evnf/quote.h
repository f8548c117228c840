/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * ICMP errors: the flow of the packet that one quotes, and another address and port in what it quotes
 * (RFC 792, RFC 4443; what a translation has to undo: RFC 5508, 4.2).
 *
 * Read: what the parser reads in packets, and 8 bytes of TCP or UDP behind it, which each router quotes.
 */
#ifndef EVNF_QUOTE_H
#define EVNF_QUOTE_H

#include "rewrite.h"

#define ICMP_DEST_UNREACH_ 3
#define ICMP_TIME_EXCEEDED_ 11
#define ICMP_PARAMETERPROB_ 12
/* Destination unreachable, packet too big, time exceeded, parameter problem. */
#define ICMPV6_ERROR_FIRST 1
#define ICMPV6_ERROR_LAST 4

#define ICMP_HLEN 8
/* Where an ICMP message has its checksum. */
#define ICMP_CHECK_AT 2
/* Bytes of the transport header that are quoted at least. */
#define QUOTED_LEAST 8
/* Up to the end of TCP's checksum. */
#define QUOTED_TCP_CHECK 18

enum quote {
	QUOTE_NONE, /* no ICMP error about TCP or UDP, or to another host than the quoted packet's sender */
	QUOTE_UNREADABLE,
	QUOTE_READ,
};

static __always_inline bool is_icmp(const struct evnf_flow *flow)
{
	return flow->proto == (flow->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6_);
}

static __always_inline bool is_icmp_error(const struct evnf_flow *flow, __u8 type)
{
	if (!is_icmp(flow))
		return false;
	if (flow->family == 6)
		return type >= ICMPV6_ERROR_FIRST && type <= ICMPV6_ERROR_LAST;
	return type == ICMP_DEST_UNREACH_ || type == ICMP_TIME_EXCEEDED_ ||
	       type == ICMP_PARAMETERPROB_;
}

/* Bytes of the packet from its network header on, as that says. */
static __always_inline __u32 stated_bytes(const void *l3, bool v4)
{
	if (v4)
		return bpf_ntohs(((const struct iphdr *)l3)->tot_len);
	return sizeof(struct ipv6hdr) + bpf_ntohs(((const struct ipv6hdr *)l3)->payload_len);
}

/* Exchanges source and destination. */
static __always_inline void reverse(struct evnf_flow *flow)
{
	__u16 port = flow->sport;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 word = flow->src[i];

		flow->src[i] = flow->dst[i];
		flow->dst[i] = word;
	}
	flow->sport = flow->dport;
	flow->dport = port;
}

/*
 * Puts in the place of an ICMP packet's flow that of packets which go where it goes, if QUOTE_READ: the
 * reverse of what it quotes. Pointers into the packet are void after it.
 */
static __always_inline enum quote parse_quote(struct evnf_packet *ctx, struct evnf_flow *flow)
{
	bool v4 = flow->family == 4;
	__u32 l3_bytes = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 told, strange = 0;
	enum evnf_exit found;
	struct cursor c;
	__u32 to[4];
	__u8 *type;
	void *l3;

	expose(ctx, EVNF_QUOTE_MAX);
	/* Values read from the context before are numbers, no pointers. */
	asm volatile("" : "+r"(ctx));
	c.at = (void *)(long)ctx->data + ETH_HLEN;
	c.end = (void *)(long)ctx->data_end;
	l3 = take(&c, l3_bytes);
	if (!l3)
		return QUOTE_UNREADABLE;
	told = stated_bytes(l3, v4);
	type = take(&c, ICMP_HLEN);
	if (!type)
		return QUOTE_NONE;
	if (!is_icmp_error(flow, *type))
		return QUOTE_NONE;
	__builtin_memcpy(to, flow->dst, sizeof(to));
	__builtin_memset(flow, 0, sizeof(*flow));
	found = v4 ? parse_ipv4(&c, flow) : parse_ipv6(&c, flow);
	if (!is_of_flow(found))
		return QUOTE_UNREADABLE;
	if (flow->proto != IPPROTO_TCP && flow->proto != IPPROTO_UDP)
		return QUOTE_NONE;
	/* Behind the ports. */
	if (!take(&c, QUOTED_LEAST - 4) || told < l3_bytes + ICMP_HLEN + l3_bytes + QUOTED_LEAST)
		return QUOTE_UNREADABLE;
	reverse(flow);
#pragma unroll
	for (int i = 0; i < 4; i++)
		strange |= to[i] ^ flow->dst[i];
	return strange ? QUOTE_NONE : QUOTE_READ;
}

static __always_inline __u32 *address_of(void *l3, bool v4, bool source)
{
	if (v4) {
		struct iphdr *ip = l3;

		return source ? &ip->saddr : &ip->daddr;
	} else {
		struct ipv6hdr *ip = l3;

		return source ? (__u32 *)&ip->saddr : (__u32 *)&ip->daddr;
	}
}

/* The checksum of TCP or UDP that is quoted; NULL: it is not, or there is none. */
static __always_inline __u16 *quoted_checksum(void *l4, void *end, __u32 quoted, bool tcp)
{
	__u16 *check = l4 + offsetof(struct udphdr, check);

	if (!tcp)
		return *check ? check : NULL;
	check = l4 + offsetof(struct tcphdr, check);
	if (quoted < QUOTED_TCP_CHECK || (void *)(check + 1) > end)
		return NULL;
	return check;
}

static __always_inline bool put_end_of_version(struct evnf_packet *ctx, bool tcp, bool v4,
					       const struct evnf_end *to, bool source)
{
	const __u32 l3_bytes = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *end = (void *)(long)ctx->data_end;
	void *l3 = (void *)(long)ctx->data + ETH_HLEN;
	__u16 *icmp_check = l3 + l3_bytes + ICMP_CHECK_AT;
	void *quoted = l3 + l3_bytes + ICMP_HLEN;
	__u16 *ports = quoted + l3_bytes, *check;
	__u16 old_port, new_port = bpf_htons(to->port);
	__u64 outer = 0, inner = 0, change;
	__u32 *address, *quoted_address;

	if ((void *)ports + QUOTED_LEAST > end)
		return false;
	check = quoted_checksum(ports, end,
				stated_bytes(l3, v4) - (l3_bytes + ICMP_HLEN + l3_bytes), tcp);
	address = address_of(l3, v4, source);
	quoted_address = address_of(quoted, v4, !source);
#pragma unroll
	for (int i = 0; i < (v4 ? 1 : 4); i++) {
		outer = sum_change(outer, address[i], to->address[i]);
		inner = sum_change(inner, quoted_address[i], to->address[i]);
		address[i] = to->address[i];
		quoted_address[i] = to->address[i];
	}
	ports += source;
	old_port = *ports;
	*ports = new_port;
	change = sum_change(inner, old_port, new_port);
	if (check) {
		__u16 old = *check, new = sum_fold((__u16)~old + change);

		if (!tcp && !new)
			new = 0xffff;
		*check = new;
		change = sum_change(change, old, new);
	}
	if (v4) {
		struct iphdr *ip = l3, *of = quoted;
		__u16 old = of->check, new = sum_fold((__u16)~old + inner);

		of->check = new;
		change = sum_change(change, old, new);
		ip->check = sum_fold((__u16)~ip->check + outer);
	} else {
		/* The message's checksum is over its addresses too. */
		change += outer;
	}
	*icmp_check = sum_fold((__u16) ~*icmp_check + change);
	return true;
}

/*
 * Writes `to` over the source or the destination of an ICMP error, and over what is the same end in what it quotes.
 * `about`: what parse_quote() has made. All checksums are as before afterwards, right or wrong, and so is the
 * sum of the packet. False: it is too short.
 */
static __always_inline bool put_quoted_end(struct evnf_packet *ctx, const struct evnf_flow *about,
					   const struct evnf_end *to, bool source)
{
	bool tcp = about->proto == IPPROTO_TCP;

	if (about->family == 4)
		return put_end_of_version(ctx, tcp, true, to, source);
	return put_end_of_version(ctx, tcp, false, to, source);
}

#endif
