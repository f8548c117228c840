//! The life of guests beside that of processes (LightVM, SOSP '17): both tiers in one run, in turn.

use super::start::Starts;
use crate::experiments::instances::creation::peers::Peers;
use crate::experiments::instances::creation::setup::{Setup, Way};
use crate::experiments::instances::life::{migration, save_restore};
use crate::experiments::use_cases::{just_in_time, personal_firewalls};
use crate::host::cpu::require_two_cores;
use crate::host::idle::bridge;
use crate::host::memory::available_bytes;
use crate::host::tier::Tier;
use crate::literature;
use crate::report::Report;
use crate::sweep::{Quantity, Shown, Side, Sweep, lines};
use anyhow::Context;
use nfluid_figures::plot::{Axis, Plot, Series};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::interrupt;
use nfluid_testbed::program::find_guest_image;
use nfluid_vmm::Image;
use serde_json::{Value, json};
use std::time::Duration;

/// Shells of a pool while one is taken at a time.
const SHELLS: usize = 4;
/// After the creation the kernel frees temporary memory for this time.
const SETTLES: Duration = Duration::from_secs(1);
const TIERS: [Tier; 2] = [Tier::Process, Tier::MicroVm];

const TIMES: [Quantity; 2] = [
    Quantity::new(
        ".median_ms",
        "ms",
        &[("median", Shown::Median), ("p99", Shown::P99)],
    )
    .with_p99(".p99_ms")
    .meaning("from the request to the first frame through the instance"),
    Quantity::new(".end_ms", "ms", &[("end", Shown::Median)])
        .meaning("from the request to end the instance to the answer"),
];

const SAVES: [Quantity; 2] = [
    Quantity::new(
        ".save_ms",
        "ms",
        &[("save", Shown::Median), ("p99", Shown::P99)],
    ),
    Quantity::new(
        ".restore_ms",
        "ms",
        &[("restore", Shown::Median), ("p99", Shown::P99)],
    ),
];

const BLOCKED: [Quantity; 1] = [Quantity::new(
    ".migrate_blocked_ms",
    "ms",
    &[("blocked", Shown::Median), ("p99", Shown::P99)],
)];

const START: Quantity = Quantity::new(
    ".median_ms",
    "ms",
    &[("median", Shown::Median), ("p99", Shown::P99)],
)
.with_p99(".p99_ms");

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    starts(report)?;
    firewalls(report)?;
    beside_many(report)?;
    save_and_restore(report)?;
    moves(report)?;
    personal_firewalls(report)?;
    just_in_time(report)
}

/// L1: a guest that does nothing, beside other ways to start something isolated.
fn starts(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, count) = report.effort((10, 50), (1, 20));
    let mut starts = Starts::default();
    let mut peers = Peers::with_machines()?;
    let mut number = 0;
    for _ in 0..rounds {
        starts.measure(count)?;
        for peer in &mut peers.found {
            interrupt::check()?;
            number += 1;
            peer.measure(number)?;
        }
    }
    let mut sweep = Sweep::plain(&["what"], [START]);
    let what =
        "from the opening of /dev/kvm to the guest's first ring; one process, 16 MiB, no ports";
    let side = Side::new(["noop guest".to_owned()], "l1.noop", ()).under(what);
    sweep.add(&side, [starts.whole_ms]);
    let what = "the same in a machine that is ready";
    let side = Side::new(
        ["noop guest, machine ready".to_owned()],
        "l1.noop.ready",
        (),
    )
    .under(what);
    sweep.add(&side, [starts.ready_ms.clone()]);
    for peer in peers.found {
        let side = Side::new([peer.what.to_owned()], format!("l1.{}", peer.name), ());
        sweep.add(
            &side.under("start and end of a program that does nothing"),
            [peer.ms],
        );
    }
    sweep.report_all(report);
    report.figure(
        "l1.noop.pool_ms",
        &starts.ready_ms,
        "ms",
        "in a machine that is ready",
    );
    report.figure(
        "l1.noop.end_ms",
        &starts.end_ms,
        "ms",
        "the end of the machine",
    );
    sweep.print("Start of something that does nothing, ms");
    for (name, why) in &peers.left_out {
        println!("{name} is left out: {why}");
    }
    Ok(())
}

/// L3: a firewall of each tier, with a pool and without.
fn firewalls(report: &mut Report) -> anyhow::Result<()> {
    let cycles = report.effort(100, 6);
    let mut setups = setups(&firewall())?;
    let mut sweep = Sweep::plain(&["tier", "way"], TIMES);
    for (way, name) in [(Way::One, "nopool"), (Way::Pool, "pool")] {
        for (samples, (tier, setup)) in in_turn(&mut setups, way, cycles)?.into_iter().zip(&setups)
        {
            let key = [tier.id().to_owned(), name.to_owned()];
            let id = match tier {
                Tier::MicroVm => format!("l1.firewall.{name}"),
                Tier::Process => format!("l1.firewall.process_{name}"),
            };
            let conditions = format!("{} instances, one link on each side", setup.instances());
            sweep.add(&Side::new(key, id, ()).under(&conditions), samples);
        }
    }
    sweep.report_all(report);
    if let Some(vm) = sweep.rows().last() {
        let what = "create -> first frame through the firewall, from a pool";
        report.figure("l1.firewall.pool_ms", &vm.samples[0], "ms", what);
    }
    sweep.print("Creation of a firewall until it forwards, ms");
    Ok(())
}

fn firewall() -> Value {
    json!({
        "nf": "firewall",
        "flavor": "small",
        "config": { "rules": "allow ip from any to any", "non_ip": "allow" },
    })
}

/// L2 and L6: creation beside a number of idle instances, and the memory of each.
fn beside_many(report: &mut Report) -> anyhow::Result<()> {
    let numbers = report.choose(&[1, 1000, 4000][..], &[1, 20][..]);
    let cycles = report.effort(50, 3);
    let mut sweep = Sweep::plain(&["instances", "tier"], TIMES);
    let mut densities = Vec::new();
    for tier in TIERS {
        let mut setup = [(tier, Setup::of(tier, bridge(), tier.id(), "")?)];
        std::thread::sleep(SETTLES);
        let before = available_bytes()?;
        let mut density = Series::new(tier.id());
        for number in numbers {
            if let Err(why) = setup[0].1.populate(*number) {
                interrupt::check()?;
                println!(
                    "{number} instances of tier {} are not to be had here: {why:#}",
                    tier.id()
                );
            }
            let made = setup[0].1.instances();
            std::thread::sleep(SETTLES);
            let used_mb = before.saturating_sub(available_bytes()?) as f64 / 1e6;
            density.push(made as f64, &Samples::from(used_mb));
            let samples = in_turn(&mut setup, Way::One, cycles)?;
            for samples in samples {
                let key = [made.to_string(), tier.id().to_owned()];
                let side = Side::new(key, format!("l2.{}.{number}", tier.id()), ());
                let side = side.under(&format!("beside {made} idle instances, no pool"));
                sweep.add(&side.on(tier.id(), made as f64), samples);
            }
            if made < *number {
                break;
            }
        }
        densities.push(density);
        let count = setup[0].1.instances();
        let each = before.saturating_sub(available_bytes()?) as f64 / count as f64 / 1e6;
        let id = format!("l6.{}", tier.id());
        report.derived(
            format!("{id}.instances"),
            count as f64,
            "",
            "alive and idle at once; bridge, 2 ports",
        );
        let memory = "less of the host's available memory than before, divided by the instances";
        report.derived(format!("{id}.instance_mb"), each, "MB", memory);
        println!("{count} instances of tier {}: {each:.2} MB each", tier.id());
    }
    let image = Image::functions()?.bytes().len() as f64 / 1024.0;
    let what = "all network functions, one copy for all guests of the host";
    report.derived("l6.vm.image_kb", image, "KiB", what);
    let daytime = find_guest_image("daytime").context("no guest image daytime: 'make build'")?;
    let bytes = std::fs::metadata(daytime)?.len() as f64;
    let what = "a TCP server alone, as in the literature";
    report.derived("l6.vm.daytime_image_kb", bytes / 1024.0, "KiB", what);
    sweep.report_all(report);
    report.plot(Plot {
        id: "l2.tiers".to_owned(),
        title: "Creation beside idle instances of the same tier".to_owned(),
        x: Axis::log("idle instances"),
        y: Axis::log("ms until the first frame"),
        series: [lines(sweep.rows(), 0), literature::curves("L2")].concat(),
    });
    report.plot(Plot {
        id: "l6.tiers".to_owned(),
        title: "Memory of idle instances".to_owned(),
        x: Axis::log("instances"),
        y: Axis::log("MB"),
        series: [densities, literature::curves("L6")].concat(),
    });
    sweep.print("Creation of a bridge until it forwards, ms");
    Ok(())
}

/// L7: a firewall with 1000 states, alone and beside others.
fn save_and_restore(report: &mut Report) -> anyhow::Result<()> {
    let cycles = report.effort(50, 2);
    let crowds = report.choose(&[0, 1000][..], &[0][..]);
    let mut sweep = Sweep::plain(&["tier", "beside"], SAVES);
    for tier in TIERS {
        for beside in crowds {
            let times = save_restore::measure(tier, *beside, cycles)?;
            let samples = [times.save_ms, times.restore_ms];
            let key = [tier.id().to_owned(), beside.to_string()];
            let conditions = format!(
                "firewall with 1000 states beside {beside} idle instances, shells ready, from the request to its answer"
            );
            let side = Side::new(key, beside_id("l7", tier, *beside), ()).under(&conditions);
            sweep.add(&side.on(tier.id(), (beside + 1) as f64), samples);
        }
    }
    sweep.report_all(report);
    sweep.print("Save a firewall with 1000 states, and restore it as a clone, ms");
    for (quantity, id) in ["save", "restore"].into_iter().enumerate() {
        report.plot(Plot {
            id: format!("l7.{id}.tiers"),
            title: format!("Checkpoints beside idle instances: {id}"),
            x: Axis::log("instances"),
            y: Axis::log("ms"),
            series: [lines(sweep.rows(), quantity), checkpoints(id)].concat(),
        });
    }
    Ok(())
}

/// L7: the same firewall moves to another host.
fn moves(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((20, 1.0), (1, 0.6));
    let crowds = report.choose(&[0, 500][..], &[0][..]);
    let mut sweep = Sweep::plain(&["tier", "beside"], BLOCKED);
    for tier in report.choose(&TIERS[..], &TIERS[1..]) {
        for beside in crowds {
            let time = Duration::from_secs_f64(seconds);
            let blocked = migration::blocked_ms(*tier, *beside, rounds, time)?;
            let conditions = format!(
                "firewall with 1000 states at 100,000 frames/s, both hosts on this machine with {beside} idle instances each: nobody serves its ports"
            );
            let key = [tier.id().to_owned(), beside.to_string()];
            let side = Side::new(key, beside_id("l7", *tier, *beside), ()).under(&conditions);
            sweep.add(&side.on(tier.id(), (beside + 1) as f64), [blocked]);
        }
    }
    sweep.report_all(report);
    sweep.print("A firewall moves: for how long nobody serves its ports, ms");
    report.plot(Plot {
        id: "l7.migrate.tiers".to_owned(),
        title: "Moves beside idle instances".to_owned(),
        x: Axis::log("instances on each host"),
        y: Axis::log("ms"),
        series: [lines(sweep.rows(), 0), checkpoints("migrate")].concat(),
    });
    Ok(())
}

/// Returns the beginning of the figures' names of a tier beside idle instances.
fn beside_id(experiment: &str, tier: Tier, beside: usize) -> String {
    match beside {
        0 => format!("{experiment}.{}", tier.id()),
        _ => format!("{experiment}.{}.{beside}", tier.id()),
    }
}

/// Returns the lines of LightVM's plots of checkpoints with this word in their names.
fn checkpoints(word: &str) -> Vec<Series> {
    let all = literature::curves("L7").into_iter();
    all.filter(|line| line.name.contains(word)).collect()
}

/// L10: a firewall for each subscriber.
fn personal_firewalls(report: &mut Report) -> anyhow::Result<()> {
    // They need seconds to settle.
    let steps = report.choose(&[1, 100, 250, 500][..], &[][..]);
    if steps.is_empty() {
        println!("personal firewalls are left out of a quick run");
        return Ok(());
    }
    personal_firewalls::tiers(report, &TIERS, 2000, steps, 8)
}

/// L11: a new client every 10 ms.
fn just_in_time(report: &mut Report) -> anyhow::Result<()> {
    let (clients, rounds) = report.effort((400, 3), (40, 1));
    for tier in TIERS {
        let (first_ms, lost) = just_in_time::first_answers(tier, clients, rounds)?;
        let id = format!("l11.{}.10", tier.id());
        let conditions = format!("{clients} new clients, one every 10 ms; firewall of 3 rules");
        report.figure(format!("{id}.median_ms"), &first_ms, "ms", &conditions);
        let lost_of = Samples::from(lost as f64);
        report.figure(format!("{id}.lost"), &lost_of, "datagrams", &conditions);
        println!(
            "{}: first answer after {:.2} ms, {lost} lost",
            tier.id(),
            first_ms.median()
        );
    }
    Ok(())
}

/// Starts a platform for each tier.
fn setups(subject: &Value) -> anyhow::Result<Vec<(Tier, Setup)>> {
    let start = |tier: Tier| Ok((tier, Setup::of(tier, subject.clone(), tier.id(), "")?));
    TIERS.into_iter().map(start).collect()
}

/// Makes and ends instances on each platform in turn. Returns the times for each.
fn in_turn(
    setups: &mut [(Tier, Setup)],
    way: Way,
    cycles: usize,
) -> anyhow::Result<Vec<[Samples; 2]>> {
    if way == Way::Pool {
        for (_, setup) in setups.iter_mut() {
            setup.pool(SHELLS)?;
        }
    }
    let mut all: Vec<[Samples; 2]> = setups.iter().map(|_| Default::default()).collect();
    for _ in 0..cycles {
        for ((_, setup), samples) in setups.iter_mut().zip(&mut all) {
            let created = setup.cycle(way)?;
            samples[0].push(created.first_packet_ms);
            samples[1].push(created.end_ms);
        }
    }
    Ok(all)
}
