/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls the functions on super-frames as a member of a trust group with one port, where frames are
 * plain: waits for one frame and sends it back. Ends with 0 if everything was as the header says.
 */
#include <nfluid.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../lib/ring/tests/check.h"

static const struct nfl_offload nothing = { 0 };
static const struct nfl_offload checksum = { NFL_NEEDS_CSUM, NFL_GSO_NONE, 0, 0, 34, 16 };

static int take(void *context, const uint8_t *data, size_t len)
{
	int *count = context;

	(void)data;
	*count += len == 60;
	return 0;
}

static void sending(struct nfl_port *port)
{
	static uint8_t frame[NFL_LONG_MAX];

	CHECK(nfl_port_level(port) == NFL_LEVEL_PLAIN);
	CHECK(nfl_port_rx_long(port) == 0 && nfl_port_tx_long(port) == 0);
	CHECK(nfl_send_copy(port, frame, NFL_FRAME_MAX + 1) == -EMSGSIZE);
	CHECK(nfl_send_offload(port, frame, 60, &checksum) == -EOPNOTSUPP);
	CHECK(nfl_queued(port) == 0);
}

static void answering(struct nfl_port *port, const struct nfl_frame *frame)
{
	struct nfl_frame wrong = *frame;
	struct nfl_offload read;
	int packets = 0;

	CHECK(frame->len == 60 && nfl_frame_room(port, frame) == NFL_FRAME_MAX);
	CHECK(nfl_frame_offload(port, frame, &read) == 0);
	CHECK(memcmp(&read, &nothing, sizeof(nothing)) == 0);
	CHECK(nfl_frame_settle(port, frame) == 0 && nfl_frame_finish(port, frame) == 0);
	CHECK(nfl_frame_cut(port, frame, take, &packets) == 1 && packets == 1);
	CHECK(nfl_frame_set_offload(port, frame, &nothing) == 0);
	CHECK(nfl_frame_set_offload(port, frame, &checksum) == -EOPNOTSUPP);
	wrong.len = NFL_FRAME_MAX + 1;
	CHECK(nfl_forward(port, &wrong) == -EMSGSIZE);
	wrong = *frame;
	wrong.slot = UINT32_MAX;
	CHECK(nfl_forward(port, &wrong) == -EINVAL);

	CHECK(nfl_forward(port, frame) == 0);
	CHECK(nfl_forward(port, frame) == -EBUSY);
	CHECK(nfl_flush(port, 0) == 1);
	CHECK(nfl_release(port) == 0);
}

int main(void)
{
	struct nfl_instance *instance;
	struct nfl_frame frame;
	struct nfl_port *port;

	if (nfl_attach(&instance) != 0)
		return EXIT_FAILURE;
	port = nfl_port_at(instance, 0);
	sending(port);
	while (!failures && nfl_receive(port, &frame, 1) == 0)
		CHECK(nfl_wait(instance, -1, -1) >= 0);
	if (!failures)
		answering(port, &frame);
	nfl_detach(instance);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
