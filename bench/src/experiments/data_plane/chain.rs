//! 1 to 50 firewalls in a row (H11 "service chain"): round trip and throughput; all NFs sleep while no frame waits. The
//! floor for comparison: as many processes that only wake each other.

use crate::host::cpu::require_two_cores;
use crate::peer::run_together;
use crate::report::{Report, significant, table};
use crate::setups::chain::{BATCH, Chain, Links, Placement, RING};
use crate::setups::pipe_chain::PipeChain;
use nfluid_figures::statistics::{Samples, highest};
use nfluid_testbed::scratch::Scratch;
use std::time::Duration;

/// A length and a placement, measured with two chains.
struct Variant {
    count: usize,
    placement: Placement,
    ping: Chain,
    load: Chain,
    rtt: Samples,
    rtt_p99: Samples,
    mpps: Samples,
    lost: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let counts = report.choose(vec![1, 2, 5, 10, 20, 50], vec![1, 50]);
    let (rounds, seconds) = report.effort((11, 0.5), (2, 0.1));
    // Starting hundreds of processes is most of a quick run.
    let placements = report.choose(
        vec![
            Placement::OneCore,
            Placement::TrafficApart,
            Placement::Halves,
        ],
        vec![Placement::OneCore, Placement::Halves],
    );
    let mut all = Vec::new();
    for count in counts {
        let mut scratch = Scratch::new("chain")?;
        let mut variants = Vec::new();
        for &placement in &placements {
            // A single firewall cannot be split into halves.
            if count > 1 || !matches!(placement, Placement::Halves) {
                variants.push(Variant::new(&mut scratch, count, placement)?);
            }
        }
        let mut tokens = PipeChain::start(count, 1)?;
        let mut floor = Samples::default();
        for round in 0..=rounds {
            for variant in &mut variants {
                // The first round warms up.
                variant.measure(seconds, round > 0)?;
            }
            let token = tokens.measure(Duration::from_secs_f64(seconds))?;
            if round > 0 {
                floor.push(token);
            }
        }
        figures(report, count, &variants);
        report.figure(
            format!("chain.{count}.floor_us"),
            &floor,
            "us",
            "processes that hand a byte on through pipes, all on one core: no frame, no switch, no NF",
        );
        all.extend(variants.iter().map(Variant::row));
    }
    let header = [
        "firewalls",
        "placement",
        "rtt us",
        "p99 us",
        "Mpps",
        "spread",
        "late or lost",
    ];
    table("Firewalls of 10 rules in a row", &header, &all);
    Ok(())
}

/// Reports the better placement of each kind as the figure.
fn figures(report: &mut Report, count: usize, variants: &[Variant]) {
    let fastest = variants
        .iter()
        .min_by(|a, b| a.rtt.median().total_cmp(&b.rtt.median()));
    if let Some(variant) = fastest {
        let conditions = variant.conditions("one frame of 64 B at a time");
        report.figure(
            format!("chain.{count}.rtt_us"),
            &variant.rtt,
            "us",
            &conditions,
        );
        report.figure(
            format!("chain.{count}.rtt_p99_us"),
            &variant.rtt_p99,
            "us",
            &conditions,
        );
    }
    if let Some(variant) = highest(variants, |variant| &variant.mpps) {
        let traffic = format!("64 B, batch {BATCH}, at most {RING} frames under way");
        let conditions = variant.conditions(&traffic);
        report.figure(
            format!("chain.{count}.mpps"),
            &variant.mpps,
            "Mpps",
            &conditions,
        );
    }
}

impl Variant {
    fn new(scratch: &mut Scratch, count: usize, placement: Placement) -> anyhow::Result<Self> {
        Ok(Variant {
            count,
            placement,
            ping: Chain::pinged(scratch, count, placement, &Links::firewalls())?,
            load: Chain::loaded(scratch, count, placement, &Links::firewalls(), 64)?,
            rtt: Samples::default(),
            rtt_p99: Samples::default(),
            mpps: Samples::default(),
            lost: 0,
        })
    }

    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let ping = run_together(&mut self.ping.peers, seconds)?[self.count];
        let load = run_together(&mut self.load.peers, seconds)?[self.count];
        if counts {
            self.rtt.push(ping.median_us);
            self.rtt_p99.push(ping.p99_us);
            self.mpps.push(load.frames as f64 / load.seconds / 1e6);
            self.lost += ping.lost + load.lost;
        }
        Ok(())
    }

    fn conditions(&self, traffic: &str) -> String {
        format!(
            "{}; every process sleeps while nothing waits; {traffic}; {RING} slots",
            self.placement.name()
        )
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.count.to_string(),
            self.placement.name().to_owned(),
            significant(self.rtt.median()),
            significant(self.rtt_p99.median()),
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            self.lost.to_string(),
        ]
    }
}
