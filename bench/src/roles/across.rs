//! Generator and sink in one process: each frame passes two of very many NFs. Frames reach the first NF by the switch,
//! or by an interface on a wire to an uplink.

use super::oneway::prepare_frames;
use super::stall::Stall;
use super::work::{Outcome, Times, Work};
use crate::traffic::{STAMP, VARIANT, VARYING, udp_frame};
use anyhow::{Context, ensure};
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_testbed::scratch::mac_of;
use nfluid_uplink::DirectOutlet;
use rustix::process::setpriority_process;
use rustix::thread::set_current_timer_slack;
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::time::Duration;

/// After this time without a frame, frames in flight count as lost.
const LOST_AFTER_NS: u64 = 500_000_000;
/// Frames per burst and port, switched by one call.
const BURST: u32 = 256;
/// Interval of stamped frames: a number that divides no number of pairs, so that each pair gets stamps.
const STAMPED: u64 = 7;
/// Priority: the process shares its core with a thousand NFs, which must not keep it from emptying its ring.
const NICE: i32 = -20;

/// The NFs that receive frames of one port: every other port from `first` on, one of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    pub first: u32,
    pub pairs: u32,
}

impl Targets {
    /// The first NF of each pair.
    pub fn entries(&self) -> impl Iterator<Item = u32> {
        let first = self.first;
        (0..self.pairs).map(move |pair| first + 2 * pair)
    }
}

/// The offered load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes per frame.
    pub len: usize,
    /// Most frames in flight per pair of NFs.
    pub window: u32,
    /// Frames per second; 0: as many as the window permits.
    pub rate: f64,
    /// Microseconds between two polls.
    pub pause_us: u64,
}

/// The pairs behind a port.
struct Variant {
    first: u32,
    /// Frames in flight of each pair, and of all.
    under_way: Vec<u32>,
    sum: u32,
    /// The pair of the next frame.
    next: usize,
    /// For a wire, which may steer frames by their flows: the bytes of each pair's frames at [`VARYING`].
    flows: Vec<[u8; VARYING.end - VARYING.start]>,
}

/// The interface by which frames leave, in the sender's own context.
struct Wire {
    outlet: DirectOutlet,
    queued: u32,
    /// The common beginning of all frames.
    head: Vec<u8>,
}

/// Exit of a variant's frames.
enum Out<'a> {
    Port(&'a mut Port),
    Wire(&'a mut Wire),
}

/// Sends and receives alternately, and sleeps in between.
pub struct Across {
    load: Load,
    /// The state of each receiving port.
    variants: Vec<Variant>,
    wire: Option<Wire>,
    sent: u64,
    /// Start of the paced sending, and the number of frames sent since.
    paced: Option<(u64, u64)>,
    stall: Stall,
    lost: u64,
    latencies: Times,
}

impl Wire {
    /// Takes the process's last port, whose slots the wire sends.
    fn open(attached: &mut Attached, interface: &str, len: usize) -> anyhow::Result<Self> {
        let port = attached
            .ports
            .pop()
            .context("a wire needs a port's slots")?;
        let mut head = udp_frame(len, 0);
        head[6..12].copy_from_slice(&port.entry().mac);
        head.truncate(VARIANT.end);
        Ok(Wire {
            outlet: DirectOutlet::open(interface, port)?,
            queued: 0,
            head,
        })
    }

    fn queue(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.outlet.room() == 0 {
            self.outlet.collect();
        }
        let head = &self.head;
        let queued = self.outlet.send(|buffer| {
            buffer[..head.len()].copy_from_slice(head);
            fill(buffer)
        });
        self.queued += u32::from(queued);
        queued
    }

    /// Returns the number of frames that left; retries if the interface accepts none.
    fn flush(&mut self) -> u32 {
        match self.outlet.flush() {
            Ok(_) => std::mem::take(&mut self.queued),
            Err(_) => 0,
        }
    }
}

impl Out<'_> {
    fn queued(&self) -> u32 {
        match self {
            Out::Port(port) => port.queued(),
            Out::Wire(wire) => wire.queued,
        }
    }

    fn queue(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match self {
            Out::Port(port) => port.send(fill),
            Out::Wire(wire) => wire.queue(fill),
        }
    }

    fn flush(&mut self) -> u32 {
        match self {
            // An error shows as missing throughput.
            Out::Port(port) => port.flush(WhenFull::Drop).unwrap_or(0),
            Out::Wire(wire) => wire.flush(),
        }
    }
}

impl Variant {
    fn new(targets: &Targets) -> Self {
        Variant {
            first: targets.first,
            under_way: vec![0; targets.pairs as usize],
            sum: 0,
            next: 0,
            flows: Vec::new(),
        }
    }

    /// Gives each pair its own flow, numbered from `first` on; returns the next free number.
    fn number(&mut self, first: u32, len: usize) -> u32 {
        let behind = first + self.under_way.len() as u32;
        for flow in first..behind {
            let mut bytes = [0; VARYING.end - VARYING.start];
            bytes.copy_from_slice(&udp_frame(len, flow)[VARYING]);
            self.flows.push(bytes);
        }
        behind
    }

    /// Returns the next pair with fewer than `window` frames in flight, and counts one more frame.
    fn take(&mut self, window: u32) -> Option<u32> {
        let pairs = self.under_way.len();
        if u64::from(self.sum) >= u64::from(window) * pairs as u64 {
            return None;
        }
        let mut in_turn = (self.next..pairs).chain(0..self.next);
        let pair = in_turn.find(|pair| self.under_way[*pair] < window)?;
        self.next = if pair + 1 == pairs { 0 } else { pair + 1 };
        self.under_way[pair] += 1;
        self.sum += 1;
        Some(pair as u32)
    }

    /// Counts one frame of a pair less; a frame that was given up as lost may arrive later.
    fn give_back(&mut self, pair: u32) {
        let of_pair = self
            .under_way
            .get_mut(pair as usize)
            .filter(|count| **count > 0);
        if let Some(count) = of_pair {
            *count -= 1;
            self.sum -= 1;
        }
    }

    fn clear(&mut self) {
        self.under_way.fill(0);
        self.sum = 0;
    }
}

impl Across {
    /// With a `wire`, an interface, frames leave by it, and the last port is the wire's; all others receive.
    pub fn new(
        attached: &mut Attached,
        targets: &[Targets],
        load: Load,
        wire: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut variants: Vec<Variant> = targets.iter().map(Variant::new).collect();
        let wire = wire.map(|interface| Wire::open(attached, interface, load.len));
        let wire = wire.transpose()?;
        ensure!(
            attached.ports.len() == targets.len() && targets.iter().all(|t| t.pairs > 0),
            "it needs a port for each range of NFs"
        );
        setpriority_process(None, NICE).context("going before the NFs")?;
        set_current_timer_slack(NonZero::new(1)).context("sleeping to the microsecond")?;
        if wire.is_some() {
            variants
                .iter_mut()
                .fold(0, |flow, variant| variant.number(flow, load.len));
        } else {
            for port in &mut attached.ports {
                prepare(port, load.len);
            }
        }
        Ok(Across {
            variants,
            wire,
            load,
            sent: 0,
            paced: None,
            stall: Stall::new(LOST_AFTER_NS),
            lost: 0,
            latencies: Times::default(),
        })
    }

    fn send(&mut self, ports: &mut [Port]) -> u32 {
        let mut sum = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            let now = monotonic_ns();
            let allowed = self.allowed(now);
            let variant = &mut self.variants[index];
            let mut out = self.wire.as_mut().map_or(Out::Port(port), Out::Wire);
            for _ in out.queued()..allowed {
                let Some(pair) = variant.take(self.load.window) else {
                    break;
                };
                let to = mac_of(variant.first + 2 * pair);
                let flow = variant.flows.get(pair as usize);
                // A slow run may have less frames than the interval: it stamps each until one has come back.
                let is_stamped = self.sent.is_multiple_of(STAMPED) || self.latencies.is_empty();
                let stamp = if is_stamped { now } else { 0 };
                let queued = out.queue(|buffer| {
                    buffer[..6].copy_from_slice(&to);
                    if let Some(flow) = flow {
                        buffer[VARYING].copy_from_slice(flow);
                    }
                    buffer[STAMP].copy_from_slice(&stamp.to_ne_bytes());
                    buffer[VARIANT].copy_from_slice(&pair.to_ne_bytes());
                    self.load.len
                });
                if !queued {
                    variant.give_back(pair);
                    break;
                }
                self.sent += 1;
            }
            if out.queued() > 0 {
                sum += out.flush();
            }
        }
        sum
    }

    /// Returns the number of frames that may be sent now.
    fn allowed(&mut self, now: u64) -> u32 {
        if self.load.rate == 0.0 {
            return BURST;
        }
        let (start, before) = *self.paced.get_or_insert((now, self.sent));
        let due = (now - start) as f64 / 1e9 * self.load.rate;
        let late = due as u64 - (self.sent - before).min(due as u64);
        BURST.min(late as u32)
    }

    fn receive(&mut self, ports: &mut [Port]) -> u64 {
        let (latencies, now) = (&mut self.latencies, monotonic_ns());
        let mut got = 0;
        for (port, variant) in ports.iter_mut().zip(&mut self.variants) {
            got += port.receive(usize::MAX, |frame| {
                let stamp = frame.get(STAMP).and_then(|bytes| bytes.try_into().ok());
                let stamp = stamp.map_or(0, u64::from_ne_bytes);
                if stamp != 0 {
                    latencies.push_ns(now.saturating_sub(stamp));
                }
                let pair = frame.get(VARIANT).and_then(|bytes| bytes.try_into().ok());
                if let Some(pair) = pair {
                    variant.give_back(u32::from_ne_bytes(pair));
                }
            });
        }
        if got > 0 {
            self.stall.end();
        }
        got as u64
    }

    fn under_way(&self) -> u32 {
        self.variants.iter().map(|variant| variant.sum).sum()
    }

    fn pause(&mut self) {
        if self.stall.is_over() {
            self.lost += u64::from(self.under_way());
            self.variants.iter_mut().for_each(Variant::clear);
        }
        std::thread::sleep(Duration::from_micros(self.load.pause_us));
    }
}

/// Writes complete frames into all slots of a port; later only the differences are written.
fn prepare(port: &mut Port, len: usize) {
    let own = port.entry().mac;
    prepare_frames(port, |slot| {
        let mut frame = udp_frame(len, slot);
        frame[6..12].copy_from_slice(&own);
        frame
    });
}

impl Work for Across {
    fn burst(&mut self, attached: &mut Attached) -> u64 {
        let got = self.receive(&mut attached.ports);
        if self.send(&mut attached.ports) == 0 {
            self.pause();
        }
        got
    }

    fn has_measured(&self) -> bool {
        !self.latencies.is_empty()
    }

    fn finish(&mut self, attached: &mut Attached) {
        while self.under_way() > 0 {
            if self.receive(&mut attached.ports) == 0 {
                self.pause();
            }
        }
        self.paced = None;
    }

    fn report(&mut self, outcome: &mut Outcome) {
        self.latencies.report(outcome);
        outcome.lost = std::mem::take(&mut self.lost);
        // The time until the next run is no stall.
        self.stall.end();
    }
}
