//! E6: four flows of iperf3 through a host that inspects them. Alone, `ndpiReader` looks at every packet; with eDPI, none to all
//! four of the flows are elephants, which go straight out by XDP once nDPI has decided about them; of the others every packet is
//! handed to the classifier, beside its way through the kernel.

use super::inspected::{Rules, Told, during};
use super::topology::{FRONT, PORTS, Topology};
use super::{library, reader};
use crate::experiments::two_cores;
use crate::host::cpu;
use crate::report::{Report, significant, table};
use crate::statistics::Samples;
use nfluid_evnf::inspector::Exit;
use nfluid_testbed::interrupt;
use std::time::{Duration, Instant};

/// Who inspects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nobody,
    Reader,
    Edpi { elephants: usize },
}

struct Variant {
    by: By,
    gbps: Samples,
    /// Of the program that inspects, in percent of a core.
    cpu: Samples,
    /// Of all packets, in percent: straight out, looked at by nobody.
    forwarded: Samples,
    unseen: Samples,
}

impl Variant {
    fn id(&self) -> String {
        match self.by {
            By::Nobody => "none".to_owned(),
            By::Reader => "ndpi".to_owned(),
            By::Edpi { elephants } => (elephants * 100 / PORTS.len()).to_string(),
        }
    }

    fn name(&self) -> String {
        match self.by {
            By::Nobody => "the kernel's routing, nobody".to_owned(),
            By::Reader => "ndpiReader, every packet".to_owned(),
            By::Edpi { .. } => format!("eDPI, {} % elephants", self.id()),
        }
    }

    fn measure(&mut self, topology: &Topology, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        match self.by {
            By::Nobody => self.gbps.push(topology.transfer(time)?),
            By::Reader => {
                let reader = reader::start(&topology.host, FRONT, time)?;
                let before = cpu::process_seconds(reader.pid())?;
                let began = Instant::now();
                self.gbps.push(topology.transfer(time)?);
                let used = cpu::process_seconds(reader.pid())? - before;
                self.cpu.push(used * 100.0 / began.elapsed().as_secs_f64());
            }
            By::Edpi { elephants } => {
                let (gbps, told) =
                    during(topology, elephants, Rules::None, || topology.transfer(time))?;
                self.gbps.push(gbps);
                self.of(&told, began.elapsed());
            }
        }
        Ok(())
    }

    fn of(&mut self, told: &Told, time: Duration) {
        self.cpu.push(told.cpu_seconds * 100.0 / time.as_secs_f64());
        self.forwarded.push(told.percent(Exit::Forwarded));
        self.unseen.push(told.percent(Exit::Unseen));
    }
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    two_cores()?;
    library()?;
    let topology = Topology::new()?;
    let elephants = report.choose(&[0, 1, 2, 3, 4][..], &[0, 4][..]);
    let with = elephants.iter().map(|elephants| By::Edpi {
        elephants: *elephants,
    });
    let variant = |by| Variant {
        by,
        gbps: Samples::default(),
        cpu: Samples::default(),
        forwarded: Samples::default(),
        unseen: Samples::default(),
    };
    let mut variants: Vec<_> = [By::Nobody, By::Reader]
        .into_iter()
        .chain(with)
        .map(variant)
        .collect();
    let (rounds, seconds) = report.effort((5, 4), (1, 2));
    for _ in 0..rounds {
        for variant in &mut variants {
            interrupt::check()?;
            variant.measure(&topology, Duration::from_secs(seconds))?;
        }
    }
    show(report, &variants, seconds);
    Ok(())
}

fn show(report: &mut Report, variants: &[Variant], seconds: u64) {
    let how = format!(
        "four flows of iperf3, {seconds} s a round, no offloads, the ends on the same two cores"
    );
    let mut rows = Vec::new();
    for variant in variants {
        let id = variant.id();
        report.figure(format!("e6.{id}.gbps"), &variant.gbps, "Gbit/s", &how);
        let mut row = vec![variant.name(), significant(variant.gbps.median())];
        row.push(format!("{:.0} %", variant.gbps.spread_percent()));
        for (what, samples) in [
            ("cpu_percent", &variant.cpu),
            ("forwarded_percent", &variant.forwarded),
            ("unseen_percent", &variant.unseen),
        ] {
            if samples.values().is_empty() {
                row.push(String::new());
                continue;
            }
            report.figure(format!("e6.{id}.{what}"), samples, "%", &how);
            row.push(significant(samples.median()));
        }
        rows.push(row);
    }
    table(
        "four TCP flows through a host; CPU of the inspecting program in percent of a core, packets in percent",
        &[
            "inspected by",
            "Gbit/s",
            "spread",
            "CPU",
            "straight out",
            "not seen",
        ],
        &rows,
    );
    let of = |by| variants.iter().find(|variant| variant.by == by);
    let (all, none) = (By::Edpi { elephants: 4 }, By::Edpi { elephants: 0 });
    if let (Some(all), Some(none), Some(reader)) = (of(all), of(none), of(By::Reader)) {
        let ratio = |other: &Variant| -> Samples {
            let rounds = all.gbps.values().iter().zip(other.gbps.values());
            rounds.map(|(all, other)| all / other).collect()
        };
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
            &all.cpu,
            "%",
            &format!("the classifier's thread, 100 % elephants; {how}"),
        );
    }
}
