/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A frame that came in on an uplink: its fields, whose it is, and its way into a slot. Included once per hook, with
 * HOOK(name), and FRAME_CTX, the type of the hook's context: hook_xdp.h and hook_tc.h have the functions by which the bytes
 * are read.
 *
 * Parsed: Ethernet, up to two VLAN tags, IPv4 with options, IPv6 with up to four hop-by-hop,
 * destination-options or fragment headers. A later fragment, or a longer row of extension headers,
 * has no ports. What cannot be parsed has no IP fields.
 */

/* Whose the frame is. False: it says nothing of that. */
static __always_inline bool HOOK(client_of)(struct FRAME_CTX *ctx, const struct nfl_flow *flow,
					    __u32 dest, struct nfl_client *client)
{
	bool back = dest & NFL_RULE_BACK;

	client->template = dest << 1 >> (NFL_RULE_TEMPLATE_SHIFT + 1);
	switch (dest & 3) {
	case NFL_CLIENT_BY_ADDRESS:
		client->id[0] = back ? flow->dst[0] : flow->src[0];
		client->id[1] = back ? flow->dst[1] : flow->src[1];
		client->ether = flow->ether;
		return flow->has & NFL_HAS_IP;
	case NFL_CLIENT_BY_VLAN:
		client->id[0] = flow->vlan;
		return flow->vlan;
	case NFL_CLIENT_BY_MAC:
		return !HOOK(frame_load)(ctx, back ? 0 : 6, client->id, 6);
	}
	return false;
}

/* Lets the frame wait. False: there is no room. */
static __noinline bool HOOK(client_waits)(struct FRAME_CTX *ctx, __u32 me,
					  const struct nfl_client *client)
{
	__u64 len = HOOK(frame_len)(ctx);
	struct nfl_arrival *arrival;
	struct offload offload;

	/* Its record has no place for what is still to be done to a frame. */
	if (!HOOK(frame_offload)(ctx, &offload, len) || offload.w0)
		return false;
	arrival = bpf_ringbuf_reserve(&nfl_arrivals, sizeof(*arrival), 0);
	if (!arrival)
		return false;
	if (!client || !HOOK(frame_copy)(ctx, arrival->frame, len, NFL_FRAME_MAX)) {
		bpf_ringbuf_discard(arrival, 0);
		return false;
	}
	arrival->client = *client;
	arrival->uplink = me;
	arrival->len = len;
	bpf_ringbuf_submit(arrival, 0);
	return true;
}

/* The port that takes the frame of a flow, by what the rules say of it. */
static __always_inline __u32 HOOK(client_port)(struct FRAME_CTX *ctx, __u32 me,
					       const struct nfl_flow *flow, __u32 dest)
{
	struct nfl_client client = {};
	struct nfl_client_ports *ports;
	__u64 word = 0;

	if (!(dest & NFL_RULE_CLIENTS))
		return dest;
	if (!HOOK(client_of)(ctx, flow, dest, &client))
		return NFL_PORTS_MAX;
	ports = bpf_map_lookup_elem(&nfl_clients, &client);
	if (ports)
		word = READ_ONCE(*(dest & NFL_RULE_BACK ? &ports->back : &ports->entry));
	if (word && word >> 16 == client_digest(&client))
		return word & 0xffff;
	if (dest & NFL_RULE_BACK)
		return NFL_PORTS_MAX;
	return HOOK(client_waits)(ctx, me, &client) ? CLIENT_WAITS : CLIENT_REFUSED;
}

/* Reads the tags. Returns where the network header starts. */
static __always_inline __u32 HOOK(parse_ethernet)(struct FRAME_CTX *ctx, struct nfl_flow *flow)
{
	__u16 words[5] = {}; /* type, TCI, type, TCI, type */
	__u32 at = 14;

	if (!HOOK(frame_types)(ctx, words))
		return at;
	flow->ether = words[0];
	if (tag_type(words[0])) {
		flow->vlan = (words[1] >> 8 | words[1] << 8) & 0xfff;
		flow->ether = words[2];
		at = 18;
		if (tag_type(words[2])) {
			flow->ether = words[4];
			at = 22;
		}
	}
	return at;
}

static __always_inline void HOOK(parse_ports)(struct FRAME_CTX *ctx, __u32 at,
					      struct nfl_flow *flow)
{
	__u16 ports[2];

	if (flow->proto != IPPROTO_TCP_ && flow->proto != IPPROTO_UDP_ &&
	    flow->proto != IPPROTO_SCTP_)
		return;
	if (HOOK(frame_load)(ctx, at, ports, sizeof(ports)))
		return;
	flow->sport = ports[0] >> 8 | ports[0] << 8;
	flow->dport = ports[1] >> 8 | ports[1] << 8;
	flow->has |= NFL_HAS_PORTS;
}

static __always_inline void HOOK(parse_ipv4)(struct FRAME_CTX *ctx, __u32 at, struct nfl_flow *flow)
{
	struct ipv4_header ip;
	__u32 length;

	if (HOOK(frame_load)(ctx, at, &ip, sizeof(ip)))
		return;
	length = (ip.version_ihl & 0xf) * 4;
	if (ip.version_ihl >> 4 != 4 || length < IPV4_HEADER_MIN)
		return;
	flow->src[0] = ip.src;
	flow->dst[0] = ip.dst;
	flow->proto = ip.proto;
	flow->has |= NFL_HAS_IP;
	if (!(ip.fragment & IPV4_OFFSET))
		HOOK(parse_ports)(ctx, at + length, flow);
}

static __always_inline void HOOK(parse_ipv6)(struct FRAME_CTX *ctx, __u32 at, struct nfl_flow *flow)
{
	struct ipv6_extension extension;
	struct ipv6_header ip;

	if (HOOK(frame_load)(ctx, at, &ip, sizeof(ip)) || (ip.version_flow & 0xf0) != 0x60)
		return;
	flow->src[0] = ip.src[0];
	flow->src[1] = ip.src[1];
	flow->dst[0] = ip.dst[0];
	flow->dst[1] = ip.dst[1];
	flow->proto = ip.next;
	flow->has |= NFL_HAS_IP;
	at += sizeof(ip);
#pragma unroll
	for (int i = 0; i < IPV6_EXTENSIONS; i++) {
		bool fragment = flow->proto == IPPROTO_FRAGMENT_;

		if (!fragment && flow->proto != IPPROTO_HOPOPTS_ && flow->proto != IPPROTO_DSTOPTS_)
			break;
		if (HOOK(frame_load)(ctx, at, &extension, sizeof(extension)))
			return;
		flow->proto = extension.next;
		if (fragment && extension.fragment & IPV6_OFFSET)
			return;
		at += fragment ? 8 : (extension.length + 1) * 8;
	}
	HOOK(parse_ports)(ctx, at, flow);
}

/* As flow_port(): the frame's first bytes decide, as for frames in slots. A function of its own, to save stack. */
static __noinline __u32 HOOK(arrival_port)(struct FRAME_CTX *ctx, __u32 first, __u32 queues)
{
	__u64 words[FLOW_BYTES / 8 + 1] = {};
	void *head = (void *)words + 2; /* addresses are aligned then, as the stack must be read */
	__u64 len = HOOK(frame_len)(ctx);

	len = len < FLOW_BYTES ? len : FLOW_BYTES;
	if (!HOOK(frame_copy)(ctx, head, len, FLOW_BYTES))
		return first;
	return flow_port(head, first, queues);
}

/* The port that owns the receive queue on which the frame came in, or NFL_PORTS_MAX. */
static __always_inline __u32 HOOK(steered_to)(struct FRAME_CTX *ctx, __u32 me)
{
	void *queues = bpf_map_lookup_elem(&nfl_queues, &me);
	__u32 queue = HOOK(frame_queue)(ctx);
	__u32 *owner;

	if (!queues)
		return NFL_PORTS_MAX;
	owner = bpf_map_lookup_elem(queues, &queue);
	return owner && *owner ? *owner - 1 : NFL_PORTS_MAX;
}

/* Writes the frame into its room. A function of its own, to save stack. */
static __noinline bool HOOK(load_frame)(struct FRAME_CTX *ctx, void *block, __u64 slot, __u64 len)
{
	/* Changes nothing. Where a caller has compared half of the register, Linux 6.12 forgets all bounds below. */
	len &= 0xffff;
	if (len <= NFL_FRAME_MAX)
		return HOOK(frame_copy)(ctx, block_slot(block, slot), len, NFL_FRAME_MAX);
	return slot <= NFL_LONG_START_MAX &&
	       HOOK(frame_copy)(ctx, block + slot * NFL_SLOT_SIZE, len, NFL_LONG_MAX);
}
