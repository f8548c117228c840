//! E8: eFW and eLB in one instance, joined by a tail call, against one instance each, one after the other: there the
//! kernel forwards packets that the firewall accepts from one host to the next. Otherwise as `http-balancing`.

use super::http_balancing::{Kind, Run, in_turn, show, sides};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use nfluid_figures::statistics::Samples;
use std::time::Duration;

const CONNECTIONS: u32 = 36;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let sides = sides(&[Kind::Chain, Kind::TwoHosts])?;
    let (rounds, ms) = report.effort((7, 3000), (4, 1000));
    let runs = in_turn(&sides, CONNECTIONS, rounds, Duration::from_millis(ms))?;
    let how = format!(
        "{CONNECTIONS} connections that stay open, {ms} ms a round, all on the same two cores"
    );
    show(report, "e8", CONNECTIONS, &runs, &how);
    let [(_, one), (_, two)] = &runs[..] else {
        anyhow::bail!("two sides were asked for");
    };
    let each = |what: fn(&Run) -> f64| -> Samples {
        let rounds = one.iter().zip(two);
        rounds.map(|(one, two)| what(one) / what(two)).collect()
    };
    let rate = each(|run| run.rate);
    report.figure(
        "e8.ratio",
        &rate,
        "x",
        &format!("one instance / two, requests/s; {how}"),
    );
    let latency = each(|run| run.mean_us);
    report.figure("e8.latency_ratio", &latency, "x", &how);
    Ok(())
}
