//! An instance that sends frames of many flows on its first port at a rate, round after round, and receives on its
//! second port. After each round it prints the numbers of sent and received frames, the longest silence, and the
//! longest time in which it did not run itself.

use anyhow::Context;
use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use nfluid_wire::MacAddr;
use nfluid_wire::build::Frame;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

/// The first argument, which selects this role.
pub const ARGUMENT: &str = "pump";
/// The argument after the rate that enables numbers in frames.
pub const NUMBERED: &str = "numbered";
/// Number of flows, from several ports of each of 250 hosts.
pub const FLOWS: u16 = 1000;
/// Sending time of a round.
pub const SENDING_NS: u64 = 500_000_000;
/// Waiting time for frames in flight.
const DRAINING_NS: u64 = 60_000_000;
/// Frames per call.
const BURST: u64 = 32;
/// Largest backlog of due frames. Frames due while the process had no core are not sent: no ring would hold such a
/// burst.
const BEHIND_MAX: u64 = 128;
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 4;
/// Position of the flow's number in a frame, and then of the frame's number in the flow: after Ethernet, IPv4 and UDP.
const FLOW_AT: std::ops::Range<usize> = 42..44;
const NUMBER_AT: std::ops::Range<usize> = 44..52;

/// Returns true if this process was started as the pump.
pub fn is_asked_for() -> bool {
    std::env::args().nth(1).as_deref() == Some(ARGUMENT)
}

/// Runs the pump until it is killed.
///
/// # Errors
/// When this process is not an instance with two ports, or has no rate.
pub fn run() -> anyhow::Result<()> {
    let rate = std::env::args().nth(2);
    let rate: u64 = rate
        .context("no rate")?
        .parse()
        .context("frames a second")?;
    let mut attached = Attached::from_env()?;
    anyhow::ensure!(attached.ports.len() >= 2, "the pump needs two ports");
    let mut pump = Pump {
        frames: (0..FLOWS).map(frame).collect::<Result<_, _>>()?,
        next: 0,
        received: 0,
        last_ns: 0,
        silence_ns: 0,
        looked_ns: 0,
        absence_ns: 0,
        numbers: std::env::args()
            .nth(3)
            .is_some_and(|word| word == NUMBERED)
            .then(Numbers::default),
    };
    let mut out = std::io::stdout();
    loop {
        let sent = pump.round(&mut attached, rate);
        let (received, silence_us) = (pump.received, pump.silence_ns / 1000);
        let absence_us = pump.absence_ns / 1000;
        let overtaken = pump.numbers.as_mut().map_or(0, Numbers::take_overtaken);
        writeln!(
            out,
            "round {sent} {received} {silence_us} {absence_us} {overtaken}"
        )?;
        out.flush()?;
    }
}

fn frame(flow: u16) -> anyhow::Result<Vec<u8>> {
    let address = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
    let mut buffer = [0; 64];
    let frame = Frame::udp(
        (address(3 + (flow / PORTS) as u8), FIRST_PORT + flow).into(),
        (address(2), 53).into(),
    );
    let frame = frame.macs(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let len = frame.write(&mut buffer, &[0; 18])?;
    Ok(buffer[..len].to_vec())
}

struct Pump {
    frames: Vec<Vec<u8>>,
    next: usize,
    received: u64,
    /// Time of the last received frame.
    last_ns: u64,
    silence_ns: u64,
    /// Time of the last turn, and the longest time between two turns.
    looked_ns: u64,
    absence_ns: u64,
    numbers: Option<Numbers>,
}

/// Numbers of frames, by flow.
struct Numbers {
    sent: Vec<u64>,
    received: Vec<u64>,
    overtaken: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers {
            sent: vec![0; FLOWS.into()],
            received: vec![0; FLOWS.into()],
            overtaken: 0,
        }
    }
}

impl Numbers {
    fn write(&mut self, flow: usize, frame: &mut [u8]) {
        self.sent[flow] += 1;
        frame[FLOW_AT].copy_from_slice(&(flow as u16).to_le_bytes());
        frame[NUMBER_AT].copy_from_slice(&self.sent[flow].to_le_bytes());
    }

    fn read(&mut self, frame: &[u8]) {
        let word = |at: std::ops::Range<usize>| {
            let mut word = [0; 8];
            let bytes = frame.get(at).unwrap_or_default();
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let (flow, number) = (word(FLOW_AT), word(NUMBER_AT));
        let Some(last) = self.received.get_mut(flow as usize) else {
            return;
        };
        self.overtaken += u64::from(number <= *last);
        *last = number.max(*last);
    }

    fn take_overtaken(&mut self) -> u64 {
        std::mem::take(&mut self.overtaken)
    }
}

impl Pump {
    /// Sends for [`SENDING_NS`], then waits for frames in flight. Returns how many frames left the pump's own ring.
    fn round(&mut self, attached: &mut Attached, rate: u64) -> u64 {
        let begun = monotonic_ns();
        let before = attached.ports[0].stats();
        (self.received, self.silence_ns, self.last_ns) = (0, 0, begun);
        (self.absence_ns, self.looked_ns) = (0, begun);
        let (mut queued, mut skipped) = (0, 0);
        loop {
            let elapsed = self.look() - begun;
            if elapsed >= SENDING_NS {
                break;
            }
            let due = elapsed.saturating_mul(rate) / 1_000_000_000;
            let behind = due.saturating_sub(queued + skipped);
            skipped += behind.saturating_sub(BEHIND_MAX);
            let burst = behind.min(BURST);
            for _ in 0..burst {
                queued += u64::from(self.send(attached));
            }
            if burst > 0 {
                // A frame that a full link refuses is lost, and counted by the link.
                let _ = attached.ports[0].flush(WhenFull::Drop);
            }
            self.receive(attached);
        }
        let drained = monotonic_ns() + DRAINING_NS;
        self.last_ns = u64::MAX;
        while self.look() < drained {
            self.receive(attached);
        }
        attached.ports[0].stats().tx_frames - before.tx_frames
    }

    /// Returns the time, and notes the time since the last call.
    fn look(&mut self) -> u64 {
        let now = monotonic_ns();
        self.absence_ns = self.absence_ns.max(now.saturating_sub(self.looked_ns));
        self.looked_ns = now;
        now
    }

    fn send(&mut self, attached: &mut Attached) -> bool {
        let (frame, numbers) = (&self.frames[self.next], &mut self.numbers);
        let flow = self.next;
        let sent = attached.ports[0].send(|buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            if let Some(numbers) = numbers {
                numbers.write(flow, buffer);
            }
            frame.len()
        });
        if sent {
            self.next = (self.next + 1) % self.frames.len();
        }
        sent
    }

    fn receive(&mut self, attached: &mut Attached) {
        let numbers = &mut self.numbers;
        let came = match numbers {
            None => attached.ports[1].receive(64, |_frame| ()),
            Some(numbers) => attached.ports[1].receive(64, |frame| numbers.read(frame)),
        };
        if came > 0 {
            let now = monotonic_ns();
            self.silence_ns = self.silence_ns.max(now.saturating_sub(self.last_ns));
            if self.last_ns != u64::MAX {
                self.last_ns = now;
            }
            self.received += came as u64;
        }
    }
}
