//! H2: static assignments of CPU time to an NF and to its I/O thread (HyperNF, SoCC '17, fig. 2).
//!
//! `split` on two cores, the NF's process capped at 10 to 90 % of a core and the I/O thread at the rest, so that both
//! together have one core's worth; firewalls of 10 and 50 rules, 64 and 1024 B. Frames circulate through the NF: no
//! generator needs a core. Compared with the same NF inline on one core, which needs no assignment.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::{Report, significant};
use crate::roles::{Role, Task};
use crate::setups::loopback::{self, Loopback};
use crate::sweep::{Quantity, Row, Shown, Side, Sweep, lines};
use crate::workload::Workload;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::highest;
use nfluid_sandbox::cgroup::Share;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;
use std::cell::RefCell;
use std::rc::Rc;

const FLOWS: u32 = 1000;
const MODELS: [Model; 3] = [
    Model::Inline,
    Model::Split { polls: false },
    Model::Split { polls: true },
];

/// The quantities of a repetition, in the order of [`Server::measure`].
const QUANTITIES: [Quantity; 4] = [
    Quantity::new(
        "_mpps",
        "Mpps",
        &[("Mpps", Shown::Median), ("spread", Shown::Spread)],
    ),
    Quantity::shown(&[("Mpps per CPU-second", Shown::Median)]),
    // CPU time that both sides used, in percent of a core.
    Quantity::shown(&[("NF used %", Shown::Whole)]),
    Quantity::shown(&[("I/O used %", Shown::Whole)]),
];
const MPPS: usize = 0;
const PER_CPU: usize = 1;

/// An NF and a frame size.
#[derive(Clone, Copy)]
struct Case {
    rules: u32,
    len: usize,
}

/// An NF with frames of one size, in one model.
struct Server {
    nf: Loopback,
    /// Cgroups of the NF's process and of its I/O thread's.
    cgroups: Cgroups,
}

/// A server, and the cap of the NF's process in percent of a core; inline has none.
struct Assignment {
    server: Rc<RefCell<Server>>,
    nf_percent: Option<u32>,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let percents = report.choose((1..10).map(|tenth| tenth * 10).collect(), vec![10, 50, 90]);
    let (rounds, seconds) = report.effort((7, 0.4), (2, 0.1));
    let mut scratch = Scratch::new("h2")?;
    let (mut cases, mut sides) = (Vec::new(), Vec::new());
    for rules in [10, 50] {
        for len in [64, 1024] {
            let (case, first) = (Case { rules, len }, sides.len());
            for model in MODELS {
                sides.extend(case.sides(&mut scratch, model, &percents)?);
            }
            cases.push((case, first..sides.len()));
        }
    }
    let mut sweep = Sweep::new(&["NF", "model", "NF's cap %"], QUANTITIES);
    sweep.run(report, rounds, &mut sides, |side, counts| {
        let seconds = if counts { seconds } else { seconds / 5.0 };
        side.measure(seconds)
    })?;
    for row in sweep.rows_mut() {
        if let Some(percent) = cap(row) {
            row.conditions = format!(
                "NF capped at {percent} % of a core, I/O thread at {} % of another; {} Mpps per CPU-second",
                100 - percent,
                significant(row.samples[PER_CPU].median())
            );
        }
    }
    sweep.print("A core's worth, split between NF and I/O thread");
    for (case, rows) in &cases {
        sweep.report(report, rows.clone());
        let rows = &sweep.rows()[rows.clone()];
        case.best_figures(report, rows);
        report.plot(case.plot(rows));
    }
    let rows = cases.iter().map(|(_, rows)| &sweep.rows()[rows.clone()]);
    no_static_assignment(report, &rows.collect::<Vec<_>>(), &percents);
    Ok(())
}

/// Returns the cap of the NF's process in percent of a core; `None` without caps.
fn cap(row: &Row<4>) -> Option<u32> {
    row.key[2].parse().ok()
}

/// Returns the fastest of the rows with a cap.
fn best(rows: &[Row<4>]) -> Option<&Row<4>> {
    let capped = rows.iter().filter(|row| cap(row).is_some());
    highest(capped, |row| &row.samples[MPPS])
}

/// Returns the faster of both kinds of threads at an assignment.
fn at(rows: &[Row<4>], percent: u32) -> Option<&Row<4>> {
    let there = rows.iter().filter(|row| cap(row) == Some(percent));
    highest(there, |row| &row.samples[MPPS])
}

/// Reports the loss of the best single assignment in cases where another assignment is better.
fn no_static_assignment(report: &mut Report, cases: &[&[Row<4>]], percents: &[u32]) {
    let mpps = |row: Option<&Row<4>>| row.map_or(0.0, |row| row.samples[MPPS].median());
    let loss = |percent: u32| -> f64 {
        let losses = cases
            .iter()
            .map(|rows| (1.0 - mpps(at(rows, percent)) / mpps(best(rows))) * 100.0);
        losses.fold(0.0, f64::max)
    };
    let least = percents
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

impl Case {
    /// Returns the NF in one model with each assignment; inline has only one.
    fn sides(
        self,
        scratch: &mut Scratch,
        model: Model,
        percents: &[u32],
    ) -> anyhow::Result<Vec<Side<Assignment>>> {
        let server = Rc::new(RefCell::new(Server::new(scratch, model, self)?));
        let caps = match model {
            Model::Inline => vec![None],
            _ => percents.iter().copied().map(Some).collect(),
        };
        let side = |nf_percent: Option<u32>| {
            let shown = nf_percent.map_or("-".to_owned(), |percent| percent.to_string());
            let name = format!("firewall{} {} B", self.rules, self.len);
            let id = match nf_percent {
                None => self.id("inline"),
                Some(percent) => self.id(&format!("{}.nf{percent}", model.name())),
            };
            let assignment = Assignment {
                server: Rc::clone(&server),
                nf_percent,
            };
            Side::new([name, model.name().to_owned(), shown], id, assignment)
                .under("inline, one core")
                .on(model.name(), nf_percent.unwrap_or_default())
        };
        Ok(caps.into_iter().map(side).collect())
    }

    fn id(self, what: &str) -> String {
        format!("h2.firewall{}.{}.{what}", self.rules, self.len)
    }

    fn best_figures(self, report: &mut Report, rows: &[Row<4>]) {
        let inline = rows.iter().find(|row| cap(row).is_none());
        if let (Some(best), Some(inline)) = (best(rows), inline) {
            let [inline, mpps] = [inline, best].map(|row| &row.samples[MPPS]);
            let percent = f64::from(cap(best).unwrap_or_default());
            let conditions = "of the static assignments the one with the highest throughput";
            report.figure(self.id("best_mpps"), mpps, "Mpps", conditions);
            report.derived(self.id("best_nf_percent"), percent, "%", conditions);
            let ratio = inline.median() / mpps.median();
            let conditions = "inline on one core / best static assignment of one core's worth";
            report.derived(self.id("inline_vs_best"), ratio, "ratio", conditions);
        }
    }

    fn plot(self, rows: &[Row<4>]) -> Plot {
        let mut series = lines(rows, MPPS);
        let inline = rows.iter().find(|row| cap(row).is_none());
        if let (Some(line), Some(row)) = (series.first_mut(), inline) {
            // Inline does not depend on the assignment: a horizontal line.
            *line = Series::new(row.line.as_str());
            for percent in [10.0, 90.0] {
                line.push(percent, &row.samples[MPPS]);
            }
        }
        Plot {
            id: format!("h2.firewall{}.{}", self.rules, self.len),
            title: format!(
                "Firewall of {} rules, {} B: one core's worth of CPU time",
                self.rules, self.len
            ),
            x: Axis::linear("CPU time of the NF in %, the rest for its I/O thread"),
            y: Axis::linear("Mpps"),
            series,
        }
    }
}

impl Server {
    fn new(scratch: &mut Scratch, model: Model, case: Case) -> anyhow::Result<Self> {
        let workload = Workload::Firewall {
            rules: case.rules,
            flows: FLOWS,
        };
        let role = Role {
            core: Model::nf_core(),
            task: Task::Circle {
                workload,
                len: case.len,
                frames: loopback::FRAMES,
            },
        };
        let nf = Loopback::start(scratch, model, &[role])?;
        let mut cgroups = Cgroups::new()?;
        for pid in nf.pids() {
            cgroups.add(&[pid], None, None)?;
        }
        Ok(Server { nf, cgroups })
    }

    fn measure(&mut self, nf_percent: Option<u32>, seconds: f64) -> anyhow::Result<[f64; 4]> {
        if let Some(percent) = nf_percent {
            for (group, percent) in [percent, 100 - percent].into_iter().enumerate() {
                let cap = Share::from_percent(percent)?;
                self.cgroups.set_cap(group, Some(cap))?;
            }
        }
        let run = self.nf.run(seconds)?;
        let nf = run.processes[0];
        let frames = nf.frames as f64 / 1e6;
        Ok([
            frames / nf.seconds,
            frames / run.cpu_seconds(),
            nf.cpu_seconds / nf.seconds * 100.0,
            run.io_cpu_seconds / nf.seconds * 100.0,
        ])
    }
}

impl Assignment {
    fn measure(&self, seconds: f64) -> anyhow::Result<[f64; 4]> {
        self.server.borrow_mut().measure(self.nf_percent, seconds)
    }
}
