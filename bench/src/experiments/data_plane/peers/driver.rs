//! Programs on DPDK, unchanged, over nfluid's driver (H13): testpmd forwards over it, over memif and over vhost-user, with a
//! core for itself and on the core of its traffic.

use super::dpdk::{Ports, start_with};
use super::polling::{FORWARDING_CORE, TRAFFIC};
use super::resources::Resources;
use super::way::Contender;
use crate::dpdk::driver;
use crate::dpdk::endpoint::Endpoint;
use crate::host::cpu::require_two_cores;
use crate::host::forwards::Forwards;
use crate::report::Report;
use crate::sweep::{Quantity, Row, Shown, Side, Sweep};
use nfluid_figures::statistics::{Samples, highest};
use nfluid_testbed::interrupt;
use std::time::Duration;

const SIZES: [usize; 2] = [64, 1514];
/// Time that a program on DPDK has to start.
const SETTLES: Duration = Duration::from_secs(4);
/// Processes on DPDK at a time: in a full run, and in a quick one.
const PROCESSES: [usize; 2] = [12, 6];
const QUANTITIES: [Quantity; 3] = [
    Quantity::new(".per_cpu", "frames/s", &[("per CPU-second", Shown::Whole)])
        .meaning("CPU time of what forwards"),
    Quantity::MPPS,
    Quantity::new(
        ".per_cpu_all",
        "frames/s",
        &[("traffic's too", Shown::Whole)],
    )
    .meaning("CPU time of every process"),
];
const PER_CPU: usize = 0;

/// Peers of nfluid's driver, by name, each with all its ways, and how many of these are in a quick run.
const RIVALS: [(&str, &[Ports], usize); 2] = [
    (
        "memif",
        &[
            Ports::Memif { zero_copy: true },
            Ports::Memif { zero_copy: false },
        ],
        1,
    ),
    ("vhost", &[Ports::VirtioUser, Ports::Vhost], 0),
];

/// Where the traffic is, beside the forwarder: name in figures, and the process.
const PLACES: [(&str, Endpoint); 2] = [
    ("", TRAFFIC),
    (
        ".samecore",
        Endpoint {
            core: FORWARDING_CORE,
            yields: true,
            ..TRAFFIC
        },
    ),
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let [full, quick] = PROCESSES;
    let mut resources = Resources::new("dpdk", &SIZES, report.choose(full, quick))?;
    for (place, traffic) in &PLACES {
        compare(report, &mut resources, place, traffic)?;
    }
    idle(report, &mut resources)
}

/// CPU time of l3fwd-power, which sleeps until a receive interrupt comes, without traffic.
fn idle(report: &mut Report, resources: &mut Resources) -> anyhow::Result<()> {
    let instance = resources.scratch.instance(2, 256, 64)?;
    let dpdk = resources.dpdk()?;
    let built = driver::build()?;
    let program = match driver::example(&built, "l3fwd-power") {
        Ok(program) => program,
        Err(error) => {
            println!("l3fwd-power left out: {error:#}");
            return Ok(());
        }
    };
    dpdk.load(built);
    let devices = [0, 1].map(|index| driver::device(index, false));
    let arguments = [
        "-p",
        "3",
        "-P",
        "--config",
        "(0,0,0),(1,0,0)",
        "--interrupt-only",
        "--no-numa",
    ];
    let program = (program.as_path(), arguments.as_slice());
    let mut service = dpdk.start_program(&instance, program, FORWARDING_CORE, &devices)?;
    let (rounds, seconds) = report.effort((5, 2.0), (1, 1.0));
    std::thread::sleep(report.choose(SETTLES, SETTLES / 2));
    let mut percent = Samples::default();
    for _ in 0..rounds {
        interrupt::check()?;
        let before = service.cpu_seconds()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        percent.push((service.cpu_seconds()? - before) / seconds * 100.0);
    }
    anyhow::ensure!(
        service.is_running(),
        "l3fwd-power has ended: {}",
        service.last_log_line()
    );
    println!(
        "\nl3fwd-power over nfluid's driver, idle: {:.2} % of a core",
        percent.median()
    );
    let conditions = "percent of a core; l3fwd-power --interrupt-only with two ports, no traffic";
    report.figure("dpdk.idle_cpu_percent", &percent, "%", conditions);
    Ok(())
}

fn compare(
    report: &mut Report,
    resources: &mut Resources,
    place: &str,
    traffic: &Endpoint,
) -> anyhow::Result<()> {
    let mut contenders = Vec::new();
    for zero_copy in [true, false] {
        let way = start_with(resources, Ports::Nfluid { zero_copy }, traffic)?;
        contenders.push(Contender {
            peer: "nfluid",
            way,
        });
    }
    for (peer, ways, quick) in RIVALS {
        for ports in &ways[..report.choose(ways.len(), quick)] {
            interrupt::check()?;
            match start_with(resources, *ports, traffic) {
                Ok(way) => contenders.push(Contender { peer, way }),
                Err(error) => println!("{peer} left out: {error:#}"),
            }
        }
    }
    let mut sides = Vec::new();
    for (at, contender) in contenders.iter().enumerate() {
        for len in SIZES {
            let id = match contender.peer {
                "nfluid" => format!("dpdk.macswap{place}.{len}"),
                peer => format!("dpdk.{peer}.macswap{place}.{len}"),
            };
            let key = [contender.peer.to_owned(), len.to_string()];
            let side = Side::new(key, id, (at, len));
            sides.push(side.under(&contender.way.conditions()));
        }
    }
    let mut sweep = Sweep::new(&["driver", "size"], QUANTITIES);
    sweep.notes = &["how"];
    let (rounds, seconds) = report.effort((11, 0.5), (3, 0.1));
    sweep.run(report, rounds, &mut sides, |(at, len), counts| {
        let seconds = if counts { seconds } else { seconds / 2.0 };
        let [mpps, own, all, ..] = contenders[*at].round(*len, seconds)?;
        Ok([own, mpps, all])
    })?;
    for row in sweep.rows_mut() {
        row.notes.push(row.conditions.clone());
    }
    sweep.print(match place.is_empty() {
        true => "testpmd forwards, its traffic on another core",
        false => "testpmd forwards on the core of its traffic",
    });
    for len in SIZES {
        let all: [usize; QUANTITIES.len()] = std::array::from_fn(|at| at);
        let id = format!("dpdk.macswap{place}.{len}");
        let Some(own) = fastest(sweep.rows(), &id) else {
            continue;
        };
        sweep.report_some(report, own, &all);
        for (peer, ..) in RIVALS {
            let rival = format!("dpdk.{peer}.macswap{place}.{len}");
            let Some(rival) = fastest(sweep.rows(), &rival) else {
                continue;
            };
            sweep.report_some(report, rival, &all);
            let ratio = own.samples[PER_CPU].ratios(&rival.samples[PER_CPU]);
            let conditions = format!(
                "per CPU-second of testpmd, nfluid / {peer}, round by round; nfluid: {}; {peer}: {}",
                own.conditions, rival.conditions
            );
            report.figure(format!("{id}.vs_{peer}"), &ratio, "x", &conditions);
        }
    }
    Ok(())
}

/// The fastest way of a peer: per CPU-second of what forwards.
fn fastest<'a, const N: usize>(rows: &'a [Row<N>], id: &str) -> Option<&'a Row<N>> {
    let ways = rows.iter().filter(|row| row.id == id);
    highest(ways, |row| &row.samples[PER_CPU])
}
