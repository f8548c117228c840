//! A guest as a network function: each operation is a call of the guest, and frames stay where they are.

mod batch;
mod state;

use crate::end::{End, MachineError};
use crate::hypervisor::Hypervisor;
use crate::image::Image;
use crate::machine::{Machine, MachineStats, PoolMemory, Rung};
use crate::watchdog::{LONG_PATIENCE_S, PATIENCE_S};
use arrayvec::ArrayVec;
use nfluid_guest::abi::{Call, Reply, VERSION, op, status};
use nfluid_guest::message;
use nfluid_nf::stateful::Stateful;
use nfluid_nf::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::layout::FRAME_MAX;
use nfluid_ring::port::PortsOutbox;
use nfluid_ring::{Batch, Frame, Outbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::RefCell;

/// Longest reply that the monitor reads.
const REPLY_BYTES_MAX: u64 = nfluid_nf::stateful::IMAGE_BYTES_MAX as u64;
/// Most counters that the monitor takes from a guest.
const METRICS_MAX: usize = 65536;

/// Bytes that a waiting guest touches of each part of its heap: the memory of some 1000 states.
const WARM_BYTES: u32 = 256 << 10;
/// Bytes of the frame of a rehearsal.
const REHEARSED_BYTES: u16 = 60;

/// What happens when a guest does not go on: the process that it was is over.
pub type AtEnd = fn(&End) -> !;

/// A guest that runs an image. After [`Guest::build`] it is a network function.
///
/// A guest that does not go on cannot be one any more: `at_end` is called, and does not return.
pub struct Guest {
    machine: RefCell<Machine>,
    at_end: AtEnd,
    built: message::Built,
    next_tick: u64,
    /// Frames that the guest has made and for which a port had no room.
    unsent: u64,
}

/// The failure of a call: the guest has said why.
#[derive(Debug)]
struct Refusal {
    text: Vec<u8>,
}

impl Refusal {
    fn message(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl Guest {
    /// Makes a machine and runs its image until it waits for its first call.
    ///
    /// # Errors
    /// See [`MachineError`].
    ///
    /// # Safety
    /// As for [`Machine::new`].
    pub unsafe fn start(
        hypervisor: &Hypervisor,
        image: Image,
        bytes: u64,
        pool: PoolMemory,
        at_end: AtEnd,
    ) -> Result<Self, MachineError> {
        // SAFETY: the caller's promise.
        let mut machine = unsafe { Machine::new(hypervisor, image, bytes, pool) }?;
        machine.begin_call(PATIENCE_S);
        let reply = await_reply(&mut machine, &mut |_| {
            Err(End::Protocol("it makes frames before it has started"))
        })?;
        if reply.version != VERSION {
            let why = "its image was built for another version of nfluid: build it again";
            return Err(End::Protocol(why).into());
        }
        Ok(Guest {
            machine: RefCell::new(machine),
            at_end,
            built: message::Built::default(),
            next_tick: u64::MAX,
            unsent: 0,
        })
    }

    /// Has the guest build its network function.
    ///
    /// # Errors
    /// The guest refuses the configuration.
    pub fn build(
        &mut self,
        name: &str,
        config: &Value,
        ports: &[PortInfo],
    ) -> Result<(), ConfigError> {
        self.built = self.configure(op::BUILD, name, config, ports)?;
        Ok(())
    }

    /// Has the guest build a network function, handle a frame, and be ready for another one: the code and the memory that a
    /// similar network function needs have then been touched. What comes of it does not matter.
    pub fn rehearse(&mut self, name: &str, config: &Value, ports: &[PortInfo]) {
        if self.build(name, config, ports).is_err() {
            return;
        }
        let mut slot = [0; FRAME_MAX];
        slot[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        let mut frames = ArrayVec::new();
        frames.push(Frame::new(&mut slot, REHEARSED_BYTES, 0));
        let mut outbox = PortsOutbox(&mut []);
        self.process(Nanos(0), &mut Batch::new(&mut frames, &mut outbox));
        self.tick(Nanos(0), &mut outbox);
        let warm = Call {
            op: op::WARM,
            count: WARM_BYTES,
            ..Call::default()
        };
        // A guest that does not know how is no worse than before.
        let _ = self.ask(warm, &[]);
    }

    /// Returns the counters of its machine.
    pub fn machine_stats(&self) -> MachineStats {
        self.machine.borrow().stats()
    }

    fn configure(
        &self,
        op: u32,
        name: &str,
        config: &Value,
        ports: &[PortInfo],
    ) -> Result<message::Built, ConfigError> {
        let port = |port: &PortInfo| message::PortWords {
            name: port.name.clone(),
            mac: port.mac.0,
            mtu: port.mtu,
        };
        let asked = message::Build {
            name: name.to_owned(),
            config,
            ports: ports.iter().map(port).collect(),
        };
        self.ask_json(op, 0, &asked).map_err(|refusal| {
            match serde_json::from_slice::<message::Refused>(&refusal.text) {
                Ok(why) => ConfigError {
                    path: why.path,
                    line: why.line,
                    message: why.message,
                },
                Err(_) => ConfigError::at("", refusal.message()),
            }
        })
    }

    /// Makes a call whose request and reply are JSON.
    fn ask_json<Q: Serialize, A: DeserializeOwned>(
        &self,
        op: u32,
        now: u64,
        request: &Q,
    ) -> Result<A, Refusal> {
        let request = serde_json::to_vec(request).map_err(|why| Refusal {
            text: why.to_string().into_bytes(),
        })?;
        let call = Call {
            op,
            now,
            ..Call::default()
        };
        let answer = self.ask(call, &[&request])?.1;
        let parsed = serde_json::from_slice(&answer);
        Ok(parsed
            .unwrap_or_else(|_| self.end(&End::Protocol("its answer is not what was asked for"))))
    }

    /// Makes a call with a request in several parts. Returns the reply and the bytes that it names.
    fn ask(&self, call: Call, request: &[&[u8]]) -> Result<(Reply, Vec<u8>), Refusal> {
        let mut machine = self.machine.borrow_mut();
        let asked = ask(&mut machine, call, request, &mut |_| {
            Err(End::Protocol("it makes frames in a call that has none"))
        });
        let (reply, bytes) = asked.unwrap_or_else(|end| self.end(&end));
        match reply.status {
            status::OK => Ok((reply, bytes)),
            status::UNKNOWN => Err(Refusal {
                text: b"this guest has no such operation".to_vec(),
            }),
            _ => Err(Refusal { text: bytes }),
        }
    }

    fn end(&self, end: &End) -> ! {
        (self.at_end)(end)
    }
}

/// Runs the guest until it has replied. `made` is called for frames that it has made meanwhile.
fn await_reply(
    machine: &mut Machine,
    made: &mut dyn FnMut(&mut Machine) -> Result<(), End>,
) -> Result<Reply, End> {
    loop {
        match machine.run()? {
            Rung::Ready => return Ok(machine.memory_ref().reply()),
            Rung::Made => made(machine)?,
            Rung::Log => eprintln!("{}", machine.text()),
        }
    }
}

/// Makes a call. Returns the reply and a copy of the bytes that it names.
fn ask(
    machine: &mut Machine,
    mut call: Call,
    request: &[&[u8]],
    made: &mut dyn FnMut(&mut Machine) -> Result<(), End>,
) -> Result<(Reply, Vec<u8>), End> {
    let request = request.concat();
    call.length = request.len() as u64;
    call.address = match machine.memory().put_request(&request) {
        Some(address) => address,
        None => {
            let address = make_room(machine, call.length)?;
            machine.memory().write(address, &request)?;
            address
        }
    };
    machine.begin_call(LONG_PATIENCE_S);
    machine.memory().put_call(call);
    let reply = await_reply(machine, made)?;
    if reply.length > REPLY_BYTES_MAX {
        return Err(End::Protocol("its reply is too long"));
    }
    let bytes = machine.bytes(reply.address, reply.length);
    let bytes = if reply.length == 0 { &[] } else { bytes? };
    Ok((reply, bytes.to_vec()))
}

/// Has the guest make room for a request that does not fit into the mailbox.
fn make_room(machine: &mut Machine, length: u64) -> Result<u64, End> {
    machine.begin_call(LONG_PATIENCE_S);
    machine.memory().put_call(Call {
        op: op::ROOM,
        length,
        ..Call::default()
    });
    let none = &mut |_: &mut Machine| Err(End::Protocol("it makes frames in a call that has none"));
    let reply = await_reply(machine, none)?;
    if reply.status != status::OK || reply.length != length {
        return Err(End::Protocol(
            "it has no memory for a request: give the instance more",
        ));
    }
    Ok(reply.address)
}

impl NetworkFunction for Guest {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let done = batch::process(self.machine.get_mut(), now, batch);
        self.note(done);
    }

    fn tick(&mut self, now: Nanos, outbox: &mut dyn Outbox) {
        let done = batch::tick(self.machine.get_mut(), now, outbox);
        self.note(done);
    }

    fn has_timers(&self) -> bool {
        self.next_tick != u64::MAX
    }

    fn next_tick(&self) -> Nanos {
        Nanos(self.next_tick)
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        let metrics: Vec<message::Metric> = self.ask_json(op::METRICS, 0, &()).unwrap_or_default();
        for metric in metrics.into_iter().take(METRICS_MAX) {
            let labels = metric.labels.into_iter();
            sink(Metric {
                name: Cow::Owned(metric.name),
                labels: labels
                    .map(|(key, value)| (Cow::Owned(key), value))
                    .collect(),
                value: metric.value,
            });
        }
        let machine = self.machine_stats();
        sink(Metric::new("guest_exits_total", machine.exits));
        sink(Metric::new("guest_interrupts_total", machine.interrupted));
        sink(Metric::new("guest_frames_without_room_total", self.unsent));
    }

    fn command(&mut self, now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        let asked = message::Command {
            name: name.to_owned(),
            args: args.to_vec(),
        };
        self.ask_json(op::COMMAND, now.0, &asked)
            .map_err(|refusal| CommandError::BadArgument(refusal.message()))
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        if self.built.divides {
            Ok(())
        } else {
            Err("its guest says that it has state that flows share")
        }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        self.built
            .state
            .is_some()
            .then_some(self as &mut dyn Stateful)
    }

    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        self.built = self.configure(op::RECONFIGURE, "", config, ports)?;
        Ok(())
    }
}

impl Guest {
    fn note(&mut self, done: Result<batch::Done, End>) {
        match done {
            Ok(done) => {
                self.next_tick = done.next_tick;
                self.unsent += done.unsent;
            }
            Err(end) => self.end(&end),
        }
    }
}
