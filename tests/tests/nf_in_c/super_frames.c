/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls every function of libnfluid on super-frames and partial checksums, as an instance with two
 * ports: p0, which takes super-frames, and p1, which takes plain frames. It sends three frames on p0,
 * then waits for frames, whose first payload byte says what to do with them. Ends with 0 if everything
 * was as the header says.
 */
#include <nfluid.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../lib/ring/tests/check.h"

#define ETHERNET 14
#define HEADERS 54 /* Ethernet, IPv4, TCP */
#define SEGMENT 1460

static const struct nfl_offload nothing = { 0 };
static const struct nfl_offload cut = { NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, SEGMENT, 34, 16 };
static const struct nfl_offload checksum = { NFL_NEEDS_CSUM, NFL_GSO_NONE, 0, 0, 34, 16 };

/* The metadata of a super-frame with a lie in each field. */
static const struct nfl_offload lies[] = {
	{ NFL_NEEDS_CSUM | 4, NFL_GSO_TCPV4, HEADERS, SEGMENT, 34, 16 },
	{ 0, NFL_GSO_TCPV4, HEADERS, SEGMENT, 34, 16 },
	{ NFL_NEEDS_CSUM, 2, HEADERS, SEGMENT, 34, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_UDP_L4 | NFL_GSO_ECN, 42, SEGMENT, 34, 6 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS - 1, SEGMENT, 34, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, 257, SEGMENT, 34, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, 0, 34, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, 47, 34, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, SEGMENT, 13, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, SEGMENT, UINT16_MAX, 16 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, SEGMENT, 34, 6 },
	{ NFL_NEEDS_CSUM, NFL_GSO_TCPV4, HEADERS, SEGMENT, 34, UINT16_MAX },
	{ UINT8_MAX, UINT8_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX },
};

#define LIES (sizeof(lies) / sizeof(lies[0]))

static void levels(const struct nfl_port *p0, const struct nfl_port *p1)
{
	CHECK(nfl_port_level(p0) == NFL_LEVEL_SUPER);
	CHECK(nfl_port_rx_long(p0) == 256 && nfl_port_tx_long(p0) == 128);
	CHECK(nfl_port_level(p1) == NFL_LEVEL_PLAIN);
	CHECK(nfl_port_rx_long(p1) == 0 && nfl_port_tx_long(p1) == 0);
}

/* Sends what the header allows, after all that it does not. */
static void sending(struct nfl_port *p0, struct nfl_port *p1)
{
	static uint8_t frame[NFL_LONG_MAX + 1];
	uint8_t *slot;
	size_t i;

	memset(frame, 0xff, ETHERNET - 2);
	CHECK(nfl_send_copy(p0, frame, NFL_LONG_MAX + 1) == -EMSGSIZE);
	CHECK(nfl_send_copy(p1, frame, NFL_FRAME_MAX + 1) == -EMSGSIZE);
	CHECK(nfl_send_offload(p0, frame, NFL_LONG_MAX + 1, &cut) == -EMSGSIZE);
	CHECK(nfl_send_offload(p0, frame, NFL_FRAME_MIN - 1, &nothing) == -EMSGSIZE);
	CHECK(nfl_send_offload(p0, NULL, 60, &cut) == -EINVAL);
	CHECK(nfl_send_offload(p0, frame, HEADERS, &cut) == -EBADMSG);
	CHECK(nfl_send_offload(p0, frame, 51, &checksum) == -EBADMSG);
	for (i = 0; i < LIES; i++)
		CHECK(nfl_send_offload(p0, frame, 4000, &lies[i]) == -EBADMSG);
	CHECK(nfl_send_offload(p1, frame, 60, &checksum) == -EOPNOTSUPP);
	CHECK(nfl_send_offload(p1, frame, 4000, &cut) == -EMSGSIZE);
	CHECK(nfl_queued(p0) == 0 && nfl_queued(p1) == 0);

	for (i = ETHERNET; i < NFL_LONG_MAX; i++)
		frame[i] = i % 251;
	CHECK(nfl_tx_reserve(p0, &slot) == NFL_FRAME_MAX);
	CHECK(nfl_send_offload(p0, frame, 4000, &cut) == -EBUSY);
	CHECK(nfl_tx_commit(p0, 0) == 0);
	CHECK(nfl_send_copy(p0, frame, NFL_LONG_MAX) == 0);
	CHECK(nfl_send_offload(p0, frame, 4000, &cut) == 0);
	CHECK(nfl_send_offload(p0, frame, 60, &checksum) == 0);
	CHECK(nfl_queued(p0) == 3);
	CHECK(nfl_flush(p0, 0) == 3);
}

/* What nfl_frame_cut() has called back with. */
struct packets {
	struct nfl_port *to;
	int count;
	int error;
};

static int take(void *context, const uint8_t *data, size_t len)
{
	struct packets *packets = context;

	packets->count++;
	return packets->error ? packets->error : nfl_send_copy(packets->to, data, len);
}

/* Descriptions of a frame that the library has not given out. */
static void descriptions_that_lie(struct nfl_port *p0, struct nfl_port *p1, struct nfl_frame frame)
{
	struct nfl_offload read;
	struct nfl_frame wrong[5];
	size_t i;

	for (i = 0; i < 5; i++)
		wrong[i] = frame;
	wrong[0].data++;
	/* The second slot of the frame. */
	wrong[1].slot++;
	wrong[1].data += NFL_SLOT_SIZE;
	wrong[2].slot = UINT32_MAX;
	wrong[3].port = 1;
	wrong[4].port = UINT16_MAX;
	for (i = 0; i < 5; i++) {
		CHECK(nfl_frame_room(p0, &wrong[i]) == -EINVAL);
		CHECK(nfl_frame_offload(p0, &wrong[i], &read) == -EINVAL);
		CHECK(nfl_frame_set_offload(p0, &wrong[i], &nothing) == -EINVAL);
		CHECK(nfl_frame_settle(p0, &wrong[i]) == -EINVAL);
		CHECK(nfl_frame_finish(p0, &wrong[i]) == -EINVAL);
		CHECK(nfl_frame_cut(p0, &wrong[i], take, NULL) == -EINVAL);
		CHECK(nfl_forward(p0, &wrong[i]) == -EINVAL);
	}
	CHECK(nfl_frame_settle(p1, &frame) == -EINVAL);
	CHECK(nfl_frame_settle(p0, NULL) == -EINVAL);
	CHECK(nfl_frame_offload(p0, &frame, NULL) == -EINVAL);
	CHECK(nfl_frame_set_offload(p0, &frame, NULL) == -EINVAL);
	CHECK(nfl_frame_cut(p0, &frame, NULL, NULL) == -EINVAL);
}

/* Lengths and metadata that the frame cannot have. */
static void changes_that_lie(struct nfl_port *p0, struct nfl_frame frame)
{
	int room = nfl_frame_room(p0, &frame);
	struct nfl_frame wrong = frame;
	struct nfl_offload read;
	uint8_t kept[16];
	size_t i;

	for (i = 0; i < 2; i++) {
		wrong.len = i ? room + 1 : NFL_FRAME_MIN - 1;
		CHECK(nfl_frame_offload(p0, &wrong, &read) == -EMSGSIZE);
		CHECK(nfl_frame_set_offload(p0, &wrong, &nothing) == -EMSGSIZE);
		CHECK(nfl_frame_settle(p0, &wrong) == -EMSGSIZE);
		CHECK(nfl_frame_cut(p0, &wrong, take, NULL) == -EMSGSIZE);
		CHECK(nfl_forward(p0, &wrong) == -EMSGSIZE);
	}
	/* Headers without a payload. */
	wrong.len = HEADERS;
	CHECK(nfl_frame_offload(p0, &wrong, &read) == -EBADMSG);
	CHECK(nfl_frame_settle(p0, &wrong) == -EBADMSG);
	CHECK(nfl_forward(p0, &wrong) == -EBADMSG);
	for (i = 0; i < LIES; i++)
		CHECK(nfl_frame_set_offload(p0, &frame, &lies[i]) == -EBADMSG);
	/* The metadata lies behind the frame's room, where a program can write by mistake. */
	memcpy(kept, frame.data + room, sizeof(kept));
	memset(frame.data + room, 0xff, sizeof(kept));
	CHECK(nfl_frame_offload(p0, &frame, &read) == -EBADMSG);
	CHECK(nfl_frame_settle(p0, &frame) == -EBADMSG);
	CHECK(nfl_frame_cut(p0, &frame, take, NULL) == -EBADMSG);
	CHECK(nfl_forward(p0, &frame) == -EBADMSG);
	memcpy(frame.data + room, kept, sizeof(kept));
	CHECK(nfl_queued(p0) == 0);
}

/* A super-frame of three packets: sends it whole, then as packets, then whole with a smaller size. */
static void super_frame(struct nfl_port *p0, struct nfl_port *p1, struct nfl_frame frame)
{
	struct packets packets = { p0, 0, -EPIPE };
	struct nfl_offload read = { 0 };

	CHECK(frame.len == HEADERS + 2 * SEGMENT + 100);
	CHECK(nfl_frame_room(p0, &frame) == 2 * NFL_SLOT_SIZE - 16);
	CHECK(nfl_frame_offload(p0, &frame, &read) == 0);
	CHECK(memcmp(&read, &cut, sizeof(cut)) == 0);
	CHECK(nfl_offload_segments(&read, frame.len) == 3);
	descriptions_that_lie(p0, p1, frame);
	changes_that_lie(p0, frame);

	CHECK(nfl_frame_settle(p0, &frame) == 0);
	CHECK(nfl_frame_finish(p0, &frame) == -EOPNOTSUPP);
	CHECK(nfl_forward(p0, &frame) == 0);
	CHECK(nfl_release(p0) == -EBUSY);
	CHECK(nfl_flush(p0, 0) == 1);

	CHECK(nfl_frame_cut(p0, &frame, take, &packets) == -EPIPE && packets.count == 1);
	packets.error = 0;
	CHECK(nfl_frame_cut(p0, &frame, take, &packets) == 3 && packets.count == 4);
	CHECK(nfl_flush(p0, 0) == 3);

	read.gso_size = 1000;
	CHECK(nfl_frame_set_offload(p0, &frame, &read) == 0);
	CHECK(nfl_forward(p0, &frame) == 0 && nfl_flush(p0, 0) == 1);
	/* A plain port: the switch drops the super-frame. */
	CHECK(nfl_forward(p1, &frame) == 0 && nfl_flush(p1, 0) == 1);
}

/* A frame with a partial checksum: completes and returns it. */
static void partial_checksum(struct nfl_port *p0, struct nfl_frame frame)
{
	struct nfl_offload read;

	CHECK(nfl_frame_room(p0, &frame) == NFL_FRAME_MAX);
	CHECK(nfl_frame_offload(p0, &frame, &read) == 0);
	CHECK(memcmp(&read, &checksum, sizeof(checksum)) == 0);
	CHECK(nfl_frame_settle(p0, &frame) == 0);
	CHECK(nfl_frame_finish(p0, &frame) == 0);
	CHECK(nfl_frame_offload(p0, &frame, &read) == 0);
	CHECK(memcmp(&read, &nothing, sizeof(nothing)) == 0);
	CHECK(nfl_frame_finish(p0, &frame) == 0);
	CHECK(nfl_forward(p0, &frame) == 0 && nfl_flush(p0, 0) == 1);
}

/* The sender has placed the missing checksum into the payload: it is computed there before a look at it. */
static void checksum_elsewhere(struct nfl_port *p0, struct nfl_frame frame)
{
	struct nfl_offload read;

	CHECK(nfl_frame_offload(p0, &frame, &read) == 0 && read.csum_start == HEADERS + 2);
	CHECK(nfl_frame_settle(p0, &frame) == 0);
	CHECK(nfl_frame_offload(p0, &frame, &read) == 0);
	CHECK(memcmp(&read, &nothing, sizeof(nothing)) == 0);
	CHECK(nfl_forward(p0, &frame) == 0 && nfl_flush(p0, 0) == 1);
}

/* A super-frame whose metadata is about other headers than its own: nothing can be done to it. */
static void headers_elsewhere(struct nfl_port *p0, struct nfl_frame frame)
{
	struct packets packets = { p0, 0, 0 };

	CHECK(nfl_frame_settle(p0, &frame) == -EBADMSG);
	CHECK(nfl_frame_cut(p0, &frame, take, &packets) == -EBADMSG && packets.count == 0);
}

/* The longest frame there is, without metadata. */
static void longest(struct nfl_port *p0, struct nfl_port *p1, struct nfl_frame frame)
{
	struct packets packets = { p0, 0, 0 };
	struct nfl_offload read;

	CHECK(frame.len == NFL_LONG_MAX && nfl_frame_room(p0, &frame) == NFL_LONG_MAX);
	CHECK(nfl_frame_offload(p0, &frame, &read) == 0);
	CHECK(memcmp(&read, &nothing, sizeof(nothing)) == 0);
	CHECK(nfl_frame_cut(p0, &frame, take, &packets) == 1 && packets.count == 1);
	CHECK(nfl_flush(p0, 0) == 1);
	/* A plain port: the switch drops the frame. */
	CHECK(nfl_forward(p1, &frame) == 0 && nfl_flush(p1, 0) == 1);
}

int main(void)
{
	struct nfl_instance *instance;
	struct nfl_port *p0, *p1;
	struct nfl_frame frame;
	char last = 0;
	int count;

	if (nfl_attach(&instance) != 0)
		return EXIT_FAILURE;
	p0 = nfl_port_by_name(instance, "p0", 0);
	p1 = nfl_port_by_name(instance, "p1", 0);
	levels(p0, p1);
	sending(p0, p1);
	while (last != 'l' && !failures) {
		count = nfl_receive(p0, &frame, 1);
		CHECK(count >= 0);
		if (count == 0) {
			CHECK(nfl_wait(instance, -1, -1) >= 0);
			continue;
		}
		last = frame.data[HEADERS];
		if (last == 's')
			super_frame(p0, p1, frame);
		else if (last == 'p')
			partial_checksum(p0, frame);
		else if (last == 'e')
			checksum_elsewhere(p0, frame);
		else if (last == 'h')
			headers_elsewhere(p0, frame);
		else if (last == 'l')
			longest(p0, p1, frame);
		else
			CHECK(!"a frame that nobody has sent");
		CHECK(nfl_release(p0) == 0);
	}
	nfl_detach(instance);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
