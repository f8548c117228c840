//! R4: ping through an idle NF that shares its core with busy ones (Sharing CPUs by congestion control,
//! KBNets '17). The pings are sent and timed by the process that keeps the others busy, so that no other
//! process has to be woken for them. Each NF has a cgroup of its own with the same weight, as the platform
//! gives it.

use super::fleet::Fleet;
use super::forwarders::{LEN, RING, forwarders, traffic};
use super::two_cores;
use crate::plot::{Axis, Plot, Series};
use crate::report::{Report, significant, table};
use crate::roles::Waits;
use crate::roles::function::Manner;
use crate::statistics::Samples;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::Scratch;

/// Busy NFs beside the idle one.
const BUSY: [usize; 3] = [0, 10, 25];
/// What the busy ones do on each frame, and after a batch.
const MANNERS: [(&str, u32, bool); 4] = [
    ("plain", 0, false),
    ("plain-yield", 0, true),
    ("1000", 1000, false),
    ("1000-yield", 1000, true),
];

/// An idle NF among busy ones.
struct Lane {
    manner: &'static str,
    busy: usize,
    fleet: Fleet,
    _groups: Cgroups,
    median: Samples,
    p99: Samples,
    /// Frames per second through the busy ones, in millions.
    mpps: Samples,
    lost: u64,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    let manners = report.choose(MANNERS.to_vec(), MANNERS[..1].to_vec());
    let (rounds, seconds) = report.effort((7, 1.0), (3, 0.4));
    let (mut rows, mut plotted) = (Vec::new(), Vec::new());
    for (name, cycles, yields) in manners {
        let mut scratch = Scratch::new("r4")?;
        let manner = Manner {
            cycles,
            waits: Waits::Sleeping,
            yields,
        };
        let mut lanes = BUSY
            .into_iter()
            .map(|busy| Lane::new(&mut scratch, name, manner, busy))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..=rounds {
            for lane in &mut lanes {
                report.settle();
                // The first round warms up.
                lane.measure(&scratch, seconds, round > 0)?;
            }
        }
        let [mut median, mut p99] =
            ["median", "p99"].map(|what| Series::new(format!("{name}, {what}")));
        for lane in &lanes {
            median.push(lane.busy as f64, &lane.median);
            p99.push(lane.busy as f64, &lane.p99);
            lane.figures(report);
            rows.push(lane.row());
        }
        plotted.extend([median, p99]);
    }
    report.plot(Plot {
        id: "r4".to_owned(),
        title: "Ping through an idle NF among busy ones on one core".to_owned(),
        x: Axis::linear("busy NFs"),
        y: Axis::log("round trip in us"),
        series: plotted,
    });
    let header = [
        "busy NFs are",
        "busy NFs",
        "median us",
        "p99 us",
        "Mpps of the busy",
        "lost",
    ];
    table("Ping through an idle NF", &header, &rows);
    Ok(())
}

impl Lane {
    fn new(
        scratch: &mut Scratch,
        name: &'static str,
        manner: Manner,
        busy: usize,
    ) -> anyhow::Result<Self> {
        let mut plan = forwarders(busy + 1, manner, RING);
        plan.members[busy].manner = Manner::HOSTED;
        plan.traffic = vec![traffic(LEN, RING, true)];
        let fleet = Fleet::start(scratch, plan)?;
        Ok(Lane {
            manner: name,
            busy,
            _groups: fleet.share()?,
            fleet,
            median: Samples::default(),
            p99: Samples::default(),
            mpps: Samples::default(),
            lost: 0,
        })
    }

    fn measure(&mut self, scratch: &Scratch, seconds: f64, counts: bool) -> anyhow::Result<()> {
        let measured = self.fleet.measure(scratch, seconds)?;
        if counts {
            self.mpps.push(measured.mpps());
            self.lost += measured.lost();
            for outcome in &measured.traffic {
                self.median.push(outcome.median_us);
                self.p99.push(outcome.p99_us);
            }
        }
        Ok(())
    }

    fn figures(&self, report: &mut Report) {
        let conditions = format!(
            "64 B now and then through an NF that sleeps, beside {} forwarders ({}) of {LEN} B frames \
             that always have work, on one core; traffic on the other",
            self.busy, self.manner
        );
        let id = |what: &str| match self.manner {
            "plain" => format!("r4.{}.{what}", self.busy),
            other => format!("r4.{other}.{}.{what}", self.busy),
        };
        report.figure(id("median_us"), &self.median, "us", &conditions);
        report.figure(id("p99_us"), &self.p99, "us", &conditions);
        report.figure(id("busy_mpps"), &self.mpps, "Mpps", &conditions);
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.manner.to_owned(),
            self.busy.to_string(),
            significant(self.median.median()),
            significant(self.p99.median()),
            significant(self.mpps.median()),
            self.lost.to_string(),
        ]
    }
}
