/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * SYN cookies: a SYN is answered without any state; a client that sends the number back gets packets at
 * the address that it claims.
 *
 * The cookies are the kernel's own (bpf_tcp_raw_gen_syncookie_*, since Linux 6.0), so that its
 * listening sockets take the acknowledgement for one of theirs. An answer promises only what such a
 * socket can know of the connection later: the segment size, which is in the cookie, and nothing else -
 * no window scaling and no selective acknowledgements, as for cookies without timestamps.
 */
#ifndef EVNF_COOKIE_H
#define EVNF_COOKIE_H

#include <linux/tcp.h>

#include "parse.h"
#include "rewrite.h"

#define TCP_HEADER_MAX 60
#define TCP_OPTION_MSS 2
#define TCP_OPTION_MSS_LENGTH 4
#define SYN_ACK_LENGTH (sizeof(struct tcphdr) + TCP_OPTION_MSS_LENGTH)
#define SYN_ACK_HOPS 64

/* A SYN-ACK's TCP header. */
struct syn_ack {
	struct tcphdr tcp;
	__u8 kind;
	__u8 length;
	__be16 mss;
};

enum cookie_result {
	COOKIE_ANSWERED,
	COOKIE_MALFORMED, /* its headers are longer than it is */
	COOKIE_NONE, /* the kernel makes none */
	COOKIE_NO_ROOM, /* the packet cannot be made as long as its answer */
};

static __always_inline __u32 l3_length(const struct evnf_flow *flow)
{
	return flow->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* The cookie for a SYN; negative: there is none. */
static __noinline __s64 make_cookie(struct xdp_md *ctx, const struct evnf_flow *flow)
{
	__u8 header[TCP_HEADER_MAX] = {};
	struct tcphdr *tcp = (void *)header;
	__u32 at, length;

	if (!flow)
		return -1;
	at = ETH_HLEN + l3_length(flow);
	if (bpf_xdp_load_bytes(ctx, at, header, sizeof(*tcp)))
		return -1;
	length = header[12] >> 4 << 2;
	/*
	 * The compiler knows the bounds, and would leave out the checks that show them to the kernel, or
	 * make one of two that 6.1 and 6.12 do not understand.
	 */
	barrier_var(length);
	if (length > TCP_HEADER_MAX)
		return -1;
	barrier_var(length);
	if (length < sizeof(*tcp))
		return -1;
	if (bpf_xdp_load_bytes(ctx, at, header, length))
		return -1;
	if (flow->family == 4) {
		struct iphdr ip = { .saddr = flow->src[0], .daddr = flow->dst[0] };

		return bpf_tcp_raw_gen_syncookie_ipv4(&ip, tcp, length);
	} else {
		struct ipv6hdr ip = {};

		__builtin_memcpy(&ip.saddr, flow->src, sizeof(ip.saddr));
		__builtin_memcpy(&ip.daddr, flow->dst, sizeof(ip.daddr));
		return bpf_tcp_raw_gen_syncookie_ipv6(&ip, tcp, length);
	}
}

/* Returns true if the acknowledgement is that of a cookie, the kernel's or one of make_cookie. */
static __always_inline bool has_cookie(struct xdp_md *ctx, const struct evnf_flow *flow)
{
	void *l3 = (void *)(long)ctx->data + ETH_HLEN;
	void *end = (void *)(long)ctx->data_end;

	if (flow->family == 4) {
		struct iphdr *ip = l3;
		struct tcphdr *tcp = l3 + sizeof(*ip);

		return (void *)(tcp + 1) <= end && !bpf_tcp_raw_check_syncookie_ipv4(ip, tcp);
	} else {
		struct ipv6hdr *ip = l3;
		struct tcphdr *tcp = l3 + sizeof(*ip);

		return (void *)(tcp + 1) <= end && !bpf_tcp_raw_check_syncookie_ipv6(ip, tcp);
	}
}

/* The sum of what the checksum of a TCP header from `flow`'s destination to its source begins with. */
static __always_inline __u64 pseudo_header_sum(const struct evnf_flow *flow, __u32 length)
{
	__u64 sum = bpf_htons(IPPROTO_TCP) + (__u64)bpf_htons(length);

#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)flow->src[i] + flow->dst[i];
	return sum;
}

static __always_inline __u64 sum_words(__u64 sum, const void *bytes, __u32 length)
{
	const __u32 *word = bytes;

#pragma unroll
	for (__u32 i = 0; i < length / sizeof(*word); i++)
		sum += word[i];
	return sum;
}

/* Writes the network header of an answer to `flow`. */
static __always_inline void put_l3(void *l3, const struct evnf_flow *flow)
{
	if (flow->family == 4) {
		struct iphdr *ip = l3;

		__builtin_memset(ip, 0, sizeof(*ip));
		ip->version = 4;
		ip->ihl = sizeof(*ip) / 4;
		ip->tot_len = bpf_htons(sizeof(*ip) + SYN_ACK_LENGTH);
		ip->frag_off = bpf_htons(0x4000); /* do not fragment */
		ip->ttl = SYN_ACK_HOPS;
		ip->protocol = IPPROTO_TCP;
		ip->saddr = flow->dst[0];
		ip->daddr = flow->src[0];
		ip->check = sum_fold(sum_words(0, ip, sizeof(*ip)));
	} else {
		struct ipv6hdr *ip = l3;

		__builtin_memset(ip, 0, sizeof(*ip));
		ip->version = 6;
		ip->payload_len = bpf_htons(SYN_ACK_LENGTH);
		ip->nexthdr = IPPROTO_TCP;
		ip->hop_limit = SYN_ACK_HOPS;
		__builtin_memcpy(&ip->saddr, flow->dst, sizeof(ip->saddr));
		__builtin_memcpy(&ip->daddr, flow->src, sizeof(ip->daddr));
	}
}

/*
 * Makes a SYN its own answer, to be sent back where it came from. `length`: the frame's; `mss`: what the service takes.
 */
static __noinline int answer_syn(struct xdp_md *ctx, const struct evnf_flow *flow, __u32 length,
				 __u32 mss)
{
	struct syn_ack answer = {
		.kind = TCP_OPTION_MSS,
		.length = TCP_OPTION_MSS_LENGTH,
		.mss = bpf_htons(mss),
	};
	__u32 l3, need;
	__be32 theirs;
	__s64 cookie;
	void *data;

	if (!flow)
		return COOKIE_NONE;
	l3 = l3_length(flow);
	need = ETH_HLEN + l3 + sizeof(answer);
	if (bpf_xdp_load_bytes(ctx, ETH_HLEN + l3 + 4, &theirs, sizeof(theirs)))
		return COOKIE_MALFORMED;
	cookie = make_cookie(ctx, flow);
	if (cookie < 0)
		return COOKIE_NONE;
	if (bpf_xdp_adjust_tail(ctx, (int)need - (int)length))
		return COOKIE_NO_ROOM;
	answer.tcp.source = bpf_htons(flow->dport);
	answer.tcp.dest = bpf_htons(flow->sport);
	answer.tcp.seq = bpf_htonl((__u32)cookie);
	answer.tcp.ack_seq = bpf_htonl(bpf_ntohl(theirs) + 1);
	answer.tcp.doff = sizeof(answer) / 4;
	answer.tcp.syn = 1;
	answer.tcp.ack = 1;
	answer.tcp.window = 0xffff;
	answer.tcp.check = sum_fold(
		sum_words(pseudo_header_sum(flow, sizeof(answer)), &answer, sizeof(answer)));
	data = (void *)(long)ctx->data;
	if (flow->family == 4) {
		if (data + ETH_HLEN + sizeof(struct iphdr) + sizeof(answer) >
		    (void *)(long)ctx->data_end)
			return COOKIE_NO_ROOM;
		put_l3(data + ETH_HLEN, flow);
		__builtin_memcpy(data + ETH_HLEN + sizeof(struct iphdr), &answer, sizeof(answer));
	} else {
		if (data + ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(answer) >
		    (void *)(long)ctx->data_end)
			return COOKIE_NO_ROOM;
		put_l3(data + ETH_HLEN, flow);
		__builtin_memcpy(data + ETH_HLEN + sizeof(struct ipv6hdr), &answer, sizeof(answer));
	}
	turn_round(data);
	return COOKIE_ANSWERED;
}

#endif
