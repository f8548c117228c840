//! The experiments, one file each.

mod alone;
mod busy_core;
mod chain;
mod chain_models;
mod compute_service;
mod congestion;
mod consolidation;
mod core_sharing;
mod cost_fairness;
mod creation;
mod creation_peers;
mod density;
mod dpi;
mod dynamic_load;
mod efw;
mod elb;
mod flow_steering;
mod footprint;
mod guard;
mod http_balancing;
mod hyperio;
mod io_models;
mod iperf3;
mod isolated_buffers;
mod just_in_time;
mod life;
mod massive;
mod nf;
mod nic_transmit;
mod noisy;
mod nonf;
mod peers;
mod personal_firewalls;
mod polling_nfs;
mod red4;
mod red4_cost;
mod restart;
mod ring_size;
mod routes;
mod rules;
mod share_change;
mod shared_ring;
mod shares;
mod sleeping_nfs;
mod static_split;
mod sync_cost;
mod sync_roundtrip;
mod tail_call;
mod tls_termination;
mod wake;

use crate::experiment::Experiment;
use crate::needs::{
    CLANG, CONTAINERS, DPDK, ETHTOOL, HAPROXY, HTTP, IPERF3, IPTABLES, NDPI, NETNS, NFT, NOTHING,
    Needs, OPEN_VSWITCH, OPENSSL, PING, PYTHON, SS, TASKSET, WRK,
};

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "hyperio",
        aliases: &[],
        summary: "the call: empty and with frames, by batch and size, against getpid",
        needs: NOTHING,
        run: hyperio::run,
    },
    Experiment {
        name: "static-split",
        aliases: &["h2"],
        summary: "10 to 90 % of a core for a firewall, the rest for its I/O thread",
        needs: NOTHING,
        run: static_split::run,
    },
    Experiment {
        name: "sync-roundtrip",
        aliases: &["h3"],
        summary: "one frame: I/O thread's round trip, same and other core, against a hyperio call",
        needs: NOTHING,
        run: sync_roundtrip::run,
    },
    Experiment {
        name: "sync-cost",
        aliases: &["h4"],
        summary: "batch asked for and batch seen by the switch, cost of synchronisation per packet",
        needs: NOTHING,
        run: sync_cost::run,
    },
    Experiment {
        name: "io-models",
        aliases: &["h5"],
        summary: "no NF, bridge, firewall, router in each I/O model: frames per CPU-second",
        needs: NOTHING,
        run: io_models::run,
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
        name: "shares",
        aliases: &["h8"],
        summary: "two NFs that share a core by weight: error of their throughput, by I/O model",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: shares::run,
    },
    Experiment {
        name: "chain-models",
        aliases: &["h11"],
        summary: "chains of firewalls in each I/O model: throughput and round trip",
        needs: NOTHING,
        run: chain_models::run,
    },
    Experiment {
        name: "consolidation",
        aliases: &["h7"],
        summary: "1 to 200 firewalls on the same cores, in each I/O model",
        needs: NOTHING,
        run: consolidation::run,
    },
    Experiment {
        name: "dynamic-load",
        aliases: &["h10"],
        summary: "30 firewalls whose rates and number change, in each I/O model: forwarded of offered",
        needs: NOTHING,
        run: dynamic_load::run,
    },
    Experiment {
        name: "core-sharing",
        aliases: &["r1"],
        summary: "1 to 30 forwarders on one core, with work on each frame: what is left of one's throughput",
        needs: NOTHING,
        run: core_sharing::run,
    },
    Experiment {
        name: "ring-size",
        aliases: &["r2"],
        summary: "ten forwarders on one core, by the size of their rings",
        needs: NOTHING,
        run: ring_size::run,
    },
    Experiment {
        name: "cost-fairness",
        aliases: &["r3"],
        summary: "two NFs of different cost on one core: CPU time and packets of each",
        needs: NOTHING,
        run: cost_fairness::run,
    },
    Experiment {
        name: "busy-core",
        aliases: &["r4"],
        summary: "ping through an idle NF that shares its core with 0, 10 and 25 busy ones",
        needs: NOTHING,
        run: busy_core::run,
    },
    Experiment {
        name: "efw",
        aliases: &[],
        summary: "eFW's fast path in XDP: a packet of a known and of a new flow, by the number of rules",
        needs: NOTHING,
        run: efw::run,
    },
    Experiment {
        name: "elb",
        aliases: &[],
        summary: "eLB's fast path in XDP: a packet of a known connection, the answer, the first one",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: elb::run,
    },
    Experiment {
        name: "guard",
        aliases: &[],
        summary: "the guard's fast path in XDP: limits, connections, SYNs answered by cookies; connections in a flood of SYNs",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: guard::run,
    },
    Experiment {
        name: "firewall-dpi",
        aliases: &["e5"],
        summary: "four flows of iperf3 through a firewall and DPI: iptables and nDPI, and eFW and eDPI",
        needs: Needs {
            required: &[NETNS, ETHTOOL, IPERF3, PING, NDPI, IPTABLES, NFT],
            compared: &[],
        },
        run: dpi::firewall_dpi::run,
    },
    Experiment {
        name: "elephants",
        aliases: &["e6"],
        summary: "four flows of iperf3, 0 to 100 % of them elephants: nDPI on every packet, and eDPI",
        needs: Needs {
            required: &[NETNS, ETHTOOL, IPERF3, PING, NDPI],
            compared: &[],
        },
        run: dpi::elephants::run,
    },
    Experiment {
        name: "http-balancing",
        aliases: &["e7"],
        summary: "wrk, a firewall of 50 rules, a balancer, two nginx: eFW + eLB, iptables + HAProxy, nftables, plain routing",
        needs: Needs {
            required: &[NETNS, ETHTOOL, HTTP, HAPROXY, IPTABLES, NFT],
            compared: &[],
        },
        run: http_balancing::run,
    },
    Experiment {
        name: "tail-call",
        aliases: &["e8"],
        summary: "the same with eFW and eLB in one instance by a tail call, and in one each",
        needs: Needs {
            required: &[NETNS, ETHTOOL, HTTP, NFT],
            compared: &[],
        },
        run: tail_call::run,
    },
    Experiment {
        name: "red4-cost",
        aliases: &["red4cost"],
        summary: "what congestion signals cost per packet: a word in the port against none, in turn",
        needs: NOTHING,
        run: red4_cost::run,
    },
    Experiment {
        name: "noisy",
        aliases: &[],
        summary: "one NF spins, floods, fills its memory, or rings for nothing; the others before and meanwhile",
        needs: NOTHING,
        run: noisy::run,
    },
    Experiment {
        name: "red4",
        aliases: &[],
        summary: "two TCP flows whose packets cost 1:1 to 1:16 on one core, with and without congestion signals",
        needs: Needs {
            required: &[NETNS, ETHTOOL, PING, IPERF3, TASKSET],
            compared: &[],
        },
        run: red4::run,
    },
    Experiment {
        name: "red4-mptcp",
        aliases: &["red4mptcp"],
        summary: "a TCP connection of two subflows beside plain ones through two NFs on one core, with and without signals",
        needs: Needs {
            required: &[NETNS, SS, ETHTOOL, PING],
            compared: &[],
        },
        run: red4::mptcp::run,
    },
    Experiment {
        name: "refusal",
        aliases: &[],
        summary: "a cheap NF before a dear one, flooded, beside a neighbour: refusal at the chain's entry off and on",
        needs: Needs {
            required: &[NETNS, ETHTOOL, PING],
            compared: &[],
        },
        run: red4::refusal::run,
    },
    Experiment {
        name: "congestion",
        aliases: &[],
        summary: "CPU time of the daemon's congestion thread beside 100 to 2000 instances that idle",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: congestion::run,
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
        name: "chain-peers",
        aliases: &["h11peers"],
        summary: "chains of 1 to 10 hops of Linux bridges, nftables, XDP, testpmd, Open vSwitch",
        needs: Needs {
            required: &[],
            compared: &[NETNS, ETHTOOL, NFT, CLANG, DPDK, OPEN_VSWITCH, TASKSET],
        },
        run: peers::chains::run,
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
        name: "share-change",
        aliases: &["share"],
        summary: "how soon a change of shares takes effect",
        needs: NOTHING,
        run: share_change::run,
    },
    Experiment {
        name: "restart",
        aliases: &[],
        summary: "a firewall that is killed, restarted or replaced under traffic: lost packets, gap",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: restart::run,
    },
    Experiment {
        name: "polling-nfs",
        aliases: &["d1"],
        summary: "2 to 8000 NFs that poll, two per frame: throughput, latency, CPU, memory",
        needs: NOTHING,
        run: polling_nfs::run,
    },
    Experiment {
        name: "sleeping-nfs",
        aliases: &["d2"],
        summary: "2 to 8000 NFs that sleep until they are rung, two per frame; idle too",
        needs: NOTHING,
        run: sleeping_nfs::run,
    },
    Experiment {
        name: "shared-ring",
        aliases: &["d3"],
        summary: "10 to 8000 NFs that say in one ring who has frames, for one I/O thread",
        needs: NOTHING,
        run: shared_ring::run,
    },
    Experiment {
        name: "flow-steering",
        aliases: &["d4"],
        summary: "from a wire straight into the first of two NFs per frame, of 2 to 8000, or by a switch; one NF per frame, hybrid",
        needs: Needs {
            required: &[NETNS, CLANG],
            compared: &[],
        },
        run: flow_steering::run,
    },
    Experiment {
        name: "isolated-buffers",
        aliases: &["d5"],
        summary: "2 to 8000 NFs, and NFs in a row, with memory of their own (copies) and in trust groups (exchange of slots)",
        needs: NOTHING,
        run: isolated_buffers::run,
    },
    Experiment {
        name: "creation",
        aliases: &["l2"],
        summary: "create -> first packet forwarded, by number of instances; fork+exec, unshare, bwrap, crun, runc",
        needs: Needs {
            required: &[],
            compared: &[CONTAINERS],
        },
        run: creation::run,
    },
    Experiment {
        name: "density",
        aliases: &["l6"],
        summary: "instances alive and idle at once: how many, memory of each, CPU of all",
        needs: NOTHING,
        run: density::run,
    },
    Experiment {
        name: "creation-peers",
        aliases: &["l2peers"],
        summary: "an instance from the pool, fork+exec, unshare, bwrap, crun, runc in turn, beside 0 and 1000 instances",
        needs: Needs {
            required: &[],
            compared: &[CONTAINERS],
        },
        run: creation_peers::run,
    },
    Experiment {
        name: "tls-termination",
        aliases: &["l12"],
        summary: "TLS termination, 1 to 1000 end points: requests per second of instances and of bare processes, by kind of key",
        needs: Needs {
            required: &[NETNS, OPENSSL, TASKSET, WRK],
            compared: &[],
        },
        run: tls_termination::run,
    },
    Experiment {
        name: "compute-service",
        aliases: &["l13"],
        summary: "Python programs that arrive in an open loop, each in an instance of its own; fork+exec, unshare, bwrap, crun, runc",
        needs: Needs {
            required: &[PYTHON],
            compared: &[CONTAINERS],
        },
        run: compute_service::run,
    },
    Experiment {
        name: "save-restore",
        aliases: &["l7"],
        summary: "save a firewall with 1000 states, and restore it as a clone",
        needs: NOTHING,
        run: life::save_restore::run,
    },
    Experiment {
        name: "migration",
        aliases: &["l7migrate"],
        summary: "move a firewall with 1000 states to another host while datagrams cross it: blocked time, lost",
        needs: Needs {
            required: &[NETNS, OPENSSL],
            compared: &[],
        },
        run: life::migration::run,
    },
    Experiment {
        name: "pause",
        aliases: &["l8"],
        summary: "pause and unpause an instance while frames pass: held, dropped, led past it",
        needs: NOTHING,
        run: life::pause::run,
    },
    Experiment {
        name: "personal-firewalls",
        aliases: &["l10"],
        summary: "8000 personal firewalls, 1 to 1000 of them active at 10 Mbit/s each: throughput, added latency",
        needs: NOTHING,
        run: personal_firewalls::run,
    },
    Experiment {
        name: "just-in-time",
        aliases: &["l11"],
        summary: "first answer of clients whose firewall is made by their first datagram, a client every 25 to 1 ms",
        needs: Needs {
            required: &[NETNS],
            compared: &[],
        },
        run: just_in_time::run,
    },
    Experiment {
        name: "upgrade",
        aliases: &[],
        summary: "frames lost while a firewall is upgraded in place again and again",
        needs: NOTHING,
        run: life::upgrade::run,
    },
    Experiment {
        name: "scaleout",
        aliases: &[],
        summary: "a firewall becomes 2, 4 and again 1 while frames pass: lost, overtaken, for how long they wait; throughput of so many",
        needs: NOTHING,
        run: life::scaleout::run,
    },
    Experiment {
        name: "footprint",
        aliases: &[],
        summary: "memory and CPU time of 1 and 100 idle instances; memory of 1 to 8000 of a platform",
        needs: NOTHING,
        run: footprint::run,
    },
];
