//! A machine with a Linux kernel of its own, which an emulator runs in another process: its interfaces are datagram sockets.

use anyhow::{Context, ensure};
use nfluid_hosting::Functions;
use nfluid_nf::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_protocol::environment::{self, descriptor, needed};
use nfluid_ring::layout::LONG_MAX;
use nfluid_ring::memory::Pool;
use nfluid_ring::{Batch, Outbox};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::Value;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Most frames that are taken from an interface in one turn.
const TURN: usize = 64;

/// Makes the network function of this process.
pub struct Machines {
    /// Readable when the machine has sent something, or has ended.
    watched: OwnedFd,
    /// The machine, until it is a network function.
    machine: Option<Machine>,
}

impl Machines {
    /// Takes the machine that the daemon has started. `None`: there is none.
    ///
    /// # Errors
    /// An inherited descriptor is missing.
    pub fn inherited() -> anyhow::Result<Option<Self>> {
        let name = environment::INTERFACES;
        let Ok(numbers) = std::env::var(name) else {
            return Ok(None);
        };
        let numbers = numbers.split(',').filter(|number| !number.is_empty());
        let interfaces: Result<Vec<_>, _> = numbers.map(descriptor).collect();
        let machine = Machine {
            interfaces: interfaces.context(name)?,
            emulator: needed(environment::EMULATOR)?,
            room: vec![0; LONG_MAX],
            counts: Counts::default(),
        };
        let sockets = machine.interfaces.iter().chain([&machine.emulator]);
        let sockets: Vec<_> = sockets.map(AsFd::as_fd).collect();
        let watched = nfluid_hosting::any_of(&sockets)?;
        Ok(Some(Machines {
            watched,
            machine: Some(machine),
        }))
    }
}

impl Functions for Machines {
    fn prepare(&mut self, _pool: &Arc<Pool>, _ports: &[PortInfo]) -> anyhow::Result<()> {
        anyhow::bail!("there are no pools of machines with a kernel of their own")
    }

    fn watched(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watched.as_fd())
    }

    fn build(
        &mut self,
        _name: &str,
        _config: &Value,
        ports: &[PortInfo],
        _pool: &Arc<Pool>,
    ) -> anyhow::Result<Box<dyn NetworkFunction>> {
        let machine = self.machine.take().context("there is one machine")?;
        ensure!(
            machine.interfaces.len() == ports.len(),
            "the machine has {} interfaces, and the instance {} ports",
            machine.interfaces.len(),
            ports.len()
        );
        if let Ok(said) = std::env::var(environment::ACCELERATOR) {
            eprintln!("nfluid-vmm: {said}");
        }
        Ok(Box::new(machine))
    }
}

/// The machine as a network function.
struct Machine {
    /// The sockets to the machine's interfaces, one for each port.
    interfaces: Vec<OwnedFd>,
    /// Closed at the other end when the emulator has ended.
    emulator: OwnedFd,
    /// Room for a frame.
    room: Vec<u8>,
    counts: Counts,
}

/// Counters of frames.
#[derive(Default)]
struct Counts {
    entered: u64,
    left: u64,
    /// The machine has not taken earlier frames yet.
    machine_full: u64,
    /// The port has no room, or the frame is too short or too long for one.
    port_full: u64,
}

impl Machine {
    /// Ends this process when the emulator has ended: the daemon starts both again as the instance's policy says.
    fn end_with_emulator(&self) {
        let mut byte = [0];
        match recv(&self.emulator, &mut byte[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((1.., _)) => {}
            Ok(_) | Err(_) => {
                eprintln!("nfluid-vmm: the machine has ended");
                std::process::exit(1)
            }
        }
    }
}

impl NetworkFunction for Machine {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        for frame in batch.frames() {
            let Some(interface) = self.interfaces.get(usize::from(frame.in_port())) else {
                continue;
            };
            match send(
                interface,
                frame.bytes(),
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(_) => self.counts.entered += 1,
                Err(_) => self.counts.machine_full += 1,
            }
        }
    }

    fn tick(&mut self, _now: Nanos, outbox: &mut dyn Outbox) {
        for (port, interface) in (0..=u8::MAX).zip(&self.interfaces) {
            for _ in 0..TURN {
                let Ok((length, _)) = recv(interface, &mut self.room[..], RecvFlags::DONTWAIT)
                else {
                    break;
                };
                if outbox.emit(port, &self.room[..length]) {
                    self.counts.left += 1;
                } else {
                    self.counts.port_full += 1;
                }
            }
        }
        self.end_with_emulator();
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        for (name, value) in [
            ("machine_frames_in_total", self.counts.entered),
            ("machine_frames_out_total", self.counts.left),
            ("machine_dropped_full_total", self.counts.machine_full),
            ("machine_dropped_no_room_total", self.counts.port_full),
        ] {
            sink(Metric::new(name, value));
        }
    }

    fn reconfigure(&mut self, _config: &Value, _ports: &[PortInfo]) -> Result<(), ConfigError> {
        Err(ConfigError::at(
            "",
            "a machine takes another configuration only when it starts: restart the instance"
                .to_owned(),
        ))
    }
}
