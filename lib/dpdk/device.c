/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Devices: `--vdev=net_nfluid0,port=NAME` is the port NAME of the instance that the process is. Loaded by
 * `-d librte_net_nfluid.so`, or from the directory of DPDK's drivers.
 */
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ethdev_vdev.h>
#include <rte_kvargs.h>
#include <rte_malloc.h>
#include <rte_string_fns.h>
#include <rte_version.h>

/* The structures of drivers change with every release of DPDK: this is the one that they were written for. */
#if RTE_VER_YEAR != 22 || RTE_VER_MONTH != 11
#error "net_nfluid is for DPDK 22.11; this is another release"
#endif
#define BUILT_FOR "DPDK 22.11"

#define PORT_ARGUMENT "port"
#define ZERO_COPY_ARGUMENT "zero-copy"
#define BURST 32
#define RING_DEFAULT 512

RTE_LOG_REGISTER(nfluid_log, pmd.net.nfluid, NOTICE);

static struct nfl_instance *attached;
static struct lane lanes[NFL_PORTS_MAX];
static unsigned int lane_count;

struct nfl_instance *nfluid_instance(void)
{
	return attached;
}

struct lane *nfluid_lanes(unsigned int *count)
{
	*count = lane_count;
	return lanes;
}

static int attach(void)
{
	int error, i, count;

	if (attached)
		return 0;
	error = nfl_attach(&attached);
	if (error) {
		LOG(ERR, "attaching: %s", nfl_strerror(error));
		return error;
	}
	count = nfl_port_count(attached);
	for (i = 0; i < count; i++) {
		lanes[i].port = nfl_port_at(attached, i);
		lanes[i].bell = -1;
		rte_spinlock_init(&lanes[i].lock);
	}
	lane_count = count;
	return 0;
}

/* The names of all ports, for an error's text. */
static const char *port_names(void)
{
	static char names[NFL_PORTS_MAX * 34];
	unsigned int i;

	names[0] = '\0';
	for (i = 0; i < lane_count; i++) {
		if (nfl_port_queue(lanes[i].port) != 0)
			continue;
		if (names[0])
			strcat(names, ", ");
		strcat(names, nfl_port_name(lanes[i].port));
	}
	return names;
}

static int configure(struct rte_eth_dev *dev)
{
	RTE_SET_USED(dev);
	return 0;
}

static void set_state(struct rte_eth_dev *dev, uint16_t status, uint8_t queues)
{
	uint16_t i;

	dev->data->dev_link.link_status = status;
	for (i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = queues;
	for (i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = queues;
}

static int start(struct rte_eth_dev *dev)
{
	int error = nfluid_sleep_install(dev);

	if (error) {
		LOG(ERR, "%s: receive interrupts: %s", dev->data->name, strerror(-error));
		return error;
	}
	set_state(dev, RTE_ETH_LINK_UP, RTE_ETH_QUEUE_STATE_STARTED);
	return 0;
}

static int stop(struct rte_eth_dev *dev)
{
	nfluid_sleep_remove(dev);
	set_state(dev, RTE_ETH_LINK_DOWN, RTE_ETH_QUEUE_STATE_STOPPED);
	return 0;
}

static int info(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	const struct device *device = dev->data->dev_private;
	struct rte_eth_dev_portconf usual = {
		.burst_size = BURST,
		.ring_size = RING_DEFAULT,
		.nb_queues = device->lane_count,
	};

	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_mtu = device->mtu;
	info->max_rx_pktlen = device->longest_received;
	info->max_rx_queues = device->lane_count;
	/* More senders than queues share them. */
	info->max_tx_queues = QUEUES_MAX;
	info->max_mac_addrs = 1;
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_SCATTER;
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (device->has_metadata) {
		info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TCP_LRO;
		info->max_lro_pkt_size = NFL_LONG_MAX;
	}
	if (device->sends_metadata)
		info->tx_offload_capa |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM |
					 RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
					 RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO;
	info->default_rxportconf = usual;
	info->default_txportconf = usual;
	return 0;
}

static int set_receiver(struct rte_eth_dev *dev, uint16_t queue, uint16_t descriptors,
			unsigned int socket, const struct rte_eth_rxconf *conf,
			struct rte_mempool *pool)
{
	struct device *device = dev->data->dev_private;
	struct receiver *receiver;

	RTE_SET_USED(descriptors);
	receiver = rte_zmalloc_socket("nfluid receiver", sizeof(*receiver), RTE_CACHE_LINE_SIZE,
				      socket);
	if (!receiver)
		return -ENOMEM;
	receiver->lane = device->lanes[queue];
	receiver->pool = pool;
	receiver->device = dev->data->port_id;
	receiver->has_metadata = device->has_metadata;
	receiver->offloads = conf->offloads | dev->data->dev_conf.rxmode.offloads;
	dev->data->rx_queues[queue] = receiver;
	return 0;
}

static int set_sender(struct rte_eth_dev *dev, uint16_t queue, uint16_t descriptors,
		      unsigned int socket, const struct rte_eth_txconf *conf)
{
	struct device *device = dev->data->dev_private;
	struct sender *sender;

	RTE_SET_USED(descriptors);
	RTE_SET_USED(conf);
	sender = rte_zmalloc_socket("nfluid sender", sizeof(*sender), RTE_CACHE_LINE_SIZE, socket);
	if (!sender)
		return -ENOMEM;
	if (device->sends_metadata) {
		sender->whole = rte_malloc_socket("nfluid packet", NFL_LONG_MAX, 0, socket);
		if (!sender->whole) {
			rte_free(sender);
			return -ENOMEM;
		}
	}
	sender->lane = device->lanes[queue % device->lane_count];
	dev->data->tx_queues[queue] = sender;
	return 0;
}

static void release_receiver(struct rte_eth_dev *dev, uint16_t queue)
{
	struct receiver *receiver = dev->data->rx_queues[queue];

	if (receiver)
		rte_pktmbuf_free_bulk(receiver->packets + receiver->next,
				      receiver->waiting - receiver->next);
	rte_free(receiver);
	dev->data->rx_queues[queue] = NULL;
}

static void release_sender(struct rte_eth_dev *dev, uint16_t queue)
{
	struct sender *sender = dev->data->tx_queues[queue];

	if (sender)
		rte_free(sender->whole);
	rte_free(sender);
	dev->data->tx_queues[queue] = NULL;
}

/* Other devices may have the port. */
static void forget(struct device *device)
{
	uint16_t i;

	for (i = 0; i < device->lane_count; i++)
		device->lanes[i]->device = NULL;
}

static int close_device(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	stop(dev);
	forget(device);
	dev->data->mac_addrs = NULL;
	return 0;
}

static int link_update(struct rte_eth_dev *dev, int wait)
{
	RTE_SET_USED(dev);
	RTE_SET_USED(wait);
	return 0;
}

static int stats(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	uint16_t i;

	for (i = 0; i < dev->data->nb_rx_queues; i++) {
		const struct receiver *receiver = dev->data->rx_queues[i];

		stats->ipackets += receiver->frames;
		stats->ibytes += receiver->bytes;
		stats->ierrors += receiver->bad;
		stats->rx_nombuf += receiver->no_buffer;
		if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_ipackets[i] = receiver->frames;
			stats->q_ibytes[i] = receiver->bytes;
			stats->q_errors[i] = receiver->bad;
		}
	}
	for (i = 0; i < dev->data->nb_tx_queues; i++) {
		const struct sender *sender = dev->data->tx_queues[i];

		stats->opackets += sender->frames;
		stats->obytes += sender->bytes;
		stats->oerrors += sender->bad + sender->down;
		if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_opackets[i] = sender->frames;
			stats->q_obytes[i] = sender->bytes;
		}
	}
	return 0;
}

static int stats_reset(struct rte_eth_dev *dev)
{
	uint16_t i;

	for (i = 0; i < dev->data->nb_rx_queues; i++) {
		struct receiver *receiver = dev->data->rx_queues[i];

		receiver->frames = receiver->bytes = receiver->bad = receiver->no_buffer = 0;
	}
	for (i = 0; i < dev->data->nb_tx_queues; i++) {
		struct sender *sender = dev->data->tx_queues[i];

		sender->frames = sender->bytes = sender->bad = sender->down = 0;
	}
	return 0;
}

/* Extended statistics: what the driver drops by reason, and what libnfluid counts. The switch's drops are the platform's. */
static const char *const reasons[] = {
	"rx_no_buffer",	 "rx_bad_offload", "tx_bad_packets", "tx_port_down",
	"hyperio_calls", "doorbells_rung", "tx_no_slot",
};

static int xstats_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names,
			unsigned int size)
{
	unsigned int i;

	RTE_SET_USED(dev);
	for (i = 0; names && i < RTE_MIN(size, RTE_DIM(reasons)); i++)
		rte_strlcpy(names[i].name, reasons[i], sizeof(names[i].name));
	return RTE_DIM(reasons);
}

static int xstats(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int size)
{
	const struct device *device = dev->data->dev_private;
	uint64_t values[RTE_DIM(reasons)] = { 0 };
	struct nfl_stats counted;
	unsigned int i;

	for (i = 0; i < dev->data->nb_rx_queues; i++) {
		const struct receiver *receiver = dev->data->rx_queues[i];

		values[0] += receiver->no_buffer;
		values[1] += receiver->bad;
	}
	for (i = 0; i < dev->data->nb_tx_queues; i++) {
		const struct sender *sender = dev->data->tx_queues[i];

		values[2] += sender->bad;
		values[3] += sender->down;
	}
	for (i = 0; i < device->lane_count; i++) {
		struct lane *lane = device->lanes[i];

		lane_lock(lane);
		nfl_stats(lane->port, &counted);
		lane_unlock(lane);
		values[4] += counted.calls;
		values[5] += counted.rings;
		values[6] += counted.tx_no_slot;
	}
	for (i = 0; xstats && i < RTE_MIN(size, RTE_DIM(reasons)); i++) {
		xstats[i].id = i;
		xstats[i].value = values[i];
	}
	return RTE_DIM(reasons);
}

static int mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	const struct device *device = dev->data->dev_private;

	/* The deployment's: `mtu` of the port. */
	return mtu <= device->mtu ? 0 : -EINVAL;
}

/* A port gets all frames that the platform sends to it. */
static int accept_all(struct rte_eth_dev *dev)
{
	RTE_SET_USED(dev);
	return 0;
}

static const uint32_t *packet_types(struct rte_eth_dev *dev)
{
	static const uint32_t types[] = {
		RTE_PTYPE_L2_ETHER,    RTE_PTYPE_L2_ETHER_VLAN, RTE_PTYPE_L3_IPV4,
		RTE_PTYPE_L3_IPV4_EXT, RTE_PTYPE_L3_IPV6,	RTE_PTYPE_L3_IPV6_EXT,
		RTE_PTYPE_L4_TCP,      RTE_PTYPE_L4_UDP,	RTE_PTYPE_UNKNOWN,
	};

	return dev->data->dev_conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_CHECKSUM ? types : NULL;
}

static const struct eth_dev_ops operations = {
	.dev_configure = configure,
	.dev_start = start,
	.dev_stop = stop,
	.dev_close = close_device,
	.dev_infos_get = info,
	.dev_supported_ptypes_get = packet_types,
	.rx_queue_setup = set_receiver,
	.tx_queue_setup = set_sender,
	.rx_queue_release = release_receiver,
	.tx_queue_release = release_sender,
	.rx_queue_intr_enable = nfluid_sleep_enable,
	.rx_queue_intr_disable = nfluid_sleep_disable,
	.link_update = link_update,
	.promiscuous_enable = accept_all,
	.promiscuous_disable = accept_all,
	.allmulticast_enable = accept_all,
	.allmulticast_disable = accept_all,
	.mtu_set = mtu_set,
	.stats_get = stats,
	.stats_reset = stats_reset,
	.xstats_get = xstats,
	.xstats_get_names = xstats_names,
};

/* Fills in what the platform says about the port `name`. Returns 0, or the reason why there is no such device. */
static int find(struct device *device, const char *name, struct rte_eth_dev_data *data)
{
	struct nfl_port *port = NULL;
	unsigned int i;
	int queue;

	for (i = 0; i < lane_count; i++) {
		if (strcmp(nfl_port_name(lanes[i].port), name) != 0)
			continue;
		if (lanes[i].device) {
			LOG(ERR,
			    "%s: port '%s' is the port of %s already; give each device its own",
			    data->name, name, lanes[i].device->name);
			device->lane_count = 0;
			return -EBUSY;
		}
		queue = nfl_port_queue(lanes[i].port);
		if (queue >= QUEUES_MAX)
			continue;
		device->lanes[queue] = &lanes[i];
		device->lane_count++;
		port = lanes[i].port;
	}
	if (!port) {
		LOG(ERR, "%s: the instance has no port '%s'; it has: %s", data->name, name,
		    port_names());
		return -ENODEV;
	}
	for (i = 0; i < device->lane_count; i++)
		device->lanes[i]->device = data;
	nfl_port_mac(port, device->mac.addr_bytes);
	device->mtu = nfl_port_mtu(port);
	device->has_metadata = nfl_port_level(port) != NFL_LEVEL_PLAIN;
	device->sends_metadata = nfl_port_tx_long(port) > 0;
	device->longest_received = nfl_port_rx_long(port) > 0 ? NFL_LONG_MAX : NFL_FRAME_MAX;
	return 0;
}

/* Lets packets keep frames of the device's rings. Returns 0, or a negative errno value. */
static int lend_frames(struct device *device, const char *name)
{
	unsigned int i;

	if (device->has_metadata) {
		LOG(ERR,
		    "%s: zero-copy is for frames as they are on a wire: remove 'frames' in the deployment",
		    name);
		return -EINVAL;
	}
	for (i = 0; i < device->lane_count; i++) {
		struct lane *lane = device->lanes[i];

		/* Not freed: packets may outlive the device. */
		if (!lane->holds)
			lane->holds = calloc(HOLDS, sizeof(*lane->holds));
		if (!lane->holds)
			return -ENOMEM;
	}
	return 0;
}

static int read_name(const char *key, const char *value, void *name)
{
	RTE_SET_USED(key);
	*(const char **)name = strdup(value);
	return *(const char **)name ? 0 : -ENOMEM;
}

static int read_yes(const char *key, const char *value, void *is_yes)
{
	RTE_SET_USED(key);
	*(bool *)is_yes = strcmp(value, "yes") == 0;
	return *(bool *)is_yes || strcmp(value, "no") == 0 ? 0 : -EINVAL;
}

/* The port's name in the arguments of a device, to be freed; NULL: there is none, or another one cannot be read. */
static char *read_arguments(struct rte_vdev_device *vdev, bool *zero_copy)
{
	static const char *const known[] = { PORT_ARGUMENT, ZERO_COPY_ARGUMENT, NULL };
	struct rte_kvargs *arguments = rte_kvargs_parse(rte_vdev_device_args(vdev), known);
	char *name = NULL;

	if (arguments && rte_kvargs_count(arguments, PORT_ARGUMENT) == 1)
		rte_kvargs_process(arguments, PORT_ARGUMENT, read_name, &name);
	if (name && rte_kvargs_process(arguments, ZERO_COPY_ARGUMENT, read_yes, zero_copy) < 0) {
		free(name);
		name = NULL;
	}
	rte_kvargs_free(arguments);
	return name;
}

static int probe(struct rte_vdev_device *vdev)
{
	const char *device_name = rte_vdev_device_name(vdev);
	struct rte_eth_dev *dev;
	struct device *device;
	bool zero_copy = false;
	char *name;
	int error;

	if (strncmp(rte_version(), BUILT_FOR, strlen(BUILT_FOR)) != 0) {
		LOG(ERR, "the driver was built for %s, and this program has %s: build it again",
		    BUILT_FOR, rte_version());
		return -EPROTONOSUPPORT;
	}
	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		LOG(ERR, "%s: a secondary process has no ports: start it as an instance of its own",
		    device_name);
		return -ENOTSUP;
	}
	error = attach();
	if (error)
		return error;
	name = read_arguments(vdev, &zero_copy);
	if (!name) {
		LOG(ERR,
		    "%s: write --vdev=%s,port=NAME[,zero-copy=yes]; the instance's ports are: %s",
		    device_name, device_name, port_names());
		return -EINVAL;
	}
	dev = rte_eth_vdev_allocate(vdev, sizeof(*device));
	if (!dev) {
		free(name);
		return -ENOMEM;
	}
	device = dev->data->dev_private;
	error = find(device, name, dev->data);
	free(name);
	if (!error && zero_copy)
		error = lend_frames(device, device_name);
	if (error) {
		forget(device);
		rte_eth_dev_release_port(dev);
		return error;
	}
	dev->data->mac_addrs = &device->mac;
	dev->data->dev_link.link_speed = RTE_ETH_SPEED_NUM_UNKNOWN;
	dev->data->dev_link.link_duplex = RTE_ETH_LINK_FULL_DUPLEX;
	dev->data->dev_link.link_autoneg = RTE_ETH_LINK_FIXED;
	dev->data->dev_flags |= RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	dev->data->promiscuous = 1;
	dev->data->mtu = RTE_MIN(device->mtu, RTE_ETHER_MTU);
	dev->dev_ops = &operations;
	dev->rx_pkt_burst = nfluid_receive;
	dev->tx_pkt_burst = nfluid_send;
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static int remove_device(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

	if (!dev)
		return 0;
	close_device(dev);
	return rte_eth_dev_release_port(dev);
}

static struct rte_vdev_driver driver = {
	.probe = probe,
	.remove = remove_device,
};

RTE_PMD_REGISTER_VDEV(net_nfluid, driver);
RTE_PMD_REGISTER_PARAM_STRING(net_nfluid, PORT_ARGUMENT "=<name> " ZERO_COPY_ARGUMENT "=yes|no");
