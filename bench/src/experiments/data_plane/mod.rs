//! Data plane: the hyperio call, single NFs, chains, and alternatives to nfluid.

mod alone;
mod chain;
mod hyperio;
mod iperf3;
mod netmap;
mod nf;
mod nic_transmit;
mod nonf;
mod peers;
mod routes;
mod rules;
mod super_frames;
mod tcp_paths;
mod wake;

use crate::experiment::{Experiment, Topic};
use crate::needs::{
    CLANG, COMPILER, DPDK, ETHTOOL, IPERF3, NETNS, NFT, NOTHING, Needs, OPEN_VSWITCH, PING,
    TASKSET, TC,
};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Data plane",
    experiments: &[
        Experiment {
            name: "hyperio",
            aliases: &[],
            summary: "the call: empty and with frames, by batch and size, against getpid",
            needs: NOTHING,
            run: hyperio::run,
        },
        Experiment {
            name: "nonf",
            aliases: &[],
            summary: "sender -> switch -> receiver that reads the payload, two cores and one; memif",
            needs: Needs {
                required: &[],
                compared: &[DPDK],
            },
            run: nonf::run,
        },
        Experiment {
            name: "nf",
            aliases: &[],
            summary: "bridge, firewall, router, nat: the NF alone on one core, traffic on the other",
            needs: NOTHING,
            run: nf::run,
        },
        Experiment {
            name: "rules",
            aliases: &[],
            summary: "firewall with 10 to 10,000 rules, of which the last one matches",
            needs: NOTHING,
            run: rules::run,
        },
        Experiment {
            name: "routes",
            aliases: &[],
            summary: "router with 1,000,000 routes, random destinations",
            needs: NOTHING,
            run: routes::run,
        },
        Experiment {
            name: "chain",
            aliases: &[],
            summary: "1 to 50 firewalls in a row: round trip and throughput, by placement",
            needs: NOTHING,
            run: chain::run,
        },
        Experiment {
            name: "wake",
            aliases: &[],
            summary: "waking a sleeping receiver: latency and the sender's cost, by bell and core",
            needs: NOTHING,
            run: wake::run,
        },
        Experiment {
            name: "nic-transmit",
            aliases: &["h6"],
            summary: "out of an interface: by the sender itself, or by switch and uplink's thread",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: nic_transmit::run,
        },
        Experiment {
            name: "iperf3",
            aliases: &[],
            summary: "TCP through the demo's chain, and through the kernel's routing and nftables",
            needs: Needs {
                required: &[NETNS, ETHTOOL, IPERF3, NFT, PING],
                compared: &[],
            },
            run: iperf3::run,
        },
        Experiment {
            name: "super",
            aliases: &[],
            summary: "super-frames: four TCP streams, their CPU time, losses, delay; veth, taps, kernel; long frames",
            needs: Needs {
                required: &[NETNS, TC, ETHTOOL, IPERF3, NFT, PING],
                compared: &[],
            },
            run: super_frames::run,
        },
        Experiment {
            name: "peers",
            aliases: &[],
            summary: "Linux bridge, nftables, XDP, testpmd and Open vSwitch on the same path, idle CPU too",
            needs: Needs {
                required: &[],
                compared: &[NETNS, ETHTOOL, NFT, CLANG, DPDK, OPEN_VSWITCH, TASKSET],
            },
            run: peers::run,
        },
        Experiment {
            name: "security-groups",
            aliases: &["m2"],
            summary: "a port with security groups: the guard, and the kernel's bridge with connection tracking",
            needs: Needs {
                required: &[NETNS, ETHTOOL, NFT, CLANG],
                compared: &[],
            },
            run: peers::guards::run,
        },
        Experiment {
            name: "security-groups-ovs",
            aliases: &[],
            summary: "security groups on Open vSwitch: our firewall for Neutron, bridges with rules in front of the switch, no filter",
            needs: Needs {
                required: &[NETNS, ETHTOOL, NFT, OPEN_VSWITCH, TASKSET],
                compared: &[],
            },
            run: peers::ovs_groups::run,
        },
        Experiment {
            name: "dpdk",
            aliases: &["h13"],
            summary: "testpmd over nfluid's driver, memif and vhost-user, on two cores and on one; l3fwd-power, idle",
            needs: Needs {
                required: &[DPDK],
                compared: &[],
            },
            run: peers::driver::run,
        },
        Experiment {
            name: "netmap",
            aliases: &["h13netmap"],
            summary: "netmap's pkt-gen and bridge, unchanged, as instances, beside nfluid's own; needs NETMAP_SOURCE",
            needs: Needs {
                required: &[COMPILER, TASKSET],
                compared: &[],
            },
            run: netmap::run,
        },
        Experiment {
            name: "chain-peers",
            aliases: &["h11peers"],
            summary: "chains of 1 to 10 hops of Linux bridges, nftables, XDP, testpmd, Open vSwitch",
            needs: Needs {
                required: &[],
                compared: &[NETNS, ETHTOOL, NFT, CLANG, DPDK, OPEN_VSWITCH, TASKSET],
            },
            run: peers::chains::run,
        },
    ],
};
