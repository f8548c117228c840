// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What a user would write on DPDK for the work of `nfluid-bench`: one process that sends prepared
 * frames, receives and reads them, or does both, on ports made by EAL's --vdev (memif, virtio-user).
 *
 * memif EAL-ARGUMENTS -- send|receive|around BATCH WINDOW YIELDS FRAME-IN-HEX
 *
 * It says "ready" when its ports are connected. A line of standard input, "SECONDS [LENGTH [WINDOW]]",
 * starts a run, a line of JSON is the outcome: the protocol of the benchmark's own processes. A run
 * sends the first LENGTH bytes of the frame, at first all of it; WINDOW is for this run only.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#define POOL_SIZE 8191
#define POOL_CACHE 512
#define RING_SIZE 1024
#define BATCH_MAX 256
#define PREFETCH_AHEAD 4
#define BURSTS_PER_LOOK 64
#define CONNECT_TRIES 1000
#define CONNECT_PAUSE_US 10000
/* When nothing has come back for so long, what is under way is lost. */
#define LOST_AFTER_S 0.1
/* The same where one frame too many would falsify the result: hops that share a core are slow. */
#define SURELY_LOST_AFTER_S 1.0

struct work {
	bool sends;
	bool receives;
	/* The receiver reads the payload, the one that also sends only takes what comes back. */
	bool reads;
	bool yields;
	uint16_t port_out;
	uint16_t port_in;
	uint16_t length;
	uint16_t batch;
	uint32_t window;
	uint32_t under_way;
	double idle_since;
	uint64_t fold;
	uint64_t sent;
	uint64_t received;
	uint64_t lost;
	struct rte_mempool *pool;
};

static void fail(const char *what)
{
	fprintf(stderr, "memif: %s\n", what);
	exit(EXIT_FAILURE);
}

static double seconds_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void start_port(uint16_t port, struct rte_mempool *pool)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;

	memset(&conf, 0, sizeof(conf));
	if (rte_eth_dev_info_get(port, &info))
		fail("cannot ask a port for its features");
	/* All frames are of one pool and have one owner: this is the driver's fast path. */
	conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	if (rte_eth_dev_configure(port, 1, 1, &conf) ||
	    rte_eth_rx_queue_setup(port, 0, RING_SIZE, SOCKET_ID_ANY, NULL, pool) ||
	    rte_eth_tx_queue_setup(port, 0, RING_SIZE, SOCKET_ID_ANY, NULL) ||
	    rte_eth_dev_start(port))
		fail("cannot start a port");
}

static void await_link(uint16_t port)
{
	struct rte_eth_link link;

	for (int i = 0; i < CONNECT_TRIES; i++) {
		if (!rte_eth_link_get_nowait(port, &link) && link.link_status)
			return;
		usleep(CONNECT_PAUSE_US);
	}
	fail("a port was not connected in time");
}

/* Writes the frame into every buffer of the pool: a sender then only sets lengths, as pkt-gen does. */
static void prepare(struct rte_mempool *pool, const uint8_t *frame, uint16_t length)
{
	static struct rte_mbuf *mbufs[POOL_SIZE];
	unsigned int count = 0;

	while (count < POOL_SIZE && (mbufs[count] = rte_pktmbuf_alloc(pool)) != NULL) {
		memcpy(rte_pktmbuf_mtod(mbufs[count], void *), frame, length);
		count++;
	}
	while (count > 0)
		rte_pktmbuf_free(mbufs[--count]);
}

static uint64_t read_all(const uint8_t *bytes, size_t length)
{
	uint64_t fold = 0, word;
	size_t i;

	for (i = 0; i + sizeof(word) <= length; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		fold ^= word;
	}
	for (; i < length; i++)
		fold ^= bytes[i];
	return fold;
}

static uint32_t send_burst(struct work *work)
{
	struct rte_mbuf *mbufs[BATCH_MAX];
	uint32_t count = work->batch, sent;

	if (work->window) {
		uint32_t room = work->window - RTE_MIN(work->window, work->under_way);

		count = RTE_MIN(count, room);
	}
	if (count == 0 || rte_pktmbuf_alloc_bulk(work->pool, mbufs, count))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		mbufs[i]->data_len = work->length;
		mbufs[i]->pkt_len = work->length;
	}
	sent = rte_eth_tx_burst(work->port_out, 0, mbufs, count);
	if (sent < count)
		rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	work->under_way += sent;
	work->sent += sent;
	return sent;
}

static uint32_t receive_burst(struct work *work)
{
	struct rte_mbuf *mbufs[BATCH_MAX];
	uint32_t got = rte_eth_rx_burst(work->port_in, 0, mbufs, work->batch);

	if (got == 0)
		return 0;
	if (work->reads) {
		for (uint32_t i = 0; i < got && i < PREFETCH_AHEAD; i++)
			rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
		for (uint32_t i = 0; i < got; i++) {
			if (i + PREFETCH_AHEAD < got)
				rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + PREFETCH_AHEAD], void *));
			work->fold ^= read_all(rte_pktmbuf_mtod(mbufs[i], const uint8_t *),
					       mbufs[i]->data_len);
		}
	}
	rte_pktmbuf_free_bulk(mbufs, got);
	work->under_way -= RTE_MIN(work->under_way, got);
	work->received += got;
	return got;
}

/* What is under way and does not come back for long is lost: the window opens again. */
static void look_for_losses(struct work *work, uint32_t received, double now)
{
	double lost_after = work->window == 1 ? SURELY_LOST_AFTER_S : LOST_AFTER_S;

	if (received > 0 || work->under_way == 0) {
		work->idle_since = now;
	} else if (now - work->idle_since > lost_after) {
		work->lost += work->under_way;
		work->under_way = 0;
		work->idle_since = now;
	}
}

/* What an earlier run with a wider window has left under way comes back, or is lost. */
static void await_earlier(struct work *work)
{
	double last = seconds_of(CLOCK_MONOTONIC), now = last;

	while (work->under_way > 0 && now - last < SURELY_LOST_AFTER_S) {
		uint32_t got = receive_burst(work);

		now = seconds_of(CLOCK_MONOTONIC);
		if (got > 0)
			last = now;
	}
	work->under_way = 0;
}

static void run(struct work *work, double time)
{
	double start, cpu, elapsed = 0;

	if (work->window && work->under_way > work->window)
		await_earlier(work);
	start = seconds_of(CLOCK_MONOTONIC);
	cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
	work->idle_since = start;
	work->sent = work->received = work->lost = work->fold = 0;
	while (elapsed < time) {
		uint32_t received = 0;

		for (int i = 0; i < BURSTS_PER_LOOK; i++) {
			uint32_t sent = work->sends ? send_burst(work) : 0;
			uint32_t got = work->receives ? receive_burst(work) : 0;

			received += got;
			if (sent + got == 0 && work->yields)
				sched_yield();
		}
		elapsed = seconds_of(CLOCK_MONOTONIC) - start;
		if (work->window)
			look_for_losses(work, received, start + elapsed);
	}
	printf("{\"frames\":%" PRIu64 ",\"seconds\":%.9f,\"cpu_seconds\":%.9f,\"fold\":%" PRIu64
	       ",\"lost\":%" PRIu64 "}\n",
	       work->receives ? work->received : work->sent, elapsed,
	       seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu, work->fold, work->lost);
	fflush(stdout);
}

static void choose_role(struct work *work, const char *role)
{
	work->sends = strcmp(role, "receive") != 0;
	work->receives = strcmp(role, "send") != 0;
	work->reads = !work->sends;
}

static uint16_t parse_frame(const char *hex, uint8_t *frame, size_t size)
{
	size_t length = strlen(hex) / 2;

	if (length > size)
		fail("the frame is too long");
	for (size_t i = 0; i < length; i++) {
		if (sscanf(hex + 2 * i, "%2hhx", &frame[i]) != 1)
			fail("the frame is not hexadecimal");
	}
	return (uint16_t)length;
}

int main(int argc, char **argv)
{
	static uint8_t frame[2048];
	struct work work = { 0 };
	char line[64];
	uint16_t length_max;
	uint32_t window;
	int used = rte_eal_init(argc, argv);

	if (used < 0)
		fail("EAL does not start");
	argc -= used;
	argv += used;
	if (argc != 6 || rte_eth_dev_count_avail() == 0)
		fail("usage: memif EAL-ARGUMENTS -- ROLE BATCH WINDOW YIELDS FRAME");
	choose_role(&work, argv[1]);
	work.batch = (uint16_t)RTE_MIN(atoi(argv[2]), BATCH_MAX);
	window = (uint32_t)atoi(argv[3]);
	work.yields = atoi(argv[4]) != 0;
	length_max = parse_frame(argv[5], frame, sizeof(frame));
	work.pool = rte_pktmbuf_pool_create("frames", POOL_SIZE, POOL_CACHE, 0,
					    RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (work.pool == NULL)
		fail("no memory for the frames");
	prepare(work.pool, frame, length_max);
	work.port_in = (uint16_t)(rte_eth_dev_count_avail() - 1);
	for (uint16_t port = 0; port <= work.port_in; port++)
		start_port(port, work.pool);
	for (uint16_t port = 0; port <= work.port_in; port++)
		await_link(port);
	puts("ready");
	fflush(stdout);
	work.length = length_max;
	while (fgets(line, sizeof(line), stdin) != NULL) {
		double seconds = 0;
		unsigned int length = 0;

		work.window = window;
		if (sscanf(line, "%lf %u %u", &seconds, &length, &work.window) >= 2)
			work.length = (uint16_t)RTE_MIN(length, length_max);
		run(&work, seconds);
	}
	return EXIT_SUCCESS;
}
