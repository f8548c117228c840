//! The calls of the monitor, answered by a network function.

use super::outbox::Made;
use super::{heap, mailbox};
use crate::abi::{BATCH_MAX, Call, Reply, op, status};
use crate::message;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use nfluid_nf::stateful::{Part, Reader, Writer};
use nfluid_nf::{ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_ring::flow::Buckets;
use nfluid_ring::{Batch, Frame, Offload};
use nfluid_wire::ether::MacAddr;
use serde::Serialize;
use serde_json::Value;

/// Builds the network function of a guest from its name, its configuration and its ports.
pub type Build = fn(&str, &Value, &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError>;

/// Bytes of a set of flows.
const FLOWS_BYTES: usize = 32;

/// The network function of this guest, and the memory of its last reply.
pub struct Guest {
    build: Build,
    nf: Option<Box<dyn NetworkFunction>>,
    /// Bytes that the last reply has named.
    said: Vec<u8>,
    /// Room for a request.
    room: Vec<u8>,
}

/// Why a call was not carried out.
enum Failed {
    /// The guest has no such operation.
    Unknown,
    /// A text for the operator.
    Text(String),
    /// A message in JSON.
    Message(Vec<u8>),
}

impl From<&str> for Failed {
    fn from(text: &str) -> Self {
        Failed::Text(text.to_string())
    }
}

impl Guest {
    /// A guest whose network function is not built yet.
    pub fn new(build: Build) -> Self {
        Guest {
            build,
            nf: None,
            said: Vec::new(),
            room: Vec::new(),
        }
    }

    /// Carries out a call.
    pub fn answer(&mut self, call: &Call) -> Reply {
        let mut reply = Reply::default();
        self.said.clear();
        let done = match call.op {
            op::ROOM => self.make_room(call, &mut reply),
            op::BUILD => self.build(call),
            op::PROCESS => self.process(call, &mut reply),
            op::WARM => {
                heap::warm(call.count as usize);
                Ok(())
            }
            _ => self.with_function(call, &mut reply),
        };
        reply.status = match done {
            Ok(()) => status::OK,
            Err(Failed::Unknown) => status::UNKNOWN,
            Err(Failed::Text(text)) => {
                self.said = text.into_bytes();
                status::FAILED
            }
            Err(Failed::Message(text)) => {
                self.said = text;
                status::FAILED
            }
        };
        if call.op != op::ROOM {
            reply.address = self.said.as_ptr() as u64;
            reply.length = self.said.len() as u64;
        }
        reply.next_tick = match &self.nf {
            Some(nf) if nf.has_timers() => nf.next_tick().0.min(u64::MAX - 1),
            _ => u64::MAX,
        };
        reply
    }

    fn make_room(&mut self, call: &Call, reply: &mut Reply) -> Result<(), Failed> {
        let length = usize::try_from(call.length).map_err(|_| "a request without end")?;
        self.room = Vec::new();
        self.room
            .try_reserve_exact(length)
            .map_err(|_| "the guest has no memory for the request")?;
        reply.address = self.room.as_ptr() as u64;
        reply.length = call.length;
        Ok(())
    }

    fn build(&mut self, call: &Call) -> Result<(), Failed> {
        let asked: message::Build<Value> = parse(call)?;
        let built = (self.build)(&asked.name, &asked.config, &ports_of(asked.ports));
        let mut nf = built.map_err(refused)?;
        self.said = json(&properties(nf.as_mut()))?;
        self.nf = Some(nf);
        Ok(())
    }

    fn process(&mut self, call: &Call, reply: &mut Reply) -> Result<(), Failed> {
        let Some(nf) = &mut self.nf else {
            return Err("no network function was built".into());
        };
        let mut frames: ArrayVec<Frame<'_>, BATCH_MAX> = ArrayVec::new();
        for at in 0..(call.count as usize).min(BATCH_MAX) {
            // SAFETY: the position is one of the list, which the monitor has written, and which nobody changes now. The
            // monitor names memory of the guest's pool or mailbox that is the frame's alone until the call is answered.
            unsafe {
                let words = mailbox::frames().add(at).read_volatile();
                let slot = core::slice::from_raw_parts_mut(
                    words.address as *mut u8,
                    words.capacity as usize,
                );
                let mut frame = Frame::new(slot, words.length, words.in_port);
                let offload = Offload::check(words.offload, usize::from(words.length));
                frame.set_offload(offload.unwrap_or_default());
                frames.push(frame);
            }
        }
        let mut made = Made::default();
        nf.process(Nanos(call.now), &mut Batch::new(&mut frames, &mut made));
        nfluid_ring::Outbox::commit(&mut made, &frames);
        made.report(reply);
        Ok(())
    }

    /// Calls that need a network function.
    fn with_function(&mut self, call: &Call, reply: &mut Reply) -> Result<(), Failed> {
        let Some(nf) = &mut self.nf else {
            return Err("no network function was built".into());
        };
        let now = Nanos(call.now);
        match call.op {
            op::TICK => {
                let mut made = Made::default();
                nf.tick(now, &mut made);
                made.report(reply);
            }
            op::METRICS => self.said = json(&metrics_of(nf.as_ref()))?,
            op::COMMAND => {
                let asked: message::Command = parse(call)?;
                let answer = nf.command(now, &asked.name, &asked.args);
                self.said = json(&answer.map_err(|why| Failed::Text(why.to_string()))?)?;
            }
            op::RECONFIGURE => {
                let asked: message::Build<Value> = parse(call)?;
                let done = nf.reconfigure(&asked.config, &ports_of(asked.ports));
                done.map_err(refused)?;
                self.said = json(&properties(nf.as_mut()))?;
            }
            op::EXPORT => {
                let stateful = nf.stateful().ok_or("it has no state")?;
                let mut writer = Writer::behind(core::mem::take(&mut self.said));
                stateful.export(now, &mut writer);
                self.said = writer.into_written();
            }
            op::IMPORT | op::REHEARSE => {
                let stateful = nf.stateful().ok_or("it has no state")?;
                let mut reader = Reader::new(call.count as u16, mailbox::request(call));
                if call.op == op::REHEARSE {
                    stateful.rehearse(now, &mut reader);
                    return Ok(());
                }
                let taken = stateful.import(now, &mut reader);
                let taken = taken.and_then(|taken| reader.end().map(|()| taken));
                self.said = json(&taken_of(taken)?)?;
            }
            op::IMPORT_PART => {
                let stateful = nf.stateful().ok_or("it has no state")?;
                let request = mailbox::request(call);
                let (flows, rest) = buckets(request)?;
                let (counts, records) = rest.split_first().ok_or("a part without an end")?;
                let part = Part {
                    flows,
                    counts: *counts != 0,
                };
                let mut reader = Reader::new(call.count as u16, records);
                let taken = stateful.import_part(now, &mut reader, &part);
                let taken = taken.and_then(|taken| reader.end().map(|()| taken));
                self.said = json(&taken_of(taken)?)?;
            }
            op::PART_WITH => {
                let (kept, _) = buckets(mailbox::request(call))?;
                let ended = nf.stateful().map(|stateful| stateful.part_with(&kept));
                reply.value = ended.unwrap_or(0);
            }
            _ => return Err(Failed::Unknown),
        }
        Ok(())
    }
}

fn parse<T: serde::de::DeserializeOwned>(call: &Call) -> Result<T, Failed> {
    serde_json::from_slice(mailbox::request(call)).map_err(|why| Failed::Text(why.to_string()))
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    serde_json::to_vec(value).map_err(|why| Failed::Text(why.to_string()))
}

fn ports_of(ports: Vec<message::PortWords>) -> Vec<PortInfo> {
    let port = |port: message::PortWords| PortInfo {
        name: port.name,
        mac: MacAddr(port.mac),
        mtu: port.mtu,
    };
    ports.into_iter().map(port).collect()
}

fn refused(why: ConfigError) -> Failed {
    let refused = message::Refused {
        path: why.path,
        line: why.line,
        message: why.message,
    };
    match json(&refused) {
        Ok(text) => Failed::Message(text),
        Err(failed) => failed,
    }
}

fn properties(nf: &mut dyn NetworkFunction) -> message::Built {
    message::Built {
        divides: nf.divides_by_flow().is_ok(),
        state: nf
            .stateful()
            .map(|it| (it.state_version(), it.oldest_version())),
    }
}

fn metrics_of(nf: &dyn NetworkFunction) -> Vec<message::Metric> {
    let mut all = Vec::new();
    nf.metrics(&mut |metric: Metric| {
        let labels = metric.labels.into_iter();
        all.push(message::Metric {
            name: metric.name.into(),
            labels: labels.map(|(key, value)| (key.into(), value)).collect(),
            value: metric.value,
        });
    });
    all
}

fn taken_of(
    taken: Result<nfluid_nf::stateful::Imported, nfluid_nf::stateful::StateError>,
) -> Result<message::Taken, Failed> {
    let taken = taken.map_err(|why| Failed::Text(why.to_string()))?;
    Ok(message::Taken {
        taken: taken.taken,
        left_out: taken.left_out,
    })
}

/// Reads a set of flows.
fn buckets(request: &[u8]) -> Result<(Buckets, &[u8]), Failed> {
    let (set, rest) = request
        .split_at_checked(FLOWS_BYTES)
        .ok_or("a set of flows that is too short")?;
    let mut words = [0; FLOWS_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(set.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok((Buckets(words), rest))
}
