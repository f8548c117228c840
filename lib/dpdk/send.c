/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Packets of the program into a ring, and the call that runs the switch. */
#include "driver.h"

#include <errno.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#define LEAVES_WORK (RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_TCP_SEG)

/* Copies all segments of a packet, which has no more bytes than `to`. Returns false if its lengths differ. */
static bool gather(const struct rte_mbuf *mbuf, uint8_t *to)
{
	uint32_t left = mbuf->pkt_len;

	for (; mbuf; mbuf = mbuf->next) {
		if (mbuf->data_len > left)
			return false;
		memcpy(to, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len);
		to += mbuf->data_len;
		left -= mbuf->data_len;
	}
	return left == 0;
}

/*
 * Does to the packet in `data` what the program leaves to the device, and describes the rest in *left.
 * Returns false if the packet has no such headers.
 */
static bool describe(const struct rte_mbuf *mbuf, uint8_t *data, struct nfl_offload *left)
{
	uint64_t flags = mbuf->ol_flags;
	uint64_t transport = flags & RTE_MBUF_F_TX_L4_MASK;
	uint32_t start = mbuf->l2_len + mbuf->l3_len;
	bool is_v6 = flags & RTE_MBUF_F_TX_IPV6;
	uint16_t sum;

	memset(left, 0, sizeof(*left));
	if (flags & RTE_MBUF_F_TX_TCP_SEG)
		transport = RTE_MBUF_F_TX_TCP_CKSUM;
	if (mbuf->l2_len < sizeof(struct rte_ether_hdr) ||
	    mbuf->l3_len < (is_v6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr)) ||
	    start > mbuf->pkt_len)
		return false;
	if (flags & RTE_MBUF_F_TX_IP_CKSUM && !is_v6) {
		struct rte_ipv4_hdr *ip = (void *)(data + mbuf->l2_len);

		if (rte_ipv4_hdr_len(ip) > mbuf->l3_len)
			return false;
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
	}
	if (transport == RTE_MBUF_F_TX_TCP_CKSUM)
		left->csum_offset = offsetof(struct rte_tcp_hdr, cksum);
	else if (transport == RTE_MBUF_F_TX_UDP_CKSUM)
		left->csum_offset = offsetof(struct rte_udp_hdr, dgram_cksum);
	else
		return transport == 0;
	if (start + left->csum_offset + sizeof(sum) > mbuf->pkt_len)
		return false;
	/* DPDK leaves the length out of the sum of a packet that is to be cut; Linux does not. */
	sum = is_v6 ? rte_ipv6_phdr_cksum((void *)(data + mbuf->l2_len), 0)
		    : rte_ipv4_phdr_cksum((void *)(data + mbuf->l2_len), 0);
	memcpy(data + start + left->csum_offset, &sum, sizeof(sum));
	left->flags = NFL_NEEDS_CSUM;
	left->csum_start = start;
	if (flags & RTE_MBUF_F_TX_TCP_SEG &&
	    start + mbuf->l4_len + mbuf->tso_segsz < mbuf->pkt_len) {
		left->gso_type = is_v6 ? NFL_GSO_TCPV6 : NFL_GSO_TCPV4;
		left->gso_size = mbuf->tso_segsz;
		left->hdr_len = start + mbuf->l4_len;
	}
	return true;
}

/*
 * Queues the frame that the packet has come in, without a copy. Both its lane and the sender's are this
 * thread's until the flush: *borrowed is the other one. Returns false if it cannot be had.
 */
static bool forward(struct sender *sender, const struct rte_mbuf *mbuf, struct lane **borrowed)
{
	const struct hold *hold = nfluid_whole_frame(mbuf);
	struct nfl_frame frame;
	struct lane *from;

	if (!hold)
		return false;
	from = hold->lane;
	if (from != sender->lane && from != *borrowed) {
		if (*borrowed || !rte_spinlock_trylock(&from->lock))
			return false;
		*borrowed = from;
	}
	frame = hold->frame;
	frame.len = mbuf->data_len;
	return nfl_forward(sender->lane->port, &frame) == 0;
}

/* Queues a packet. 0; -ENOBUFS: no slot is free; another error: it never can be sent. */
static int queue_packet(struct sender *sender, const struct rte_mbuf *mbuf, struct lane **borrowed)
{
	struct nfl_port *port = sender->lane->port;
	struct nfl_offload left;
	uint8_t *slot;
	int error;

	if (RTE_MBUF_HAS_EXTBUF(mbuf) && !(mbuf->ol_flags & LEAVES_WORK) &&
	    forward(sender, mbuf, borrowed))
		return 0;
	if (likely(mbuf->nb_segs == 1 && !(mbuf->ol_flags & LEAVES_WORK)))
		return nfl_send_copy(port, rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len);
	if (!(mbuf->ol_flags & LEAVES_WORK) && mbuf->pkt_len <= NFL_FRAME_MAX) {
		error = nfl_tx_reserve(port, &slot);
		if (error < 0)
			return error;
		if (!gather(mbuf, slot)) {
			nfl_tx_commit(port, 0);
			return -EINVAL;
		}
		error = nfl_tx_commit(port, mbuf->pkt_len);
		if (error)
			nfl_tx_commit(port, 0);
		return error;
	}
	if (!sender->whole || mbuf->pkt_len > NFL_LONG_MAX || !gather(mbuf, sender->whole))
		return -EMSGSIZE;
	if (!(mbuf->ol_flags & LEAVES_WORK))
		return nfl_send_copy(port, sender->whole, mbuf->pkt_len);
	if (!describe(mbuf, sender->whole, &left))
		return -EBADMSG;
	return nfl_send_offload(port, sender->whole, mbuf->pkt_len, &left);
}

static void flush(struct sender *sender)
{
	int queued = nfl_queued(sender->lane->port);

	if (queued > 0 && nfl_flush(sender->lane->port, 0) < 0)
		sender->down += queued;
}

uint16_t nfluid_send(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct sender *sender = queue;
	struct lane *borrowed = NULL;
	uint64_t bytes = 0;
	uint16_t done, bad = 0;
	int error;

	lane_lock(sender->lane);
	for (done = 0; done < count; done++) {
		error = queue_packet(sender, packets[done], &borrowed);
		if (unlikely(error == -ENOBUFS)) {
			flush(sender);
			error = queue_packet(sender, packets[done], &borrowed);
			/* The program may try again: an I/O thread has them all. */
			if (error == -ENOBUFS)
				break;
		}
		if (unlikely(error))
			bad++;
		else
			bytes += packets[done]->pkt_len;
	}
	flush(sender);
	if (borrowed)
		lane_unlock(borrowed);
	lane_unlock(sender->lane);
	rte_pktmbuf_free_bulk(packets, done);
	sender->bad += bad;
	sender->frames += done - bad;
	sender->bytes += bytes;
	return done;
}
