//! Personal firewalls: each subscriber has its own, with rules and states; thousands exist, and each active one is
//! offered 10 Mbit/s in bursts of full frames. Measures the throughput of each, and the effect of their number on
//! latency.
//!
//! Subscribers and their servers are instances as well, joined to the firewalls by links, on the same cores: the
//! firewalls lack the CPU time that they use.

use crate::host::cpu::process_seconds;
use crate::host::idle::Idle;
use crate::host::tier::Tier;
use crate::report::Report;
use crate::roles::subscribers::{AGES, ARGUMENT, BURST, FIREWALLS, FRAME, age_us};
use crate::sweep::{Quantity, Shown, Side, Sweep, line};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_ring::clock::monotonic_ns;
use nfluid_testbed::interrupt;
use nfluid_testbed::log::LogReader;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// The offered rate of each active subscriber.
const MBPS: f64 = 10.0;
/// Firewalls without traffic per deployment document.
const PER_DOCUMENT: usize = 500;
/// Longest time for a step to begin.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds that are left out after a change, in which states are made, and spins and yields adapt.
const SETTLES: usize = 2;

/// The quantities with one number of active firewalls.
const QUANTITIES: [Quantity; 6] = [
    Quantity::new(".sent_mbps_each", "Mbit/s", &[("sent each", Shown::Median)])
        .meaning("what the subscribers have sent of it"),
    Quantity::new(".mbps_each", "Mbit/s", &[("through each", Shown::Median)]),
    Quantity::shown(&[("p50 us", Shown::Median)]),
    Quantity::new(".p99_ms", "ms", &[("p99 ms", Shown::Median)])
        .meaning("from subscriber to server"),
    Quantity::shown(&[("cores", Shown::Median)]),
    Quantity::new(".added_latency_ms", "ms", &[("added ms", Shown::Median)])
        .meaning("median time from subscriber to server, less that with one active"),
];
const THROUGH: usize = 1;
const P50_US: usize = 2;
const ADDED: usize = 5;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let count = report.choose(8000, 40);
    let steps = report.choose(&[1, 10, 100, 250, 500, 1000][..], &[1, 31][..]);
    let seconds = report.effort(10, 1);
    let sweep = measure(Tier::Process, "l10", (count, steps), seconds)?;
    sweep.report_all(report);
    plots(report, "l10", |quantity, name| {
        vec![line(name, sweep.rows(), quantity)]
    });
    Ok(())
}

/// Runs the experiment with firewalls of both tiers.
///
/// # Errors
/// The daemon refuses a firewall, or frames do not pass.
pub fn tiers(
    report: &mut Report,
    all: &[Tier],
    count: usize,
    steps: &[usize],
    seconds: usize,
) -> anyhow::Result<()> {
    let mut sweeps = Vec::new();
    for tier in all {
        let begin = format!("l10.{}", tier.id());
        let sweep = measure(*tier, &begin, (count, steps), seconds)?;
        sweep.report_all(report);
        sweeps.push((tier, sweep));
    }
    plots(report, "l10.tiers", |quantity, _| {
        let of_tier =
            |(tier, sweep): &(&Tier, FirewallSweep)| line(tier.id(), sweep.rows(), quantity);
        sweeps.iter().map(of_tier).collect()
    });
    Ok(())
}

type FirewallSweep = Sweep<6>;

/// Measures `count` firewalls of a tier, of which more and more are active. Ids of figures start with `begin`.
fn measure(
    tier: Tier,
    begin: &str,
    (count, steps): (usize, &[usize]),
    seconds: usize,
) -> anyhow::Result<FirewallSweep> {
    let most = steps.last().copied().unwrap_or(1);
    let mut setup = Setup::new(tier)?;
    setup.populate(count, most)?;
    let firewalls = setup.firewalls;
    let mut sweep = Sweep::plain(&["active"], QUANTITIES);
    for active in steps {
        let conditions = format!(
            "{active} of {firewalls} personal firewalls active, {MBPS} Mbit/s offered to each in bursts of {BURST} \
             frames of {FRAME} bytes; subscribers and servers on the same cores"
        );
        let side = Side::new([active.to_string()], format!("{begin}.{active}"), ());
        let side = side.under(&conditions).on("", *active as f64);
        sweep.add(&side, setup.measure(*active, seconds)?);
    }
    let rows = sweep.rows_mut();
    let alone_us = rows.first().map_or(0.0, |row| row.samples[P50_US].median());
    for row in rows {
        let added_us = row.samples[P50_US].median() - alone_us;
        row.samples[ADDED].push(added_us.max(0.0) / 1e3);
    }
    sweep.print(&format!(
        "{firewalls} personal firewalls of tier {}: active ones, {MBPS} Mbit/s offered to each",
        tier.id()
    ));
    Ok(sweep)
}

/// Plots throughput and latency over the active firewalls; `series` returns the lines of a quantity.
fn plots(report: &mut Report, begin: &str, series: impl Fn(usize, &str) -> Vec<Series>) {
    for (id, title, unit, name, quantity) in [
        (
            "throughput",
            "through each",
            "Mbit/s",
            "Mbit/s each",
            THROUGH,
        ),
        ("latency", "from subscriber to server", "us", "p50", P50_US),
    ] {
        report.plot(Plot {
            id: format!("{begin}.{id}"),
            title: format!("Personal firewalls: {title}"),
            x: Axis::linear("active firewalls"),
            y: Axis::linear(unit),
            series: series(quantity, name),
        });
    }
}

/// Returns a firewall as an operator configures it for each subscriber.
fn firewall(number: usize) -> Value {
    let client = format!("10.2.{}.{}", number / 250, number % 250 + 1);
    let rules = format!(
        "check-state\n\
         deny ip from any to any frag\n\
         deny ip from not {client} to any out\n\
         allow icmp from {client} to any icmptypes 8 keep-state\n\
         allow tcp from {client} to any 80,443,853 out setup keep-state\n\
         allow tcp from {client} to any 22,587,993 out setup keep-state\n\
         allow udp from {client} to any 53,123 out keep-state\n\
         deny udp from any to any 137-139,1900 out\n\
         allow udp from {client} to any 443,3478 out keep-state\n\
         deny tcp from any to any 25"
    );
    json!({ "nf": "firewall", "flavor": "small", "config": { "rules": rules, "states": { "max": 1024 } } })
}

struct Setup {
    tier: Tier,
    idle: Idle,
    firewalls: usize,
    /// The log of each subscriber instance.
    logs: Vec<LogReader>,
}

impl Setup {
    fn new(tier: Tier) -> anyhow::Result<Self> {
        Ok(Setup {
            tier,
            idle: Idle::new()?,
            firewalls: 0,
            logs: Vec::new(),
        })
    }

    /// Makes `count` firewalls, the first `most` of them (rounded up) with subscribers.
    fn populate(&mut self, count: usize, most: usize) -> anyhow::Result<()> {
        while self.firewalls < most {
            interrupt::check()?;
            let subscribers = self.logs.len();
            let (mut instances, mut links) = (Map::new(), Vec::new());
            for at in 0..FIREWALLS {
                let number = self.firewalls + at;
                instances.insert(format!("fw{number}"), self.tier.instance(firewall(number)));
                for (own, its) in [("a", "in"), ("b", "out")] {
                    links.push(json!([
                        format!("sub{subscribers}.{own}{at}"),
                        format!("fw{number}.{its}")
                    ]));
                }
            }
            instances.insert(format!("sub{subscribers}"), traffic(subscribers, 0)?);
            let flavors = json!({ "wide": { "ring": 64, "memory": "64MiB" } });
            let document = json!({ "version": 1, "overcommit": true, "flavors": flavors, "instances": instances, "links": links });
            self.idle.merge(&document)?;
            self.firewalls += FIREWALLS;
            let log = self
                .idle
                .platform()
                .instance_log(&format!("sub{subscribers}"));
            self.logs.push(LogReader::open(&log)?);
        }
        while self.firewalls < count {
            interrupt::check()?;
            let next = count.min(self.firewalls + PER_DOCUMENT);
            let numbers = self.firewalls..next;
            let instances: Map<String, Value> = numbers
                .map(|number| (format!("fw{number}"), self.tier.instance(firewall(number))))
                .collect();
            let document = json!({ "version": 1, "overcommit": true, "instances": instances });
            if let Err(why) = self.idle.merge(&document) {
                println!("{count} firewalls are not to be had here: {why:#}");
                break;
            }
            self.firewalls = next;
        }
        Ok(())
    }

    /// Has so many subscribers send for so many seconds.
    fn measure(&mut self, active: usize, seconds: usize) -> anyhow::Result<[Samples; 6]> {
        let mut instances = Map::new();
        for number in 0..self.logs.len() {
            let own = active.saturating_sub(number * FIREWALLS).min(FIREWALLS);
            instances.insert(format!("sub{number}"), traffic(number, own)?);
        }
        let began_ns = monotonic_ns();
        self.idle
            .merge(&json!({ "version": 1, "overcommit": true, "instances": instances }))?;
        let mut samples = <[Samples; 6]>::default();
        let sending = active.div_ceil(FIREWALLS).min(self.logs.len());
        let pids = self.idle.pids()?;
        let used = || -> f64 {
            pids.iter()
                .filter_map(|pid| process_seconds(*pid).ok())
                .sum()
        };
        // The instances' seconds do not coincide, but are equally many.
        let mut seen = (Instant::now(), used());
        for round in 0..SETTLES + seconds {
            let mut sum = Second::default();
            for log in &mut self.logs[..sending] {
                sum.add(&next_second(log, began_ns)?);
            }
            let now = (Instant::now(), used());
            if round >= SETTLES {
                let mbps = |frames: f64| frames * (FRAME * 8) as f64 / 1e6 / active as f64;
                let passed = now.0.duration_since(seen.0).as_secs_f64();
                let values = [
                    mbps(sum.sent_per_s),
                    mbps(sum.received_per_s),
                    sum.quantile_us(0.5),
                    sum.quantile_us(0.99) / 1e3,
                    (now.1 - seen.1) / passed.max(1e-3),
                ];
                for (samples, value) in samples.iter_mut().zip(values) {
                    samples.push(value);
                }
            }
            seen = now;
        }
        Ok(samples)
    }
}

/// Returns a subscriber instance of which `active` subscribers send.
fn traffic(number: usize, active: usize) -> anyhow::Result<Value> {
    let own = std::env::current_exe().context("finding this program")?;
    let gap_ns = f64::from(BURST) * (FRAME * 8) as f64 / (MBPS * 1e6) * 1e9;
    let ports = (0..FIREWALLS).flat_map(|at| [format!("a{at}"), format!("b{at}")]);
    // The last port is not connected: a closed loop of instances is refused.
    let ports: Vec<String> = ports.chain(["open".to_owned()]).collect();
    let first = number * FIREWALLS;
    let args = [
        ARGUMENT.to_owned(),
        first.to_string(),
        active.to_string(),
        (gap_ns as u64).to_string(),
    ];
    Ok(json!({ "program": own, "args": args, "ports": ports, "flavor": "wide" }))
}

/// Counters of one second, of one or more instances.
#[derive(Default)]
struct Second {
    sent_per_s: f64,
    received_per_s: f64,
    ages: Vec<u64>,
}

impl Second {
    fn add(&mut self, other: &Second) {
        self.sent_per_s += other.sent_per_s;
        self.received_per_s += other.received_per_s;
        self.ages.resize(AGES, 0);
        for (sum, more) in self.ages.iter_mut().zip(&other.ages) {
            *sum += more;
        }
    }

    fn quantile_us(&self, part: f64) -> f64 {
        let all: u64 = self.ages.iter().sum();
        let mut left = (all as f64 * part).ceil() as u64;
        for (place, count) in self.ages.iter().enumerate() {
            if *count >= left {
                return age_us(place);
            }
            left -= count;
        }
        age_us(AGES)
    }
}

/// Returns the first second that began after `began_ns`.
fn next_second(log: &mut LogReader, began_ns: u64) -> anyhow::Result<Second> {
    let start = Instant::now();
    loop {
        interrupt::check()?;
        let Some(line) = log.line()? else {
            anyhow::ensure!(
                start.elapsed() < PATIENCE,
                "subscribers say nothing any more"
            );
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let words = line
            .strip_prefix("second ")
            .context("what subscribers say")?;
        let numbers: Result<Vec<u64>, _> = words.split_whitespace().map(str::parse).collect();
        let numbers = numbers.context("what subscribers say")?;
        let [end_ns, length_ns, sent, received, ages @ ..] = &numbers[..] else {
            anyhow::bail!("what subscribers say: {line}");
        };
        if end_ns.saturating_sub(*length_ns) < began_ns {
            continue;
        }
        let per_s = |count: u64| count as f64 * 1e9 / (*length_ns).max(1) as f64;
        return Ok(Second {
            sent_per_s: per_s(*sent),
            received_per_s: per_s(*received),
            ages: ages.to_vec(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Second;
    use crate::roles::subscribers::{AGES, age_us};

    #[test]
    fn the_median_of_all_is_found() {
        let mut sum = Second::default();
        for (place, count) in [(3, 10), (7, 11), (90, 1)] {
            let mut ages = vec![0; AGES];
            ages[place] = count;
            sum.add(&Second {
                sent_per_s: 1.0,
                received_per_s: 2.0,
                ages,
            });
        }
        assert!((sum.sent_per_s, sum.received_per_s) == (3.0, 6.0));
        assert!((sum.quantile_us(0.5) - age_us(7)).abs() < 1e-9);
        assert!((sum.quantile_us(1.0) - age_us(90)).abs() < 1e-9);
    }
}
