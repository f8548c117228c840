/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls every function of libnfluid as an instance with two ports, p0 and p1, each with 64 slots:
 * sends 64 frames on p0, sleeps until one comes there and sends it back. Ends with 0 if everything was as the
 * header says.
 */
#include <nfluid.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../lib/ring/tests/check.h"

#define SLOTS 64

static void ports(struct nfl_instance *instance)
{
	struct nfl_port *p1 = nfl_port_at(instance, 1);
	uint8_t mac[6] = { 0 };

	CHECK(nfl_port_count(instance) == 2);
	CHECK(p1 && nfl_port_at(instance, 2) == NULL);
	CHECK(nfl_port_by_name(instance, "p1", 0) == p1);
	CHECK(nfl_port_by_name(instance, "p1", 1) == NULL);
	CHECK(nfl_port_by_name(instance, "p", 0) == NULL);
	CHECK(nfl_port_by_name(instance, NULL, 0) == NULL);
	CHECK(nfl_port_index(p1) == 1);
	CHECK(strcmp(nfl_port_name(p1), "p1") == 0);
	CHECK(nfl_port_mac(p1, mac) == 0 && mac[0] == 2);
	CHECK(nfl_port_mac(p1, NULL) == -EINVAL);
	CHECK(nfl_port_mtu(p1) == 1500);
	CHECK(nfl_port_queue(p1) == 0);
	CHECK(nfl_port_queues(p1) == 1);
}

/* Fills all slots of the port: the first by a copy, the second in place, the others by copies. */
static void sending(struct nfl_port *port)
{
	uint8_t frame[NFL_FRAME_MAX + 1] = { 0 };
	uint8_t *slot = NULL, *same = NULL;
	int i;

	CHECK(nfl_send_copy(port, NULL, 60) == -EINVAL);
	CHECK(nfl_send_copy(port, frame, NFL_FRAME_MIN - 1) == -EMSGSIZE);
	CHECK(nfl_send_copy(port, frame, NFL_FRAME_MAX + 1) == -EMSGSIZE);
	CHECK(nfl_tx_commit(port, 60) == -EINVAL);
	CHECK(nfl_queued(port) == 0);

	CHECK(nfl_send_copy(port, frame, NFL_FRAME_MIN) == 0);
	CHECK(nfl_tx_reserve(port, &slot) == NFL_FRAME_MAX);
	CHECK(nfl_tx_commit(port, 0) == 0 && nfl_queued(port) == 1);
	CHECK(nfl_tx_reserve(port, &slot) == NFL_FRAME_MAX);
	CHECK(nfl_tx_reserve(port, &same) == NFL_FRAME_MAX && same == slot);
	CHECK(nfl_send_copy(port, frame, 60) == -EBUSY);
	CHECK(nfl_tx_commit(port, NFL_FRAME_MAX + 1) == -EMSGSIZE);
	memset(slot, 1, NFL_FRAME_MAX);
	CHECK(nfl_tx_commit(port, NFL_FRAME_MAX) == 0 && nfl_queued(port) == 2);

	for (i = 2; i < SLOTS; i++) {
		memset(frame, i, NFL_FRAME_MIN + i);
		CHECK(nfl_send_copy(port, frame, NFL_FRAME_MIN + i) == 0);
	}
	CHECK(nfl_send_copy(port, frame, 60) == -ENOBUFS);
	CHECK(nfl_tx_reserve(port, &slot) == -ENOBUFS);
	CHECK(nfl_flush(port, ~NFL_KEEP) == -EINVAL && nfl_queued(port) == SLOTS);
	CHECK(nfl_flush(port, NFL_KEEP) == SLOTS && nfl_queued(port) == 0);
	CHECK(nfl_flush(port, 0) == 0);
}

/* Sleeps until the one frame comes: a frame that waits without a ring would be found by the next announcement. */
static void sleeping(struct nfl_instance *instance, struct nfl_port *port)
{
	int asleep = nfl_sleep(port);

	while (asleep == 1 && nfl_wait_ring(instance, -1) == 0) {
		asleep = nfl_sleep(port);
		CHECK(asleep == 1);
	}
	CHECK(nfl_sleep(port) == 0);
	CHECK(nfl_awake(port) == 0);
}

/* Waits for the one frame that comes, and sends it back where it came from. */
static void answering(struct nfl_instance *instance, struct nfl_port *port)
{
	struct nfl_frame frames[2], wrong;
	int count;

	while ((count = nfl_receive(port, frames, 2)) == 0)
		CHECK(nfl_wait(instance, -1, -1) >= 0);
	CHECK(count == 1 && frames[0].port == 0);
	CHECK(nfl_receive(port, frames, 0) == 0);
	CHECK(nfl_receive(port, NULL, 1) == -EINVAL);

	CHECK(nfl_forward(port, NULL) == -EINVAL);
	wrong = frames[0];
	wrong.data++;
	CHECK(nfl_forward(port, &wrong) == -EINVAL);
	wrong = frames[0];
	wrong.slot = UINT32_MAX;
	CHECK(nfl_forward(port, &wrong) == -EINVAL);
	wrong = frames[0];
	wrong.port = 1;
	CHECK(nfl_forward(port, &wrong) == -EINVAL);
	wrong.port = UINT16_MAX;
	CHECK(nfl_forward(port, &wrong) == -EINVAL);
	wrong = frames[0];
	wrong.len = NFL_FRAME_MAX + 1;
	CHECK(nfl_forward(port, &wrong) == -EMSGSIZE);
	CHECK(nfl_queued(port) == 0);

	frames[0].data[0] ^= 0xff;
	CHECK(nfl_forward(port, &frames[0]) == 0);
	CHECK(nfl_release(port) == -EBUSY);
	CHECK(nfl_release_first(port, 1) == -EBUSY);
	CHECK(nfl_flush(port, 0) == 1);
	CHECK(nfl_release_first(port, 0) == -EINVAL);
	CHECK(nfl_release_first(port, 2) == -EINVAL);
	CHECK(nfl_release_first(port, 1) == 0);
	CHECK(nfl_release_first(port, 1) == -EINVAL);
	CHECK(nfl_release(port) == 0);
}

static void waiting(struct nfl_instance *instance)
{
	int ends[2];

	CHECK(nfl_wait(instance, -1, 0) == NFL_WOKEN_NOTHING);
	CHECK(nfl_wait(instance, 999, 0) == -EBADF);
	CHECK(nfl_wait(instance, -2, 0) == -EBADF);
	CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	CHECK(nfl_wait(instance, ends[0], -1) == NFL_WOKEN_FD);
	/* It was borrowed, not taken. */
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void counting(struct nfl_port *port)
{
	struct nfl_stats stats;

	CHECK(nfl_stats(port, NULL) == -EINVAL);
	CHECK(nfl_stats(port, &stats) == 0);
	CHECK(stats.rx_frames == 1 && stats.rx_bytes >= NFL_FRAME_MIN);
	CHECK(stats.tx_frames == SLOTS + 1 && stats.calls >= 2);
	CHECK(stats.tx_errors == 0);
}

int main(void)
{
	struct nfl_instance *instance, *second;
	struct sigaction action;
	struct nfl_port *p0;

	CHECK(nfl_attach(&instance) == 0);
	if (failures)
		return EXIT_FAILURE;
	CHECK(nfl_attach(&second) == -EALREADY && second == NULL);
	CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
	p0 = nfl_port_at(instance, 0);
	ports(instance);
	sending(p0);
	sleeping(instance, p0);
	answering(instance, p0);
	waiting(instance);
	counting(p0);
	nfl_detach(instance);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
