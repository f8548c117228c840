//! Programs on netmap, unchanged, as instances (H13): pkt-gen sends to pkt-gen, straight and through netmap's bridge. Beside
//! them nfluid's own generator and sink, and nfluid's bridge between the same two pkt-gens.

use crate::host::cpu::require_two_cores;
use crate::host::forwards::Forwards;
use crate::netmap::{Netmap, Turn};
use crate::peer::{Peer, run_together};
use crate::report::Report;
use crate::roles::{Role, Task};
use crate::setups::pairs::{self, Pair};
use crate::sweep::{Quantity, Shown, Side, Sweep};
use crate::workload::Workload;
use nfluid_switch::{PortSpec, Wake};
use nfluid_testbed::interrupt;
use nfluid_testbed::process::Service;
use nfluid_testbed::scratch::{Scratch, ScratchInstance, mac_of};
use std::path::Path;
use std::time::{Duration, Instant};

/// Slots of every ring.
const RING: u32 = 1024;
/// TX slots of a program on netmap, as the daemon gives them.
const TX_SLOTS: u32 = 3 * RING;
/// Bytes of a frame.
const LEN: usize = 64;
/// Frames of a batch of nfluid's own generator: pkt-gen's.
const BATCH: usize = 512;
const CORES: [usize; 2] = [0, 1];
/// When the sink on the generator's core is woken: its wake-ups are turns that the generator does not have.
const LATE: Wake = Wake {
    frames: 256,
    after: Duration::from_micros(100),
};
/// Longest time for the first frame.
const PATIENCE: Duration = Duration::from_secs(20);
/// The sender's arguments. pkt-gen's default of 60 bytes would be a shorter frame than that of nfluid's generator.
const SEND: &str = "-f tx -l 64 -w 0 -D 02:00:00:00:00:02 -S 02:00:00:00:00:01 -i netmap:p0";
const RECEIVE: &str = "-f rx -w 0 -i netmap:p0";
const FORWARD: &str = "-w 0 -i netmap:p0 -i netmap:p1";

const QUANTITIES: [Quantity; 2] = [
    Quantity::MPPS,
    Quantity::new(
        ".per_cpu",
        "Mpps",
        &[("per CPU-second of the bridge", Shown::Median)],
    )
    .meaning("CPU time of the bridge"),
];
const WALL: usize = 0;
const PER_CPU: usize = 1;

/// A set-up that is measured.
enum Subject {
    /// pkt-gen as sender and as receiver, maybe with netmap's bridge or nfluid's between them.
    Netmap {
        programs: Vec<Service>,
        /// The place of netmap's bridge among the programs.
        bridge: Option<usize>,
        own_bridge: Option<Peer>,
        /// The port at which frames are counted.
        sink: u32,
        _instances: Vec<ScratchInstance>,
    },
    /// nfluid's generator and sink.
    Own(Pair),
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let netmap = Netmap::find()?;
    let mut scratch = Scratch::new("netmap")?;
    let generator = netmap.build("pkt-gen")?;
    let bridge = netmap.build("bridge")?;
    let straight = between(&mut scratch, &netmap, &generator, None)?;
    let own = pairs::one_way(&mut scratch, LEN, BATCH, RING, CORES)?;
    let by_netmap = between(
        &mut scratch,
        &netmap,
        &generator,
        Some(Between::Netmap(&bridge)),
    )?;
    let by_nfluid = between(&mut scratch, &netmap, &generator, Some(Between::Own))?;
    let side = |id: &str, conditions: &str, subject| {
        Side::new([id.to_owned()], id, subject).under(conditions)
    };
    let mut sides = vec![
        side(
            "netmap.pktgen.64",
            "pkt-gen tx on core 0 -> pkt-gen rx on core 1, which polls",
            straight,
        ),
        side(
            "netmap.own.64",
            "nfluid's generator on core 0 -> nfluid's sink on core 1, which reads every byte",
            Subject::Own(own),
        ),
        side(
            "netmap.bridge.64",
            "pkt-gen tx -> netmap's bridge, on core 1 -> pkt-gen rx; both pkt-gens on core 0, rx before tx (nice -20) when 256 frames wait or after 100 us",
            by_netmap,
        ),
        side(
            "netmap.ownbridge.64",
            "the same pkt-gens -> nfluid's bridge, on core 1",
            by_nfluid,
        ),
    ];
    let (rounds, seconds) = report.effort((11, 1.0), (3, 0.3));
    let mut sweep = Sweep::new(&["figure"], QUANTITIES);
    sweep.notes = &["conditions"];
    let rows = sweep.run(report, rounds, &mut sides, |subject, _| {
        subject.measure(&scratch, seconds)
    })?;
    for row in sweep.rows_mut() {
        row.conditions = format!("{}; {RING} slots", row.conditions);
        row.notes = vec![row.conditions.clone()];
    }
    sweep.print("Programs on netmap as instances, 64 bytes");
    sweep.report(report, rows.clone());
    let samples = |row: usize, quantity: usize| &sweep.rows()[rows.start + row].samples[quantity];
    let ratios = [
        (
            "netmap.pktgen.64.vs_own",
            samples(0, WALL).ratios(samples(1, WALL)),
        ),
        (
            "netmap.bridge.64.vs_own",
            samples(2, WALL).ratios(samples(3, WALL)),
        ),
        (
            "netmap.bridge.64.per_cpu_vs_own",
            samples(2, PER_CPU).ratios(samples(3, PER_CPU)),
        ),
    ];
    for (id, ratio) in ratios {
        report.figure(
            id,
            &ratio,
            "x",
            "netmap's program / nfluid's own, round by round",
        );
    }
    Ok(())
}

/// The bridge between the two pkt-gens.
enum Between<'a> {
    Netmap(&'a Path),
    Own,
}

fn between(
    scratch: &mut Scratch,
    netmap: &Netmap,
    generator: &Path,
    between: Option<Between<'_>>,
) -> anyhow::Result<Subject> {
    let mut sender = scratch.instance(1, RING, TX_SLOTS)?;
    let sink = scratch.port_ids(1);
    let spec = PortSpec {
        tx_slots: TX_SLOTS,
        wake: if between.is_some() {
            LATE
        } else {
            Wake::AT_ONCE
        },
        ..PortSpec::new(sink, "p0", mac_of(sink), RING)
    };
    let mut receiver = scratch.instance_with(&[spec])?;
    let mut bridge = None;
    match between {
        None => scratch.link((&mut sender, 0), (&mut receiver, 0))?,
        Some(_) => {
            let mut middle = scratch.instance(2, RING, TX_SLOTS)?;
            scratch.link((&mut sender, 0), (&mut middle, 0))?;
            scratch.link((&mut middle, 1), (&mut receiver, 0))?;
            bridge = Some(middle);
        }
    }
    let (own_core, other_core) = (CORES[0], CORES[1]);
    let sink_core = if bridge.is_some() {
        own_core
    } else {
        other_core
    };
    let mut programs = Vec::new();
    let mut own_bridge = None;
    match (&between, &bridge) {
        (Some(Between::Netmap(program)), Some(instance)) => {
            programs.push(netmap.start(instance, (program, FORWARD), other_core, false)?);
        }
        (Some(Between::Own), Some(instance)) => {
            let task = Task::Nf {
                workload: Workload::Bridge,
            };
            let role = Role {
                core: other_core,
                task,
            };
            own_bridge = Some(Peer::start(instance, &role)?);
        }
        _ => {}
    }
    let bridges = programs.len().checked_sub(1);
    programs.push(netmap.start(&receiver, (generator, RECEIVE), sink_core, true)?);
    programs.push(netmap.start(&sender, (generator, SEND), own_core, false)?);
    let mut instances = vec![sender, receiver];
    instances.extend(bridge);
    let mut subject = Subject::Netmap {
        programs,
        bridge: bridges,
        own_bridge,
        sink,
        _instances: instances,
    };
    subject.await_first(scratch)?;
    Ok(subject)
}

impl Subject {
    /// Waits until frames arrive, then stops the programs until they are measured.
    fn await_first(&mut self, scratch: &Scratch) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            let [mpps, _] = self.measure(scratch, 0.1)?;
            if mpps > 0.0 {
                return Ok(());
            }
            let Subject::Netmap { programs, .. } = self else {
                return Ok(());
            };
            for program in programs {
                anyhow::ensure!(
                    program.is_running() && start.elapsed() < PATIENCE,
                    "no frame comes; {} said last: {}",
                    program.name(),
                    program.last_log_line()
                );
            }
        }
    }

    /// Frames that arrive, in millions per second, and per CPU-second of the bridge.
    fn measure(&mut self, scratch: &Scratch, seconds: f64) -> anyhow::Result<[f64; 2]> {
        let (programs, bridge, own_bridge, sink) = match self {
            Subject::Own(pair) => {
                let sink = run_together(&mut pair.peers, seconds)?[1];
                return Ok([sink.frames as f64 / sink.seconds / 1e6, f64::NAN]);
            }
            Subject::Netmap {
                programs,
                bridge,
                own_bridge,
                sink,
                ..
            } => (programs, bridge, own_bridge, *sink),
        };
        let _turn = Turn::of(programs)?;
        let cpu = |programs: &[Service]| -> anyhow::Result<f64> {
            bridge.map_or(Ok(0.0), |bridge| programs[bridge].cpu_seconds())
        };
        let received = || scratch.switch.counters(sink).rx_frames;
        let (start, frames, before) = (Instant::now(), received(), cpu(programs)?);
        let used = match own_bridge {
            Some(peer) => run_together(std::slice::from_mut(peer), seconds)?[0].cpu_seconds,
            None => {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                cpu(programs)? - before
            }
        };
        let frames = (received() - frames) as f64 / 1e6;
        let per_cpu = if used > 0.0 { frames / used } else { f64::NAN };
        Ok([frames / start.elapsed().as_secs_f64(), per_cpu])
    }
}
