//! H7: consolidation: increasing numbers of firewalls of 10 rules, 256 B, on the same cores, in every I/O model
//! (HyperNF, SoCC '17, fig. 7): their total throughput.

use crate::host::cpu::require_two_cores;
use crate::io_model::Model;
use crate::report::Report;
use crate::roles::Task;
use crate::roles::fan::Fan;
use crate::roles::function::Manner;
use crate::setups::fleet::{Fleet, Member, Plan};
use crate::setups::layout::Layout;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep, lines};
use crate::workload::Workload;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_testbed::scratch::Scratch;

const LEN: usize = 256;
const RING: u32 = 256;
const BATCH: u32 = 64;
const FIREWALL: Workload = Workload::Firewall {
    rules: 10,
    flows: 1000,
};
/// NFs per core in the literature.
const PER_CORE: [usize; 6] = [1, 2, 3, 4, 5, 6];
/// Further total numbers of NFs.
const MANY: [usize; 5] = [12, 24, 36, 100, 200];

/// The quantities of all NFs together.
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(
        ".mpps",
        "Mpps",
        &[
            ("Mpps by the clock", Shown::Median),
            ("spread", Shown::Spread),
        ],
    ),
    // Of the CPU time of NFs and I/O threads.
    Quantity::new(
        ".per_cpu_mpps",
        "Mpps",
        &[("Mpps per CPU-second", Shown::Median)],
    ),
    Quantity::shown(&[("late or lost", Shown::Sum)]),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let cores = Layout::here(Model::Inline).nfs.len();
    let (one_each, six_each) = (cores, 6 * cores);
    let counts = report.choose(counts(cores), vec![one_each, six_each]);
    let (rounds, seconds) = report.effort((7, 0.4), (2, 0.15));
    let mut sweep = Sweep::new(&["NFs", "model"], QUANTITIES);
    for &count in &counts {
        let mut scratch = Scratch::new("h7")?;
        let sides = Model::ALL
            .into_iter()
            .map(|model| side(&mut scratch, model, count));
        let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
        let rows = sweep.run(report, rounds, &mut sides, |fleet, _| {
            let measured = fleet.measure(&scratch, seconds)?;
            Ok([
                measured.mpps(),
                measured.per_cpu_mpps(),
                measured.lost() as f64,
            ])
        })?;
        sweep.report(report, rows);
    }
    kept(report, sweep.rows(), [one_each, six_each]);
    plot(
        report,
        "mpps",
        "Mpps, all NFs together",
        lines(sweep.rows(), 0),
    );
    plot(
        report,
        "per_cpu",
        "Mpps per CPU-second",
        lines(sweep.rows(), 1),
    );
    sweep.print("Consolidation");
    Ok(())
}

fn counts(cores: usize) -> Vec<usize> {
    let few = PER_CORE.map(|count| count * cores);
    let most = few.into_iter().max().unwrap_or_default();
    let many = MANY.into_iter().filter(|count| *count > most);
    few.into_iter().chain(many).collect()
}

/// Reports the fraction of one NF's throughput per core that remains with six NFs per core.
fn kept(report: &mut Report, rows: &[Row<3>], [one, six]: [usize; 2]) {
    let inline = |count: usize| {
        let mut inline = rows.iter().filter(|row| row.line == Model::Inline.name());
        inline.find(|row| row.key[0] == count.to_string())
    };
    let (Some(one), Some(six)) = (inline(one), inline(six)) else {
        return;
    };
    for (quantity, id) in ["h7.kept_percent", "h7.kept_per_cpu_percent"]
        .into_iter()
        .enumerate()
    {
        let medians = [six, one].map(|row| row.samples[quantity].median());
        let percent = medians[0] / medians[1] * 100.0;
        let conditions = "inline: 6 NFs per core against 1, medians";
        report.derived(id, percent, "%", conditions);
    }
}

fn plot(report: &mut Report, id: &str, axis: &str, series: Vec<Series>) {
    report.plot(Plot {
        id: format!("h7.{id}"),
        title: format!("Firewalls of 10 rules, {LEN} B, on the same cores"),
        x: Axis::log("NFs"),
        y: Axis::linear(axis),
        series,
    });
}

/// Starts `count` firewalls in one model.
fn side(scratch: &mut Scratch, model: Model, count: usize) -> anyhow::Result<Side<Fleet>> {
    let layout = Layout::here(model);
    let member = |core: &usize| Member {
        core: *core,
        workload: FIREWALL,
        manner: Manner::HOSTED,
    };
    let traffic = layout.traffic_roles(count, |waits| Task::Fan {
        workload: FIREWALL,
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
    let key = [count.to_string(), model.name().to_owned()];
    let id = format!("h7.{count}.{}", model.name());
    Ok(Side::new(key, id, Fleet::start(scratch, plan)?)
        .under(&conditions(model, &layout))
        .on(model.name(), count as f64))
}

fn conditions(model: Model, layout: &Layout) -> String {
    let io = match model {
        Model::Inline => "no I/O thread".to_owned(),
        Model::Split { .. } => format!("one I/O thread for all on core {}", layout.io),
        Model::Merge => "an I/O thread per NF on the NF's core".to_owned(),
        Model::Mix => "an I/O thread per NF on any core".to_owned(),
    };
    format!(
        "{LEN} B, batch {BATCH}, rings of {RING} slots; NFs on {} core(s), traffic on {}; {io}; no caps",
        layout.nfs.len(),
        layout.traffic.len(),
    )
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
