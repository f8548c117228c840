/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A network function in C that takes super-frames: a bridge between two ports that counts packets, as
 * they are on a wire, and drops those that are longer than the MTU of the port they leave by. With the
 * argument --packets it cuts super-frames into their packets. SIGTERM or SIGINT ends it; it prints what
 * it has counted then.
 */
#include <nfluid.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define SIDES 2

#define ETHERNET 14
#define TAG 4

struct side {
	struct nfl_port *port;
	/* Of what the port has received: */
	uint64_t frames; /* frames that went on */
	uint64_t packets; /* the packets that these frames are on a wire */
	uint64_t bytes; /* the bytes of these packets */
	uint64_t bad; /* frames dropped: their metadata is about other headers than their own */
	uint64_t too_long; /* frames dropped: their packets are longer than the MTU */
};

static volatile sig_atomic_t stopped;
static bool cuts;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static int fail(const char *what, int error)
{
	fprintf(stderr, "meter: %s: %s\n", what, nfl_strerror(error));
	return EXIT_FAILURE;
}

/* Bytes before the IP header: Ethernet, and up to two VLAN tags. */
static size_t link_len(const struct nfl_frame *frame)
{
	size_t at = ETHERNET - 2;

	while (at < ETHERNET - 2 + 2 * TAG && frame->len >= at + 2 + TAG) {
		unsigned int type = frame->data[at] << 8 | frame->data[at + 1];

		if (type != 0x8100 && type != 0x88a8)
			break;
		at += TAG;
	}
	return at + 2;
}

static int flush(struct nfl_port *port)
{
	int error = nfl_flush(port, 0);

	/* A port that is down has lost its frames, and counts them: no reason to end. */
	return error == -ENETDOWN ? 0 : error;
}

/* Sends a packet of a frame that is being cut. */
static int send_packet(void *context, const uint8_t *data, size_t len)
{
	struct nfl_port *to = context;
	int error = nfl_send_copy(to, data, len);

	if (error != -ENOBUFS)
		return error;
	error = flush(to);
	return error < 0 ? error : nfl_send_copy(to, data, len);
}

/* Sends a frame as it is, without a copy. */
static int forward(struct nfl_port *to, const struct nfl_frame *frame)
{
	int error = nfl_forward(to, frame);

	if (error != -ENOBUFS)
		return error;
	error = flush(to);
	return error < 0 ? error : nfl_forward(to, frame);
}

/* Counts a frame, and sends it on. Returns an error that ends the program. */
static int pass_frame(struct side *from, struct side *to, const struct nfl_frame *frame)
{
	struct nfl_offload offload;
	int longest, error;

	error = nfl_frame_settle(from->port, frame);
	if (error == 0)
		error = nfl_frame_offload(from->port, frame, &offload);
	if (error) {
		from->bad++;
		return 0;
	}
	longest = nfl_offload_packet_len(&offload, frame->len);
	if (longest > (int)link_len(frame) + nfl_port_mtu(to->port)) {
		from->too_long++;
		return 0;
	}
	from->frames++;
	from->packets += nfl_offload_segments(&offload, frame->len);
	from->bytes += nfl_offload_wire_len(&offload, frame->len);
	if (!cuts)
		return forward(to->port, frame);
	error = nfl_frame_cut(from->port, frame, send_packet, to->port);
	return error < 0 ? error : 0;
}

/* One batch from one port to the other. Returns the number of frames, or an error. */
static int pass(struct side *from, struct side *to)
{
	struct nfl_frame frames[BATCH];
	int count, error, i;

	count = nfl_receive(from->port, frames, BATCH);
	if (count <= 0)
		return count;
	for (i = 0; i < count; i++) {
		error = pass_frame(from, to, &frames[i]);
		if (error)
			return error;
	}
	error = flush(to->port);
	if (error < 0)
		return error;
	error = nfl_release(from->port);
	return error ? error : count;
}

/* Returns the name of what failed, with the reason in *error, or NULL when it was told to stop. */
static const char *run(struct nfl_instance *instance, struct side side[SIDES], int *error)
{
	int count, i;

	while (!stopped) {
		count = 0;
		for (i = 0; i < SIDES; i++) {
			*error = pass(&side[i], &side[SIDES - 1 - i]);
			if (*error < 0)
				return nfl_port_name(side[i].port);
			count += *error;
		}
		if (count)
			continue;
		*error = nfl_wait(instance, -1, NFL_WAIT_MAX_MS);
		if (*error < 0)
			return "waiting";
	}
	return NULL;
}

static void print_counters(const struct side *side)
{
	printf("meter: %s: %" PRIu64 " packets, %" PRIu64 " bytes in %" PRIu64
	       " frames; dropped %" PRIu64 " too long, %" PRIu64 " bad\n",
	       nfl_port_name(side->port), side->packets, side->bytes, side->frames, side->too_long,
	       side->bad);
}

int main(int count, char **arguments)
{
	struct sigaction action = { .sa_handler = stop };
	static const char *const levels[] = { "plain", "checksums", "super" };
	struct nfl_instance *instance;
	struct side side[SIDES] = { 0 };
	const char *failed;
	int error, i;

	cuts = count > 1 && strcmp(arguments[1], "--packets") == 0;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	error = nfl_attach(&instance);
	if (error)
		return fail("attaching", error);
	if (nfl_port_count(instance) != SIDES) {
		fprintf(stderr, "meter: it has %d ports; give it two in the deployment\n",
			nfl_port_count(instance));
		nfl_detach(instance);
		return EXIT_FAILURE;
	}
	for (i = 0; i < SIDES; i++) {
		side[i].port = nfl_port_at(instance, i);
		printf("meter: %s gets frames of the level %s\n", nfl_port_name(side[i].port),
		       levels[nfl_port_level(side[i].port)]);
	}
	fflush(stdout);

	failed = run(instance, side, &error);
	for (i = 0; i < SIDES; i++)
		print_counters(&side[i]);
	if (failed)
		fail(failed, error);
	nfl_detach(instance);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
