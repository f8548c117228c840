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
#define NFL_FRAME_MAX 2032

/* A pool is an array of blocks; a frame's buffer is named by its slot number in the pool. */
#define NFL_BLOCK_SLOTS 64
#define NFL_BLOCK_SIZE (NFL_BLOCK_SLOTS * NFL_SLOT_SIZE)

#define NFL_RING_MIN 64
#define NFL_RING_MAX 1024

/*
 * TX descriptor: length in bits 0..15, pool slot in bits 32..63. The slot may be any of the
 * instance's own: a frame received on one port is sent on another without a copy in between.
 * RX descriptor: length in bits 0..15 (0: a hole, to be skipped), sequence in bits 32..63, which
 * is the ring position + 1 once the slot is published. The slot is the ring position's own, but in a
 * group: there it is in bits 16..31. Who releases a position says there which slot takes the next
 * frame, and the switch says in a consumed TX descriptor which slot came back for the one sent: any
 * frame may have been exchanged instead of copied.
 */
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
	__u32 rx_head; /* position after the last frame released */
	__u32 rx_sleep; /* sleep epoch (never 0) while blocked, 0 while awake */
	__u32 rx_seen; /* position after the last frame taken before the sleep; released or not */
	__u32 pad2[13];
	__u8 pad3[4096 - 192];
	__u64 tx[NFL_RING_MAX];
	__u64 rx[NFL_RING_MAX];
};

_Static_assert(sizeof(struct nfl_ring) == 20480, "struct nfl_ring is part of the ABI");

#endif /* NFLUID_ABI_H */
