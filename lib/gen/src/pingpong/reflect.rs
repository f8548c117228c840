//! The side that reflects: probes go back where they came from, addresses and ports swapped.
//!
//! Only probes are reflected, and their reflections are marked as such: two reflectors that face
//! each other do not keep a frame alive, and the host's own traffic is left alone.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfluid_wire::checksum::{ChecksumState, Delta, TransportDelta};
use nfluid_wire::tcp::TcpPacket;
use nfluid_wire::udp::UdpPacket;
use nfluid_wire::{IpProtocol, PacketMeta};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::io::{BATCH_MAX, IoError, Receiver, Sender};
use crate::payload::Kind;
use crate::receive::stream_header;
use crate::spec::Timespan;

/// Longest wait before a stop is looked for, in nanoseconds.
const WAIT_MAX_NS: u64 = 20_000_000;

/// Limits of reflecting. Without any limit, until stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReflectJob {
    /// End after this long.
    pub duration: Option<Timespan>,
    /// End after this many probes.
    pub count: Option<u64>,
    /// Never block: look for probes without a pause.
    pub busy: bool,
}

/// The reflected frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReflectReport {
    /// Probes sent back.
    pub reflected: u64,
    /// Probes for whose reflection the port had no room.
    pub dropped: u64,
    /// Frames that were no probe, or a corrupted one.
    pub ignored: u64,
}

impl fmt::Display for ReflectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReflectReport {
            reflected,
            dropped,
            ignored,
        } = self;
        write!(
            f,
            "reflected {reflected}, dropped {dropped}, ignored {ignored}"
        )
    }
}

/// Reflects probes from `receiver` to `sender` by `job`, until done or `stop` is set.
///
/// # Errors
/// The errors of the port.
pub fn reflect(
    job: &ReflectJob,
    (sender, receiver): (&mut impl Sender, &mut impl Receiver),
    clock: &impl Clock,
    stop: &AtomicBool,
) -> Result<ReflectReport, IoError> {
    let end_ns = job
        .duration
        .map_or(u64::MAX, |time| clock.now_ns().saturating_add(time.as_ns()));
    let mut report = ReflectReport::default();
    loop {
        let mut outcome = Ok(());
        let count = receiver.receive(BATCH_MAX, |frame| {
            if outcome.is_ok() {
                outcome = reflect_one(frame, sender, &mut report);
            }
        })?;
        outcome?;
        if count > 0 {
            sender.flush()?;
        }
        let now_ns = clock.now_ns();
        let done = job
            .count
            .is_some_and(|count| report.reflected + report.dropped >= count);
        if done || now_ns >= end_ns || stop.load(Ordering::Relaxed) {
            return Ok(report);
        }
        if count == 0 && !job.busy {
            let wait_ns = (end_ns - now_ns).min(WAIT_MAX_NS);
            receiver.wait(Duration::from_nanos(wait_ns))?;
        }
    }
}

fn reflect_one(
    frame: &[u8],
    sender: &mut impl Sender,
    report: &mut ReflectReport,
) -> Result<(), IoError> {
    let is_probe = stream_header(frame).is_ok_and(|header| header.kind == Kind::Probe);
    let Some(meta) = PacketMeta::parse(frame).ok().filter(|_| is_probe) else {
        report.ignored += 1;
        return Ok(());
    };
    let taken = sender.send(1, |_, slot| {
        let answer = &mut slot[..frame.len()];
        answer.copy_from_slice(frame);
        turn_round(answer, &meta);
        frame.len()
    })?;
    report.reflected += taken as u64;
    report.dropped += 1 - taken as u64;
    Ok(())
}

/// Makes the answer out of a copy of the probe. Swaps leave the checksums as they are.
fn turn_round(frame: &mut [u8], meta: &PacketMeta) {
    swap(frame, 0, 6);
    let network = usize::from(meta.l3_offset);
    if meta.is_ipv4() {
        swap(frame, network + 12, 4);
    } else {
        swap(frame, network + 8, 16);
    }
    let transport = usize::from(meta.l4_offset);
    swap(frame, transport, 2);
    let payload = usize::from(meta.payload_offset);
    frame[payload..payload + 2].copy_from_slice(&Kind::Reply.magic().to_be_bytes());
    let delta = Delta::new().replace_u16(Kind::Probe.magic(), Kind::Reply.magic());
    let change = TransportDelta::new(Delta::new(), delta);
    let message = &mut frame[transport..];
    if meta.protocol == IpProtocol::UDP {
        UdpPacket::new_unchecked(message).update_checksum(change, ChecksumState::Complete);
    } else {
        TcpPacket::new_unchecked(message).update_checksum(change, ChecksumState::Complete);
    }
}

/// Swaps two neighbouring fields of `len` bytes.
fn swap(frame: &mut [u8], offset: usize, len: usize) {
    let (first, second) = frame[offset..offset + 2 * len].split_at_mut(len);
    first.swap_with_slice(second);
}
