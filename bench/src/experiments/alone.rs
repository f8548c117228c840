//! NFs, each alone on core 0, their traffic on core 1: what `nf`, `rules` and `routes` share.
//!
//! The figure is frames per second of CPU time of the NF's process, its sleeping and waking
//! included: the NF's one core is not full where the traffic's core cannot keep it busy. The wall
//! rate and how busy that core was are figures beside it.

use super::pairs::{self, Pair};
use super::subject::Subject;
use super::two_cores;
use crate::peer::run_together;
use crate::report::{Report, significant, table};
use crate::roles::Outcome;
use crate::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

const BATCH: usize = 64;
const RING: u32 = 256;

/// One NF with traffic of one size.
struct Lane {
    id: String,
    subject: Subject,
    /// The NF, and its traffic.
    pair: Pair,
    /// Frames per second of CPU time, in millions.
    per_cpu: Samples,
    /// Frames per second, in millions.
    wall: Samples,
    /// How busy the NF's core was, in percent.
    busy: Samples,
    lost: u64,
}

/// Measures each subject with frames of each size: figures `nf.NAME.SIZE.mpps`.
pub fn measure(
    report: &mut Report,
    title: &str,
    subjects: &[(&str, Subject)],
    sizes: &[usize],
) -> anyhow::Result<()> {
    two_cores()?;
    let mut scratch = Scratch::new("nf")?;
    let mut lanes = Vec::new();
    for (name, subject) in subjects {
        for len in sizes {
            let id = format!("nf.{name}.{len}.mpps");
            lanes.push(Lane::new(&mut scratch, id, *subject, *len)?);
        }
    }
    let (rounds, seconds) = report.effort((11, 0.5), (3, 0.2));
    for round in 0..=rounds {
        for lane in &mut lanes {
            report.settle();
            let outcomes = run_together(&mut lane.pair.peers, seconds)?;
            // The first round warms up: tables are built, flows opened.
            if round > 0 {
                lane.add(&outcomes);
            }
        }
    }
    let rows: Vec<_> = lanes.iter().map(Lane::row).collect();
    let header = [
        "figure",
        "Mpps per CPU-second",
        "spread",
        "Mpps by the clock",
        "NF's core busy",
        "late or lost",
        "traffic",
    ];
    table(title, &header, &rows);
    for lane in &lanes {
        let conditions = lane.conditions();
        let beside = |what: &str| lane.id.replace(".mpps", what);
        report.figure(&lane.id, &lane.per_cpu, "Mpps", &conditions);
        report.figure(beside(".wall_mpps"), &lane.wall, "Mpps", &conditions);
        report.figure(beside(".busy_percent"), &lane.busy, "%", &conditions);
    }
    Ok(())
}

impl Lane {
    fn new(
        scratch: &mut Scratch,
        id: String,
        subject: Subject,
        len: usize,
    ) -> anyhow::Result<Self> {
        let pair = pairs::around(scratch, subject, len, BATCH, RING)?;
        Ok(Lane {
            id,
            subject,
            pair,
            per_cpu: Samples::default(),
            wall: Samples::default(),
            busy: Samples::default(),
            lost: 0,
        })
    }

    fn add(&mut self, outcomes: &[Outcome]) {
        let (nf, traffic) = (outcomes[0], outcomes[1]);
        self.per_cpu
            .push(traffic.frames as f64 / nf.cpu_seconds / 1e6);
        self.wall
            .push(traffic.frames as f64 / traffic.seconds / 1e6);
        self.busy.push(nf.cpu_seconds / nf.seconds * 100.0);
        self.lost += traffic.lost;
    }

    fn conditions(&self) -> String {
        let traffic = self.subject.traffic();
        format!(
            "frames out of the NF per CPU-second of its process, alone on its core ({:.0} % busy, \
             {} Mpps by the clock); sender and receiver are one process on the other core, which \
             writes headers and does not read what returns; {traffic}, batch {BATCH}, {RING} slots",
            self.busy.median(),
            significant(self.wall.median()),
        )
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            significant(self.per_cpu.median()),
            format!("{:.0} %", self.per_cpu.spread_percent()),
            significant(self.wall.median()),
            format!("{:.0} %", self.busy.median()),
            self.lost.to_string(),
            self.subject.traffic(),
        ]
    }
}
