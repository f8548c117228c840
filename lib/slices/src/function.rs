//! The network function `dataflow`: slices between two ports.
//!
//! It stands between its two ports as a bridge does. UDP datagrams from port 0 to the configured UDP port end here: their
//! samples are put together to the inputs of intervals, whose graphs the engine computes. Results leave on port 1 with the
//! addresses and tags of the samples, as if the sender of the samples had sent them. Everything else passes, both ways.

use crate::config::{self, Config, Manager, SliceConfig};
use crate::confine::confine;
use crate::counters::{Counters, Drop};
use crate::message::{Kind, Message};
use crate::slice::{Envelope, Slice, TRACED_MAX};
use anyhow::Context;
use nfluid_dataflow::engine::{BackEnd, Engine, Finished, ManagerPlace, Settings};
use nfluid_dataflow::manager::{Policy, Verdict};
use nfluid_nf::catalogue::{self, Entry};
use nfluid_nf::function::{CommandError, ConfigError, Metric, Nanos, NetworkFunction, PortInfo};
use nfluid_nf::stateful::{OnlyCounts, Reader, StateError, Stateful, Writer};
use nfluid_nf::traffic::OnWire;
use nfluid_ring::{Batch, Frame, Level, Outbox, frame_at};
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{ChecksumState, IpProtocol, L3, PacketMeta, checksum, ether};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Port from which samples come.
const IN: u8 = 0;
/// Port on which results leave.
const OUT: u8 = 1;
/// Longest headers of a result's frame: Ethernet, two tags, IPv6, UDP.
const HEADERS_MAX: usize = 14 + 8 + 40 + 8;

/// The network function's entry in a catalogue. It has threads: only a host with an operating system can have it.
pub const ENTRY: Entry = Entry {
    name: "dataflow",
    summary: "computes a graph of small tasks per interval: samples in, results out",
    ports: (2, 2),
    addresses: &[],
    frames: Level::Plain,
    build,
};

/// All built-in network functions that have ports: those of `lib/nf`, and this one.
pub fn built_in() -> impl Iterator<Item = &'static Entry> {
    catalogue::ENTRIES.iter().chain([&ENTRY])
}

/// Builds the network function without its threads: as it is validated.
///
/// # Errors
/// A configuration that cannot be.
fn build(config: &Value, ports: &[PortInfo]) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Slices::new(config, ports)?))
}

/// Builds the network function and starts its threads. Returns it with a descriptor that is readable when graphs have ended:
/// a tick takes them.
///
/// # Errors
/// A configuration that cannot be, or no thread.
pub fn started(
    config: &Value,
    ports: &[PortInfo],
) -> anyhow::Result<(Box<dyn NetworkFunction>, OwnedFd)> {
    let mut function = Slices::new(config, ports)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let bell = eventfd(0, flags).context("making an eventfd")?;
    let theirs = bell.try_clone().context("duplicating an eventfd")?;
    let bell = Arc::new(bell);
    let (engine, slices) = start(&function.config, &bell)?;
    function.running = Some(Running {
        engine,
        slices,
        bell,
        interval_begun: None,
    });
    Ok((Box::new(function), theirs))
}

/// An instance's slices.
struct Slices {
    config: Config,
    mtu: usize,
    counters: Counters,
    running: Option<Running>,
    /// Memory for a result's message, and for its frame.
    message: Vec<u8>,
    frame: Vec<u8>,
}

/// The threads, and what runs on them.
struct Running {
    engine: Engine,
    slices: Vec<Slice>,
    /// Rung when a graph has ended.
    bell: Arc<OwnedFd>,
    /// Begin of the present interval, from which windows count.
    interval_begun: Option<Nanos>,
}

fn start(config: &Config, bell: &Arc<OwnedFd>) -> anyhow::Result<(Engine, Vec<Slice>)> {
    let mut engine = Engine::start(Settings {
        back_end: match config.back_end {
            config::BackEnd::Threads => BackEnd::Threads,
            config::BackEnd::Processes => BackEnd::Processes,
        },
        confine: Some(confine),
        manager: match config.manager {
            Manager::Pe => ManagerPlace::OnPe,
            Manager::Own => ManagerPlace::Own(None),
        },
        policy: Policy::EarliestStart,
        ..Settings::new(config.pes)
    })?;
    let rung = Arc::clone(bell);
    engine.on_finished(move || {
        // A full eventfd is readable already.
        let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
    });
    let slices = config.slices.iter().cloned();
    let slices = slices
        .map(|slice| Slice::start(slice, &mut engine))
        .collect::<anyhow::Result<Vec<_>>>()?;
    divide(config, &mut engine, &slices)?;
    Ok((engine, slices))
}

/// Gives the slices their PEs and windows, from the next interval on.
fn divide(config: &Config, engine: &mut Engine, slices: &[Slice]) -> anyhow::Result<()> {
    let ids: Vec<_> = slices.iter().map(|slice| slice.id).collect();
    engine.set_partition(config.partition(&ids))?;
    engine.begin_interval();
    Ok(())
}

impl Slices {
    fn new(config: &Value, ports: &[PortInfo]) -> Result<Self, ConfigError> {
        Ok(Slices {
            config: Config::parse(config)?,
            mtu: mtu(ports),
            counters: Counters::new(ports),
            running: None,
            message: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// Takes a frame with samples.
    fn take(&mut self, now: Nanos, frame: &[u8], meta: &PacketMeta) -> Result<(), Drop> {
        let running = self.running.as_mut().ok_or(Drop::NotStarted)?;
        let message = Message::parse(datagram(frame, meta)?).map_err(|_| Drop::Malformed)?;
        if message.kind != Kind::Samples {
            return Err(Drop::Malformed);
        }
        running.take(now, &message, || Envelope::of(frame, meta))
    }

    /// Sends the results of graphs that have ended.
    fn tell(&mut self, outbox: &mut dyn Outbox) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.silence();
        while let Some(finished) = running.engine.wait(Duration::ZERO) {
            let ended = running.ended(&finished);
            let Some((slice, interval, envelope)) = ended else {
                continue;
            };
            let mut at = 0;
            slice.application.results(&finished, &mut |payload| {
                let message = Message {
                    kind: Kind::Result,
                    slice: slice.id,
                    interval,
                    phase: 0,
                    at,
                    payload,
                };
                at += 1;
                self.message.clear();
                message.write(&mut self.message);
                self.frame.resize(self.message.len() + HEADERS_MAX, 0);
                let written = envelope.frame().write(&mut self.frame, &self.message);
                let fits = written
                    .ok()
                    .filter(|&length| length <= self.mtu + ether::HEADER_LEN);
                let is_sent = fits.is_some_and(|length| outbox.emit(OUT, &self.frame[..length]));
                let count = match is_sent {
                    true => &mut self.counters.sent,
                    false => &mut self.counters.unsent,
                };
                *count += 1;
            });
        }
    }

    fn running(&self) -> Result<&Running, CommandError> {
        let stopped = || CommandError::BadArgument("the engine does not run".to_owned());
        self.running.as_ref().ok_or_else(stopped)
    }
}

/// The least that both ports carry.
fn mtu(ports: &[PortInfo]) -> usize {
    ports
        .iter()
        .map(|port| usize::from(port.mtu))
        .min()
        .unwrap_or(0)
}

/// The payload of a frame that carries UDP, its checksum verified if it has one.
fn datagram<'a>(frame: &'a [u8], meta: &PacketMeta) -> Result<&'a [u8], Drop> {
    let datagram = frame.get(usize::from(meta.l4_offset)..meta.l3_end());
    let datagram = datagram.ok_or(Drop::Malformed)?;
    let udp = UdpPacket::new_checked(datagram).map_err(|_| Drop::Malformed)?;
    let length = u32::from(udp.length());
    let (src, dst) = meta.addresses().ok_or(Drop::Malformed)?;
    let pseudo = checksum::pseudo_header(src, dst, IpProtocol::UDP.0, length);
    if !udp.verify_checksum(pseudo, ChecksumState::Complete) {
        return Err(Drop::BadChecksum);
    }
    datagram
        .get(nfluid_wire::udp::HEADER_LEN..length as usize)
        .ok_or(Drop::Malformed)
}

impl Running {
    fn take(
        &mut self,
        now: Nanos,
        message: &Message<'_>,
        envelope: impl FnOnce() -> Option<Envelope>,
    ) -> Result<(), Drop> {
        let slice = self
            .slices
            .iter_mut()
            .find(|it| it.config.id == message.slice);
        let slice = slice.ok_or(Drop::NoSuchSlice)?;
        let begun = &mut self.interval_begun;
        slice.add(&mut self.engine, message, envelope, |engine, config| {
            begin_interval(engine, begun, now, config);
        })
    }

    /// Takes the end of a graph: its slice, its interval, and where its results go.
    fn ended(&mut self, finished: &Finished) -> Option<(&SliceConfig, u16, Envelope)> {
        let slice = self.slices.iter_mut().find(|it| it.id == finished.slice)?;
        let (interval, envelope) = slice.end(&self.engine, finished)?;
        let is_done = finished.result == Ok(Verdict::Done);
        is_done.then_some((&slice.config, interval, envelope))
    }

    /// Makes the bell silent before the ended graphs are taken: one that ends afterwards rings again.
    fn silence(&self) {
        let mut count = [0; 8];
        let _nothing_rang = rustix::io::read(&*self.bell, &mut count);
    }

    fn named(&self, name: &str) -> Result<&Slice, CommandError> {
        let found = self.slices.iter().find(|slice| slice.config.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self
                .slices
                .iter()
                .map(|it| it.config.name.as_str())
                .collect();
            let names = names.join(", ");
            CommandError::BadArgument(format!("there is no slice '{name}'; there are: {names}"))
        })
    }
}

/// Begins an interval if the one before is over. Windows count from the first input that is whole.
fn begin_interval(engine: &mut Engine, begun: &mut Option<Nanos>, now: Nanos, slice: &SliceConfig) {
    let length = slice.interval.as_nanos() as u64;
    if begun.is_none_or(|begun| now.since(begun).0 >= length) {
        *begun = Some(now);
        engine.begin_interval();
    }
}

impl NetworkFunction for Slices {
    fn process(&mut self, now: Nanos, batch: &mut Batch<'_, '_>) {
        let (frames, outbox) = batch.split();
        for at in 0..frames.len() {
            let (frame, _) = frame_at(frames, at, outbox);
            let Some(meta) = samples(frame, self.config.port) else {
                let from = frame.in_port() & 1;
                self.counters.forwarded.count(from, OnWire::of(frame));
                frame.send(from ^ 1);
                continue;
            };
            match self.take(now, frame.bytes(), &meta) {
                Ok(()) => self.counters.taken += 1,
                Err(reason) => self.counters.drop(reason),
            }
            frame.discard();
        }
    }

    fn tick(&mut self, _now: Nanos, outbox: &mut dyn Outbox) {
        self.tell(outbox);
    }

    fn metrics(&self, sink: &mut dyn FnMut(Metric)) {
        self.counters.report(sink);
        if let Some(running) = &self.running {
            for slice in &running.slices {
                slice.report(&running.engine, sink);
            }
            sink(Metric::new("slice_pes_lost_total", running.engine.hung()));
        }
    }

    fn was_late(&mut self) -> bool {
        let slices = self.running.iter_mut().flat_map(|it| &mut it.slices);
        // Each has to be asked.
        slices.fold(false, |late, slice| slice.was_late() | late)
    }

    fn command(&mut self, _now: Nanos, name: &str, args: &[String]) -> Result<Value, CommandError> {
        let running = self.running()?;
        let (mode, back_end) = (self.config.mode().name(), self.config.back_end.name());
        match (name, args) {
            ("slices", []) => {
                let slices = running.slices.iter();
                Ok(slices
                    .map(|slice| slice.describe(&running.engine, mode, back_end))
                    .collect())
            }
            ("slice", [name]) => Ok(running
                .named(name)?
                .describe(&running.engine, mode, back_end)),
            ("trace", [name]) => Ok(running.named(name)?.runs(TRACED_MAX)),
            ("trace", [name, intervals]) => {
                let bounds =
                    || CommandError::BadArgument(format!("write 1 to {TRACED_MAX} intervals"));
                let intervals: usize = intervals.parse().map_err(|_| bounds())?;
                if !(1..=TRACED_MAX).contains(&intervals) {
                    return Err(bounds());
                }
                Ok(running.named(name)?.runs(intervals))
            }
            ("slices" | "slice" | "trace", _) => Err(CommandError::BadArgument(
                "write 'slices', 'slice NAME', or 'trace NAME [INTERVALS]'".to_owned(),
            )),
            _ => Err(CommandError::Unknown(&["slice", "slices", "trace"])),
        }
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }

    fn divides_by_flow(&self) -> Result<(), &'static str> {
        Err("its engine is for all flows together")
    }

    /// Slices whose graph, number and rank stay go on, with what is under way. With another number of PEs, or another place of
    /// the core manager, all begin anew.
    fn reconfigure(&mut self, config: &Value, ports: &[PortInfo]) -> Result<(), ConfigError> {
        let new = Config::parse(config)?;
        if let Some(running) = &mut self.running {
            let failed = |error: anyhow::Error| ConfigError::at("", format!("{error:#}"));
            let engine = |it: &Config| (it.pes, it.back_end, it.manager);
            if engine(&new) == engine(&self.config) {
                running.change(&new).map_err(failed)?;
            } else {
                let (engine, slices) = start(&new, &running.bell).map_err(failed)?;
                (running.engine, running.slices) = (engine, slices);
            }
        }
        self.mtu = mtu(ports);
        self.counters.forwarded.rename(ports);
        self.config = new;
        Ok(())
    }
}

/// Counters move. Intervals that are not whole, or under way, end with their engine: the next ones are a millisecond away.
impl OnlyCounts for Slices {
    const VERSION: u16 = 1;

    fn write_counts(&self, writer: &mut Writer) {
        self.counters.export(writer);
    }

    fn add_counts(&mut self, reader: &mut Reader<'_>) -> Result<(), StateError> {
        self.counters.import(reader)
    }
}

/// The headers of a frame that brings samples; `None` if it passes.
fn samples(frame: &Frame<'_>, port: u16) -> Option<PacketMeta> {
    if frame.in_port() != IN {
        return None;
    }
    let meta = PacketMeta::parse(frame.bytes()).ok()?;
    let is_it = meta.l3 != L3::Other
        && meta.protocol == IpProtocol::UDP
        && meta.dst_port == port
        && !meta.is_fragment();
    is_it.then_some(meta)
}

impl Running {
    /// Changes to another configuration on the same PEs.
    fn change(&mut self, new: &Config) -> anyhow::Result<()> {
        let mut before = std::mem::take(&mut self.slices);
        for config in &new.slices {
            let stays = before.iter().position(|old| stays(&old.config, config));
            let slice = match stays {
                Some(at) => {
                    let mut slice = before.swap_remove(at);
                    slice.config = SliceConfig {
                        application: slice.config.application.clone(),
                        ..config.clone()
                    };
                    slice
                }
                None => Slice::start(config.clone(), &mut self.engine)?,
            };
            self.slices.push(slice);
        }
        for gone in before {
            self.engine.remove_slice(gone.id)?;
        }
        divide(new, &mut self.engine, &self.slices)
    }
}

/// Returns true if a slice can go on under the new configuration.
fn stays(old: &SliceConfig, new: &SliceConfig) -> bool {
    let identity = |it: &SliceConfig| json!([it.name, it.graph, it.parameters, it.id, it.rank]);
    identity(old) == identity(new)
}
