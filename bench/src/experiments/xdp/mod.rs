//! XDP network functions: eFW, eLB, eDPI and the guard.

mod dpi;
mod efw;
mod elb;
mod guard;
mod http_balancing;
mod tail_call;

use crate::experiment::{Experiment, Topic};
use crate::needs::{
    ETHTOOL, HAPROXY, HTTP, IPERF3, IPTABLES, NDPI, NETNS, NFT, NOTHING, Needs, PING,
};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "XDP network functions",
    experiments: &[
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
            summary: "wrk through eFW and eLB in one instance by a tail call, and in one instance each",
            needs: Needs {
                required: &[NETNS, ETHTOOL, HTTP, NFT],
                compared: &[],
            },
            run: tail_call::run,
        },
    ],
};
