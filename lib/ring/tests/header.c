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
#include <unistd.h>

_Static_assert(sizeof(struct nfl_frame) == sizeof(void *) + 8, "as in traffic.rs");
_Static_assert(offsetof(struct nfl_frame, slot) == sizeof(void *) + 4, "as in traffic.rs");
_Static_assert(sizeof(struct nfl_stats) == 56, "as in traffic.rs");

static int failures;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

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

static void null_pointers(void)
{
	struct nfl_frame frame = { 0 };
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
	CHECK(nfl_receive(NULL, &frame, 1) == -EINVAL);
	CHECK(nfl_release(NULL) == -EINVAL);
	CHECK(nfl_send_copy(NULL, mac, 6) == -EINVAL);
	CHECK(nfl_tx_reserve(NULL, &data) == -EINVAL);
	CHECK(nfl_tx_commit(NULL, 60) == -EINVAL);
	CHECK(nfl_forward(NULL, &frame) == -EINVAL);
	CHECK(nfl_flush(NULL, 0) == -EINVAL);
	CHECK(nfl_queued(NULL) == -EINVAL);
	CHECK(nfl_wait(NULL, -1, 0) == -EINVAL);
	CHECK(nfl_stats(NULL, &stats) == -EINVAL);
}

static void texts(void)
{
	int error;

	for (error = -200; error <= 200; error++)
		CHECK(nfl_strerror(error) != NULL && nfl_strerror(error)[0] != '\0');
}

int main(void)
{
	attaching_elsewhere();
	null_pointers();
	texts();
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
