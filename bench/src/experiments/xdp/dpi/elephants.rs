//! E6: four flows of iperf3 through a host that inspects them. Alone, `ndpiReader` inspects every packet; with eDPI,
//! none to all four of the flows are elephants, which XDP forwards directly once nDPI has decided about them; of the
//! other flows every packet is copied to the classifier, beside its path through the kernel.

use super::inspected::{Rules, during};
use super::topology::{FRONT, PORTS, Topology};
use super::{library, reader};
use crate::host::cpu;
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use nfluid_evnf::inspector::Exit;
use std::time::{Duration, Instant};

/// The inspecting program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nobody,
    Reader,
    Edpi { elephants: usize },
}

/// The quantities of a repetition, in the order of [`By::measure`].
const QUANTITIES: [Quantity; 4] = [
    Quantity::new(
        ".gbps",
        "Gbit/s",
        &[("Gbit/s", Shown::Median), ("spread", Shown::Spread)],
    ),
    // CPU time of the inspecting program, in percent of a core.
    Quantity::new(".cpu_percent", "%", &[("CPU", Shown::Median)]),
    // Packets forwarded by XDP without inspection, in percent of all.
    Quantity::new(
        ".forwarded_percent",
        "%",
        &[("straight out", Shown::Median)],
    ),
    Quantity::new(".unseen_percent", "%", &[("not seen", Shown::Median)]),
];

impl By {
    fn id(self) -> String {
        match self {
            By::Nobody => "none".to_owned(),
            By::Reader => "ndpi".to_owned(),
            By::Edpi { elephants } => (elephants * 100 / PORTS.len()).to_string(),
        }
    }

    fn name(self) -> String {
        match self {
            By::Nobody => "the kernel's routing, nobody".to_owned(),
            By::Reader => "ndpiReader, every packet".to_owned(),
            By::Edpi { .. } => format!("eDPI, {} % elephants", self.id()),
        }
    }

    fn measure(self, topology: &Topology, time: Duration) -> anyhow::Result<[f64; 4]> {
        let percent = |seconds: f64, time: Duration| seconds * 100.0 / time.as_secs_f64();
        let began = Instant::now();
        Ok(match self {
            By::Nobody => [topology.transfer(time)?, f64::NAN, f64::NAN, f64::NAN],
            By::Reader => {
                let reader = reader::start(&topology.host, FRONT, time)?;
                let before = cpu::process_seconds(reader.pid())?;
                let began = Instant::now();
                let gbps = topology.transfer(time)?;
                let used = cpu::process_seconds(reader.pid())? - before;
                [gbps, percent(used, began.elapsed()), f64::NAN, f64::NAN]
            }
            By::Edpi { elephants } => {
                let (gbps, inspection) =
                    during(topology, elephants, Rules::None, || topology.transfer(time))?;
                [
                    gbps,
                    percent(inspection.cpu_seconds, began.elapsed()),
                    inspection.percent(Exit::Forwarded),
                    inspection.percent(Exit::Unseen),
                ]
            }
        })
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    library()?;
    let topology = Topology::new()?;
    let elephants = report.choose(&[0, 1, 2, 3, 4][..], &[0, 4][..]);
    let (rounds, seconds) = report.effort((5, 4), (1, 2));
    let how = format!(
        "four flows of iperf3, {seconds} s a round, no offloads, the ends on the same two cores"
    );
    let with = elephants.iter().map(|elephants| By::Edpi {
        elephants: *elephants,
    });
    let all = [By::Nobody, By::Reader].into_iter().chain(with);
    let side = |by: By| Side::new([by.name()], format!("e6.{}", by.id()), by).under(&how);
    let mut sides: Vec<_> = all.map(side).collect();
    let mut sweep = Sweep::plain(&["inspected by"], QUANTITIES);
    let rows = sweep.run(report, rounds, &mut sides, |by, _| {
        by.measure(&topology, Duration::from_secs(seconds))
    })?;
    sweep.report(report, rows);
    sweep.print(
        "four TCP flows through a host; CPU of the inspecting program in percent of a core, packets in percent",
    );
    compare(report, sweep.rows(), &how);
    Ok(())
}

/// Compares all flows as elephants with no elephants, and with nDPI alone.
fn compare(report: &mut Report, rows: &[Row<4>], how: &str) {
    let of = |by: By| rows.iter().find(|row| row.key == [by.name()]);
    let (all, none) = (By::Edpi { elephants: 4 }, By::Edpi { elephants: 0 });
    if let (Some(all), Some(none), Some(reader)) = (of(all), of(none), of(By::Reader)) {
        let ratio = |other: &Row<4>| all.samples[0].ratios(&other.samples[0]);
        report.figure(
            "e6.ratio",
            &ratio(none),
            "x",
            &format!("100 % / 0 % elephants; {how}"),
        );
        let against = format!("100 % elephants / ndpiReader alone; {how}");
        report.figure("e6.vs_ndpi_ratio", &ratio(reader), "x", &against);
        report.figure(
            "e6.cpu_percent",
            &all.samples[1],
            "%",
            &format!("the classifier's thread, 100 % elephants; {how}"),
        );
    }
}
