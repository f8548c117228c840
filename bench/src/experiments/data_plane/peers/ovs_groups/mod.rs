//! Security groups on Open vSwitch (M2): nfluid's firewall for Neutron, beside Neutron's hybrid set-up (a bridge of the kernel between each instance
//! and the switch, with rules and connection tracking), and beside the switch without a filter.

mod world;

use super::fastest;
use super::resources::Resources;
use crate::host::cpu::require_two_cores;
use crate::ovs::Ports;
use crate::report::{Report, table};
use crate::setups::stream::Stream;
use crate::sweep::{Quantity, Shown, Side, Sweep};
use anyhow::Context;
use nfluid_figures::statistics::Samples;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use world::{PORTS, Place, RULES, SWITCH_CORE, Traffic, World, group, instances};

const PLACES: [(&str, Place); 3] = [
    ("switch", Place::Switch),
    ("hybrid", Place::Bridges),
    ("open", Place::Nowhere),
];
/// A place of the group, and how the switch reaches its ports.
struct Way {
    name: &'static str,
    ports: Ports,
    world: World,
}

/// Figures, traffic, and bytes of a frame.
const KINDS: [(&str, Traffic, usize); 3] = [
    ("new_per_s", Traffic::New, 64),
    ("64.mpps", Traffic::Established, 64),
    ("1514.mpps", Traffic::Established, 1514),
];
/// Datagrams per second that cross while rules change, and changes.
const PPS: u32 = 20_000;
const CHANGES: u16 = 40;

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    // Their sockets' kinds: the fastest is the figure.
    let kinds = report.choose(&[Ports::AfXdp, Ports::AfPacket][..], &[Ports::AfXdp]);
    let resources = Resources::new("ovs-groups", &KINDS.map(|(_, _, len)| len)[1..], 0)?;
    let mut worlds = Vec::new();
    for (name, place) in PLACES {
        for ports in kinds {
            let world = World::new(place, *ports, &resources);
            let world = world.with_context(|| format!("Open vSwitch, {name}, {}", ports.name()))?;
            worlds.push(Way {
                name,
                ports: *ports,
                world,
            });
        }
    }
    rates(report, &mut worlds)?;
    let own = worlds.first_mut().context("a world")?;
    let own = &mut own.world;
    let conditions = format!("{PORTS} ports in a group of {RULES} rules that name the group");
    report.figure(
        "m2.flows",
        &Samples::from(own.flows as f64),
        "flows",
        &conditions,
    );
    let share = own.flows as f64 / (PORTS + usize::from(RULES)) as f64;
    report.figure(
        "m2.flows.vs_members_and_rules",
        &Samples::from(share),
        "ratio",
        &conditions,
    );
    report.figure(
        "m2.setup_ms",
        &Samples::from(own.setup_seconds * 1e3),
        "ms",
        &conditions,
    );
    own.while_running(|own| updates(report, own))
}

fn rates(report: &mut Report, worlds: &mut [Way]) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((11, 0.5), (1, 0.1));
    let how = format!(
        "from one instance to another on the same bridge, {PORTS} ports in a group of {RULES} rules, of which the last one permits the traffic; ovs-vswitchd has \
         core {SWITCH_CORE}, the traffic the other one; veth everywhere"
    );
    let mut sides = Vec::new();
    for (at, way) in worlds.iter().enumerate() {
        for (of, (kind, ..)) in KINDS.iter().enumerate() {
            let ports = way.ports.name();
            let key = [way.name, kind, ports].map(str::to_owned);
            let id = format!("m2.{}.{kind}", way.name);
            sides.push(Side::new(key, id, (at, of)).under(&format!("{ports}; {how}")));
        }
    }
    let quantities = [
        Quantity::shown(&[("per second", Shown::Whole), ("spread", Shown::Spread)]),
        Quantity::shown(&[("CPU seconds of ovs-vswitchd", Shown::Median)]),
    ];
    let mut sweep = Sweep::new(&["filter", "what", "sockets"], quantities);
    sweep.run(report, rounds, &mut sides, |(at, of), counts| {
        let seconds = if counts { seconds } else { seconds / 2.0 };
        let (_, traffic, len) = KINDS[*of];
        worlds[*at].world.round(traffic, len, seconds)
    })?;
    sweep.print("Security groups on Open vSwitch");
    for (kind, traffic, _) in KINDS {
        let of = |place: &str| fastest(sweep.rows(), &format!("m2.{place}.{kind}"));
        for (place, _) in PLACES {
            let Some(row) = of(place) else { continue };
            let samples = &row.samples[0];
            let (samples, unit) = match traffic {
                Traffic::New => (samples.clone(), "connections/s"),
                Traffic::Established => {
                    (samples.values().iter().map(|it| it / 1e6).collect(), "Mpps")
                }
            };
            report.figure(&row.id, &samples, unit, &row.conditions);
        }
        for other in ["hybrid", "open"] {
            if let Some((own, theirs)) = of("switch").zip(of(other)) {
                let ratios = own.samples[0].ratios(&theirs.samples[0]);
                report.figure(format!("m2.{kind}.vs_{other}"), &ratios, "ratio", &how);
            }
        }
    }
    Ok(())
}

/// Datagrams cross while rules change that do not concern them.
fn updates(report: &mut Report, world: &mut World) -> anyhow::Result<()> {
    let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)];
    for ((instance, interface), address) in instances(&world.ends).into_iter().zip(addresses) {
        instance.ip(&format!("address add {address}/8 dev {interface}"))?;
    }
    let to = SocketAddrV4::new(addresses[1], 53);
    let mut stream = Stream::new(world.ends.source(), world.ends.sink(), to)?;
    stream.until_it_crosses()?;
    stream.answer()?;
    let changes = report.choose(CHANGES, 2);
    let time = Duration::from_millis(200) * u32::from(changes);
    let mut taken = Vec::new();
    let firewall = world.firewall.as_mut().context("a firewall")?;
    let passage = stream.run(PPS, time, || {
        for round in 0..changes {
            // One rule more for all ports, or one less.
            taken.push(firewall.change(&group(RULES - round % 2))? * 1e3);
        }
        Ok(())
    })?;
    let conditions = format!(
        "{changes} changes of a rule of {PORTS} ports while {PPS} permitted datagrams a second cross, of {} sent",
        passage.sent
    );
    report.figure(
        "m2.update_lost",
        &Samples::from(passage.lost as f64),
        "datagrams",
        &conditions,
    );
    let taken: Samples = taken.into_iter().collect();
    report.figure(
        "m2.update_ms",
        &taken,
        "ms",
        &format!("a change of a rule of {PORTS} ports, until it holds"),
    );
    let row = [
        f64::from(changes),
        passage.sent as f64,
        passage.lost as f64,
        taken.median().round(),
    ];
    table(
        "Changes of rules while datagrams cross",
        &["changes", "sent", "lost", "ms of a change"],
        &[row.map(|it| it.to_string()).into()],
    );
    Ok(())
}
