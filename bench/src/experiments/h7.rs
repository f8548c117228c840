//! H7: consolidation: ever more firewalls of 10 rules, 256 B, on the same cores, in every I/O model
//! (HyperNF, SoCC '17, fig. 7): what they forward together.

use super::fleet::{Fleet, Measured, Member, Plan};
use super::layout::Layout;
use super::models::Model;
use super::subject::Subject;
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::Task;
use crate::roles::fan::Fan;
use crate::roles::function::Manner;
use crate::statistics::Samples;
use nfluid_testbed::scratch::Scratch;

const LEN: usize = 256;
const RING: u32 = 256;
const BATCH: u32 = 64;
const FIREWALL: Subject = Subject::Firewall {
    rules: 10,
    flows: 1000,
};
/// NFs per core in the literature.
const PER_CORE: [usize; 6] = [1, 2, 3, 4, 5, 6];
/// NFs in all, beyond that.
const MANY: [usize; 5] = [12, 24, 36, 100, 200];

/// So many firewalls in one model.
struct Lane {
    model: Model,
    fleet: Fleet,
    /// Frames per second of all together, in millions.
    mpps: Samples,
    /// Frames per second of CPU time of NFs and I/O threads, in millions.
    per_cpu: Samples,
    lost: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let cores = Layout::here(Model::Inline).nfs.len();
    let (one_each, six_each) = (cores, 6 * cores);
    let counts = report.choose(counts(cores), vec![one_each, six_each]);
    let (rounds, seconds) = report.effort((7, 0.4), (2, 0.15));
    let mut rows = Vec::new();
    let mut plotted = [(); 2].map(|()| Model::ALL.map(|model| Series::new(model.name())));
    let mut inline = Vec::new();
    for &count in &counts {
        let mut scratch = Scratch::new("h7")?;
        let mut lanes = Model::ALL
            .into_iter()
            .map(|model| Lane::new(&mut scratch, model, count))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..=rounds {
            for lane in &mut lanes {
                report.settle();
                let measured = lane.fleet.measure(&scratch, seconds)?;
                // The first round warms up.
                if round > 0 {
                    lane.note(&measured);
                }
            }
        }
        for (at, lane) in lanes.iter().enumerate() {
            plotted[0][at].push(count as f64, &lane.mpps);
            plotted[1][at].push(count as f64, &lane.per_cpu);
            lane.figures(report, count);
            rows.push(lane.row(count));
        }
        // The samples alone: the processes end with their platform.
        let first = lanes.swap_remove(0);
        inline.push((count, [first.mpps, first.per_cpu]));
    }
    kept(report, &inline, [one_each, six_each]);
    let [by_clock, by_cpu] = plotted;
    plot(report, "mpps", "Mpps, all NFs together", by_clock);
    plot(report, "per_cpu", "Mpps per CPU-second", by_cpu);
    let header = [
        "NFs",
        "model",
        "Mpps by the clock",
        "spread",
        "Mpps per CPU-second",
        "late or lost",
    ];
    table("Consolidation", &header, &rows);
    Ok(())
}

fn counts(cores: usize) -> Vec<usize> {
    let few = PER_CORE.map(|count| count * cores);
    let most = few.into_iter().max().unwrap_or_default();
    let many = MANY.into_iter().filter(|count| *count > most);
    few.into_iter().chain(many).collect()
}

/// What is left of the throughput of one NF per core with six.
fn kept(report: &mut Report, inline: &[(usize, [Samples; 2])], [one, six]: [usize; 2]) {
    let of = |wanted| inline.iter().find(|(count, _)| *count == wanted);
    let (Some((_, one)), Some((_, six))) = (of(one), of(six)) else {
        return;
    };
    let percent = |six: &Samples, one: &Samples| six.median() / one.median() * 100.0;
    let conditions = "inline: 6 NFs per core against 1, medians";
    report.derived(
        "h7.kept_percent",
        percent(&six[0], &one[0]),
        "%",
        conditions,
    );
    report.derived(
        "h7.kept_per_cpu_percent",
        percent(&six[1], &one[1]),
        "%",
        conditions,
    );
}

fn plot(report: &mut Report, id: &str, axis: &str, series: [Series; Model::ALL.len()]) {
    report.plot(Plot {
        id: format!("h7.{id}"),
        title: format!("Firewalls of 10 rules, {LEN} B, on the same cores"),
        x: Axis::log("NFs"),
        y: Axis::linear(axis),
        series: series.into(),
    });
}

impl Lane {
    fn new(scratch: &mut Scratch, model: Model, count: usize) -> anyhow::Result<Self> {
        let layout = Layout::here(model);
        let member = |core: &usize| Member {
            core: *core,
            subject: FIREWALL,
            manner: Manner::HOSTED,
        };
        let traffic = layout.traffic_roles(count, |waits| Task::Fan {
            subject: FIREWALL,
            fan: Fan {
                len: LEN,
                batch: BATCH,
                window: RING,
                waits,
                pings: false,
            },
        });
        let plan = Plan {
            members: layout.nfs.iter().cycle().take(count).map(member).collect(),
            ring: RING,
            traffic,
            io: layout.io_role(model),
        };
        Ok(Lane {
            model,
            fleet: Fleet::start(scratch, plan)?,
            mpps: Samples::default(),
            per_cpu: Samples::default(),
            lost: 0,
        })
    }

    fn note(&mut self, measured: &Measured) {
        self.mpps.push(measured.mpps());
        self.per_cpu.push(measured.per_cpu_mpps());
        self.lost += measured.lost();
    }

    fn figures(&self, report: &mut Report, count: usize) {
        let (model, layout) = (self.model.name(), Layout::here(self.model));
        let io = match self.model {
            Model::Inline => "no I/O thread".to_owned(),
            Model::Split { .. } => format!("one I/O thread for all on core {}", layout.io),
            Model::Merge => "an I/O thread per NF on the NF's core".to_owned(),
            Model::Mix => "an I/O thread per NF on any core".to_owned(),
        };
        let conditions = format!(
            "{LEN} B, batch {BATCH}, rings of {RING} slots; NFs on {} core(s), traffic on {}; {io}; no caps",
            layout.nfs.len(),
            layout.traffic.len(),
        );
        let id = |what: &str| format!("h7.{count}.{model}.{what}");
        report.figure(id("mpps"), &self.mpps, "Mpps", &conditions);
        report.figure(id("per_cpu_mpps"), &self.per_cpu, "Mpps", &conditions);
    }

    fn row(&self, count: usize) -> Vec<String> {
        vec![
            count.to_string(),
            self.model.name().to_owned(),
            significant(self.mpps.median()),
            format!("{:.0} %", self.mpps.spread_percent()),
            significant(self.per_cpu.median()),
            self.lost.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn one_to_six_per_core_then_many() {
        assert_eq!(counts(1)[..7], [1, 2, 3, 4, 5, 6, 12]);
        assert_eq!(counts(6), [6, 12, 18, 24, 30, 36, 100, 200]);
    }
}
