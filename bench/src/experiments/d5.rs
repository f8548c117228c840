//! D5: isolated buffers against shared ones: NFs with memory of their own, so that the switch copies each frame at each
//! hop, and the same NFs in a trust group, where it exchanges slots. The traffic is outside of the group: in both
//! a frame is copied on its way in and on its way out.
//!
//! First what all architectures are measured with: very many NFs, two per frame, on all cores. The NFs of a switch, 64
//! at most, are a group: one of three hops differs.
//!
//! Then NFs in a row, of whose n + 1 hops n - 1 differ. CPU time is that of all processes, the traffic's too. All run on
//! one core, so that each finds what the one before it could do in its turn: on two cores the batches, and so the
//! figures, depend on who happens to be faster.

use super::chain::{BATCH, Chain, Links, Placement, RING};
use super::massive::{Architecture, Buffers, Entry, Sizes, Waiting, measure};
use super::subject::Subject;
use super::two_cores;
use crate::peer::run_together;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

/// A row of NFs and frames of one length, with either kind of buffers.
struct Variant {
    buffers: Buffers,
    load: Chain,
    mpps: Samples,
    /// Per second of CPU time of the NFs and the traffic.
    per_cpu: Samples,
    lost: u64,
}

/// One frame at a time through a row.
struct Ping {
    buffers: Buffers,
    chain: Chain,
    rtt: Samples,
    p99: Samples,
}

/// Both kinds.
const BOTH: [Buffers; 2] = [Buffers::Isolated, Buffers::Shared];

impl Buffers {
    fn name(self) -> &'static str {
        match self {
            Buffers::Isolated => "isolated",
            Buffers::Shared => "shared",
        }
    }

    fn conditions(self) -> &'static str {
        match self {
            Buffers::Isolated => "each NF has memory of its own: a copy per hop",
            Buffers::Shared => "NFs of one trust group: slots are exchanged between them",
        }
    }

    /// Bridges, whose own work is the least.
    fn links(self, scratch: &mut Scratch, count: usize) -> anyhow::Result<Links> {
        let group = match self {
            Buffers::Isolated => None,
            Buffers::Shared => Some(scratch.group(Links::slots(count))?),
        };
        Ok(Links {
            subject: Subject::Bridge,
            group,
        })
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    massive(report)?;
    in_a_row(report)
}

/// Two NFs per frame.
fn massive(report: &mut Report) -> anyhow::Result<()> {
    let isolated = Architecture {
        id: "d5",
        title: "memory of their own",
        waiting: Waiting::SLEEPING,
        buffers: Buffers::Isolated,
        entry: Entry::Port,
    };
    let shared = Architecture {
        id: "d5.shared",
        title: "trust groups of the 64 NFs of a switch",
        buffers: Buffers::Shared,
        ..isolated
    };
    measure(report, &[isolated, shared], &Sizes::common(report))
}

fn in_a_row(report: &mut Report) -> anyhow::Result<()> {
    let counts = report.choose(vec![2, 10, 50], vec![2]);
    let lens = report.choose(vec![64, 128, 256, 512, 1024, 1514], vec![64, 512, 1514]);
    let (rounds, seconds) = report.effort((5, 0.5), (5, 0.1));
    let mut rows = Vec::new();
    for count in counts {
        let mut scratch = Scratch::new("d5")?;
        let mut series = BOTH.map(|buffers| Series::new(buffers.name()));
        for &len in &lens {
            let variants = variants(&mut scratch, count, len, (rounds, seconds))?;
            for (variant, series) in variants.iter().zip(&mut series) {
                series.push(len as f64, &variant.per_cpu);
                rows.push(variant.row(count, len));
            }
            figures(report, count, len, &variants);
        }
        report.plot(Plot {
            id: format!("d5.row.{count}"),
            title: format!("{count} NFs in a row: memory of their own, and a trust group"),
            x: Axis::log("frame size in bytes"),
            y: Axis::linear("Mpps per CPU-second"),
            series: series.into(),
        });
        latency(report, &mut scratch, count, (rounds, seconds))?;
    }
    let header = [
        "NFs",
        "bytes",
        "buffers",
        "Mpps",
        "Mpps per CPU-second",
        "spread",
        "late or lost",
    ];
    table(
        "NFs in a row, by whose memory frames lie in",
        &header,
        &rows,
    );
    Ok(())
}

/// Both kinds of buffers in turn.
fn variants(
    scratch: &mut Scratch,
    count: usize,
    len: usize,
    (rounds, seconds): (usize, f64),
) -> anyhow::Result<Vec<Variant>> {
    let mut variants = Vec::new();
    for buffers in BOTH {
        let links = buffers.links(scratch, count)?;
        variants.push(Variant {
            buffers,
            load: Chain::loaded(scratch, count, Placement::OneCore, &links, len)?,
            mpps: Samples::default(),
            per_cpu: Samples::default(),
            lost: 0,
        });
    }
    for round in 0..=rounds {
        for variant in &mut variants {
            // The first round warms up.
            variant.measure(seconds, round > 0)?;
        }
    }
    Ok(variants)
}

fn figures(report: &mut Report, count: usize, len: usize, variants: &[Variant]) {
    for variant in variants {
        let id = format!("d5.{count}.{len}.{}", variant.buffers.name());
        let conditions = format!(
            "{}; batch {BATCH}, at most {RING} frames under way, {}; every process sleeps while nothing waits; \
             CPU time of all processes",
            variant.buffers.conditions(),
            Placement::OneCore.name(),
        );
        report.figure(format!("{id}.mpps"), &variant.mpps, "Mpps", &conditions);
        report.figure(
            format!("{id}.mpps_per_cpu"),
            &variant.per_cpu,
            "Mpps",
            &conditions,
        );
    }
    if let [isolated, shared] = variants {
        report.figure(
            format!("d5.{count}.{len}.shared_vs_isolated"),
            &shared.per_cpu.ratios(&isolated.per_cpu),
            "ratio",
            &format!(
                "frames per CPU-second; {} of {} hops differ",
                count - 1,
                count + 1
            ),
        );
    }
}

/// One frame of 64 B at a time, everything on one core.
fn latency(
    report: &mut Report,
    scratch: &mut Scratch,
    count: usize,
    (rounds, seconds): (usize, f64),
) -> anyhow::Result<()> {
    let mut pings = Vec::new();
    for buffers in BOTH {
        let links = buffers.links(scratch, count)?;
        pings.push(Ping {
            buffers,
            chain: Chain::pinged(scratch, count, Placement::OneCore, &links)?,
            rtt: Samples::default(),
            p99: Samples::default(),
        });
    }
    for round in 0..=rounds {
        for ping in &mut pings {
            let outcome = run_together(&mut ping.chain.peers, seconds)?[count];
            if round > 0 {
                ping.rtt.push(outcome.median_us);
                ping.p99.push(outcome.p99_us);
            }
        }
    }
    for ping in &pings {
        let conditions = format!(
            "one frame of 64 B at a time, {}; {}",
            Placement::OneCore.name(),
            ping.buffers.conditions()
        );
        let id = format!("d5.{count}.{}", ping.buffers.name());
        report.figure(format!("{id}.rtt_us"), &ping.rtt, "us", &conditions);
        report.figure(format!("{id}.rtt_p99_us"), &ping.p99, "us", &conditions);
    }
    if let [isolated, shared] = &pings[..] {
        report.figure(
            format!("d5.{count}.rtt_shared_vs_isolated"),
            &shared.rtt.ratios(&isolated.rtt),
            "ratio",
            "round trips of one frame of 64 B",
        );
    }
    Ok(())
}

impl Variant {
    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let outcomes = run_together(&mut self.load.peers, seconds)?;
        let cpu: f64 = outcomes.iter().map(|outcome| outcome.cpu_seconds).sum();
        if let Some(traffic) = outcomes.last().filter(|_| counts) {
            let frames = traffic.frames as f64;
            self.mpps.push(frames / traffic.seconds / 1e6);
            self.per_cpu.push(frames / cpu / 1e6);
            self.lost += traffic.lost;
        }
        Ok(())
    }

    fn row(&self, count: usize, len: usize) -> Vec<String> {
        vec![
            count.to_string(),
            len.to_string(),
            self.buffers.name().to_owned(),
            significant(self.mpps.median()),
            significant(self.per_cpu.median()),
            format!("{:.0} %", self.per_cpu.spread_percent()),
            self.lost.to_string(),
        ]
    }
}
