//! Personal firewalls: each subscriber has its own, with rules and states; thousands exist, and each active one is
//! offered 10 Mbit/s in bursts of full frames. Measures the throughput of each, and the effect of their number on
//! latency.
//!
//! Subscribers and their servers are instances as well, joined to the firewalls by links, on the same cores: the
//! firewalls lack the CPU time that they use.

use crate::host::cpu::process_seconds;
use crate::host::idle::Idle;
use crate::report::{Report, significant, table};
use crate::roles::subscribers::{AGES, ARGUMENT, BURST, FIREWALLS, FRAME, age_us};
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

/// Results with one number of active firewalls.
struct Variant {
    active: usize,
    mbps: Samples,
    p50_us: Samples,
    p99_us: Samples,
    offered: Samples,
    cores: Samples,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let count = report.choose(8000, 40);
    let steps = report.choose(&[1, 10, 100, 250, 500, 1000][..], &[1, 31][..]);
    let seconds = report.effort(10, 1);
    let most = steps.last().copied().unwrap_or(1);
    let mut setup = Setup::new()?;
    setup.populate(count, most)?;
    let mut variants = Vec::new();
    for active in steps {
        variants.push(setup.measure(*active, seconds)?);
    }
    show(report, &variants, setup.firewalls);
    Ok(())
}

fn show(report: &mut Report, variants: &[Variant], firewalls: usize) {
    let alone_us = variants
        .first()
        .map_or(0.0, |variant| variant.p50_us.median());
    let (mut rows, mut rate, mut delay) =
        (Vec::new(), Series::new("Mbit/s each"), Series::new("p50"));
    for variant in variants {
        let added_ms = (variant.p50_us.median() - alone_us).max(0.0) / 1e3;
        rows.push(vec![
            variant.active.to_string(),
            significant(variant.offered.median()),
            significant(variant.mbps.median()),
            significant(variant.p50_us.median() / 1e3),
            significant(variant.p99_us.median() / 1e3),
            significant(added_ms),
            significant(variant.cores.median()),
        ]);
        let id = format!("l10.{}", variant.active);
        let conditions = format!(
            "{} of {firewalls} personal firewalls active, {MBPS} Mbit/s offered to each in bursts of {BURST} frames of {FRAME} bytes; \
             subscribers and servers on the same cores",
            variant.active
        );
        report.figure(
            format!("{id}.mbps_each"),
            &variant.mbps,
            "Mbit/s",
            &conditions,
        );
        let offered = "what the subscribers have sent of it";
        report.figure(
            format!("{id}.sent_mbps_each"),
            &variant.offered,
            "Mbit/s",
            offered,
        );
        let against = format!(
            "{conditions}; median time from subscriber to server, less that with one active"
        );
        report.derived(format!("{id}.added_latency_ms"), added_ms, "ms", &against);
        let p99_ms = variant.p99_us.median() / 1e3;
        report.derived(
            format!("{id}.p99_ms"),
            p99_ms,
            "ms",
            "from subscriber to server",
        );
        rate.push(variant.active as f64, &variant.mbps);
        delay.push(variant.active as f64, &variant.p50_us);
    }
    table(
        &format!("{firewalls} personal firewalls: active ones, {MBPS} Mbit/s offered to each"),
        &[
            "active",
            "sent each",
            "through each",
            "p50 ms",
            "p99 ms",
            "added ms",
            "cores",
        ],
        &rows,
    );
    report.plot(Plot {
        id: "l10.throughput".to_owned(),
        title: "Personal firewalls: through each".to_owned(),
        x: Axis::linear("active firewalls"),
        y: Axis::linear("Mbit/s"),
        series: vec![rate],
    });
    report.plot(Plot {
        id: "l10.latency".to_owned(),
        title: "Personal firewalls: from subscriber to server".to_owned(),
        x: Axis::linear("active firewalls"),
        y: Axis::linear("us"),
        series: vec![delay],
    });
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
    idle: Idle,
    firewalls: usize,
    /// The log of each subscriber instance.
    logs: Vec<LogReader>,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        Ok(Setup {
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
                instances.insert(format!("fw{number}"), firewall(number));
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
                .map(|number| (format!("fw{number}"), firewall(number)))
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

    /// Measures with `active` sending subscribers for `seconds`.
    fn measure(&mut self, active: usize, seconds: usize) -> anyhow::Result<Variant> {
        let mut instances = Map::new();
        for number in 0..self.logs.len() {
            let own = active.saturating_sub(number * FIREWALLS).min(FIREWALLS);
            instances.insert(format!("sub{number}"), traffic(number, own)?);
        }
        let began_ns = monotonic_ns();
        self.idle
            .merge(&json!({ "version": 1, "overcommit": true, "instances": instances }))?;
        let mut variant = Variant {
            active,
            mbps: Samples::default(),
            p50_us: Samples::default(),
            p99_us: Samples::default(),
            offered: Samples::default(),
            cores: Samples::default(),
        };
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
                variant.mbps.push(mbps(sum.received_per_s));
                variant.offered.push(mbps(sum.sent_per_s));
                variant.p50_us.push(sum.quantile_us(0.5));
                variant.p99_us.push(sum.quantile_us(0.99));
                let passed = now.0.duration_since(seen.0).as_secs_f64();
                variant.cores.push((now.1 - seen.1) / passed.max(1e-3));
            }
            seen = now;
        }
        Ok(variant)
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
