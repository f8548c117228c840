/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * netmap's interface, declared for the tests from netmap(4), so that they need none of netmap's own headers. The tests with
 * the project's own programs (NETMAP_SOURCE) show that the two are the same.
 */
#ifndef TEST_NETMAP_H
#define TEST_NETMAP_H

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#define API 14
#define NAME_SIZE 64

struct slot {
	uint32_t buf_idx;
	uint16_t len;
	uint16_t flags;
	uint64_t ptr;
};

#define BUF_CHANGED 0x0001
#define INDIRECT 0x0010
#define MOREFRAG 0x0020

struct ring {
	int64_t buf_ofs;
	uint32_t num_slots;
	uint32_t buf_size;
	uint16_t ringid;
	uint16_t dir;
	uint32_t head;
	uint32_t cur;
	uint32_t tail;
	uint32_t flags;
	struct timeval ts;
	uint64_t offset_mask;
	uint64_t buf_align;
	uint8_t sem[128] __attribute__((aligned(128)));
	struct slot slot[];
};

struct interface {
	char name[16];
	uint32_t version;
	uint32_t flags;
	uint32_t tx_rings;
	uint32_t rx_rings;
	uint32_t bufs_head;
	uint32_t host_tx_rings;
	uint32_t host_rx_rings;
	uint32_t spare[3];
	int64_t ring_ofs[];
};

struct option {
	uint64_t next;
	uint32_t type;
	uint32_t status;
	uint64_t size;
};

struct header {
	uint16_t version;
	uint16_t type;
	uint32_t reserved;
	char name[NAME_SIZE];
	uint64_t options;
	uint64_t body;
};

#define REGISTER 1
#define PORT_INFO 2
#define VALE_LIST 5

struct registration {
	uint64_t offset;
	uint64_t memsize;
	uint32_t tx_slots;
	uint32_t rx_slots;
	uint16_t tx_rings;
	uint16_t rx_rings;
	uint16_t host_tx_rings;
	uint16_t host_rx_rings;
	uint16_t mem_id;
	uint16_t ringid;
	uint32_t mode;
	uint32_t extra_bufs;
	uint64_t flags;
};

#define ALL_NIC 1
#define HOST_RINGS 2
#define ONE_NIC 4
#define EXCLUSIVE 0x800
#define RX_ONLY 0x2000
#define TX_ONLY 0x4000

struct legacy {
	char name[16];
	uint32_t version;
	uint32_t offset;
	uint32_t memsize;
	uint32_t tx_slots;
	uint32_t rx_slots;
	uint16_t tx_rings;
	uint16_t rx_rings;
	uint16_t ringid;
	uint16_t cmd;
	uint16_t arg1;
	uint16_t mem_id;
	uint32_t extra_bufs;
	uint32_t flags;
	uint32_t spare;
};

#define NIOCGINFO _IOWR('i', 145, struct legacy)
#define NIOCREGIF _IOWR('i', 146, struct legacy)
#define NIOCTXSYNC _IO('i', 148)
#define NIOCRXSYNC _IO('i', 149)
#define NIOCCTRL _IOWR('i', 151, struct header)

static inline struct ring *tx_ring(struct interface *port, unsigned int index)
{
	return (void *)((char *)port + port->ring_ofs[index]);
}

static inline struct ring *rx_ring(struct interface *port, unsigned int index)
{
	return (void *)((char *)port +
			port->ring_ofs[port->tx_rings + port->host_tx_rings + index]);
}

static inline uint8_t *buffer(const struct ring *ring, uint32_t index)
{
	return (uint8_t *)ring + ring->buf_ofs + (int64_t)index * ring->buf_size;
}

static inline uint32_t next(const struct ring *ring, uint32_t at)
{
	return at + 1 == ring->num_slots ? 0 : at + 1;
}

static inline uint32_t space(const struct ring *ring)
{
	return ring->tail >= ring->cur ? ring->tail - ring->cur
				       : ring->tail + ring->num_slots - ring->cur;
}

#endif
