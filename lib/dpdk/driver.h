/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The poll-mode driver net_nfluid: ports of an nfluid instance as devices of DPDK.
 *
 * device.c: devices, and what DPDK asks about them. receive.c, send.c: frames. sleep.c: receive interrupts.
 */
#ifndef NFL_DPDK_DRIVER_H
#define NFL_DPDK_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include <ethdev_driver.h>
#include <rte_log.h>
#include <rte_spinlock.h>

#include <nfluid.h>

/* Queues of a port, as many as a deployment can ask for. */
#define QUEUES_MAX 16
/* Frames that are taken from a ring or given to it at once. */
#define BATCH 64
/* Packets that one super-frame can become: 65,520 bytes of at least 48. */
#define PACKETS_MAX 1366

extern int nfluid_log;
#define LOG(level, ...)                                                                            \
	rte_log(RTE_LOG_##level, nfluid_log, "net_nfluid: " RTE_FMT(__VA_ARGS__, ) "\n")

/*
 * A queue of a port. DPDK lets one thread receive and another send on it; libnfluid has one thread
 * at a time. The lock is free nearly always.
 */
struct hold;

struct lane {
	struct nfl_port *port;
	rte_spinlock_t lock;
	/* Readable when frames have come for a thread that sleeps; -1 without receive interrupts. */
	int bell;
	/* A thread waits for the bell. */
	bool sleeps;
	/* The device that has the port; NULL: none. */
	struct rte_eth_dev_data *device;
	/*
	 * Zero-copy: the frames that are held of the ring, in order; NULL: each is copied and given back at once. They
	 * belong to the lane, for a program may keep a packet longer than a queue.
	 */
	struct hold *holds;
	uint32_t oldest, newest;
};

/* A received frame whose bytes may be a packet buffer's. */
struct hold {
	struct rte_mbuf_ext_shared_info shared;
	struct nfl_frame frame;
	struct lane *lane;
	bool is_free;
};

#define HOLDS NFL_RING_MAX

/* Gives the slots of the oldest frames back, as far as nobody has their packets any more. The lane is the caller's. */
void nfluid_give_back(struct lane *lane);

/* The packet's bytes are those of a frame in its ring, which can be sent as it is; NULL: no. */
const struct hold *nfluid_whole_frame(const struct rte_mbuf *mbuf);

struct receiver {
	struct lane *lane;
	struct rte_mempool *pool;
	uint16_t device;
	uint64_t offloads;
	/* Frames may arrive with work left to be done to them. */
	bool has_metadata;
	/* Polls in a row that found nothing. */
	uint32_t empty;
	uint64_t frames;
	uint64_t bytes;
	/* Frames for which the pool had no buffer. */
	uint64_t no_buffer;
	/* Frames with metadata that contradicts them. */
	uint64_t bad;
	/* Packets of a super-frame that have not been handed over. */
	uint16_t waiting;
	uint16_t next;
	struct rte_mbuf *packets[PACKETS_MAX];
};

struct sender {
	struct lane *lane;
	uint64_t frames;
	uint64_t bytes;
	/* Packets that are no frames, or longer than the port can send. */
	uint64_t bad;
	/* Frames that were queued at a port that was down. */
	uint64_t down;
	/* A packet in one piece, for those of several segments and those with work left to be done. */
	uint8_t *whole;
};

/* What a device has of its own. */
struct device {
	/* The port's queues, all of them. */
	struct lane *lanes[QUEUES_MAX];
	uint16_t lane_count;
	struct rte_ether_addr mac;
	uint16_t mtu;
	/* Frames arrive with work left to be done to them. */
	bool has_metadata;
	/* The program may leave work to be done, and send long frames. */
	bool sends_metadata;
	uint32_t longest_received;
};

uint16_t nfluid_receive(void *receiver, struct rte_mbuf **packets, uint16_t count);
uint16_t nfluid_send(void *sender, struct rte_mbuf **packets, uint16_t count);

/* The lanes of this process, and the instance; NULL before it has attached. */
struct nfl_instance *nfluid_instance(void);
struct lane *nfluid_lanes(unsigned int *count);

/* Receive interrupts of a device, as its configuration asks for them. 0, or a negative errno value. */
int nfluid_sleep_install(struct rte_eth_dev *dev);
void nfluid_sleep_remove(struct rte_eth_dev *dev);
int nfluid_sleep_enable(struct rte_eth_dev *dev, uint16_t queue);
int nfluid_sleep_disable(struct rte_eth_dev *dev, uint16_t queue);

/*
 * Takes the lane, or gives the core to others in turn: on a shared core, the thread that has it may
 * need this core to give it back.
 */
void nfluid_lane_wait(struct lane *lane);

static inline void lane_lock(struct lane *lane)
{
	if (!rte_spinlock_trylock(&lane->lock))
		nfluid_lane_wait(lane);
}

static inline void lane_unlock(struct lane *lane)
{
	rte_spinlock_unlock(&lane->lock);
}

#endif
