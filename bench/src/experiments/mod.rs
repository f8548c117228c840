//! The experiments, one file each.

mod alone;
mod chain;
mod footprint;
mod hyperio;
mod iperf3;
mod nf;
mod nonf;
mod peers;
mod restart;
mod routes;
mod rules;
pub mod subject;
mod token;
pub mod traffic;
mod wake;

use crate::CannotRun;
use crate::report::Report;

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures, in a line.
    pub summary: &'static str,
    /// Runs it.
    pub run: fn(&mut Report) -> anyhow::Result<()>,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "hyperio",
        summary: "the call: empty and with frames, by batch and size, against getpid",
        run: hyperio::run,
    },
    Experiment {
        name: "nonf",
        summary: "sender -> switch -> receiver that reads the payload, two cores and one; memif",
        run: nonf::run,
    },
    Experiment {
        name: "nf",
        summary: "bridge, firewall, router, nat: the NF alone on one core, traffic on the other",
        run: nf::run,
    },
    Experiment {
        name: "rules",
        summary: "firewall with 10 to 10,000 rules, of which the last one matches",
        run: rules::run,
    },
    Experiment {
        name: "routes",
        summary: "router with 1,000,000 routes, random destinations",
        run: routes::run,
    },
    Experiment {
        name: "chain",
        summary: "1 to 50 firewalls in a row: round trip and throughput, by placement",
        run: chain::run,
    },
    Experiment {
        name: "wake",
        summary: "waking a sleeping receiver: latency and the sender's cost, by bell and core",
        run: wake::run,
    },
    Experiment {
        name: "peers",
        summary: "Linux bridge, nftables, XDP and DPDK's testpmd on the same path, idle CPU too",
        run: peers::run,
    },
    Experiment {
        name: "iperf3",
        summary: "TCP through the demo's chain, and through the kernel's routing and nftables",
        run: iperf3::run,
    },
    Experiment {
        name: "restart",
        summary: "a firewall that is killed, restarted or replaced under traffic: lost packets, gap",
        run: restart::run,
    },
    Experiment {
        name: "footprint",
        summary: "memory and CPU time of 1 and 100 idle instances",
        run: footprint::run,
    },
];

/// Whether two processes can run at once.
///
/// # Errors
/// [`CannotRun`] with one core.
fn two_cores() -> Result<(), CannotRun> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        Err(CannotRun("it needs two cores".to_owned()))
    } else {
        Ok(())
    }
}
