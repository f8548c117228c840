/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Frames from a ring into packet buffers of the program. */
#include "driver.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_net.h>

/* Polls that find nothing before a thread gives its core to others that wait for it. */
#define EMPTY_POLLS 32

/* Copies a frame into `mbuf` and as many more buffers as it fills. Returns false if the pool has none left. */
static bool fill(struct receiver *receiver, struct rte_mbuf *mbuf, const uint8_t *data,
		 uint32_t len)
{
	struct rte_mbuf *last = mbuf, *next;
	uint32_t room, done = 0;

	mbuf->port = receiver->device;
	mbuf->pkt_len = len;
	for (;;) {
		room = rte_pktmbuf_tailroom(last);
		room = RTE_MIN(room, len - done);
		memcpy(rte_pktmbuf_mtod(last, void *), data + done, room);
		last->data_len = room;
		done += room;
		if (done == len)
			return true;
		next = rte_pktmbuf_alloc(receiver->pool);
		if (!next)
			return false;
		last->next = next;
		mbuf->nb_segs++;
		last = next;
	}
}

/* What the checksums of a packet are worth, for a program that has asked. */
static void verify(struct rte_mbuf *mbuf)
{
	struct rte_net_hdr_lens lens;
	uint32_t type = rte_net_get_ptype(mbuf, &lens, RTE_PTYPE_ALL_MASK);
	uint32_t transport = type & RTE_PTYPE_L4_MASK;
	uint16_t end = lens.l2_len + lens.l3_len;
	const void *ip;
	int bad;

	mbuf->packet_type = type;
	if (mbuf->data_len < end)
		return;
	ip = rte_pktmbuf_mtod_offset(mbuf, const void *, lens.l2_len);
	if (RTE_ETH_IS_IPV4_HDR(type)) {
		bad = rte_raw_cksum(ip, lens.l3_len) != 0xffff;
		mbuf->ol_flags |= bad ? RTE_MBUF_F_RX_IP_CKSUM_BAD : RTE_MBUF_F_RX_IP_CKSUM_GOOD;
	} else if (!RTE_ETH_IS_IPV6_HDR(type)) {
		return;
	}
	if (transport != RTE_PTYPE_L4_TCP && transport != RTE_PTYPE_L4_UDP)
		return;
	if (RTE_ETH_IS_IPV4_HDR(type)) {
		const struct rte_udp_hdr *udp = rte_pktmbuf_mtod_offset(mbuf, const void *, end);

		/* RFC 768: the sender has computed none. */
		if (transport == RTE_PTYPE_L4_UDP && mbuf->data_len >= end + sizeof(*udp) &&
		    udp->dgram_cksum == 0)
			return;
		bad = rte_ipv4_udptcp_cksum_mbuf_verify(mbuf, ip, end);
	} else {
		bad = rte_ipv6_udptcp_cksum_mbuf_verify(mbuf, ip, end);
	}
	mbuf->ol_flags |= bad ? RTE_MBUF_F_RX_L4_CKSUM_BAD : RTE_MBUF_F_RX_L4_CKSUM_GOOD;
}

#define CHECKSUMS RTE_ETH_RX_OFFLOAD_CHECKSUM

/* Keeps one packet of a super-frame until the program takes it. */
static int keep(void *context, const uint8_t *data, size_t len)
{
	struct receiver *receiver = context;
	struct rte_mbuf *mbuf = NULL;

	if (receiver->waiting < PACKETS_MAX)
		mbuf = rte_pktmbuf_alloc(receiver->pool);
	if (!mbuf || !fill(receiver, mbuf, data, len)) {
		rte_pktmbuf_free(mbuf);
		receiver->no_buffer++;
		return 0;
	}
	if (receiver->offloads & CHECKSUMS)
		verify(mbuf);
	receiver->packets[receiver->waiting++] = mbuf;
	return 0;
}

/*
 * Does what was left to be done to a frame, or keeps its packets for later. Returns true if the frame is
 * to be handed over as it is now.
 */
static bool finish(struct receiver *receiver, const struct nfl_frame *frame,
		   struct nfl_offload *left)
{
	struct nfl_port *port = receiver->lane->port;

	if (nfl_frame_settle(port, frame) || nfl_frame_offload(port, frame, left)) {
		receiver->bad++;
		return false;
	}
	if (left->gso_type == NFL_GSO_NONE)
		return left->flags == 0 || nfl_frame_finish(port, frame) == 0;
	if ((receiver->offloads & RTE_ETH_RX_OFFLOAD_TCP_LRO) && left->gso_type != NFL_GSO_UDP_L4)
		return true;
	if (nfl_frame_cut(port, frame, keep, receiver) < 0)
		receiver->bad++;
	return false;
}

/* Hands over packets that wait. */
static uint16_t take(struct receiver *receiver, struct rte_mbuf **packets, uint16_t count)
{
	uint16_t taken = RTE_MIN(count, receiver->waiting - receiver->next);

	memcpy(packets, receiver->packets + receiver->next, taken * sizeof(*packets));
	receiver->next += taken;
	if (receiver->next == receiver->waiting)
		receiver->next = receiver->waiting = 0;
	return taken;
}

/* Hands over one frame. Returns the number of packets, at most `count`. */
static uint16_t hand_over(struct receiver *receiver, const struct nfl_frame *frame,
			  struct rte_mbuf *mbuf, struct rte_mbuf **packets, uint16_t count)
{
	struct nfl_offload left = { 0 };

	if (receiver->has_metadata && !finish(receiver, frame, &left)) {
		rte_pktmbuf_free(mbuf);
		return take(receiver, packets, count);
	}
	if (unlikely(!fill(receiver, mbuf, frame->data, frame->len))) {
		rte_pktmbuf_free(mbuf);
		receiver->no_buffer++;
		return 0;
	}
	if (left.gso_type) {
		mbuf->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		mbuf->tso_segsz = left.gso_size;
	} else if (receiver->offloads & CHECKSUMS) {
		verify(mbuf);
	}
	*packets = mbuf;
	return 1;
}

/* Frames of a ring that packets may keep at a time; what is received beyond is copied. */
#define LENT_MAX 64

/* The last owner of a packet has given it back, on any thread. */
static void freed(void *bytes, void *context)
{
	struct hold *hold = context;

	RTE_SET_USED(bytes);
	__atomic_store_n(&hold->is_free, true, __ATOMIC_RELEASE);
}

const struct hold *nfluid_whole_frame(const struct rte_mbuf *mbuf)
{
	const struct hold *hold;

	if (mbuf->shinfo->free_cb != freed)
		return NULL;
	hold = mbuf->shinfo->fcb_opaque;
	if (mbuf->nb_segs != 1 || mbuf->data_off != 0 || rte_mbuf_refcnt_read(mbuf) != 1 ||
	    rte_mbuf_ext_refcnt_read(&hold->shared) != 1)
		return NULL;
	return hold;
}

void nfluid_give_back(struct lane *lane)
{
	uint32_t count = 0;

	while (lane->oldest + count != lane->newest &&
	       __atomic_load_n(&lane->holds[(lane->oldest + count) % HOLDS].is_free,
			       __ATOMIC_ACQUIRE))
		count++;
	if (count > 0 && nfl_release_first(lane->port, count) == 0)
		lane->oldest += count;
}

/* Makes the frame's bytes those of the packet. */
static void lend(struct receiver *receiver, struct rte_mbuf *mbuf, struct hold *hold)
{
	const struct nfl_frame *frame = &hold->frame;

	hold->is_free = false;
	hold->shared.free_cb = freed;
	hold->shared.fcb_opaque = hold;
	rte_mbuf_ext_refcnt_set(&hold->shared, 1);
	rte_pktmbuf_attach_extbuf(mbuf, frame->data, RTE_BAD_IOVA, NFL_FRAME_MAX, &hold->shared);
	mbuf->data_off = 0;
	mbuf->port = receiver->device;
	mbuf->data_len = frame->len;
	mbuf->pkt_len = frame->len;
}

/* As batch(), of frames as they are on a wire, which stay in their ring until the packets are given back. */
static uint16_t batch_lent(struct receiver *receiver, struct rte_mbuf **packets, uint16_t count)
{
	struct lane *lane = receiver->lane;
	struct nfl_frame frames[BATCH];
	struct rte_mbuf *mbufs[BATCH];
	uint16_t done = 0;
	bool has_buffers;
	int found, i;

	nfluid_give_back(lane);
	found = nfl_receive(lane->port, frames, RTE_MIN(count, BATCH));
	if (found <= 0)
		return 0;
	has_buffers = rte_pktmbuf_alloc_bulk(receiver->pool, mbufs, found) == 0;
	for (i = 0; i < found; i++) {
		struct hold *hold = &lane->holds[lane->newest % HOLDS];

		hold->frame = frames[i];
		hold->lane = lane;
		hold->is_free = true;
		if (unlikely(!has_buffers)) {
			receiver->no_buffer++;
		} else if (lane->newest - lane->oldest < LENT_MAX &&
			   frames[i].len <= NFL_FRAME_MAX) {
			lend(receiver, mbufs[i], hold);
			packets[done++] = mbufs[i];
		} else if (fill(receiver, mbufs[i], frames[i].data, frames[i].len)) {
			packets[done++] = mbufs[i];
		} else {
			rte_pktmbuf_free(mbufs[i]);
			receiver->no_buffer++;
		}
		lane->newest++;
	}
	if (receiver->offloads & CHECKSUMS)
		for (i = 0; i < done; i++)
			verify(packets[i]);
	return done;
}

/*
 * Hands over at most BATCH frames, and at most `count` packets: frames are taken one at a time where one
 * may become many packets.
 */
static uint16_t batch(struct receiver *receiver, struct rte_mbuf **packets, uint16_t count)
{
	struct nfl_port *port = receiver->lane->port;
	struct nfl_frame frames[BATCH];
	struct rte_mbuf *mbufs[BATCH];
	uint16_t done = 0;
	int found, i;

	found = nfl_receive(port, frames, receiver->has_metadata ? 1 : RTE_MIN(count, BATCH));
	if (found <= 0)
		return 0;
	if (unlikely(rte_pktmbuf_alloc_bulk(receiver->pool, mbufs, found))) {
		receiver->no_buffer += found;
		nfl_release(port);
		return 0;
	}
	for (i = 0; i < found; i++) {
		if (i + 2 < found)
			rte_prefetch0(frames[i + 2].data);
		done += hand_over(receiver, &frames[i], mbufs[i], packets + done, count - done);
	}
	nfl_release(port);
	return done;
}

/*
 * A poll found nothing. Programs on DPDK poll until their time slice is over; whoever would send them
 * a frame may wait for their core. A yield costs a program that is alone on its core one system call.
 */
static void idle(struct receiver *receiver)
{
	if (++receiver->empty < EMPTY_POLLS)
		return;
	receiver->empty = 0;
	sched_yield();
}

uint16_t nfluid_receive(void *queue, struct rte_mbuf **packets, uint16_t count)
{
	struct receiver *receiver = queue;
	bool lends = receiver->lane->holds != NULL;
	uint16_t done, step, i;

	done = take(receiver, packets, count);
	lane_lock(receiver->lane);
	while (done < count) {
		step = lends ? batch_lent(receiver, packets + done, count - done)
			     : batch(receiver, packets + done, count - done);
		if (step == 0)
			break;
		done += step;
	}
	lane_unlock(receiver->lane);
	if (done == 0) {
		idle(receiver);
		return 0;
	}
	receiver->empty = 0;
	for (i = 0; i < done; i++)
		receiver->bytes += packets[i]->pkt_len;
	receiver->frames += done;
	return done;
}
