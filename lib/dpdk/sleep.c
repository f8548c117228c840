/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Receive interrupts, so that a program without frames burns no core. An instance has one doorbell,
 * and a ring does not say which port has a frame. A thread of the driver waits for rings, and wakes
 * each queue whose thread sleeps: by an eventfd, in which a wake-up waits for a thread that is about to sleep.
 */
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_interrupts.h>
#include <rte_lcore.h>

/* Turns before a thread that finds a lane taken gives its core to others. */
#define SPINS 64

void nfluid_lane_wait(struct lane *lane)
{
	unsigned int spins = 0;

	while (!rte_spinlock_trylock(&lane->lock)) {
		if (spins++ < SPINS)
			rte_pause();
		else
			sched_yield();
	}
}

static void wake(struct lane *lane)
{
	uint64_t one = 1;
	ssize_t written;

	/* Full only after 2^64 rings, and readable then. */
	written = write(lane->bell, &one, sizeof(one));
	RTE_SET_USED(written);
}

/* The driver's thread. */
static void *relay(void *context)
{
	struct nfl_instance *instance = nfluid_instance();
	unsigned int count, i;
	struct lane *lanes = nfluid_lanes(&count);

	RTE_SET_USED(context);
	for (;;) {
		if (nfl_wait_ring(instance, NFL_WAIT_MAX_MS) < 0)
			usleep(1000);
		/* Also when the time is over: a frame whose sender could not ring waits no longer. */
		for (i = 0; i < count; i++)
			if (__atomic_load_n(&lanes[i].sleeps, __ATOMIC_ACQUIRE))
				wake(&lanes[i]);
	}
	return NULL;
}

static int start_relay(void)
{
	static bool runs;
	pthread_t thread;
	int error;

	if (runs)
		return 0;
	error = rte_ctrl_thread_create(&thread, "nfluid-bell", NULL, relay, NULL);
	if (error)
		return -RTE_MAX(error, -error);
	pthread_detach(thread);
	runs = true;
	return 0;
}

static struct lane *lane_of(struct rte_eth_dev *dev, uint16_t queue)
{
	const struct receiver *receiver = dev->data->rx_queues[queue];

	return receiver->lane;
}

void nfluid_sleep_remove(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;
	uint16_t i;

	for (i = 0; i < device->lane_count; i++) {
		struct lane *lane = device->lanes[i];

		__atomic_store_n(&lane->sleeps, false, __ATOMIC_RELEASE);
		lane_lock(lane);
		nfl_awake(lane->port);
		lane_unlock(lane);
		/* The bell stays open, in case the driver's thread is about to ring it. */
	}
	if (dev->intr_handle) {
		rte_intr_vec_list_free(dev->intr_handle);
		rte_intr_instance_free(dev->intr_handle);
		dev->intr_handle = NULL;
	}
}

int nfluid_sleep_install(struct rte_eth_dev *dev)
{
	uint16_t count = dev->data->nb_rx_queues, i;
	struct rte_intr_handle *handle;
	int error;

	if (!dev->data->dev_conf.intr_conf.rxq)
		return 0;
	nfluid_sleep_remove(dev);
	handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (!handle)
		return -ENOMEM;
	dev->intr_handle = handle;
	error = rte_intr_vec_list_alloc(handle, NULL, count) ||
		rte_intr_efd_counter_size_set(handle, sizeof(uint64_t)) ||
		rte_intr_nb_efd_set(handle, count) || rte_intr_max_intr_set(handle, count + 1) ||
		rte_intr_type_set(handle, RTE_INTR_HANDLE_VDEV);
	for (i = 0; i < count && !error; i++) {
		struct lane *lane = lane_of(dev, i);

		if (lane->bell < 0)
			lane->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		error = lane->bell < 0 ||
			rte_intr_vec_list_index_set(handle, i, RTE_INTR_VEC_RXTX_OFFSET + i) ||
			rte_intr_efds_index_set(handle, i, lane->bell);
	}
	if (error) {
		nfluid_sleep_remove(dev);
		return -ENOMEM;
	}
	return start_relay();
}

int nfluid_sleep_enable(struct rte_eth_dev *dev, uint16_t queue)
{
	const struct receiver *receiver = dev->data->rx_queues[queue];
	struct lane *lane = receiver->lane;
	int asleep;

	if (lane->bell < 0)
		return -ENOTSUP;
	__atomic_store_n(&lane->sleeps, true, __ATOMIC_SEQ_CST);
	lane_lock(lane);
	/* A full ring takes no frame that could wake. */
	if (lane->holds)
		nfluid_give_back(lane);
	asleep = nfl_sleep(lane->port);
	lane_unlock(lane);
	/* Packets of a super-frame wait in the driver, not in the ring. */
	if (asleep == 0 || receiver->waiting > 0)
		wake(lane);
	return RTE_MIN(asleep, 0);
}

int nfluid_sleep_disable(struct rte_eth_dev *dev, uint16_t queue)
{
	struct lane *lane = lane_of(dev, queue);
	uint64_t rings;
	ssize_t got;

	if (lane->bell < 0)
		return -ENOTSUP;
	__atomic_store_n(&lane->sleeps, false, __ATOMIC_RELEASE);
	lane_lock(lane);
	nfl_awake(lane->port);
	lane_unlock(lane);
	got = read(lane->bell, &rings, sizeof(rings));
	RTE_SET_USED(got);
	return 0;
}
