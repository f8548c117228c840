/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* promise: 11.1 */
/*
 * The header compiles, its structures have the library's sizes, and every function answers a program
 * that is no instance with an error, not with a crash. Ends with 0 if all of it holds.
 */
#define _GNU_SOURCE
#include <nfluid.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

_Static_assert(sizeof(struct nfl_frame) == sizeof(void *) + 8, "as in frames.rs");
_Static_assert(offsetof(struct nfl_frame, slot) == sizeof(void *) + 4, "as in frames.rs");
_Static_assert(sizeof(struct nfl_offload) == 10, "as in offload.rs");
_Static_assert(offsetof(struct nfl_offload, hdr_len) == 2, "as in struct virtio_net_hdr");
_Static_assert(offsetof(struct nfl_offload, gso_size) == 4, "as in struct virtio_net_hdr");
_Static_assert(offsetof(struct nfl_offload, csum_start) == 6, "as in struct virtio_net_hdr");
_Static_assert(offsetof(struct nfl_offload, csum_offset) == 8, "as in struct virtio_net_hdr");
_Static_assert(sizeof(struct nfl_stats) == 56, "as in traffic.rs");

/* Returns the result of nfl_attach when NFLUID_ATTACH_FD is `value`. */
static int attach(const char *value)
{
	struct nfl_instance *instance = (void *)&instance;
	int error;

	if (value)
		setenv("NFLUID_ATTACH_FD", value, 1);
	else
		unsetenv("NFLUID_ATTACH_FD");
	error = nfl_attach(&instance);
	CHECK(instance == NULL);
	return error;
}

/* A table that an older nfluid has written, in a process of its own: each looks at a single table. */
static void attaching_to_another_version(void)
{
	char number[16];
	int status = -1;
	pid_t child;
	int fd;

	CHECK(strstr(nfl_strerror(-EPROTONOSUPPORT), "another version") != NULL);
	child = fork();
	if (child == 0) {
		fd = memfd_create("table", MFD_CLOEXEC);
		CHECK(fd >= 0 && write(fd, "nfl2", 4) == 4 && ftruncate(fd, 28) == 0);
		snprintf(number, sizeof(number), "%d", fd);
		CHECK(attach(number) == -EPROTONOSUPPORT);
		_exit(failures);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void attaching_elsewhere(void)
{
	struct sigaction action;
	char number[16];
	int fd;

	CHECK(nfl_attach(NULL) == -EINVAL);
	CHECK(attach(NULL) == -ENOENT);
	CHECK(strstr(nfl_strerror(-ENOENT), "NFLUID_ATTACH_FD") != NULL);
	CHECK(attach("") == -ENOENT);
	CHECK(attach("seven") == -ENOENT);
	CHECK(attach("-1") == -ENOENT);
	CHECK(attach("999") == -EBADF);
	fd = memfd_create("table", MFD_CLOEXEC);
	CHECK(fd >= 0 && write(fd, "not a table", 11) == 11);
	snprintf(number, sizeof(number), "%d", fd);
	CHECK(attach(number) == -EPROTO);
	/* The descriptors of a table have one owner: no second try after it was read. */
	CHECK(attach(number) == -EALREADY);
	CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
}

static int take(void *context, const uint8_t *data, size_t len)
{
	(void)context;
	(void)data;
	(void)len;
	return 0;
}

static void null_pointers(void)
{
	struct nfl_frame frame = { 0 };
	struct nfl_offload offload = { 0 };
	struct nfl_stats stats;
	uint8_t mac[6], *data;

	nfl_detach(NULL);
	CHECK(nfl_port_count(NULL) == -EINVAL);
	CHECK(nfl_port_at(NULL, 0) == NULL);
	CHECK(nfl_port_by_name(NULL, "in", 0) == NULL);
	CHECK(nfl_port_index(NULL) == -EINVAL);
	CHECK(nfl_port_name(NULL) == NULL);
	CHECK(nfl_port_mac(NULL, mac) == -EINVAL);
	CHECK(nfl_port_mtu(NULL) == -EINVAL);
	CHECK(nfl_port_queue(NULL) == -EINVAL);
	CHECK(nfl_port_queues(NULL) == -EINVAL);
	CHECK(nfl_port_level(NULL) == -EINVAL);
	CHECK(nfl_port_rx_long(NULL) == -EINVAL);
	CHECK(nfl_port_tx_long(NULL) == -EINVAL);
	CHECK(nfl_frame_room(NULL, &frame) == -EINVAL);
	CHECK(nfl_frame_offload(NULL, &frame, &offload) == -EINVAL);
	CHECK(nfl_frame_set_offload(NULL, &frame, &offload) == -EINVAL);
	CHECK(nfl_frame_settle(NULL, &frame) == -EINVAL);
	CHECK(nfl_frame_finish(NULL, &frame) == -EINVAL);
	CHECK(nfl_frame_cut(NULL, &frame, take, NULL) == -EINVAL);
	CHECK(nfl_frame_cut(NULL, &frame, NULL, NULL) == -EINVAL);
	CHECK(nfl_offload_segments(NULL, 60) == -EINVAL);
	CHECK(nfl_offload_wire_len(NULL, 60) == -EINVAL);
	CHECK(nfl_offload_packet_len(NULL, 60) == -EINVAL);
	CHECK(nfl_send_offload(NULL, mac, 6, &offload) == -EINVAL);
	CHECK(nfl_receive(NULL, &frame, 1) == -EINVAL);
	CHECK(nfl_release(NULL) == -EINVAL);
	CHECK(nfl_send_copy(NULL, mac, 6) == -EINVAL);
	CHECK(nfl_tx_reserve(NULL, &data) == -EINVAL);
	CHECK(nfl_tx_commit(NULL, 60) == -EINVAL);
	CHECK(nfl_forward(NULL, &frame) == -EINVAL);
	CHECK(nfl_flush(NULL, 0) == -EINVAL);
	CHECK(nfl_queued(NULL) == -EINVAL);
	CHECK(nfl_wait(NULL, -1, 0) == -EINVAL);
	CHECK(nfl_release_first(NULL, 1) == -EINVAL);
	CHECK(nfl_wait_ring(NULL, 0) == -EINVAL);
	CHECK(nfl_sleep(NULL) == -EINVAL && nfl_awake(NULL) == -EINVAL);
	CHECK(nfl_stats(NULL, &stats) == -EINVAL);
}

/* What metadata says of a frame, and that it is refused if any field of it is changed. */
static void metadata(void)
{
	const struct nfl_offload good = { NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 54, 1448, 34, 16 };
	const struct nfl_offload none = { 0 };
	const struct nfl_offload lies[] = {
		{ NFL_NEEDS_CSUM | 2, NFL_GSO_TCPV4, 54, 1448, 34, 16 },
		{ 0, NFL_GSO_TCPV4, 54, 1448, 34, 16 },
		{ NFL_NEEDS_CSUM, 3, 54, 1448, 34, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_UDP_L4, 54, 1448, 34, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 53, 1448, 34, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 257, 1448, 34, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 54, 47, 34, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 54, 1448, 13, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 54, 1448, 35, 16 },
		{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 54, 1448, 34, 6 },
	};
	size_t i;

	CHECK(nfl_offload_segments(&good, NFL_LONG_MAX) == 46);
	CHECK(nfl_offload_wire_len(&good, NFL_LONG_MAX) == NFL_LONG_MAX + 45 * 54);
	CHECK(nfl_offload_packet_len(&good, NFL_LONG_MAX) == 54 + 1448);
	CHECK(nfl_offload_segments(&none, NFL_FRAME_MIN) == 1);
	CHECK(nfl_offload_wire_len(&none, 60) == 60 && nfl_offload_packet_len(&none, 60) == 60);
	CHECK(nfl_offload_segments(&good, NFL_LONG_MAX + 1) == -EMSGSIZE);
	CHECK(nfl_offload_segments(&none, NFL_FRAME_MIN - 1) == -EMSGSIZE);
	CHECK(nfl_offload_segments(&good, 54) == -EBADMSG);
	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		CHECK(nfl_offload_segments(&lies[i], NFL_LONG_MAX) == -EBADMSG);
		CHECK(nfl_offload_wire_len(&lies[i], NFL_LONG_MAX) == -EBADMSG);
		CHECK(nfl_offload_packet_len(&lies[i], NFL_LONG_MAX) == -EBADMSG);
	}
}

static void texts(void)
{
	int error;

	for (error = -200; error <= 200; error++)
		CHECK(nfl_strerror(error) != NULL && nfl_strerror(error)[0] != '\0');
}

int main(void)
{
	attaching_to_another_version();
	attaching_elsewhere();
	null_pointers();
	metadata();
	texts();
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
