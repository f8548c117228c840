//! The processes of an experiment: this program again, each pinned to its core, each with the ports
//! of its own instance or in its own network namespace. A role starts when its standard input gets a
//! line and answers on standard output with one line of JSON.

pub mod across;
mod alone;
mod around;
pub mod fan;
pub mod function;
mod hand_on;
pub mod hop;
pub mod hostile;
mod io;
mod loopback;
mod oneway;
pub mod paced;
mod ping;
pub mod probe;
pub mod pump;
mod stall;
pub mod subscribers;
pub mod tcp;
mod transmit;
mod wake;
pub mod work;
pub mod xdp;

use crate::host::cpu::ANY_CORE;
use crate::io_model::Model;
use crate::workload::Workload;
use anyhow::{Context, bail};
use fan::Fan;
use function::Manner;
use nfluid_ring::attach::Attached;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use work::{Waits, Work, run_for, serve};

/// Environment variable that carries a role to the process that plays it.
pub const ROLE_ENV: &str = "NFLUID_BENCH_ROLE";
/// The role of a process of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Core to run on, or [`ANY_CORE`].
    pub core: usize,
    /// The task.
    pub task: Task,
}

/// Tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Sends frames of `len` bytes in bursts of `batch` until told to stop; frames are prepared
    /// once, then only their length is written, as pkt-gen does.
    Send {
        len: usize,
        batch: usize,
        flows: u32,
        waits: Waits,
    },
    /// Receives in bursts; reads every byte of every frame, or leaves the payload alone.
    Receive {
        batch: usize,
        reads: bool,
        waits: Waits,
    },
    /// Runs an NF as its host does: batch after batch, asleep when nothing waits.
    Nf { workload: Workload },
    /// Runs an NF until standard input ends, as its host does or in another manner.
    Host { workload: Workload, manner: Manner },
    /// Sends the workload's traffic through many NFs, each linked to a port of its own both ways.
    Fan { workload: Workload, fan: Fan },
    /// Sends the workload's traffic through many NFs at rates that scripts give.
    Paced { workload: Workload, len: usize },
    /// Sends the workload's traffic on port 0 and receives on port 1 what comes out, with at most
    /// `window` frames under way, so that no ring on the way overflows.
    Around {
        workload: Workload,
        /// Hardware address to send to.
        to: [u8; 6],
        len: usize,
        batch: usize,
        window: u32,
        /// While nothing comes back.
        waits: Waits,
    },
    /// Sends one frame on port 0 and sleeps until it comes back on port 1.
    Ping { workload: Workload, to: [u8; 6] },
    /// Sends one stamped frame at a time to a sleeping receiver; reports what the call cost.
    Ring { pause_us: u64 },
    /// Sleeps until a frame comes; reports how old its stamp is.
    Sleep,
    /// An NF through which `frames` frames go round: its ports are joined.
    Circle {
        workload: Workload,
        len: usize,
        frames: u32,
    },
    /// The same, and one of many frames leaves on its third port, where frames come in as well.
    Outward {
        workload: Workload,
        len: usize,
        frames: u32,
    },
    /// Hands frames of `len` bytes to the switch, `batch` at a time; its ports are joined.
    Stream { len: usize, batch: u32 },
    /// Hands over one frame at a time and sleeps until it is consumed; its ports are joined.
    HandOver { pause_us: u64 },
    /// Hosts the I/O threads that serve other instances' ports.
    Io { model: Model },
    /// An NF that is told to be honest or hostile.
    Hostile,
    /// Signs frames and sends each on to `next`, until it is killed or its `parent` ends.
    Hop {
        next: [u8; 6],
        waits: Waits,
        parent: u32,
        /// Where it says that it has handed frames over, if an I/O thread serves it.
        listed: Option<hop::Listed>,
    },
    /// Sends stamped frames, consecutive ones to different NFs, and receives what has crossed them.
    Across {
        /// Of each port: the NFs that it sends to.
        targets: Vec<across::Targets>,
        load: across::Load,
        /// The interface that they leave by, if that is not a port; the last port is the wire's then.
        wire: Option<String>,
    },
    /// Hands on each byte of its standard input; it has no ports.
    HandOn,
    /// Sends frames of `len` bytes out of an interface by a compiled XDP program.
    Generate {
        object: PathBuf,
        interface: String,
        len: usize,
        /// To whom; absent: one flow to nobody in particular.
        to: Option<xdp::Addressees>,
    },
    /// Sends one frame of `len` bytes at a time out of the interface `from`, and waits for it at `to`, in the network
    /// namespace at `there`.
    Alone {
        from: String,
        to: String,
        there: PathBuf,
        len: usize,
    },
    /// Sends frames of `len` bytes in bursts of `batch` out of an interface, in its own context, from
    /// the TX slots of its port.
    Transmit {
        interface: String,
        len: usize,
        batch: usize,
    },
    /// Receives what TCP connections to a port of its namespace carry, plain ones and ones of several subflows.
    TcpSink { port: u16 },
    /// Sends to such a port without end.
    TcpSource {
        to: SocketAddrV4,
        /// By several subflows, if both ends have them.
        multipath: bool,
        /// Congestion control, of each subflow.
        control: String,
    },
    /// Attaches a compiled XDP program to an interface; `to` is where it redirects to.
    Attach {
        object: PathBuf,
        program: String,
        interface: String,
        to: Option<String>,
    },
}

/// The role of this process, if it is one of an experiment.
pub fn from_env() -> Option<Role> {
    let text = std::env::var(ROLE_ENV).ok()?;
    match serde_json::from_str(&text) {
        Ok(role) => Some(role),
        Err(error) => {
            eprintln!("nfluid-bench: {ROLE_ENV}: {error}");
            None
        }
    }
}

impl Role {
    /// Plays the role until standard input ends.
    pub fn run(&self) -> ExitCode {
        match self.play() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("nfluid-bench: role {:?}: {error:#}", self.task);
                ExitCode::FAILURE
            }
        }
    }

    fn play(&self) -> anyhow::Result<()> {
        if let Task::Io { model } = &self.task {
            return io::serve_ports(model, self.core);
        }
        if self.core != ANY_CORE {
            let mut cpus = CpuSet::new();
            cpus.set(self.core);
            sched_setaffinity(None, &cpus).context("pinning to a core")?;
        }
        match &self.task {
            Task::Generate {
                object,
                interface,
                len,
                to,
            } => xdp::generate(object, interface, *len, *to),
            Task::Attach {
                object,
                program,
                interface,
                to,
            } => xdp::attach(object, program, interface, to.as_deref()),
            Task::Alone {
                from,
                to,
                there,
                len,
            } => alone::alone(from, to, there, *len),
            Task::HandOn => hand_on::hand_on(),
            Task::TcpSink { port } => tcp::sink(*port),
            Task::TcpSource {
                to,
                multipath,
                control,
            } => tcp::source(*to, *multipath, control),
            Task::Hop {
                next,
                waits,
                parent,
                listed,
            } => hop::run(*next, *waits, *parent, *listed),
            Task::Host { workload, manner } => function::host(workload, *manner),
            Task::Paced { workload, len } => paced::run(workload, *len),
            Task::Hostile => hostile::run(),
            task => {
                let mut attached = Attached::from_env()?;
                let mut work = task.prepare(&mut attached)?;
                serve(|span| Ok(run_for(&mut attached, &mut *work, span)))
            }
        }
    }
}

impl Task {
    fn prepare(&self, attached: &mut Attached) -> anyhow::Result<Box<dyn Work>> {
        let work: Box<dyn Work> = match self {
            Task::Send {
                len,
                batch,
                flows,
                waits,
            } => Box::new(oneway::Sender::new(attached, *len, *batch, *flows, *waits)?),
            Task::Receive {
                batch,
                reads,
                waits,
            } => Box::new(oneway::Receiver::new(*batch, *reads, *waits)),
            Task::Nf { workload } => Box::new(function::Function::new(attached, workload)?),
            Task::Fan { workload, fan } => {
                Box::new(fan::FanTraffic::new(attached, workload, *fan)?)
            }
            Task::Around {
                workload,
                to,
                len,
                batch,
                window,
                waits,
            } => {
                let limits = around::Limits {
                    batch: *batch,
                    window: *window,
                    waits: *waits,
                };
                Box::new(around::Around::new(attached, workload, *to, *len, limits)?)
            }
            Task::Transmit {
                interface,
                len,
                batch,
            } => Box::new(transmit::Transmit::new(attached, interface, *len, *batch)?),
            Task::Ping { workload, to } => Box::new(ping::Ping::new(attached, workload, *to)?),
            Task::Ring { pause_us } => {
                Box::new(wake::Ringer::new(Duration::from_micros(*pause_us)))
            }
            Task::Sleep => Box::new(wake::Sleeper::default()),
            Task::Circle {
                workload,
                len,
                frames,
            } => Box::new(loopback::Circle::new(attached, workload, *len, *frames)?),
            Task::Outward {
                workload,
                len,
                frames,
            } => Box::new(loopback::Outward::new(attached, workload, *len, *frames)?),
            Task::Stream { len, batch } => Box::new(loopback::Stream::new(attached, *len, *batch)?),
            Task::HandOver { pause_us } => {
                let pause = Duration::from_micros(*pause_us);
                Box::new(loopback::HandOver::new(attached, pause)?)
            }
            Task::Across {
                targets,
                load,
                wire,
            } => {
                let wire = wire.as_deref();
                Box::new(across::Across::new(attached, targets, *load, wire)?)
            }
            Task::Hop { .. }
            | Task::Host { .. }
            | Task::Paced { .. }
            | Task::Hostile
            | Task::Generate { .. }
            | Task::Alone { .. }
            | Task::Attach { .. }
            | Task::Io { .. }
            | Task::TcpSink { .. }
            | Task::TcpSource { .. }
            | Task::HandOn => bail!("it does not run for a time on ports"),
        };
        Ok(work)
    }
}
