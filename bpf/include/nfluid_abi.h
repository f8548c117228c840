/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The memory that an instance shares with the switch, and the call that runs the switch.
 * Defined here once; lib/ring/src/layout.rs mirrors it and asserts the same sizes.
 *
 * An instance has one *pool* of frame slots and one *ring* per port. Both are BPF arrays that only
 * the instance and the kernel map. Everything in them can be written by the instance at any time:
 * the switch reads each word once and checks the copy. Instances of one trust group map the same
 * pool, and slots go from one to the other.
 */
#ifndef NFLUID_ABI_H
#define NFLUID_ABI_H

#include <linux/types.h>

/* setsockopt(port socket, NFL_SOL, call, &u32, 4) */
#define NFL_SOL 0x4e46
#define NFL_CALL_TX 1 /* run the switch over the TX ring; a full receiver drops the rest of a run */
#define NFL_CALL_TX_KEEP 2 /* the same, but frames that a full link would drop stay in the ring */
#define NFL_CALL_NOP 3 /* enter the switch, do nothing: the cost of the call itself */
#define NFL_CALL_DOORBELL                                                                          \
	4 /* ring the kernel doorbell of a link's sleeping peer: its own takes no more */
/* Errors of the call: EPERM (not a port's socket), ENETDOWN (the port is down), EBUSY (another
 * thread is in a call on this port), EINVAL (unknown call). A nonsensical tx_head empties the ring
 * and is counted. */

#define NFL_SLOT_SIZE 2048
#define NFL_FRAME_MIN 14
#define NFL_FRAME_MAX 2032 /* of a frame in one slot */

/* A pool is an array of blocks; a frame's buffer is named by its slot number in the pool. */
#define NFL_BLOCK_SLOTS 64
#define NFL_BLOCK_SIZE (NFL_BLOCK_SLOTS * NFL_SLOT_SIZE)

/*
 * A long frame lies in up to 32 slots that follow each other, in one block: it starts in the block's first half or at
 * its middle. The last bytes of a frame's last slot are left for struct nfl_offload.
 */
#define NFL_LONG_SLOTS 32
#define NFL_LONG_MAX (NFL_LONG_SLOTS * NFL_SLOT_SIZE - 16)
#define NFL_LONG_START_MAX (NFL_BLOCK_SLOTS - NFL_LONG_SLOTS)
/* Bytes by which the receiver of a long frame can extend it: the switch reserves room for them. */
#define NFL_LONG_SPARE 32

#define NFL_RING_MIN 64
#define NFL_RING_MAX 1024

/*
 * What is still to be done to a frame, in the last bytes of its last slot: the start is struct virtio_net_hdr. The switch
 * checks a sender's words, see bpf/switch/offload.h, and writes the checked ones to the receiver.
 */
struct nfl_offload {
	__u8 flags; /* VIRTIO_NET_HDR_F_NEEDS_CSUM, or 0: nothing */
	__u8 gso_type; /* VIRTIO_NET_HDR_GSO_* */
	__u16 hdr_len; /* of the headers that each segment has, Ethernet to transport */
	__u16 gso_size; /* payload of each segment but the last */
	__u16 csum_start; /* of the transport header */
	__u16 csum_offset; /* from there */
	__u16 segments; /* computed by the switch; a sender's value does not count */
	__u32 pad;
};

_Static_assert(sizeof(struct nfl_offload) == 16, "struct nfl_offload is part of the ABI");

/*
 * TX descriptor: length in bits 0..15, NFL_DESC_OFFLOAD, in bits 17..21 the number of the frame's slots less one, pool
 * slot in bits 32..63. The slot may be any of the instance's own: a frame received on one port is sent on another without
 * a copy in between.
 * RX descriptor: length in bits 0..15 (below NFL_FRAME_MIN: a hole, to be skipped), sequence in bits 32..63, which
 * is the ring position + 1 once the slot is published. The slot is the ring position's own, but
 * - of a long frame: bits 16..31 are the lower bits of a position that counts the port's slots for long frames, as
 *   rx_released does; the frame's first slot is that position, modulo their number, which is a power of two. The
 *   switch takes these in turn, skips those in which no frame may start, and takes room for NFL_LONG_SPARE bytes more.
 *   A long frame always has struct nfl_offload, in the last slot taken. Of a hole that has taken such slots
 *   (NFL_LONG_HOLE), bits 16..31 are those of the position behind them.
 * - in a group: the slot is in bits 16..31. Who releases a position says there which slot takes the next
 *   frame, and the switch says in a consumed TX descriptor which slot came back for the one sent: any
 *   frame may have been exchanged instead of copied. A group has no long frames.
 * A short frame with struct nfl_offload has NFL_DESC_OFFLOAD.
 */
#define NFL_DESC_OFFLOAD (1u << 16)
#define NFL_DESC_SLOTS_SHIFT 17
#define NFL_LONG_HOLE 1
struct nfl_ring {
	/* written by the instance as a sender */
	__u32 tx_head; /* position after the last frame handed over */
	__u32 tx_sleep; /* sleep epoch (never 0) while blocked until an I/O thread consumes, else 0 */
	__u32 tx_keep; /* for an I/O thread: as NFL_CALL_TX_KEEP */
	__u32 tx_cpu; /* for an I/O thread: where the sender runs, + 1; 0: unknown */
	__u32 pad0[12];
	/* written for the sender: by the switch within its call, and by an I/O thread */
	__u32 tx_tail; /* position after the last frame consumed */
	__u32 peer_asleep; /* sleep epoch of a link's peer that this call found blocked, else 0 */
	__u32 served; /* who makes the call: 0 the instance, 1 an I/O thread, 2 one on its core */
	__u32 io_sleep; /* sleep epoch (never 0) of the I/O thread while it is blocked, else 0 */
	__u32 pad1[12];
	/* written by the instance as a receiver */
	__u64 rx_released; /* positions after what was released: frames in bits 0..31, slots for long
			    * frames in bits 32..63 */
	__u32 rx_sleep; /* sleep epoch (never 0) while blocked, 0 while awake */
	__u32 rx_seen; /* position after the last frame taken before the sleep; released or not */
	__u32 pad2[12];
	__u8 pad3[4096 - 192];
	__u64 tx[NFL_RING_MAX];
	__u64 rx[NFL_RING_MAX];
};

_Static_assert(sizeof(struct nfl_ring) == 20480, "struct nfl_ring is part of the ABI");

#endif /* NFLUID_ABI_H */
