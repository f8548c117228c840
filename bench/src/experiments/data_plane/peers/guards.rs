//! Security groups on a port: nfluid's guard, and the kernel's bridge with rules and connection tracking, as Neutron's hybrid driver has
//! it; each beside itself without a filter.

use super::kernel::{self, GROUP_RULES};
use super::resources::Resources;
use super::way::{Contender, Way};
use super::{MPPS, PER_CPU, PER_CPU_ALL, QUANTITIES, SIZES, Start, fastest, nfluid, sides};
use crate::host::cpu::require_two_cores;
use crate::report::Report;
use crate::roles::work::FLOW;
use crate::sweep::Sweep;
use crate::workload::Workload;

/// Name in figures, and set-ups, of which the fastest is the figure.
const WAYS: [(&str, &[Start]); 4] = [
    ("guard", &[guard]),
    (
        "hybrid",
        &[kernel::hybrid_one_core, kernel::hybrid_two_cores],
    ),
    ("bridge", &[nfluid::bridge]),
    (
        "linux_bridge",
        &[kernel::bridge_one_core, kernel::bridge_two_cores],
    ),
];

fn guard(resources: &mut Resources) -> anyhow::Result<Box<dyn Way>> {
    let workload = Workload::Guard {
        rules: GROUP_RULES,
        flows: FLOW + 1,
    };
    let name = format!(
        "guard of a port with {GROUP_RULES} rules, {}",
        workload.traffic()
    );
    nfluid::around(resources, workload, &name)
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let mut resources = Resources::new("guards", &SIZES, 0)?;
    let mut contenders = Vec::new();
    for (peer, ways) in WAYS {
        for start in &ways[..report.choose(ways.len(), 1)] {
            let way = start(&mut resources)?;
            contenders.push(Contender { peer, way });
        }
    }
    let (rounds, seconds) = report.effort((11, 0.5), (2, 0.2));
    let mut sides = sides("m2", &contenders);
    let [mpps, per_cpu, per_cpu_all, ..] = QUANTITIES;
    let mut sweep = Sweep::new(&["way", "size"], [mpps, per_cpu, per_cpu_all]);
    sweep.run(report, rounds, &mut sides, |(at, len), counts| {
        let seconds = if counts { seconds } else { seconds / 2.0 };
        let [mpps, own, all, _, _] = contenders[*at].round(*len, seconds)?;
        Ok([mpps, own, all])
    })?;
    sweep.print("A port with security groups, and without");
    for len in SIZES {
        for (peer, _) in WAYS {
            if let Some(row) = fastest(sweep.rows(), &format!("m2.{peer}.{len}")) {
                sweep.report_some(report, row, &[MPPS, PER_CPU, PER_CPU_ALL]);
            }
        }
        let of = |peer: &str| fastest(sweep.rows(), &format!("m2.{peer}.{len}"));
        if let Some((guard, hybrid)) = of("guard").zip(of("hybrid")) {
            report.figure(
                format!("m2.guard.{len}.vs_hybrid"),
                &guard.samples[MPPS].ratios(&hybrid.samples[MPPS]),
                "ratio",
                &format!("in turn; {GROUP_RULES} rules; one flow, established"),
            );
        }
    }
    Ok(())
}
