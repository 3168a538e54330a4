// SPDX-License-Identifier: GPL-2.0
/*
 * Network cards whose clocks are known: two cables, each between two ports (0-1 and 2-3).
 *
 * Each port has a clock of its own (PHC) that leads the machine's by a known law, or all have that of
 * the first, as the ports of one card do. A port timestamps
 * what it receives and what it sends, and the log in debugfs (clocked/log) has the truth of each frame.
 */
#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/net_tstamp.h>
#include <linux/netdevice.h>
#include <linux/ptp_clock_kernel.h>
#include <linux/vmalloc.h>

#define PORTS 4
#define MOST_FRAMES (1 << 18)

static long offset_ns[PORTS];
module_param_array(offset_ns, long, NULL, 0444);
MODULE_PARM_DESC(offset_ns, "lead of each port's clock when the module is loaded");
static int drift_ppb[PORTS];
module_param_array(drift_ppb, int, NULL, 0444);
MODULE_PARM_DESC(drift_ppb, "what each port's clock gains, in ns per second");
static bool one_clock;
module_param(one_clock, bool, 0444);
MODULE_PARM_DESC(one_clock, "whether all ports have the clock of the first");
static bool only_ptp[PORTS];
module_param_array(only_ptp, bool, NULL, 0644);
MODULE_PARM_DESC(only_ptp, "whether a port timestamps frames of PTP only, and says so");
static unsigned int stamp_every[PORTS] = { 1, 1, 1, 1 };
module_param_array(stamp_every, uint, NULL, 0644);
MODULE_PARM_DESC(stamp_every, "a port timestamps every n-th frame that arrives, although it promises all");
static unsigned int lose_every[PORTS];
module_param_array(lose_every, uint, NULL, 0644);
MODULE_PARM_DESC(lose_every, "every n-th frame is lost on its way to a port; 0 for none");

/* A frame that a port was sent; all numbers are those of the machine. */
struct truth {
	__u32 port;
	__u32 lost;
	__u64 arrived_ns; /* by the machine's clock */
	__u64 stamp_ns;   /* by the port's clock, 0 if it does not say */
	__u64 sent_ns;    /* when its peer sent it, by the machine's clock */
};

struct port {
	struct net_device *dev, *peer;
	struct ptp_clock_info info;
	struct ptp_clock *clock;
	struct hwtstamp_config config;
	unsigned int number;
	unsigned int arrived;
};

static struct net_device *devices[PORTS];
static struct dentry *folder;
static struct debugfs_blob_wrapper truths;
static DEFINE_SPINLOCK(lock);
static u64 loaded_ns;

static u64 shown(const struct port *port, u64 real_ns)
{
	unsigned int law = one_clock ? 0 : port->number;
	s64 passed_ns = real_ns - loaded_ns;
	s64 gained_ns = div_s64(passed_ns / 1000 * drift_ppb[law], 1000000);

	return real_ns + offset_ns[law] + gained_ns;
}

static int get_time(struct ptp_clock_info *info, struct timespec64 *time,
		    struct ptp_system_timestamp *around)
{
	struct port *port = container_of(info, struct port, info);

	ptp_read_system_prets(around);
	*time = ns_to_timespec64(shown(port, ktime_get_real_ns()));
	ptp_read_system_postts(around);
	return 0;
}

static int refuse_rate(struct ptp_clock_info *info, long ppm)
{
	return -EOPNOTSUPP;
}

static int refuse_step(struct ptp_clock_info *info, s64 delta_ns)
{
	return -EOPNOTSUPP;
}

static int refuse_time(struct ptp_clock_info *info, const struct timespec64 *time)
{
	return -EOPNOTSUPP;
}

static bool is_stamped(struct port *port, const struct sk_buff *skb)
{
	if (port->config.rx_filter == HWTSTAMP_FILTER_NONE)
		return false;
	if (port->config.rx_filter != HWTSTAMP_FILTER_ALL)
		return skb->protocol == htons(ETH_P_1588);
	return port->arrived % stamp_every[port->number] == 0;
}

static void arrive(struct port *port, struct sk_buff *skb, u64 sent_ns)
{
	unsigned int every = lose_every[port->number];
	struct truth truth = { .port = port->number, .sent_ns = sent_ns };
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	port->arrived++;
	truth.lost = every && port->arrived % every == 0;
	truth.arrived_ns = ktime_get_real_ns();
	skb->protocol = eth_type_trans(skb, port->dev);
	if (!truth.lost && is_stamped(port, skb)) {
		truth.stamp_ns = shown(port, truth.arrived_ns);
		skb_hwtstamps(skb)->hwtstamp = ns_to_ktime(truth.stamp_ns);
	}
	if (truths.size < MOST_FRAMES * sizeof(truth)) {
		memcpy(truths.data + truths.size, &truth, sizeof(truth));
		truths.size += sizeof(truth);
	}
	if (truth.lost) {
		port->dev->stats.rx_dropped++;
	} else {
		port->dev->stats.rx_packets++;
		port->dev->stats.rx_bytes += skb->len + ETH_HLEN;
	}
	spin_unlock_irqrestore(&lock, flags);
	if (truth.lost)
		kfree_skb(skb);
	else
		netif_rx(skb);
}

static netdev_tx_t transmit(struct sk_buff *skb, struct net_device *dev)
{
	struct port *port = netdev_priv(dev);
	/* Timestamps lie in what clones share, and packet sockets of the sender have clones. */
	struct sk_buff *copy = skb_copy(skb, GFP_ATOMIC);
	u64 sent_ns = ktime_get_real_ns();

	if (skb_shinfo(skb)->tx_flags & SKBTX_HW_TSTAMP && port->config.tx_type == HWTSTAMP_TX_ON) {
		struct skb_shared_hwtstamps stamps = {
			.hwtstamp = ns_to_ktime(shown(port, sent_ns)),
		};

		skb_shinfo(skb)->tx_flags |= SKBTX_IN_PROGRESS;
		skb_tstamp_tx(skb, &stamps);
	}
	dev->stats.tx_packets++;
	dev->stats.tx_bytes += skb->len;
	if (copy && netif_running(port->peer))
		arrive(netdev_priv(port->peer), copy, sent_ns);
	else
		kfree_skb(copy);
	consume_skb(skb);
	return NETDEV_TX_OK;
}

static int configure(struct net_device *dev, struct ifreq *request, int command)
{
	struct port *port = netdev_priv(dev);
	struct hwtstamp_config config;

	if (command == SIOCSHWTSTAMP) {
		if (copy_from_user(&config, request->ifr_data, sizeof(config)))
			return -EFAULT;
		/* As real drivers do: more than was asked for, if the card can do no less. */
		if (config.rx_filter != HWTSTAMP_FILTER_NONE)
			config.rx_filter = only_ptp[port->number] ? HWTSTAMP_FILTER_PTP_V2_EVENT :
								    HWTSTAMP_FILTER_ALL;
		port->config = config;
	} else if (command != SIOCGHWTSTAMP) {
		return -EOPNOTSUPP;
	}
	return copy_to_user(request->ifr_data, &port->config, sizeof(port->config)) ? -EFAULT : 0;
}

static int offer(struct net_device *dev, struct ethtool_ts_info *info)
{
	struct port *port = netdev_priv(dev);
	struct port *clocked = netdev_priv(devices[one_clock ? 0 : port->number]);

	info->so_timestamping = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE |
				SOF_TIMESTAMPING_RAW_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE |
				SOF_TIMESTAMPING_SOFTWARE;
	info->phc_index = ptp_clock_index(clocked->clock);
	info->tx_types = BIT(HWTSTAMP_TX_OFF) | BIT(HWTSTAMP_TX_ON);
	info->rx_filters = BIT(HWTSTAMP_FILTER_NONE) |
			   (only_ptp[port->number] ? BIT(HWTSTAMP_FILTER_PTP_V2_EVENT) :
						     BIT(HWTSTAMP_FILTER_ALL));
	return 0;
}

static const struct net_device_ops device_operations = {
	.ndo_start_xmit = transmit,
	.ndo_eth_ioctl = configure,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static const struct ethtool_ops card_operations = {
	.get_link = ethtool_op_get_link,
	.get_ts_info = offer,
};

static const struct ptp_clock_info clock_info = {
	.owner = THIS_MODULE,
	.name = "clocked",
	.gettimex64 = get_time,
	.adjfine = refuse_rate,
	.adjtime = refuse_step,
	.settime64 = refuse_time,
};

static void remove_all(void)
{
	int at;

	debugfs_remove(folder);
	for (at = 0; at < PORTS; at++) {
		struct port *port;

		if (!devices[at])
			continue;
		port = netdev_priv(devices[at]);
		if (devices[at]->reg_state == NETREG_REGISTERED)
			unregister_netdev(devices[at]);
		if (!IS_ERR_OR_NULL(port->clock))
			ptp_clock_unregister(port->clock);
		free_netdev(devices[at]);
	}
	vfree(truths.data);
}

static int __init load(void)
{
	int at, error = -ENOMEM;

	loaded_ns = ktime_get_real_ns();
	truths.data = vzalloc(MOST_FRAMES * sizeof(struct truth));
	if (!truths.data)
		return error;
	for (at = 0; at < PORTS; at++) {
		devices[at] = alloc_etherdev(sizeof(struct port));
		if (!devices[at])
			goto failed;
	}
	for (at = 0; at < PORTS; at++) {
		struct net_device *dev = devices[at];
		struct port *port = netdev_priv(dev);

		port->number = at;
		port->dev = dev;
		port->peer = devices[at ^ 1];
		port->info = clock_info;
		port->clock = ptp_clock_register(&port->info, NULL);
		if (IS_ERR(port->clock)) {
			error = PTR_ERR(port->clock);
			goto failed;
		}
		strscpy(dev->name, "clocked%d", sizeof(dev->name));
		eth_hw_addr_random(dev);
		dev->netdev_ops = &device_operations;
		dev->ethtool_ops = &card_operations;
		dev->features |= NETIF_F_LLTX;
		error = register_netdev(dev);
		if (error)
			goto failed;
	}
	folder = debugfs_create_dir("clocked", NULL);
	debugfs_create_blob("log", 0400, folder, &truths);
	return 0;

failed:
	remove_all();
	return error;
}

static void __exit unload(void)
{
	remove_all();
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Network cards whose clocks are known");
MODULE_LICENSE("GPL");
