//! The processes of an experiment: this program again, each pinned to its core, each with the ports
//! of its own instance. A role starts when its standard input gets a line and answers on standard
//! output with one line of JSON.

use anyhow::Context;
use nfluid_ring::Batch;
use nfluid_ring::attach::Attached;
use nfluid_ring::engine::Engine;
use nfluid_ring::port::{Port, WhenFull};
use rustix::process::{Pid, Rusage, RusageWho};
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Environment variable that carries a role to the process that plays it.
pub const ROLE_ENV: &str = "NFLUID_BENCH_ROLE";

/// What a process of an experiment does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Core to run on.
    pub core: usize,
    /// What to do.
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
        yields: bool,
    },
    /// Receives in bursts, reads every byte of every frame.
    Receive { yields: bool },
    /// Runs an NF by the name of the catalogue.
    Nf {
        name: String,
        config: serde_json::Value,
        spin: bool,
    },
}

/// What a role reports.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Frames received or accepted by the switch.
    pub frames: u64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Folded payload, so that reading it cannot be optimised away.
    pub fold: u64,
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
        let mut cpus = CpuSet::new();
        cpus.set(self.core);
        sched_setaffinity(None, &cpus).context("pinning to a core")?;
        let attached = Attached::from_env()?;
        let mut player = Player::new(self, attached)?;
        for line in std::io::stdin().lock().lines() {
            let seconds: f64 = line?.trim().parse().context("seconds to run")?;
            let outcome = player.run_for(Duration::from_secs_f64(seconds));
            println!("{}", serde_json::to_string(&outcome)?);
            std::io::stdout().flush()?;
        }
        Ok(())
    }
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let usage: Rusage = rustix::process::getrusage(RusageWho::SelfProcess);
    let seconds = |time: rustix::process::Timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

struct Player {
    attached: Attached,
    work: Work,
}

enum Work {
    Send {
        len: usize,
        batch: usize,
        yields: bool,
    },
    Receive {
        yields: bool,
        fold: u64,
    },
    Nf {
        nf: Box<dyn nfluid_nf::NetworkFunction>,
        engine: Engine,
        spin: bool,
    },
}

/// Bursts between two looks at the clock.
const BURSTS_PER_LOOK: u32 = 64;

impl Player {
    fn new(role: &Role, mut attached: Attached) -> anyhow::Result<Self> {
        let work = match &role.task {
            Task::Send {
                len,
                batch,
                flows,
                yields,
            } => {
                let port = attached
                    .ports
                    .first_mut()
                    .context("a sender needs a port")?;
                prepare_frames(port, *len, *flows);
                Work::Send {
                    len: *len,
                    batch: *batch,
                    yields: *yields,
                }
            }
            Task::Receive { yields } => Work::Receive {
                yields: *yields,
                fold: 0,
            },
            Task::Nf { name, config, spin } => {
                let ports = port_infos(&attached.ports);
                let nf =
                    nfluid_nf::catalogue::build(name, config, &ports).context("building the NF")?;
                Work::Nf {
                    nf,
                    engine: Engine::new(),
                    spin: *spin,
                }
            }
        };
        Ok(Player { attached, work })
    }

    fn run_for(&mut self, time: Duration) -> Outcome {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let mut frames = 0;
        let mut elapsed = Duration::ZERO;
        while elapsed < time {
            for _ in 0..BURSTS_PER_LOOK {
                frames += self.burst(start);
            }
            elapsed = start.elapsed();
        }
        let fold = if let Work::Receive { fold, .. } = &self.work {
            *fold
        } else {
            0
        };
        Outcome {
            frames,
            seconds: elapsed.as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            fold,
        }
    }

    fn burst(&mut self, start: Instant) -> u64 {
        let Attached { ports, doorbell } = &mut self.attached;
        match &mut self.work {
            Work::Send { len, batch, yields } => send_burst(&mut ports[0], *len, *batch, *yields),
            Work::Receive { yields, fold } => {
                let got = ports[0].receive(64, |frame| *fold ^= read_all(frame));
                if got == 0 {
                    pause(*yields);
                }
                got as u64
            }
            Work::Nf { nf, engine, spin } => {
                let now = nfluid_nf::Nanos(start.elapsed().as_nanos() as u64);
                let mut got = 0;
                for port in 0..ports.len() {
                    let mut decide = |batch: &mut Batch<'_, '_>| nf.process(now, batch);
                    got += engine.run_once(ports, port as u8, &mut decide);
                }
                if got == 0 && *spin {
                    std::hint::spin_loop();
                } else if got == 0 {
                    // An error here shows as missing throughput.
                    let _ = doorbell.wait(ports, None, Duration::from_millis(10));
                }
                got as u64
            }
        }
    }
}

fn pause(yields: bool) {
    if yields {
        sched_yield()
    } else {
        std::hint::spin_loop()
    }
}

fn send_burst(port: &mut Port, len: usize, batch: usize, yields: bool) -> u64 {
    while (port.queued() as usize) < batch && port.send(|_| len) {}
    match port.flush(WhenFull::Keep) {
        Ok(0) => {
            pause(yields);
            0
        }
        Ok(sent) => u64::from(sent),
        Err(_) => 0,
    }
}

/// Reads every byte of the frame, eight at a time.
fn read_all(frame: &[u8]) -> u64 {
    let (words, rest) = frame.as_chunks::<8>();
    let folded = words
        .iter()
        .fold(0, |fold, word| fold ^ u64::from_ne_bytes(*word));
    rest.iter()
        .fold(folded, |fold, byte| fold ^ u64::from(*byte))
}

/// Writes one UDP frame into each TX slot, `flows` different ones in turn, and sends none of them.
fn prepare_frames(port: &mut Port, len: usize, flows: u32) {
    let slots = port.entry().tx_slots;
    for flow in 0..slots {
        let frame = crate::experiments::traffic::udp_frame(len, flow % flows.max(1));
        // Discarded below; only the content of the slots matters.
        let _ = port.send(|slot| {
            slot[..frame.len()].copy_from_slice(&frame);
            frame.len()
        });
        if port.room() == 0 {
            port.discard_queued();
        }
    }
    port.discard_queued();
}

fn port_infos(ports: &[Port]) -> Vec<nfluid_nf::PortInfo> {
    let info = |port: &Port| nfluid_nf::PortInfo {
        name: port.entry().name().to_owned(),
        mac: nfluid_wire::ether::MacAddr(port.entry().mac),
        mtu: port.entry().mtu,
    };
    ports.iter().map(info).collect()
}
