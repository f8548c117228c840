//! wrk -> firewall of 50 rules -> load balancer -> two nginx, which answer with an empty body: eFW and eLB, iptables
//! and HAProxy, nftables with DNAT, and the kernel's routing alone (two routes to the service, so that connections are
//! distributed there too). The same programs at both ends and the same two cores for all sides, measured alternately.
//!
//! eFW and eLB are measured at tc, which suits veths, and at XDP. For XDP, the ends compute checksums, segment packets
//! themselves, and poll; for the other sides they have the kernel's defaults.
//!
//! Latency is the mean of the real answers, for all sides alike: connections send a request after each answer, so that
//! latency follows from the requests per second (`waiting`). wrk's own value is also shown ([`answers`]).
//!
//! The rules check every packet; no rule uses connection tracking, which would bypass them for known connections.

mod answers;
mod fast;
mod side;
mod topology;
mod wrk;

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side as Compared, Sweep};
use nfluid_figures::statistics::Samples;
pub use side::{Kind, Side};
use std::time::Duration;
pub use wrk::Run;

/// Numbers of connections, as in the literature.
const CONNECTIONS: [u32; 4] = [4, 12, 24, 36];
const CONNECTIONS_QUICK: [u32; 1] = [36];
const KINDS: [Kind; 5] = [
    Kind::Direct,
    Kind::Haproxy,
    Kind::Nftables,
    Kind::Chain,
    Kind::TcChain,
];

/// The quantities of a run.
const QUANTITIES: [Quantity; 10] = [
    Quantity::new(".requests_per_s", "1/s", &[("requests/s", Shown::Median)]),
    Quantity::new(".mean_us", "us", &[("mean us", Shown::Median)]),
    Quantity::new(".p99_us", "us", &[("p99 us", Shown::Median)]),
    Quantity::new(".corrected_us", "us", &[("corrected us", Shown::Median)]),
    Quantity::new(".wrk_cores", "cores", &[("wrk", Shown::Median)]),
    Quantity::new(".server_cores", "cores", &[("nginx", Shown::Median)]),
    Quantity::new(".proxy_cores", "cores", &[("proxy", Shown::Median)]),
    Quantity::new(".softirq_cores", "cores", &[("softirq", Shown::Median)]),
    Quantity::new(
        ".us_per_request",
        "us",
        &[("CPU us/request", Shown::Median)],
    ),
    Quantity::new(".waiting", "of 1", &[("waiting", Shown::Median)]),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let sides = sides(&KINDS)?;
    let connections = report.choose(&CONNECTIONS[..], &CONNECTIONS_QUICK);
    let (rounds, ms) = report.effort((5, 3000), (3, 700));
    for count in connections {
        let runs = in_turn(&sides, *count, rounds, Duration::from_millis(ms))?;
        let how = format!(
            "{count} connections that stay open, {} rules, {ms} ms a round, client and servers on the same two cores",
            side::RULES
        );
        show(report, "e7", *count, &runs, &how);
        compare(report, *count, &runs, &how);
    }
    Ok(())
}

/// Makes the sides, and runs each for a moment.
pub fn sides(kinds: &[Kind]) -> anyhow::Result<Vec<Side>> {
    let made = kinds.iter().map(|kind| {
        let side = Side::new(*kind)?;
        side.run(4, Duration::from_millis(600))?;
        Ok(side)
    });
    made.collect()
}

/// Measures the sides alternately, round after round; returns the runs of each side.
pub fn in_turn(
    sides: &[Side],
    connections: u32,
    rounds: u32,
    time: Duration,
) -> anyhow::Result<Vec<(Kind, Vec<Run>)>> {
    let mut runs: Vec<_> = sides.iter().map(|side| (side.kind, Vec::new())).collect();
    for _ in 0..rounds {
        for (side, (_, runs)) in sides.iter().zip(&mut runs) {
            runs.push(side.run(connections, time)?);
        }
    }
    Ok(runs)
}

/// Prints the results of each side, and reports its figures, whose ids begin with `id`.
pub fn show(report: &mut Report, id: &str, connections: u32, all: &[(Kind, Vec<Run>)], how: &str) {
    let mut sweep = Sweep::plain(&["between"], QUANTITIES);
    sweep.notes = &["spread"];
    for (kind, runs) in all {
        let of = |what: fn(&Run) -> f64| runs.iter().map(what).collect::<Samples>();
        let samples = [
            of(|run| run.rate),
            of(|run| run.mean_us),
            of(|run| run.p99_us),
            of(|run| run.corrected_us),
            of(|run| run.wrk_cores),
            of(|run| run.server_cores),
            of(|run| run.proxy_cores),
            of(|run| run.softirq_cores),
            of(Run::us_per_request),
            runs.iter().map(|run| run.waiting(connections)).collect(),
        ];
        let id = format!("{id}.{connections}.{}", kind.id());
        let side = Compared::new([kind.name().to_owned()], id, ()).under(how);
        sweep.add(&side, samples);
    }
    for row in sweep.rows_mut() {
        let rate = &row.samples[0];
        row.notes.push(format!("{:.0} %", rate.spread_percent()));
    }
    sweep.report_all(report);
    sweep.print(&format!(
        "{connections} connections; cores as far as the programs are charged for them"
    ));
}

/// Compares the sides, round by round.
fn compare(report: &mut Report, connections: u32, all: &[(Kind, Vec<Run>)], how: &str) {
    let of = |kind| {
        let found = all.iter().find(|(own, _)| *own == kind);
        found.map_or(&[][..], |(_, runs)| runs)
    };
    let rounds = |a: Kind, b: Kind, what: fn(&Run, &Run) -> f64| -> Samples {
        let pairs = of(a).iter().zip(of(b));
        pairs.map(|(a, b)| what(a, b)).collect()
    };
    let rate = |a: &Run, b: &Run| a.rate / b.rate;
    for (own, prefix) in [(Kind::TcChain, ""), (Kind::Chain, "xdp.")] {
        for (id, other, what, unit) in [
            (
                "requests_ratio",
                Kind::Haproxy,
                rate as fn(&Run, &Run) -> f64,
                "x",
            ),
            ("vs_nft_ratio", Kind::Nftables, rate, "x"),
            (
                "of_direct_percent",
                Kind::Direct,
                |a, b| a.rate / b.rate * 100.0,
                "%",
            ),
            (
                "latency_ratio",
                Kind::Haproxy,
                |a, b| a.mean_us / b.mean_us,
                "x",
            ),
            ("p99_ratio", Kind::Haproxy, |a, b| a.p99_us / b.p99_us, "x"),
            (
                "corrected_ratio",
                Kind::Haproxy,
                |a, b| a.corrected_us / b.corrected_us,
                "x",
            ),
            ("cpu_percent", Kind::Direct, beyond_percent, "%"),
        ] {
            let samples = rounds(own, other, what);
            let how = format!("{} against {}; {how}", own.name(), other.name());
            let id = format!("e7.{connections}.{prefix}{id}");
            report.figure(id, &samples, unit, &how);
        }
    }
    for other in [Kind::Haproxy, Kind::Nftables] {
        let samples = rounds(other, Kind::Direct, beyond_percent);
        let id = format!("e7.{connections}.{}.cpu_percent", other.id());
        report.figure(id, &samples, "%", how);
    }
}

/// Returns the CPU time of `run` beyond the cost of as many requests in `plain`, in percent of a core. The time of all
/// programs counts: the kernel's work on a packet is charged to its sender.
fn beyond_percent(run: &Run, plain: &Run) -> f64 {
    (run.us_per_request() - plain.us_per_request()) * run.rate / 1e6 * 100.0
}

#[cfg(test)]
mod tests {
    use super::{Run, beyond_percent};

    #[test]
    fn what_is_beyond_routing_is_told_at_its_own_rate() {
        let run = |rate, wrk_cores| Run {
            rate,
            mean_us: 1.0,
            p99_us: 1.0,
            corrected_us: 1.0,
            wrk_cores,
            server_cores: 0.5,
            proxy_cores: 0.0,
            softirq_cores: 0.0,
        };
        // 15 us each, against 10 us: half a core for 100,000.
        let beyond = beyond_percent(&run(100_000.0, 1.0), &run(200_000.0, 1.5));
        assert!((beyond - 50.0).abs() < 1e-6, "{beyond}");
    }
}
