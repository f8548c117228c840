//! An instance that finds out when another one forwards: it sends a frame on its first port again and again, and says
//! when the first one after a silence has come back on its second port.

use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use std::io::Write;
use std::time::Duration;

/// The first word of its command line, by which this program knows that it is the probe.
pub const ARGUMENT: &str = "probe";
/// Between two tries. What is measured can be late by this and what a timer adds.
pub const RETRY: Duration = Duration::from_micros(20);
/// Without a frame for so long, the next one is the first of somebody else.
pub const SILENCE: Duration = Duration::from_millis(3);

/// A broadcast of a local address: 64 bytes with their checksum.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let mut at = 0;
    while at < 6 {
        frame[at] = 0xff;
        at += 1;
    }
    (frame[6], frame[11], frame[12], frame[13]) = (2, 1, 0x88, 0xb5);
    frame
};

/// Returns true if this process was started as the probe.
pub fn is_asked_for() -> bool {
    std::env::args().nth(1).as_deref() == Some(ARGUMENT)
}

/// Plays it until it is killed.
///
/// # Errors
/// When this process is no instance with two ports.
pub fn run() -> anyhow::Result<()> {
    let mut attached = Attached::from_env()?;
    anyhow::ensure!(attached.ports.len() >= 2, "the probe needs two ports");
    // A timer that is 50 us late would be half of what is measured.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let ports = &mut attached.ports;
    let mut last_ns = 0;
    let mut out = std::io::stdout();
    loop {
        ports[0].send(|buffer| {
            buffer[..FRAME.len()].copy_from_slice(&FRAME);
            FRAME.len()
        });
        // Nobody is there yet: that is what is looked for.
        let _ = ports[0].flush(WhenFull::Drop);
        // Not at the doorbell, which looks for a while before it sleeps: with a core for itself, the probe would keep those
        // off it who are measured.
        std::thread::sleep(RETRY);
        if ports[1].receive(64, |_frame| ()) == 0 {
            continue;
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(last_ns) > SILENCE.as_nanos() as u64 {
            writeln!(out, "first {now_ns}")?;
            out.flush()?;
        }
        last_ns = now_ns;
    }
}
