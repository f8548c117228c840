//! The processes of an experiment: this program in a role, each pinned to its core, each with the ports of its own
//! instance or in its own network namespace. A role starts a run when its standard input gets a line, and answers on
//! standard output with one line of JSON.

pub mod across;
mod alone;
mod around;
mod datagrams;
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

/// Environment variable that passes the role to a process.
pub const ROLE_ENV: &str = "NFLUID_BENCH_ROLE";
/// The role of a process of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Core to run on, or [`ANY_CORE`].
    pub core: usize,
    /// The task.
    pub task: Task,
}

/// Tasks of a role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Sends frames of `len` bytes in bursts of `batch` until the end of the run; frames are prepared once, then only
    /// their length is written, as pkt-gen does.
    Send {
        len: usize,
        batch: usize,
        flows: u32,
        waits: Waits,
    },
    /// Receives in bursts; reads every byte of every frame, or does not touch the payload.
    Receive {
        batch: usize,
        reads: bool,
        waits: Waits,
    },
    /// Runs an NF as its host does: batch after batch, asleep when no frame waits.
    Nf { workload: Workload },
    /// The same in a KVM guest.
    Guest {
        /// The NF.
        workload: Workload,
    },
    /// Runs an NF until standard input ends, as its host does or in another manner.
    Host { workload: Workload, manner: Manner },
    /// Sends the workload's traffic through many NFs, each linked to its own port in both directions.
    Fan { workload: Workload, fan: Fan },
    /// Sends the workload's traffic through many NFs at rates that scripts give.
    Paced { workload: Workload, len: usize },
    /// Sends the workload's traffic on port 0 and receives on port 1, with at most `window` frames in flight, so that
    /// no ring on the path overflows.
    Around {
        workload: Workload,
        /// Destination hardware address.
        to: [u8; 6],
        len: usize,
        batch: usize,
        window: u32,
        /// Behaviour while no frame returns.
        waits: Waits,
    },
    /// Sends one frame on port 0 and sleeps until it returns on port 1.
    Ping { workload: Workload, to: [u8; 6] },
    /// Sends single stamped frames to a sleeping receiver; reports the cost of the call.
    Ring { pause_us: u64 },
    /// Sleeps until a frame arrives; reports the age of its stamp.
    Sleep,
    /// An NF through which `frames` frames circulate: its ports are joined.
    Circle {
        workload: Workload,
        len: usize,
        frames: u32,
    },
    /// As `Circle`; one of many frames leaves on its third port, on which frames also arrive.
    Outward {
        workload: Workload,
        len: usize,
        frames: u32,
    },
    /// Hands frames of `len` bytes to the switch, `batch` at a time; its ports are joined.
    Stream { len: usize, batch: u32 },
    /// Hands over single frames and sleeps until each is consumed; its ports are joined.
    HandOver { pause_us: u64 },
    /// Hosts the I/O threads that serve other instances' ports.
    Io { model: Model },
    /// An NF that is honest or hostile on order.
    Hostile,
    /// Signs frames and sends each to `next`, until it is killed or its `parent` ends.
    Hop {
        next: [u8; 6],
        waits: Waits,
        parent: u32,
        /// The ring in which it announces frames, if an I/O thread serves it.
        listed: Option<hop::Listed>,
    },
    /// Sends stamped frames, consecutive frames to different NFs, and receives them after the NFs.
    Across {
        /// The destination NFs of each port.
        targets: Vec<across::Targets>,
        load: across::Load,
        /// The interface by which frames leave, if not by a port; then the last port is the wire's.
        wire: Option<String>,
    },
    /// Forwards each byte of its standard input; it has no ports.
    HandOn,
    /// Sends frames of `len` bytes out of an interface by a compiled XDP program.
    Generate {
        object: PathBuf,
        interface: String,
        len: usize,
        /// Destinations; absent: one flow to an address without a host.
        to: Option<xdp::Addressees>,
    },
    /// Sends single frames of `len` bytes out of the interface `from`, and waits for each at `to`, in the network
    /// namespace at `there`.
    Alone {
        from: String,
        to: String,
        there: PathBuf,
        len: usize,
    },
    /// Sends frames of `len` bytes in bursts of `batch` out of an interface, in its own context, from the TX slots of
    /// its port.
    Transmit {
        interface: String,
        len: usize,
        batch: usize,
    },
    /// Receives from TCP connections to a port of its namespace, plain ones and ones of several subflows.
    TcpSink { port: u16 },
    /// Sends to such a port continuously.
    TcpSource {
        to: SocketAddrV4,
        /// True: by several subflows, if both ends support them.
        multipath: bool,
        /// Congestion control of each subflow.
        control: String,
    },
    /// Returns UDP datagrams that arrive at a port of its namespace to their senders.
    UdpEcho { port: u16 },
    /// Sends UDP datagrams to such a port, and measures their round trips.
    UdpProbe { to: SocketAddrV4 },
    /// Attaches a compiled XDP program to an interface; `to` is the interface to which it redirects.
    Attach {
        object: PathBuf,
        program: String,
        interface: String,
        to: Option<String>,
    },
}

/// Returns the role of this process, if it is a process of an experiment.
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
    /// Runs the role until standard input ends.
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
            Task::UdpEcho { port } => datagrams::echo(*port),
            Task::UdpProbe { to } => datagrams::probe(*to),
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
            Task::Guest { workload } => Box::new(function::Function::in_guest(attached, workload)?),
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
            | Task::UdpEcho { .. }
            | Task::UdpProbe { .. }
            | Task::HandOn => bail!("it does not run for a time on ports"),
        };
        Ok(work)
    }
}
