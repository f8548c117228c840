//! An instance that is both ends of many personal firewalls: for each, it sends bursts on one port at a rate, and
//! receives on another port. Every second it prints the numbers of sent and received frames, and the ages of the
//! received frames.

use super::oneway::prepare_frames;
use crate::traffic::STAMP;
use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The first argument, which selects this role.
pub const ARGUMENT: &str = "subscribers";
/// Firewalls of one instance: two ports each, and one unconnected port.
pub const FIREWALLS: usize = 31;
/// Bytes of a frame.
pub const FRAME: usize = 1514;
/// Frames of a burst, as a sender passes to its interface at once.
pub const BURST: u32 = 8;
/// Interval of polls of the ports. A measured age can be too large by this.
const LOOK: Duration = Duration::from_micros(500);
const SECOND_NS: u64 = 1_000_000_000;
/// Ratio of consecutive bounds of the histogram of ages, from 1 us on.
const STEP: f64 = 1.15;
/// Buckets of the histogram: ages up to 2 s.
pub const AGES: usize = 105;

/// Returns the upper bound of a bucket, in microseconds.
pub fn age_us(place: usize) -> f64 {
    STEP.powi(place as i32)
}

fn place_of(age_ns: u64) -> usize {
    let us = age_ns as f64 / 1e3;
    (us.max(1.0).ln() / STEP.ln()).ceil() as usize
}

/// Returns true if this process was started as the subscribers.
pub fn is_asked_for() -> bool {
    std::env::args().nth(1).as_deref() == Some(ARGUMENT)
}

/// Runs until it is killed: `subscribers FIRST ACTIVE GAP_NS`, where FIRST is the number of the first firewall, ACTIVE
/// the number of firewalls with traffic, and GAP_NS the time between two bursts through a firewall.
///
/// # Errors
/// When this process is not an instance with such ports, or has other arguments.
pub fn run() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(2);
    let mut number = |what: &str| -> anyhow::Result<u64> {
        let word = words.next().with_context(|| format!("no {what}"))?;
        word.parse().with_context(|| what.to_owned())
    };
    let (first, active) = (number("first")?, number("active")? as usize);
    let gap_ns = number("gap")?.max(1);
    let mut attached = Attached::from_env()?;
    anyhow::ensure!(attached.ports.len() >= 2 * active, "too few ports");
    let mut flows = Vec::new();
    for (index, pair) in attached.ports.chunks_mut(2).take(active).enumerate() {
        let frame = frame(first + index as u64)?;
        prepare_frames(&mut pair[0], |_| frame.clone());
        // Bursts of different firewalls are spread over time.
        let phase = gap_ns * index as u64 / active.max(1) as u64;
        flows.push(monotonic_ns() + phase);
    }
    let mut second = Second::begin();
    loop {
        for (pair, due_ns) in attached.ports.chunks_mut(2).zip(&mut flows) {
            let [out, back] = pair else { continue };
            let now_ns = monotonic_ns();
            if now_ns >= *due_ns {
                second.sent += u64::from(burst(out, now_ns));
                // Frames due while the process had no core are not sent: no ring would hold such a burst.
                *due_ns += gap_ns * ((now_ns - *due_ns) / gap_ns + 1);
            }
            second.receive(back);
        }
        if monotonic_ns() >= second.end_ns {
            second.print()?;
            second = Second::begin();
        }
        std::thread::sleep(if active == 0 { 100 * LOOK } else { LOOK });
    }
}

/// Returns a frame to the subscriber's server, from behind firewall `number`. It has no UDP checksum, because the stamp
/// changes.
fn frame(number: u64) -> anyhow::Result<Vec<u8>> {
    let (high, low) = ((number / 250) as u8, (number % 250) as u8 + 1);
    let from = IpAddr::from(Ipv4Addr::new(10, 2, high, low));
    let to = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
    let mut bytes = vec![0; FRAME];
    let frame = Frame::udp((from, 50_000).into(), (to, 443).into());
    let frame = frame.macs(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    frame.write(&mut bytes, &[0; FRAME - STAMP.start])?;
    bytes[STAMP.start - 2..STAMP.start].fill(0);
    Ok(bytes)
}

/// Sends a burst; returns how many frames left the own ring.
fn burst(port: &mut Port, now_ns: u64) -> u32 {
    for _ in 0..BURST {
        port.send(|buffer| {
            buffer[STAMP].copy_from_slice(&now_ns.to_ne_bytes());
            FRAME
        });
    }
    let queued = port.queued();
    // Frames that do not fit into the firewall's ring are lost, and counted.
    let _ = port.flush(WhenFull::Drop);
    queued
}

/// The counters of a second.
struct Second {
    end_ns: u64,
    sent: u64,
    received: u64,
    ages: [u32; AGES],
}

impl Second {
    fn begin() -> Self {
        Second {
            end_ns: monotonic_ns() + SECOND_NS,
            sent: 0,
            received: 0,
            ages: [0; AGES],
        }
    }

    fn receive(&mut self, port: &mut Port) {
        let now_ns = monotonic_ns();
        let (received, ages) = (&mut self.received, &mut self.ages);
        port.receive(usize::MAX, |frame| {
            *received += 1;
            let stamp = frame.get(STAMP).and_then(|bytes| bytes.try_into().ok());
            let sent_ns = stamp.map_or(now_ns, u64::from_ne_bytes);
            ages[place_of(now_ns.saturating_sub(sent_ns)).min(AGES - 1)] += 1;
        });
    }

    /// `second END_NS LENGTH_NS SENT RECEIVED AGES...`
    fn print(&self) -> anyhow::Result<()> {
        let now_ns = monotonic_ns();
        let length_ns = now_ns - (self.end_ns - SECOND_NS);
        let mut out = std::io::stdout().lock();
        write!(
            out,
            "second {now_ns} {length_ns} {} {}",
            self.sent, self.received
        )?;
        for count in self.ages {
            write!(out, " {count}")?;
        }
        writeln!(out)?;
        out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AGES, age_us, place_of};

    #[test]
    fn an_age_is_counted_below_its_bound() {
        for age_ns in [0, 1, 999, 1000, 1001, 250_000, 1_999_999_999] {
            let place = place_of(age_ns);
            let us = age_ns as f64 / 1e3;
            assert!(us <= age_us(place) * 1.000_001, "{age_ns}");
            assert!(place == 0 || us > age_us(place - 1) * 0.999_999, "{age_ns}");
            assert!(place < AGES);
        }
    }
}
