/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program on netmap for the tests: client TASK [WORD ..]. */
#include "netmap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

struct port {
	int fd;
	char *memory;
	struct interface *interface;
	struct registration got;
};

static int device(void)
{
	int fd = open("/dev/netmap", O_RDWR);

	if (fd < 0) {
		printf("open: %s\n", strerror(errno));
		exit(1);
	}
	return fd;
}

/* Returns 0, or errno. */
static int control(int fd, uint16_t type, const char *name, void *body)
{
	struct header header = { .version = API, .type = type, .body = (uintptr_t)body };

	strncpy(header.name, name, sizeof(header.name) - 1);
	return ioctl(fd, NIOCCTRL, &header) < 0 ? errno : 0;
}

static int take(struct port *port, const char *name, struct registration wanted)
{
	int error;

	memset(port, 0, sizeof(*port));
	port->fd = device();
	port->got = wanted;
	error = control(port->fd, REGISTER, name, &port->got);
	if (error)
		return error;
	port->memory =
		mmap(NULL, port->got.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
	if (port->memory == MAP_FAILED)
		return errno;
	port->interface = (void *)(port->memory + port->got.offset);
	return 0;
}

static void take_all(struct port *port, const char *name, uint32_t extra)
{
	int error = take(port, name, (struct registration){ .mode = ALL_NIC, .extra_bufs = extra });

	if (error) {
		printf("%s: %s\n", name, strerror(error));
		exit(1);
	}
}

/* The same by the request of older programs. */
static void take_legacy(struct port *port, const char *name)
{
	struct legacy request = { .version = 11 };

	port->fd = device();
	strncpy(request.name, name, sizeof(request.name) - 1);
	if (ioctl(port->fd, NIOCREGIF, &request) < 0) {
		printf("%s: %s\n", name, strerror(errno));
		exit(1);
	}
	port->memory = mmap(NULL, request.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
	port->interface = (void *)(port->memory + request.offset);
}

/* Moves what fits from the rings of one port to those of another. */
static void move(struct port *from, struct port *to, int swaps)
{
	uint32_t ring, count = to->interface->tx_rings;

	for (ring = 0; ring < from->interface->rx_rings; ring++) {
		struct ring *rx = rx_ring(from->interface, ring);
		struct ring *tx = tx_ring(to->interface, ring % count);

		while (rx->head != rx->tail && space(tx)) {
			struct slot *in = &rx->slot[rx->head], *out = &tx->slot[tx->head];

			if (swaps) {
				uint32_t index = out->buf_idx;

				out->buf_idx = in->buf_idx;
				in->buf_idx = index;
				in->flags |= BUF_CHANGED;
				out->flags |= BUF_CHANGED;
			} else {
				memcpy(buffer(tx, out->buf_idx), buffer(rx, in->buf_idx), in->len);
			}
			out->len = in->len;
			out->flags = (out->flags & ~MOREFRAG) | (in->flags & MOREFRAG);
			rx->head = rx->cur = next(rx, rx->head);
			tx->head = tx->cur = next(tx, tx->head);
		}
	}
}

static int has_frames(struct port *port)
{
	uint32_t ring;

	for (ring = 0; ring < port->interface->rx_rings; ring++)
		if (space(rx_ring(port->interface, ring)))
			return 1;
	return 0;
}

static void wait_by_select(struct port *ports)
{
	fd_set read;
	int i, most = ports[0].fd > ports[1].fd ? ports[0].fd : ports[1].fd;

	FD_ZERO(&read);
	for (i = 0; i < 2; i++)
		FD_SET(ports[i].fd, &read);
	if (select(most + 1, &read, NULL, NULL, NULL) < 0)
		perror("select");
	for (i = 0; i < 2; i++)
		if (FD_ISSET(ports[i].fd, &read) != has_frames(&ports[i]) && has_frames(&ports[i]))
			printf("select: the set says nothing of a frame\n");
}

static void wait_by_epoll(struct port *ports)
{
	static int set = -1, bell;
	struct epoll_event events[4];
	int i, count;

	if (set < 0) {
		set = epoll_create1(0);
		bell = eventfd(0, 0);
		epoll_ctl(set, EPOLL_CTL_ADD, bell,
			  &(struct epoll_event){ .events = EPOLLIN, .data.u64 = 7 });
		for (i = 0; i < 2; i++)
			epoll_ctl(set, EPOLL_CTL_ADD, ports[i].fd,
				  &(struct epoll_event){ .events = EPOLLIN, .data.u64 = i });
	}
	count = epoll_wait(set, events, 4, -1);
	for (i = 0; i < count; i++)
		if (events[i].data.u64 > 1 || !has_frames(&ports[events[i].data.u64]))
			printf("epoll: %d without a frame\n", (int)events[i].data.u64);
}

/* forward WAY LEFT RIGHT: both ways, WAY: poll, copy, select, epoll, sync, late, legacy. */
static void forward(char **words)
{
	const char *way = words[0];
	struct port ports[2];
	int i;

	for (i = 0; i < 2; i++) {
		if (strcmp(way, "legacy") == 0)
			take_legacy(&ports[i], words[1 + i]);
		else
			take_all(&ports[i], words[1 + i], 0);
	}
	printf("ready\n");
	for (;;) {
		if (strcmp(way, "select") == 0) {
			wait_by_select(ports);
		} else if (strcmp(way, "epoll") == 0) {
			wait_by_epoll(ports);
		} else if (strcmp(way, "sync") == 0) {
			for (i = 0; i < 2; i++)
				ioctl(ports[i].fd, NIOCRXSYNC, NULL);
			if (!has_frames(&ports[0]) && !has_frames(&ports[1]))
				usleep(100);
		} else {
			struct pollfd fds[2];

			for (i = 0; i < 2; i++)
				fds[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
			poll(fds, 2, -1);
		}
		for (i = 0; i < 2; i++)
			move(&ports[i], &ports[1 - i], strcmp(way, "copy") != 0);
		/* A forwarder may release first, and send much later, or the other way round. */
		if (strcmp(way, "late") == 0) {
			for (i = 0; i < 2; i++)
				ioctl(ports[i].fd, NIOCRXSYNC, NULL);
			usleep(300);
		}
		for (i = 0; i < 2; i++)
			ioctl(ports[i].fd, NIOCTXSYNC, NULL);
	}
}

/*
 * keep LEFT RIGHT: keeps the first frame of each side for good, in exchange for a buffer of its own, and forwards all later
 * ones.
 */
static void keep(char **words)
{
	struct port ports[2];
	int i, has_kept[2] = { 0 };

	for (i = 0; i < 2; i++)
		take_all(&ports[i], words[i], 1);
	printf("ready\n");
	for (;;) {
		struct pollfd fds[2];

		for (i = 0; i < 2; i++)
			fds[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
		poll(fds, 2, -1);
		for (i = 0; i < 2; i++) {
			struct ring *rx = rx_ring(ports[i].interface, 0);

			if (!has_kept[i] && rx->head != rx->tail) {
				has_kept[i] = 1;
				rx->slot[rx->head].buf_idx = ports[i].interface->bufs_head;
				rx->slot[rx->head].flags |= BUF_CHANGED;
				ports[i].interface->bufs_head = 0;
				rx->head = rx->cur = next(rx, rx->head);
			}
			move(&ports[i], &ports[1 - i], 1);
		}
	}
}

#define NUMBERED 200

/* number PORT: sends frames that have each their own number, and bytes that follow from it, as fast as it can. */
static void number(char **words)
{
	struct port port;
	struct ring *tx;
	uint64_t count = 0;
	int i;

	take_all(&port, words[0], 0);
	tx = tx_ring(port.interface, 0);
	for (;;) {
		while (space(tx)) {
			struct slot *slot = &tx->slot[tx->head];
			uint8_t *frame = buffer(tx, slot->buf_idx);

			count++;
			memset(frame, 2, 14);
			memcpy(frame + 14, &count, sizeof(count));
			for (i = 22; i < NUMBERED; i++)
				frame[i] = (uint8_t)(count * 31 + i);
			slot->len = NUMBERED;
			slot->flags = 0;
			tx->head = tx->cur = next(tx, tx->head);
		}
		ioctl(port.fd, NIOCTXSYNC, NULL);
	}
}

/* check PORT: each frame is whole, and its number is greater than the last one's. */
static void check(char **words)
{
	struct port port;
	struct ring *rx;
	uint64_t last = 0, good = 0, count;
	int i;

	take_all(&port, words[0], 0);
	rx = rx_ring(port.interface, 0);
	for (;;) {
		struct pollfd fd = { .fd = port.fd, .events = POLLIN };

		poll(&fd, 1, -1);
		for (; rx->head != rx->tail; rx->head = rx->cur = next(rx, rx->head)) {
			struct slot *slot = &rx->slot[rx->head];
			const uint8_t *frame = buffer(rx, slot->buf_idx);

			memcpy(&count, frame + 14, sizeof(count));
			if (slot->len != NUMBERED || count <= last) {
				printf("wrong: number %llu behind %llu\n",
				       (unsigned long long)count, (unsigned long long)last);
				pause();
			}
			for (i = 22; i < NUMBERED; i++)
				if (frame[i] != (uint8_t)(count * 31 + i)) {
					printf("wrong: byte %d of %llu\n", i,
					       (unsigned long long)count);
					pause();
				}
			last = count;
			if (++good % 100000 == 0)
				printf("good: %llu\n", (unsigned long long)good);
		}
	}
}

static struct port shared[2][8];

static void *queue_thread(void *context)
{
	int queue = (int)(intptr_t)context;
	struct port *ports[2] = { &shared[0][queue], &shared[1][queue] };

	for (;;) {
		struct pollfd fds[2];
		int i;

		for (i = 0; i < 2; i++)
			fds[i] = (struct pollfd){ .fd = ports[i]->fd, .events = POLLIN };
		poll(fds, 2, -1);
		for (i = 0; i < 2; i++) {
			struct ring *rx = rx_ring(ports[i]->interface, queue);
			struct ring *tx = tx_ring(ports[1 - i]->interface, queue);

			while (rx->head != rx->tail && space(tx)) {
				struct slot *in = &rx->slot[rx->head];
				struct slot *out = &tx->slot[tx->head];
				uint32_t index = out->buf_idx;

				out->buf_idx = in->buf_idx;
				in->buf_idx = index;
				out->len = in->len;
				rx->head = rx->cur = next(rx, rx->head);
				tx->head = tx->cur = next(tx, tx->head);
			}
			ioctl(ports[1 - i]->fd, NIOCTXSYNC, NULL);
		}
	}
	return NULL;
}

/* queues COUNT LEFT RIGHT: a thread for each queue, with descriptors of its own. */
static void queues(char **words)
{
	int count = atoi(words[0]), queue, side;
	pthread_t thread;

	for (queue = 0; queue < count; queue++)
		for (side = 0; side < 2; side++) {
			struct registration one = { .mode = ONE_NIC,
						    .ringid = queue,
						    .flags = EXCLUSIVE };
			int error = take(&shared[side][queue], words[1 + side], one);

			if (error) {
				printf("queue %d: %s\n", queue, strerror(error));
				exit(1);
			}
		}
	printf("ready\n");
	for (queue = 0; queue < count; queue++)
		pthread_create(&thread, NULL, queue_thread, (void *)(intptr_t)queue);
	pause();
}

static void say(const char *what, int error)
{
	printf("%s: %s\n", what, error ? strerror(error) : "done");
}

/* errors PORT: what cannot be, and what the answer is. */
static void errors(char **words)
{
	const char *port = words[0];
	struct option option = { .type = 1 };
	struct header header = { .version = API, .type = REGISTER };
	struct registration all = { .mode = ALL_NIC };
	struct port first, second;
	struct legacy old = { .version = 3 };
	char list[256];
	int fd;

	say("a port that is not there", take(&first, "sideways", all));
	say("host rings", take(&first, port, (struct registration){ .mode = HOST_RINGS }));
	say("ring 5", take(&first, port, (struct registration){ .mode = ONE_NIC, .ringid = 5 }));
	say("memory 9", take(&first, port, (struct registration){ .mode = ALL_NIC, .mem_id = 9 }));
	fd = device();
	say("a sync before a port", ioctl(fd, NIOCTXSYNC, NULL) < 0 ? errno : 0);
	say("a mapping before a port",
	    mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0);
	say("a request without a header", ioctl(fd, NIOCCTRL, NULL) < 0 ? errno : 0);
	say("a request of another device", ioctl(fd, FIONREAD, list) < 0 ? errno : 0);
	say("a list of switches", control(fd, VALE_LIST, "vale0:", list));
	strncpy(header.name, port, sizeof(header.name) - 1);
	header.options = (uintptr_t)&option;
	header.body = (uintptr_t)&all;
	say("memory of its own", ioctl(fd, NIOCCTRL, &header) < 0 ? errno : 0);
	say("its option", option.status);
	strncpy(old.name, port, sizeof(old.name) - 1);
	say("version 3", ioctl(fd, NIOCREGIF, &old) < 0 ? errno : 0);
	printf("this is for version %u\n", old.version);
	close(fd);
	say("a closed descriptor", ioctl(fd, NIOCTXSYNC, NULL) < 0 ? errno : 0);
	say("alone",
	    take(&first, port, (struct registration){ .mode = ALL_NIC, .flags = EXCLUSIVE }));
	say("beside", take(&second, port, all));
	say("twice", control(first.fd, REGISTER, port, &all));
	printf("mapped again at the same place: %d\n",
	       mmap(NULL, first.got.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, first.fd, 0) ==
		       first.memory);
	munmap(first.memory, first.got.memsize);
	tx_ring(first.interface, 0)->head = 77777;
	say("a ring without such a slot", ioctl(first.fd, NIOCTXSYNC, NULL) < 0 ? errno : 0);
	printf("put right: %d\n", tx_ring(first.interface, 0)->head == 0);
	close(first.fd);
	say("after it was closed", take(&second, port, all));
	printf("end\n");
	pause();
}

static uint64_t state = 88172645463325252u;

static uint32_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

static void spoil(struct ring *ring)
{
	uint32_t count = any() % 64, i;

	for (i = 0; i < count; i++) {
		struct slot *slot = &ring->slot[any() % 64];

		switch (any() % 6) {
		case 0:
			slot->buf_idx = any();
			break;
		case 1:
			slot->buf_idx = any() % 4096;
			break;
		case 2:
			slot->len = any();
			break;
		case 3:
			/* Not INDIRECT: its pointer is the program's own. */
			slot->flags = any() & ~INDIRECT;
			break;
		case 4:
			slot->len = 14 + any() % 2018;
			break;
		default:
			slot->flags |= MOREFRAG;
		}
	}
	switch (any() % 4) {
	case 0:
		ring->head = any();
		break;
	case 1:
		ring->cur = any();
		break;
	case 2:
		ring->tail = any();
		break;
	default:
		ring->head = ring->cur = any() % ring->num_slots;
	}
}

/* spoil ROUNDS LEFT RIGHT: writes anything into its rings, and opens and closes its ports meanwhile. */
static void spoil_all(char **words)
{
	int rounds = atoi(words[0]), round, side;

	for (round = 0; round < rounds; round++) {
		struct port ports[2];
		int turn;

		for (side = 0; side < 2; side++)
			take_all(&ports[side], words[1 + side], any() % 3 ? 0 : 40);
		for (turn = 0; turn < 200; turn++) {
			struct pollfd fds[2];

			for (side = 0; side < 2; side++) {
				spoil(tx_ring(ports[side].interface, 0));
				spoil(rx_ring(ports[side].interface, 0));
				ports[side].interface->bufs_head = any() % 2000;
				fds[side] = (struct pollfd){ .fd = ports[side].fd,
							     .events = POLLIN | POLLOUT };
			}
			ioctl(ports[any() & 1].fd, any() & 1 ? NIOCTXSYNC : NIOCRXSYNC, NULL);
			poll(fds, 2, 0);
		}
		for (side = 0; side < 2; side++)
			close(ports[side].fd);
	}
	/* All buffers are there again: it forwards as if nothing had been. */
	printf("spoilt\n");
	forward((char *[]){ "poll", words[1], words[2] });
}

int main(int count, char **words)
{
	const char *task = count > 1 ? words[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(task, "forward") == 0 && count == 5)
		forward(words + 2);
	else if (strcmp(task, "number") == 0 && count == 3)
		number(words + 2);
	else if (strcmp(task, "check") == 0 && count == 3)
		check(words + 2);
	else if (strcmp(task, "keep") == 0 && count == 4)
		keep(words + 2);
	else if (strcmp(task, "queues") == 0 && count == 5)
		queues(words + 2);
	else if (strcmp(task, "errors") == 0 && count == 3)
		errors(words + 2);
	else if (strcmp(task, "spoil") == 0 && count == 5)
		spoil_all(words + 2);
	return 1;
}
