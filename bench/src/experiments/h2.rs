//! H2: static assignments of CPU time to an NF and to its I/O thread (HyperNF, SoCC '17, fig. 2).
//!
//! `split` on two cores, the NF's process capped at 10 to 90 % of a core and the I/O thread's at the
//! rest, so that both together have one core's worth; firewalls of 10 and 50 rules, 64 and 1024 B.
//! Frames go round through the NF: no generator needs a core. Beside it the same NF inline on one
//! core, where nobody has to choose.

use super::looped::{self, Looped, Run};
use super::models::Model;
use super::subject::Subject;
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::{Role, Task};
use crate::statistics::{Samples, highest};
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;

const FLOWS: u32 = 1000;
const MODELS: [Model; 3] = [
    Model::Inline,
    Model::Split { polls: false },
    Model::Split { polls: true },
];

/// One NF with frames of one size, in one model.
struct Lane {
    model: Model,
    nf: Looped,
    /// Cgroups of the NF's process and of its I/O thread's.
    cgroups: Cgroups,
    /// Per assignment; inline has only one.
    points: Vec<Point>,
}

/// What was measured with one assignment.
#[derive(Default)]
struct Point {
    /// Cap of the NF's process in percent of a core; nothing without caps.
    nf_percent: Option<u32>,
    mpps: Samples,
    per_cpu: Samples,
    /// CPU time that both had, in percent of a core.
    nf_busy: Samples,
    io_busy: Samples,
}

/// An NF and a frame size, with a lane for each of [`MODELS`].
struct Workload {
    rules: u32,
    len: usize,
    lanes: Vec<Lane>,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let assignments = report.choose((1..10).map(|tenth| tenth * 10).collect(), vec![10, 50, 90]);
    let (rounds, seconds) = report.effort((7, 0.4), (2, 0.1));
    let mut scratch = Scratch::new("h2")?;
    let mut workloads = Vec::new();
    for rules in [10, 50] {
        for len in [64, 1024] {
            workloads.push(Workload::new(&mut scratch, rules, len, &assignments)?);
        }
    }
    for round in 0..=rounds {
        for lane in workloads.iter_mut().flat_map(|load| &mut load.lanes) {
            report.settle();
            // The first round warms up.
            let seconds = if round == 0 { seconds / 5.0 } else { seconds };
            lane.measure(seconds, round > 0)?;
        }
    }
    let rows: Vec<_> = workloads.iter().flat_map(Workload::rows).collect();
    let header = [
        "NF",
        "model",
        "NF's cap %",
        "Mpps",
        "spread",
        "Mpps per CPU-second",
        "NF used %",
        "I/O used %",
    ];
    table(
        "A core's worth, split between NF and I/O thread",
        &header,
        &rows,
    );
    for load in &workloads {
        load.figures(report);
        report.plot(load.plot());
    }
    no_static_assignment(report, &workloads, &assignments);
    Ok(())
}

/// What the best single assignment costs where another one would be better.
fn no_static_assignment(report: &mut Report, workloads: &[Workload], assignments: &[u32]) {
    let loss = |percent: u32| -> f64 {
        let losses = workloads.iter().map(|load| {
            let best = load.best().map_or(0.0, |point| point.mpps.median());
            let here = load.at(percent).map_or(0.0, |point| point.mpps.median());
            (1.0 - here / best) * 100.0
        });
        losses.fold(0.0, f64::max)
    };
    let least = assignments
        .iter()
        .map(|percent| (*percent, loss(*percent)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((percent, loss)) = least {
        let conditions = format!(
            "largest loss against the best assignment of each NF and size, with the one static \
             assignment for which it is least: {percent} % for the NF"
        );
        report.derived("h2.static_loss_percent", loss, "%", &conditions);
    }
}

impl Workload {
    fn new(
        scratch: &mut Scratch,
        rules: u32,
        len: usize,
        assignments: &[u32],
    ) -> anyhow::Result<Self> {
        let subject = Subject::Firewall {
            rules,
            flows: FLOWS,
        };
        let lanes = MODELS
            .into_iter()
            .map(|model| Lane::new(scratch, model, subject, len, assignments))
            .collect::<anyhow::Result<_>>()?;
        Ok(Workload { rules, len, lanes })
    }

    fn id(&self, what: &str) -> String {
        format!("h2.firewall{}.{}.{what}", self.rules, self.len)
    }

    fn points(&self) -> impl Iterator<Item = (Model, &Point)> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|lane| lane.points.iter().map(|point| (lane.model, point)))
    }

    /// The faster of both kinds of threads at an assignment.
    fn at(&self, percent: u32) -> Option<&Point> {
        let points = self.points().map(|(_, point)| point);
        fastest(points.filter(|point| point.nf_percent == Some(percent)))
    }

    fn best(&self) -> Option<&Point> {
        let points = self.points().map(|(_, point)| point);
        fastest(points.filter(|point| point.nf_percent.is_some()))
    }

    fn figures(&self, report: &mut Report) {
        for (model, point) in self.points() {
            let (id, conditions) = match point.nf_percent {
                None => (self.id("inline_mpps"), "inline, one core".to_owned()),
                Some(percent) => (
                    self.id(&format!("{}.nf{percent}_mpps", model.name())),
                    format!(
                        "NF capped at {percent} % of a core, I/O thread at {} % of another; {} Mpps per CPU-second",
                        100 - percent,
                        significant(point.per_cpu.median())
                    ),
                ),
            };
            report.figure(id, &point.mpps, "Mpps", &conditions);
        }
        let inline = self.points().find(|(model, _)| *model == Model::Inline);
        if let (Some(best), Some((_, inline))) = (self.best(), inline) {
            let percent = f64::from(best.nf_percent.unwrap_or_default());
            let conditions = "of the static assignments the one with the highest throughput";
            report.figure(self.id("best_mpps"), &best.mpps, "Mpps", conditions);
            report.derived(self.id("best_nf_percent"), percent, "%", conditions);
            let ratio = inline.mpps.median() / best.mpps.median();
            let conditions = "inline on one core / best static assignment of one core's worth";
            report.derived(self.id("inline_vs_best"), ratio, "ratio", conditions);
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.points().map(|(model, point)| {
            vec![
                format!("firewall{} {} B", self.rules, self.len),
                model.name().to_owned(),
                point
                    .nf_percent
                    .map_or("-".to_owned(), |percent| percent.to_string()),
                significant(point.mpps.median()),
                format!("{:.0} %", point.mpps.spread_percent()),
                significant(point.per_cpu.median()),
                format!("{:.0}", point.nf_busy.median()),
                format!("{:.0}", point.io_busy.median()),
            ]
        })
    }

    fn plot(&self) -> Plot {
        let line = |lane: &Lane| {
            let mut series = Series::new(lane.model.name());
            let [only] = &lane.points[..] else {
                for point in &lane.points {
                    series.push(f64::from(point.nf_percent.unwrap_or_default()), &point.mpps);
                }
                return series;
            };
            // Inline does not depend on the assignment: a line across.
            for percent in [10.0, 90.0] {
                series.push(percent, &only.mpps);
            }
            series
        };
        Plot {
            id: format!("h2.firewall{}.{}", self.rules, self.len),
            title: format!(
                "Firewall of {} rules, {} B: one core's worth of CPU time",
                self.rules, self.len
            ),
            x: Axis::linear("CPU time of the NF in %, the rest for its I/O thread"),
            y: Axis::linear("Mpps"),
            series: self.lanes.iter().map(line).collect(),
        }
    }
}

fn fastest<'a>(points: impl Iterator<Item = &'a Point>) -> Option<&'a Point> {
    highest(points, |point| &point.mpps)
}

impl Lane {
    fn new(
        scratch: &mut Scratch,
        model: Model,
        subject: Subject,
        len: usize,
        assignments: &[u32],
    ) -> anyhow::Result<Self> {
        let role = Role {
            core: Model::nf_core(),
            task: Task::Circle {
                subject,
                len,
                frames: looped::FRAMES,
            },
        };
        let nf = Looped::start(scratch, model, &[role])?;
        let mut cgroups = Cgroups::new()?;
        for pid in nf.pids() {
            cgroups.add(&[pid], None, None)?;
        }
        let point = |nf_percent| Point {
            nf_percent,
            ..Point::default()
        };
        let points = match model {
            Model::Inline => vec![point(None)],
            _ => assignments
                .iter()
                .map(|percent| point(Some(*percent)))
                .collect(),
        };
        Ok(Lane {
            model,
            nf,
            cgroups,
            points,
        })
    }

    fn measure(&mut self, seconds: f64, counts: bool) -> anyhow::Result<()> {
        for point in &mut self.points {
            if let Some(percent) = point.nf_percent {
                for (group, percent) in [percent, 100 - percent].into_iter().enumerate() {
                    self.cgroups
                        .set_cap(group, Some(Share::from_percent(percent)?))?;
                }
            }
            let run = self.nf.run(seconds)?;
            if counts {
                point.add(&run);
            }
        }
        Ok(())
    }
}

impl Point {
    fn add(&mut self, run: &Run) {
        let nf = run.processes[0];
        let frames = nf.frames as f64 / 1e6;
        self.mpps.push(frames / nf.seconds);
        self.per_cpu.push(frames / run.cpu_seconds());
        self.nf_busy.push(nf.cpu_seconds / nf.seconds * 100.0);
        self.io_busy.push(run.io_cpu_seconds / nf.seconds * 100.0);
    }
}
