//! R4: ping through an idle NF that shares its core with busy NFs (Sharing CPUs by congestion control, KBNets '17). The
//! process that keeps the others busy sends and times the pings, so that no other process has to be woken for them.
//! Each NF has its own cgroup with the same weight, as on the platform.

use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::roles::function::Manner;
use crate::roles::work::Waits;
use crate::setups::fleet::Fleet;
use crate::setups::forwarders::{LEN, RING, forwarders, traffic};
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;

/// Numbers of busy NFs beside the idle NF.
const BUSY: [usize; 3] = [0, 10, 25];
/// Work of the busy NFs on each frame, and their behaviour after a batch.
const MANNERS: [(&str, u32, bool); 4] = [
    ("plain", 0, false),
    ("plain-yield", 0, true),
    ("1000", 1000, false),
    ("1000-yield", 1000, true),
];

/// The quantities of a repetition, in the order of [`Neighbours::measure`].
const QUANTITIES: [Quantity; 4] = [
    Quantity::new(".median_us", "us", &[("median us", Shown::Median)]),
    Quantity::new(".p99_us", "us", &[("p99 us", Shown::Median)]),
    // Frames per second through the busy NFs.
    Quantity::new(".busy_mpps", "Mpps", &[("Mpps of the busy", Shown::Median)]),
    Quantity::shown(&[("lost", Shown::Sum)]),
];

/// An idle NF among busy ones.
struct Neighbours {
    fleet: Fleet,
    _groups: Cgroups,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let manners = report.choose(MANNERS.to_vec(), MANNERS[..1].to_vec());
    let (rounds, seconds) = report.effort((7, 1.0), (3, 0.4));
    let mut sweep = Sweep::new(&["busy NFs are", "busy NFs"], QUANTITIES);
    let mut plotted = Vec::new();
    for (name, cycles, yields) in manners {
        let mut scratch = Scratch::new("r4")?;
        let manner = Manner {
            cycles,
            waits: Waits::Sleeping,
            yields,
        };
        let sides = BUSY
            .into_iter()
            .map(|busy| side(&mut scratch, name, manner, busy));
        let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
        let rows = sweep.run(report, rounds, &mut sides, |neighbours, _| {
            neighbours.measure(&scratch, seconds)
        })?;
        sweep.report(report, rows.clone());
        for (quantity, what) in ["median", "p99"].into_iter().enumerate() {
            let lines = lines(&sweep.rows()[rows.clone()], quantity).into_iter();
            plotted.extend(lines.map(|line| Series {
                name: format!("{}, {what}", line.name),
                ..line
            }));
        }
    }
    report.plot(Plot {
        id: "r4".to_owned(),
        title: "Ping through an idle NF among busy ones on one core".to_owned(),
        x: Axis::linear("busy NFs"),
        y: Axis::log("round trip in us"),
        series: plotted,
    });
    sweep.print("Ping through an idle NF");
    Ok(())
}

fn side(
    scratch: &mut Scratch,
    name: &str,
    manner: Manner,
    busy: usize,
) -> anyhow::Result<Side<Neighbours>> {
    let conditions = format!(
        "64 B now and then through an NF that sleeps, beside {busy} forwarders ({name}) of {LEN} B frames \
         that always have work, on one core; traffic on the other"
    );
    let id = match name {
        "plain" => format!("r4.{busy}"),
        other => format!("r4.{other}.{busy}"),
    };
    let key = [name.to_owned(), busy.to_string()];
    Ok(Side::new(key, id, Neighbours::new(scratch, manner, busy)?)
        .under(&conditions)
        .on(name, busy as f64))
}

impl Neighbours {
    fn new(scratch: &mut Scratch, manner: Manner, busy: usize) -> anyhow::Result<Self> {
        let mut plan = forwarders(busy + 1, manner, RING);
        plan.members[busy].manner = Manner::HOSTED;
        plan.traffic = vec![traffic(LEN, RING, true)];
        let fleet = Fleet::start(scratch, plan)?;
        Ok(Neighbours {
            _groups: fleet.share()?,
            fleet,
        })
    }

    fn measure(&mut self, scratch: &Scratch, seconds: f64) -> anyhow::Result<[f64; 4]> {
        let measured = self.fleet.measure(scratch, seconds)?;
        let pings = measured.traffic.first().context("no traffic")?;
        Ok([
            pings.median_us,
            pings.p99_us,
            measured.mpps(),
            measured.lost() as f64,
        ])
    }
}
