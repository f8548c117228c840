//! Delay until a change of shares takes effect: two busy instances have 20 and 80 % of one core, and the daemon is
//! asked repeatedly to swap the shares. Their CPU time is sampled continuously from the cgroups' accounting.

use crate::host::cpu;
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::{Report, significant, table};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_sandbox::cgroup::Cgroup;
use nfluid_testbed::interrupt;
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

/// CPU time of both instances in nanoseconds, and the time of the sample.
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
    let (mut change_ms, mut apply_ms, mut kept) =
        (Samples::default(), Samples::default(), Samples::default());
    for n in 1..=changes {
        let share = SHARES[n % 2];
        let stop = AtomicBool::new(false);
        let (asked, samples) = thread::scope(|scope| {
            let sampler = scope.spawn(|| cpu::on(ELSEWHERE, || sample(&groups, &stop)));
            let asked = Instant::now();
            let applied = platform.apply(&deployment(share));
            apply_ms.push(asked.elapsed().as_secs_f64() * 1e3);
            let kept = keep(&groups);
            stop.store(true, Ordering::Relaxed);
            let samples = sampler
                .join()
                .map_err(|_| anyhow::anyhow!("the sampler panicked"));
            applied.and(kept).and(
                samples?
                    .and_then(|samples| samples)
                    .map(|samples| (asked, samples)),
            )
        })?;
        interrupt::check()?;
        let follows = follows(&samples, asked, f64::from(share));
        let follows = follows.with_context(|| {
            format!(
                "nobody followed a change to {share} % within {} ms of CPU time",
                KEEP.as_millis()
            )
        })?;
        change_ms.push(follows.as_secs_f64() * 1e3);
        let last = part(samples.iter().rev().nth(half(&samples)), samples.last());
        kept.push(last.map_or(f64::NAN, |part| (part - f64::from(share)).abs()));
    }
    let row = |what: &str, samples: &Samples, unit: &str| {
        vec![
            what.to_owned(),
            significant(samples.median()),
            significant(samples.quantile(1.0)),
            unit.to_owned(),
        ]
    };
    table(
        "Two instances on a core, 20 and 80 % of it, turned round by nfluid apply",
        &["", "median", "longest", ""],
        &[
            row("until the CPU time follows", &change_ms, "ms"),
            row("until nfluid apply has ended", &apply_ms, "ms"),
            row("distance from the share afterwards", &kept, "% of the core"),
        ],
    );
    let conditions = format!(
        "{changes} changes; from the start of nfluid apply to the first {} ms in which the part is within {NEAR} % of the core of the new share",
        WINDOW.as_millis()
    );
    report.figure("share.change_ms", &change_ms, "ms", &conditions);
    report.figure(
        "share.apply_ms",
        &apply_ms,
        "ms",
        "nfluid apply, its start included",
    );
    report.figure(
        "share.kept_percent",
        &kept,
        "%",
        "distance from the share in the second half of what follows a change",
    );
    Ok(())
}

/// Returns a deployment of two instances that each want the whole core; `share` is the share of one, in percent.
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
