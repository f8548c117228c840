//! Single frames between two interfaces of the kernel, in two network namespaces: the next frame leaves when the last
//! has arrived.

use super::work::{FLOW, Outcome, cpu_seconds, print_ready, serve};
use crate::traffic::udp_frame;
use anyhow::Context;
use nfluid_gen::interface::{InterfaceReceiver, InterfaceSender};
use nfluid_gen::io::{Receiver, Sender};
use nfluid_testbed::namespace::enter;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which a frame counts as lost.
const PATIENCE: Duration = Duration::from_millis(100);

/// Sends frames of `len` bytes out of `from`, in this process's namespace, and waits for each at `to`, in the namespace
/// at `there`.
pub fn alone(from: &str, to: &str, there: &Path, len: usize) -> anyhow::Result<()> {
    let mut sender = InterfaceSender::open(from)?;
    enter(there).context("entering the sink's namespace")?;
    let frame = udp_frame(len, FLOW);
    print_ready()?;
    serve(|span| {
        // Open only during this measurement: a socket that sees every frame costs time in other measurements.
        let mut receiver = InterfaceReceiver::open(to)?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let mut outcome = Outcome::default();
        while start.elapsed() < span.time {
            let begun = Instant::now();
            if crosses(&mut sender, &mut receiver, &frame)? {
                outcome.frames += 1;
                outcome.seconds += begun.elapsed().as_secs_f64();
            } else {
                outcome.lost += 1;
            }
        }
        outcome.cpu_seconds = cpu_seconds() - cpu;
        Ok(outcome)
    })
}

/// Returns true if a frame has come out at the other end.
fn crosses(
    sender: &mut InterfaceSender,
    receiver: &mut InterfaceReceiver,
    frame: &[u8],
) -> anyhow::Result<bool> {
    sender.send(1, |_, slot| {
        slot[..frame.len()].copy_from_slice(frame);
        frame.len()
    })?;
    sender.flush()?;
    let start = Instant::now();
    let mut has_come = false;
    while !has_come && start.elapsed() < PATIENCE {
        receiver.wait(PATIENCE)?;
        // The bytes after the headers, which a router changes, identify the frame.
        let is_ours = |other: &[u8]| other.len() == frame.len() && other.ends_with(&frame[34..]);
        receiver.receive(1, |other| has_come |= is_ours(other))?;
    }
    Ok(has_come)
}
