//! H6: transmission on an interface in the sender's context (HVD) against a thread of the driver
//! domain (DDD) (HyperNF, SoCC '17, section 4.4), on veth.
//!
//! HVD: the sender's TX slots are the memory of its own AF_XDP socket; the sender fills descriptors and makes one
//! `sendto` per batch. DDD: the product's uplink: sender, switch, the uplink's port, and the uplink's thread, which
//! puts the slots of that port on an AF_XDP socket. The kernel's part - a socket buffer and a copy per frame, and the
//! reception at the other end - is the same in both, and runs in the context of the caller.

use crate::host::cpu;
use crate::host::cpu::require_two_cores;
use crate::peer::{Peer, run_together};
use crate::report::Report;
use crate::roles::work::Waits;
use crate::roles::{Role, Task};
use crate::setups::wire::{Wire, uplink};
use crate::sweep::{Quantity, Row, Side, Sweep, lines};
use nfluid_figures::plot::{Axis, Plot};
use nfluid_figures::statistics::{Samples, highest};
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_uplink::Uplink;
use std::time::Duration;

const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];
const BATCH: usize = 32;
const RING: u32 = 256;
const SENDER_CORE: usize = 1;

/// The transmitting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The sender itself.
    Sender,
    /// The uplink's thread, on its own core.
    ThreadApart,
    /// The uplink's thread, on the sender's core.
    ThreadBeside,
}

impl By {
    const ALL: [By; 3] = [By::Sender, By::ThreadApart, By::ThreadBeside];

    /// Returns the name in figure ids.
    fn name(self) -> &'static str {
        match self {
            By::Sender => "hvd",
            By::ThreadApart => "ddd",
            By::ThreadBeside => "ddd_one_core",
        }
    }

    fn conditions(self) -> &'static str {
        match self {
            By::Sender => {
                "AF_XDP, copy mode, on a veth, batch 32; the sender's own socket and thread, one core"
            }
            By::ThreadApart => {
                "sender on core 1, switch, uplink's thread on core 0, AF_XDP, copy mode, on a veth, \
                 batch 32; two cores, CPU time of both; the sender yields while its link is full"
            }
            By::ThreadBeside => {
                "sender, switch, uplink's thread, AF_XDP, copy mode, on a veth, batch 32; one core \
                 for both, CPU time of both; the sender yields while its link is full"
            }
        }
    }
}

/// The quantities of a repetition, in the order of [`Transmission::measure`].
const QUANTITIES: [Quantity; 2] = [
    Quantity::MPPS,
    // Of the CPU time of all threads.
    Quantity::MPPS_PER_CPU,
];

/// A size and a transmitting thread. A field that uses another field comes before the other, so that it ends first.
struct Transmission {
    sender: [Peer; 1],
    /// The uplink and its thread.
    uplink: Option<(Uplink, u32)>,
    _instance: ScratchInstance,
    wire: Wire,
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let sizes = report.choose(SIZES.to_vec(), vec![64, 1514]);
    let (rounds, seconds) = report.effort((11, 0.5), (2, 0.2));
    let mut sweep = Sweep::new(&["by", "size"], QUANTITIES);
    for &len in &sizes {
        let mut scratch = Scratch::new("h6")?;
        let sides = By::ALL.into_iter().map(|by| side(&mut scratch, by, len));
        let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
        let rows = sweep.run(report, rounds, &mut sides, |transmission, _| {
            transmission.measure(seconds)
        })?;
        sweep.report(report, rows.clone());
        compare(report, len, &sweep.rows()[rows]);
        if len == sizes[0] {
            idle(report, &sides)?;
        }
    }
    report.plot(Plot {
        id: "h6".to_owned(),
        title: "Out of an interface: frames per second of CPU time of all threads".to_owned(),
        x: Axis::log("frame size in bytes"),
        y: Axis::linear("Mpps per CPU-second"),
        series: lines(sweep.rows(), 1),
    });
    sweep.print("Out of an interface, by the sender or by the uplink's thread");
    Ok(())
}

fn side(scratch: &mut Scratch, by: By, len: usize) -> anyhow::Result<Side<Transmission>> {
    let key = [by.name().to_owned(), len.to_string()];
    let id = format!("h6.{}.{len}", by.name());
    Ok(Side::new(key, id, Transmission::new(scratch, by, len)?)
        .under(by.conditions())
        .on(by.name(), len as f64))
}

/// Compares the sender itself with the better of the threads.
fn compare(report: &mut Report, len: usize, rows: &[Row<2>]) {
    let [sender, threads @ ..] = rows else {
        return;
    };
    for (quantity, what) in [(1, "hvd_vs_ddd_per_cpu"), (0, "hvd_vs_ddd")] {
        if let Some(best) = highest(threads, |row| &row.samples[quantity]) {
            report.figure(
                format!("h6.{len}.{what}"),
                &sender.samples[quantity].ratios(&best.samples[quantity]),
                "ratio",
                &format!("best of the thread's: {}", best.line),
            );
        }
    }
}

/// Measures the CPU time of an uplink's thread without traffic. A sender that transmits itself has no thread.
fn idle(report: &mut Report, sides: &[Side<Transmission>]) -> anyhow::Result<()> {
    let (rounds, seconds) = report.effort((5, 1.0), (1, 1.0));
    let mut percent = Samples::default();
    let threads = sides.iter().filter_map(|side| side.subject.uplink.as_ref());
    for (_, thread) in threads.cycle().take(rounds) {
        let before = cpu::thread_seconds(*thread)?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        percent.push((cpu::thread_seconds(*thread)? - before) / seconds * 100.0);
    }
    let conditions = "percent of a core; the uplink's thread, nobody sends";
    report.figure("h6.ddd.idle_cpu_percent", &percent, "%", conditions);
    Ok(())
}

impl Transmission {
    fn new(scratch: &mut Scratch, by: By, len: usize) -> anyhow::Result<Self> {
        let wire = Wire::new()?;
        let instance = scratch.instance(1, RING, RING)?;
        let (sender, uplink) = match by {
            By::Sender => (transmitter(&instance, &wire, len)?, None),
            By::ThreadApart | By::ThreadBeside => {
                let core = match by {
                    By::ThreadApart => 1 - SENDER_CORE,
                    _ => SENDER_CORE,
                };
                let uplink = uplink(scratch, instance.id(0), &wire, core)?;
                (feeder(&instance, len)?, Some(uplink))
            }
        };
        Ok(Transmission {
            sender: [sender],
            uplink,
            _instance: instance,
            wire,
        })
    }

    fn measure(&mut self, seconds: f64) -> anyhow::Result<[f64; 2]> {
        let (arrived, cpu) = (self.arrived()?, self.other_cpu_seconds()?);
        let outcomes = run_together(&mut self.sender, seconds)?;
        let [outcome] = outcomes[..] else {
            anyhow::bail!("a sender has no outcome");
        };
        let cpu = self.other_cpu_seconds()? - cpu + outcome.cpu_seconds;
        let frames = (self.arrived()? - arrived) as f64 / 1e6;
        Ok([frames / outcome.seconds, frames / cpu])
    }

    /// Returns the number of frames at the other end.
    fn arrived(&self) -> anyhow::Result<u64> {
        let far = self.wire.far();
        far.namespace().received(far.interface())
    }

    /// Returns the CPU time of the threads that work for the sender: the uplink's thread, and the kernel's softirq
    /// threads, if they run the reception at the other end.
    fn other_cpu_seconds(&self) -> anyhow::Result<f64> {
        let kernel = cpu::kernel_threads("ksoftirqd/");
        let kernel = kernel.into_iter().map(cpu::process_seconds);
        let uplink = self.uplink.iter().map(|(_, id)| cpu::thread_seconds(*id));
        kernel.chain(uplink).sum()
    }
}

fn transmitter(instance: &ScratchInstance, wire: &Wire, len: usize) -> anyhow::Result<Peer> {
    let role = Role {
        core: SENDER_CORE,
        task: Task::Transmit {
            interface: wire.near().interface().to_owned(),
            len,
            batch: BATCH,
        },
    };
    Peer::start_in(instance, wire.near().namespace(), &role)
}

fn feeder(instance: &ScratchInstance, len: usize) -> anyhow::Result<Peer> {
    let role = Role {
        core: SENDER_CORE,
        task: Task::Send {
            len,
            batch: BATCH,
            flows: 64,
            // A full link does not ring the doorbell when slots become free.
            waits: Waits::Yielding,
        },
    };
    Peer::start(instance, &role)
}
