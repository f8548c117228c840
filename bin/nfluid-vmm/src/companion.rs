//! A program in another process that frames go to: a machine with a Linux kernel of its own, whose interfaces are datagram
//! sockets, from which its frames come as well; or a server on a network stack of its own, whose interfaces are veths. What a
//! server sends enters the switch at the outer end of the veth, and does not pass here.

use anyhow::{Context, ensure};
use nfluid_hosting::Functions;
use nfluid_nf::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_protocol::environment::{self, descriptor, needed};
use nfluid_ring::layout::LONG_MAX;
use nfluid_ring::memory::Pool;
use nfluid_ring::{Batch, Offload, Outbox};
use rustix::io::{Errno, IoSlice, writev};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::Value;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Most frames that are taken from an interface in one turn.
const TURN: usize = 64;

/// Makes the network function of this process.
pub struct Companions {
    /// Readable when the program has sent something, or has ended.
    watched: OwnedFd,
    /// The program, until it is a network function.
    companion: Option<Companion>,
}

impl Companions {
    /// Takes the program that the daemon starts. `None`: there is none.
    ///
    /// # Errors
    /// An inherited descriptor is missing.
    pub fn inherited() -> anyhow::Result<Option<Self>> {
        let sockets = given(environment::INTERFACES)?;
        let (kind, interfaces) = match sockets {
            Some(sockets) => (Kind::Machine, sockets),
            None => match given(environment::STACKS)? {
                Some(sockets) => (Kind::Server, sockets),
                None => return Ok(None),
            },
        };
        let companion = Companion {
            kind,
            interfaces,
            life: needed(environment::COMPANION)?,
            room: vec![0; LONG_MAX + 1],
            counts: Counts::default(),
        };
        let sources = sources(kind, &companion.interfaces)
            .iter()
            .chain([&companion.life]);
        let sources: Vec<_> = sources.map(AsFd::as_fd).collect();
        let watched = nfluid_hosting::any_of(&sources)?;
        Ok(Some(Companions {
            watched,
            companion: Some(companion),
        }))
    }
}

/// Takes the descriptors that an environment variable names, if it is set.
fn given(name: &str) -> anyhow::Result<Option<Vec<OwnedFd>>> {
    let Ok(numbers) = std::env::var(name) else {
        return Ok(None);
    };
    let numbers = numbers.split(',').filter(|number| !number.is_empty());
    let all: Result<Vec<_>, _> = numbers.map(descriptor).collect();
    all.context(name.to_owned()).map(Some)
}

impl Functions for Companions {
    fn prepare(&mut self, _pool: &Arc<Pool>, _ports: &[PortInfo]) -> anyhow::Result<()> {
        // The program's interfaces are there; what it is to be told concerns the daemon.
        Ok(())
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
        let companion = self.companion.take().context("there is one program")?;
        ensure!(
            companion.interfaces.len() == ports.len(),
            "the program has {} interfaces, and the instance {} ports",
            companion.interfaces.len(),
            ports.len()
        );
        if let Ok(said) = std::env::var(environment::ACCELERATOR) {
            eprintln!("nfluid-vmm: {said}");
        }
        Ok(Box::new(companion))
    }
}

/// The kind of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A machine: its interfaces are datagram sockets, and frames are plain.
    Machine,
    /// A server: its interfaces are sockets that only send, with a `struct virtio_net_hdr` before each frame.
    Server,
}

impl Kind {
    /// The program in messages, and as the beginning of its metrics' names.
    fn word(self) -> &'static str {
        match self {
            Kind::Machine => "machine",
            Kind::Server => "server",
        }
    }

    /// Hands a frame to an interface. False: it was not taken.
    fn put(self, interface: &OwnedFd, frame: &[u8], offload: Offload) -> bool {
        match self {
            Kind::Machine => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(interface, frame, flags).is_ok()
            }
            Kind::Server => {
                let header = offload.to_kernel();
                writev(interface, &[IoSlice::new(&header), IoSlice::new(frame)]).is_ok()
            }
        }
    }
}

/// The program as a network function.
struct Companion {
    kind: Kind,
    /// Its interfaces, one for each port.
    interfaces: Vec<OwnedFd>,
    /// Closed at the other end when the program has ended.
    life: OwnedFd,
    /// Room for a frame.
    room: Vec<u8>,
    counts: Counts,
}

/// Counters of frames.
#[derive(Default)]
struct Counts {
    entered: u64,
    left: u64,
    /// The program has not taken earlier frames yet.
    program_full: u64,
    /// The port has no room, or the frame is none that a port takes.
    port_full: u64,
}

/// Returns the interfaces from which frames come: a server's only take frames.
fn sources(kind: Kind, interfaces: &[OwnedFd]) -> &[OwnedFd] {
    match kind {
        Kind::Machine => interfaces,
        Kind::Server => &[],
    }
}

impl Companion {
    /// Ends this process when the program has ended: the daemon starts both again as the instance's policy says.
    fn end_with_program(&self) {
        let mut byte = [0];
        match recv(&self.life, &mut byte[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((1.., _)) => {}
            Ok(_) | Err(_) => {
                eprintln!("nfluid-vmm: the {} has ended", self.kind.word());
                std::process::exit(1)
            }
        }
    }
}

impl NetworkFunction for Companion {
    fn process(&mut self, _now: Nanos, batch: &mut Batch<'_, '_>) {
        for frame in batch.frames() {
            let Some(interface) = self.interfaces.get(usize::from(frame.in_port())) else {
                continue;
            };
            if self.kind.put(interface, frame.bytes(), frame.offload()) {
                self.counts.entered += 1;
            } else {
                self.counts.program_full += 1;
            }
        }
    }

    fn tick(&mut self, _now: Nanos, outbox: &mut dyn Outbox) {
        let room = &mut self.room;
        for (port, interface) in (0..=u8::MAX).zip(sources(self.kind, &self.interfaces)) {
            for _ in 0..TURN {
                let received = recv(interface, &mut room[..], RecvFlags::DONTWAIT);
                let Ok((length, _)) = received else {
                    break;
                };
                // Of a frame that fills the room, the end may be missing.
                let frame = room.get(..length).filter(|it| it.len() < room.len());
                if frame.is_some_and(|frame| outbox.emit(port, frame)) {
                    self.counts.left += 1;
                } else {
                    self.counts.port_full += 1;
                }
            }
        }
        self.end_with_program();
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        let kind = self.kind.word();
        let all = [
            ("frames_in_total", self.counts.entered),
            ("dropped_full_total", self.counts.program_full),
            ("frames_out_total", self.counts.left),
            ("dropped_no_room_total", self.counts.port_full),
        ];
        let counted = match self.kind {
            Kind::Machine => &all[..],
            Kind::Server => &all[..2],
        };
        for &(name, value) in counted {
            sink(Metric::new(format!("{kind}_{name}"), value));
        }
    }

    fn reconfigure(&mut self, _config: &Value, _ports: &[PortInfo]) -> Result<(), ConfigError> {
        Err(ConfigError::at(
            "",
            "the program takes another configuration only when it starts: restart the instance"
                .to_owned(),
        ))
    }
}
