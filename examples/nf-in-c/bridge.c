/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A network function in C: a bridge between two ports. What one receives, the other sends, unchanged
 * and without a copy. SIGTERM or SIGINT ends it; it prints what it has counted then.
 */
#include <nfluid.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH 64
#define SIDES 2

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static int fail(const char *what, int error)
{
	fprintf(stderr, "bridge: %s: %s\n", what, nfl_strerror(error));
	return EXIT_FAILURE;
}

/* One batch from one port to the other. Returns the number of frames, or an error. */
static int pass(struct nfl_port *from, struct nfl_port *to)
{
	struct nfl_frame frames[BATCH];
	int count, error, i;

	count = nfl_receive(from, frames, BATCH);
	if (count <= 0)
		return count;
	for (i = 0; i < count; i++) {
		error = nfl_forward(to, &frames[i]);
		if (error)
			return error;
	}
	/* A port that is down has lost its frames, and counts them: no reason to end. */
	error = nfl_flush(to, 0);
	if (error < 0 && error != -ENETDOWN)
		return error;
	error = nfl_release(from);
	return error ? error : count;
}

/* Returns the name of what failed, with the reason in *error, or NULL when it was told to stop. */
static const char *run(struct nfl_instance *instance, struct nfl_port *side[SIDES], int *error)
{
	int count, i;

	while (!stopped) {
		count = 0;
		for (i = 0; i < SIDES; i++) {
			*error = pass(side[i], side[SIDES - 1 - i]);
			if (*error < 0)
				return nfl_port_name(side[i]);
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

static void print_counters(const struct nfl_port *port)
{
	struct nfl_stats stats;

	if (nfl_stats(port, &stats) == 0)
		printf("bridge: %s received %" PRIu64 " frames, %" PRIu64 " bytes; sent %" PRIu64
		       " frames\n",
		       nfl_port_name(port), stats.rx_frames, stats.rx_bytes, stats.tx_frames);
}

int main(void)
{
	struct sigaction action = { .sa_handler = stop };
	struct nfl_instance *instance;
	struct nfl_port *side[SIDES];
	const char *failed;
	int error, i;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	error = nfl_attach(&instance);
	if (error)
		return fail("attaching", error);
	if (nfl_port_count(instance) != SIDES) {
		fprintf(stderr, "bridge: it has %d ports; give it two in the deployment\n",
			nfl_port_count(instance));
		nfl_detach(instance);
		return EXIT_FAILURE;
	}
	for (i = 0; i < SIDES; i++)
		side[i] = nfl_port_at(instance, i);
	printf("bridge: %s <-> %s\n", nfl_port_name(side[0]), nfl_port_name(side[1]));
	fflush(stdout);

	failed = run(instance, side, &error);
	for (i = 0; i < SIDES; i++)
		print_counters(side[i]);
	if (failed)
		fail(failed, error);
	nfl_detach(instance);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
