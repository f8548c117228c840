//! Congestion signals: marks, refusal, and the controlling thread.

mod congestion;
mod red4;
mod red4_cost;

use crate::experiment::{Experiment, Topic};
use crate::needs::{ETHTOOL, IPERF3, NETNS, NOTHING, Needs, PING, SS, TASKSET};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Congestion signals",
    experiments: &[
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
            name: "red4-cost",
            aliases: &["red4cost"],
            summary: "what congestion signals cost per packet: a word in the port against none, in turn",
            needs: NOTHING,
            run: red4_cost::run,
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
    ],
};
