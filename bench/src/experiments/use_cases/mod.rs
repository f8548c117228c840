//! Use cases of many instances: an instance per subscriber, client, end point or program.

mod compute_service;
pub mod just_in_time;
mod own_stack;
pub mod personal_firewalls;
mod tls_termination;

use crate::experiment::{Experiment, Topic};
use crate::needs::{
    CONTAINERS, HTTP, IPERF3, NETNS, NFT, NOTHING, Needs, OPENSSL, PYTHON, STORES, TASKSET, WRK,
};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Use cases of many instances",
    experiments: &[
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
            name: "stack",
            aliases: &["m4"],
            summary: "nginx, iperf3, redis and memcached on a network stack of their own, as instances and as bare processes: requests, streams, a chain",
            needs: Needs {
                required: &[NETNS, HTTP, IPERF3, NFT],
                compared: &[STORES],
            },
            run: own_stack::run,
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
    ],
};
