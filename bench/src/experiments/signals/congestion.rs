//! CPU time of the daemon's congestion thread with 100, 500 and 2000 idle instances, with signals off and on, and with
//! a busy chain of two among them: the cost should depend on busy instances only. If the daemon's limit of open files
//! does not permit 2000 instances, as many as it permits.

use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::flood::{Flood, Sending};
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use rustix::process::{Resource, getrlimit};
use std::fmt::Write;
use std::time::Duration;

/// Instances per chain.
const IN_A_CHAIN: usize = 20;
/// Number of instances of the figure without a number.
const USUAL: usize = 500;
/// Files that the daemon opens per instance, and for itself.
const FILES: u64 = 20;
const FILES_OWN: u64 = 1000;
/// Time for the instances to start and settle.
const SETTLE: Duration = Duration::from_secs(4);
/// The flood's core; instances may run on any core.
const OF_FLOOD: Sending = Sending {
    core: Some(1),
    tos: 0,
};

/// The quantities with one number of instances.
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(".off_cpu_percent", "%", &[("signals off %", Shown::Median)])
        .meaning("signals off"),
    Quantity::new(
        ".idle_cpu_percent",
        "%",
        &[("on, all idle %", Shown::Median)],
    )
    .meaning("signals on, all idle"),
    Quantity::new(
        ".busy_cpu_percent",
        "%",
        &[("on, two at work %", Shown::Median)],
    )
    .meaning("signals on, a flooded chain of two beside them"),
];
const IDLE: usize = 1;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let outside = Namespace::new()?;
    let (from, to) = (Namespace::new()?, Namespace::new()?);
    for (host, outer, address) in [
        (&from, "left", "10.9.0.1/16"),
        (&to, "right", "10.9.0.2/16"),
    ] {
        Namespace::join((host, "eth0"), (&outside, outer))?;
        host.ip(&format!("address add {address} dev eth0"))?;
    }
    let counts = report.choose(vec![100, 500, 2000], vec![100]);
    let (rounds, seconds) = report.effort((5, 4), (2, 1));
    let counts = that_fit(counts, getrlimit(Resource::Nofile).maximum);
    let time = Duration::from_secs(seconds);
    let platform = platform::start()?;
    let mut sweep = Sweep::plain(&["instances"], QUANTITIES);
    for instances in counts {
        let [mut off, mut idle, mut busy] = <[Samples; 3]>::default();
        for (line, samples) in [("", &mut off), ("congestion: on\n", &mut idle)] {
            platform.apply(&deployment(line, outside.name(), instances))?;
            std::thread::sleep(SETTLE);
            for _ in 0..rounds {
                samples.push(own_percent(&platform, time)?);
            }
        }
        let flood = Flood::start(&from.path(), "10.9.0.2:9", OF_FLOOD)?;
        for _ in 0..rounds {
            busy.push(own_percent(&platform, time)?);
        }
        drop(flood);
        let conditions = format!(
            "{instances} idle instances of two ports in chains of {IN_A_CHAIN}, by the thread's own clock"
        );
        let key = instances.to_string();
        let side = Side::new([key.clone()], format!("congestion.{key}"), ());
        sweep.add(&side.under(&conditions), [off, idle, busy]);
    }
    sweep.print("CPU time of the congestion thread, percent of a core");
    sweep.report_all(report);
    let usual = USUAL.to_string();
    let rows = sweep.rows();
    let usual = rows.iter().find(|row| row.key[0] == usual);
    if let Some(row) = usual.or(rows.last()) {
        let conditions = format!("signals on, all idle; {}", row.conditions);
        let id = "congestion.idle_cpu_percent";
        report.figure(id, &row.samples[IDLE], "%", &conditions);
    }
    Ok(())
}

/// Returns the requested numbers of instances, reduced to a round number if the limit of open files requires.
fn that_fit(counts: Vec<usize>, files: Option<u64>) -> Vec<usize> {
    let most = files.map_or(u64::MAX, |files| files.saturating_sub(FILES_OWN) / FILES);
    let most = (usize::try_from(most).unwrap_or(usize::MAX) / 100 * 100).max(100);
    let mut fitting: Vec<usize> = counts.iter().map(|count| most.min(*count)).collect();
    fitting.dedup();
    if fitting != counts {
        println!(
            "# {counts:?} instances do not fit the limit of open files: 'ulimit -n 65536' first"
        );
    }
    fitting
}

/// Returns a deployment of a chain that receives a flood, and further instances in chains without traffic.
fn deployment(congestion: &str, namespace: &str, instances: usize) -> String {
    let mut text = format!(
        "version: 1\n{congestion}uplinks:\n  left: {{ interface: left, netns: {namespace} }}\n  right: {{ interface: right, netns: {namespace} }}\n\
         instances:\n  busy1: {{ nf: bridge, flavor: small }}\n  busy2: {{ nf: bridge, flavor: small }}\n"
    );
    for number in 0..instances {
        let _ = writeln!(text, "  i{number}: {{ nf: bridge, flavor: small }}");
    }
    text += "chains:\n";
    for first in (0..instances).step_by(IN_A_CHAIN) {
        let via: Vec<_> = (first..instances.min(first + IN_A_CHAIN))
            .map(|number| format!("i{number}"))
            .collect();
        let _ = writeln!(
            text,
            "  c{first}: {{ from: left, to: right, via: [{}], match: [{{ dst: 10.8.{}.0/24 }}] }}",
            via.join(", "),
            first / IN_A_CHAIN
        );
    }
    text + "  busy: { from: left, to: right, via: [busy1, busy2] }\n"
}

/// Returns the CPU time of the thread during `time`, in percent of a core.
fn own_percent(platform: &Platform, time: Duration) -> anyhow::Result<f64> {
    interrupt::check()?;
    let own = || -> anyhow::Result<(f64, f64)> {
        let stats = platform.api()?.get("/v1/stats")?;
        let number = |value: &serde_json::Value| value.as_f64().context("what nfluid says");
        Ok((
            number(&stats["time_ns"])?,
            number(&stats["congestion"]["cpu_ns"])?,
        ))
    };
    let before = own()?;
    std::thread::sleep(time);
    let after = own()?;
    Ok((after.1 - before.1) / (after.0 - before.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::that_fit;

    #[test]
    fn there_are_as_many_instances_as_files_allow() {
        let asked = vec![100, 500, 2000];
        assert_eq!(that_fit(asked.clone(), None), asked);
        assert_eq!(that_fit(asked.clone(), Some(65_536)), asked);
        assert_eq!(that_fit(asked.clone(), Some(20_000)), [100, 500, 900]);
        assert_eq!(that_fit(asked, Some(1_024)), [100]);
    }
}
