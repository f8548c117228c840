//! `nfluid gen`: traffic on a network interface, or on the ports of the instance that runs it.
//!
//! As an instance's `program`, `nfluid gen send --port out` finds the port `out` in the table that every instance
//! inherits. This command uses no runtime, no thread and no daemon, since an instance may do little.

use crate::failure::Failure;
use nfluid_gen::cli::{CliError, GenCommand, PortSource};
use nfluid_gen::io::{IoError, Receiver, Sender};
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::Doorbell;
use nfluid_ring::error::AttachError;
use nfluid_ring::port::{Port, WhenFull};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub fn run(command: &GenCommand) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::Operation(format!("cannot watch for signals: {error}")))?;
    }
    let mut ports = InheritedPorts::default();
    nfluid_gen::cli::run(command, &mut ports, &stop, &mut io::stdout().lock()).map_err(|error| {
        match error {
            CliError::Output(error) => error.into(),
            other => Failure::Operation(other.to_string()),
        }
    })
}

/// The ports of the instance that this program is.
#[derive(Default)]
struct InheritedPorts {
    attached: Option<Attached>,
}

impl PortSource for InheritedPorts {
    type Sender = RingPort;
    type Receiver = RingPort;

    fn open(&mut self, port: &str) -> Result<(RingPort, RingPort), IoError> {
        if self.attached.is_none() {
            self.attached = Some(Attached::from_env().map_err(|error| cannot_open(port, error))?);
        }
        let attached = self
            .attached
            .take()
            .ok_or_else(|| no_such_port(port, &[]))?;
        let at = attached
            .ports
            .iter()
            .position(|candidate| candidate.entry().name() == port);
        let Some(at) = at else {
            return Err(no_such_port(port, &attached.ports));
        };
        let mut ports = attached.ports;
        let half = RingPort {
            name: port.to_owned(),
            inner: Rc::new(RefCell::new(Inner {
                port: [ports.swap_remove(at)],
                doorbell: attached.doorbell,
            })),
        };
        Ok((half.clone(), half))
    }
}

fn cannot_open(port: &str, error: AttachError) -> IoError {
    let remedy = match error {
        AttachError::NoTable => {
            "run it as an instance ('program: /usr/bin/nfluid', 'args: [gen, ...]'), or use an \
             interface (--interface)"
        }
        _ => "look at 'nfluid logs' and 'nfluid doctor'",
    };
    IoError::Open {
        port: format!("port '{port}'"),
        cause: Box::new(error),
        remedy,
    }
}

fn no_such_port(port: &str, ports: &[Port]) -> IoError {
    let names: Vec<&str> = ports.iter().map(|port| port.entry().name()).collect();
    IoError::Open {
        port: format!("port '{port}'"),
        cause: format!("the instance's ports are {}", names.join(", ")).into(),
        remedy: "name one of them",
    }
}

struct Inner {
    // A slice of one port, as the doorbell requires.
    port: [Port; 1],
    doorbell: Doorbell,
}

/// Both halves of a ring port; one thread uses them in turn.
#[derive(Clone)]
struct RingPort {
    name: String,
    inner: Rc<RefCell<Inner>>,
}

impl RingPort {
    fn failed(&self, action: &'static str, error: io::Error) -> IoError {
        IoError::Failed {
            port: format!("port '{}'", self.name),
            action,
            cause: Box::new(error),
        }
    }
}

impl Sender for RingPort {
    fn send(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        let mut inner = self.inner.borrow_mut();
        let [port] = &mut inner.port;
        let mut sent = 0;
        while sent < count {
            if port.room() == 0 {
                let flushed = port.flush(WhenFull::Keep);
                flushed.map_err(|error| self.failed("sending", error))?;
                if port.room() == 0 {
                    break;
                }
            }
            if !port.send(|slot| fill(sent, slot)) {
                break;
            }
            sent += 1;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let mut inner = self.inner.borrow_mut();
        let [port] = &mut inner.port;
        port.flush(WhenFull::Keep)
            .map(drop)
            .map_err(|error| self.failed("sending", error))
    }
}

impl Receiver for RingPort {
    fn receive(&mut self, max: usize, mut handle: impl FnMut(&[u8])) -> Result<usize, IoError> {
        let mut inner = self.inner.borrow_mut();
        let [port] = &mut inner.port;
        Ok(port.receive(max, |frame| handle(frame)))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let Inner { port, doorbell } = &mut *self.inner.borrow_mut();
        doorbell
            .wait(port, None, timeout)
            .map(drop)
            .map_err(|error| self.failed("waiting", error))
    }
}
