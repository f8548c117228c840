//! Delay until a change of shares takes effect: two busy instances have 20 and 80 % of one core, and the daemon is
//! asked repeatedly to swap the shares. Their CPU time is sampled continuously from the cgroups' accounting.

use crate::host::cpu;
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_testbed::interrupt;
use nfluid_testbed::platform::Platform;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The shared core; the measuring process is on another core.
const CORE: u32 = 0;
const ELSEWHERE: usize = 1;
/// The alternating share of one of the two, in percent.
const SHARES: [u32; 2] = [20, 80];
/// Time between two samples.
const STEP: Duration = Duration::from_millis(1);
/// The shares are computed over this CPU time of both instances: some time slices of each (2.8 ms by default).
const WINDOW: Duration = Duration::from_millis(40);
/// Largest deviation from a share within a window, in percent of the core.
const NEAR: f64 = 10.0;
/// Each division is kept until both instances together have used this CPU time. On a core without other processes, this
/// is also the elapsed time.
const KEEP: Duration = Duration::from_millis(600);
/// Longest elapsed time of a division, on a core with other processes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The quantities of a change.
const CHANGE: [Quantity; 3] = [
    Quantity::new(
        ".change_ms",
        "ms",
        &[("until followed, ms", Shown::Median), ("longest", Shown::Largest)],
    )
    .meaning("from the start of nfluid apply to the first window in which the part is near the new share"),
    Quantity::new(
        ".apply_ms",
        "ms",
        &[("until applied, ms", Shown::Median), ("longest", Shown::Largest)],
    )
    .meaning("nfluid apply, its start included"),
    Quantity::new(
        ".kept_percent",
        "%",
        &[("afterwards away, % of the core", Shown::Median), ("largest", Shown::Largest)],
    )
    .meaning("distance from the share in the second half of what follows a change"),
];

/// CPU time of both in nanoseconds, and when.
struct Sample {
    at: Instant,
    used: [u64; 2],
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let platform = platform::start()?;
    platform.apply(&deployment(SHARES[0]))?;
    let groups = [
        platform::cgroup(&platform, "a")?,
        platform::cgroup(&platform, "b")?,
    ];
    keep(&groups)?;
    let changes = report.effort(40, 4);
    let conditions = format!(
        "{changes} changes; windows of {} ms of CPU time, near is within {NEAR} % of the core",
        WINDOW.as_millis()
    );
    let key = [SHARES.map(|share| share.to_string()).join(" and ")];
    let mut sides = [Side::new(key, "share", SHARES).under(&conditions)];
    let mut sweep = Sweep::plain(&["% of the core"], CHANGE);
    sweep.run(report, changes, &mut sides, |shares, _| {
        shares.reverse();
        change(&platform, &groups, shares[0])
    })?;
    sweep.print("Two instances on a core, whose shares are turned round by nfluid apply");
    sweep.report_all(report);
    Ok(())
}

/// Has the daemon change the share of the first of the two, and waits until both have it.
fn change(platform: &Platform, groups: &[Cgroup; 2], share: u32) -> anyhow::Result<[f64; 3]> {
    let stop = AtomicBool::new(false);
    let (asked, apply_ms, samples) = thread::scope(|scope| {
        let sampler = scope.spawn(|| cpu::on(ELSEWHERE, || sample(groups, &stop)));
        let asked = Instant::now();
        let applied = platform.apply(&deployment(share));
        let apply_ms = asked.elapsed().as_secs_f64() * 1e3;
        let kept = keep(groups);
        stop.store(true, Ordering::Relaxed);
        let samples = sampler
            .join()
            .map_err(|_| anyhow::anyhow!("the sampler panicked"));
        applied.and(kept)?;
        anyhow::Ok((asked, apply_ms, samples???))
    })?;
    interrupt::check()?;
    let follows = follows(&samples, asked, f64::from(share)).with_context(|| {
        format!(
            "nobody followed a change to {share} % within {} ms of CPU time",
            KEEP.as_millis()
        )
    })?;
    let last = part(samples.iter().rev().nth(half(&samples)), samples.last());
    let away = last.map_or(f64::NAN, |part| (part - f64::from(share)).abs());
    Ok([follows.as_secs_f64() * 1e3, apply_ms, away])
}

/// Two that want all of the core; `share` is what one of them has of it, in percent.
fn deployment(share: u32) -> String {
    let burner = |share: u32| {
        json!({
            "program": "/bin/sh",
            "args": ["-c", "while :; do :; done"],
            "share": format!("{share}%"),
            "cpus": [CORE],
        })
    };
    json!({ "version": 1, "instances": { "a": burner(share), "b": burner(100 - share) } })
        .to_string()
}

/// Waits until both instances together have used [`KEEP`].
fn keep(groups: &[Cgroup; 2]) -> anyhow::Result<()> {
    let start = Sample::take(groups)?;
    while Sample::take(groups)?.since(&start) < KEEP && start.at.elapsed() < PATIENCE {
        thread::sleep(STEP);
    }
    Ok(())
}

fn sample(groups: &[Cgroup; 2], stop: &AtomicBool) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        samples.push(Sample::take(groups)?);
        thread::sleep(STEP);
    }
    Ok(samples)
}

impl Sample {
    fn take(groups: &[Cgroup; 2]) -> anyhow::Result<Self> {
        let used = |group: &Cgroup| -> anyhow::Result<u64> {
            let used = group.stats()?.cpu_usage_ns;
            used.context("this host counts no CPU time of cgroups")
        };
        let used = [used(&groups[0])?, used(&groups[1])?];
        Ok(Sample {
            at: Instant::now(),
            used,
        })
    }

    /// Returns the CPU time that both instances have used since an earlier sample.
    fn since(&self, earlier: &Self) -> Duration {
        let used = |who: usize| self.used[who].saturating_sub(earlier.used[who]);
        Duration::from_nanos(used(0) + used(1))
    }
}

/// Returns the delay from `asked` until the first window in which the first instance has its new share.
fn follows(samples: &[Sample], asked: Instant, share: f64) -> Option<Duration> {
    let later = samples
        .iter()
        .enumerate()
        .filter(|(_, sample)| sample.at >= asked);
    for (index, from) in later {
        let rest = samples.get(index..)?;
        let to = rest.iter().find(|to| to.since(from) >= WINDOW)?;
        if part(Some(from), Some(to)).is_some_and(|part| (part - share).abs() <= NEAR) {
            return Some(from.at.duration_since(asked));
        }
    }
    None
}

/// Returns the first instance's part of the CPU time of both between two samples, in percent.
fn part(from: Option<&Sample>, to: Option<&Sample>) -> Option<f64> {
    let (from, to) = (from?, to?);
    let [a, b] = [0, 1].map(|who: usize| to.used[who].saturating_sub(from.used[who]) as f64);
    (a + b > 0.0).then(|| 100.0 * a / (a + b))
}

fn half(samples: &[Sample]) -> usize {
    samples.len() / 2
}

#[cfg(test)]
mod tests {
    use super::{Sample, follows, part};
    use std::time::{Duration, Instant};

    // promise: 13.10
    #[test]
    fn what_follows_is_found_where_it_begins() {
        let begin = Instant::now();
        // 20 % until 100 ms, 80 % from then on.
        let sample = |ms: u64| {
            let a = 20 * ms.min(100) + 80 * ms.saturating_sub(100);
            Sample {
                at: begin + Duration::from_millis(ms),
                used: [a, 100 * ms - a].map(|percent| percent * 10_000),
            }
        };
        let samples: Vec<Sample> = (0..400).map(sample).collect();
        assert_eq!(part(samples.first(), samples.get(100)), Some(20.0));
        let found = follows(&samples, begin, 80.0).expect("it follows");
        // A window that begins a little earlier is within the tolerance.
        assert!((90..=100).contains(&found.as_millis()), "{found:?}");
        assert_eq!(follows(&samples[..100], begin, 80.0), None);
    }
}
