//! An instance that detects when another instance forwards: it sends a frame on its first port repeatedly, and prints
//! the time at which the first frame after a silence has returned on its second port.

use nfluid_ring::attach::Attached;
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::port::WhenFull;
use std::io::Write;
use std::time::Duration;

/// The first argument, which selects this role.
pub const ARGUMENT: &str = "probe";
/// Interval of the probe's frames. A measured time can be too long by this and the timer's delay.
pub const RETRY: Duration = Duration::from_micros(20);
/// After this time without a frame, the next frame counts as the first through another instance.
pub const SILENCE: Duration = Duration::from_millis(3);

/// A broadcast from a local address: 64 bytes with the checksum.
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

/// Runs the probe until it is killed.
///
/// # Errors
/// When this process is not an instance with two ports.
pub fn run() -> anyhow::Result<()> {
    let mut attached = Attached::from_env()?;
    anyhow::ensure!(attached.ports.len() >= 2, "the probe needs two ports");
    // A timer delay of 50 us would be half of the measured time.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let ports = &mut attached.ports;
    let mut last_ns = 0;
    let mut out = std::io::stdout();
    loop {
        ports[0].send(|buffer| {
            buffer[..FRAME.len()].copy_from_slice(&FRAME);
            FRAME.len()
        });
        // An error is expected while no instance is there.
        let _ = ports[0].flush(WhenFull::Drop);
        // Sleeps instead of waiting at the doorbell, which spins before it sleeps: with its own core, the probe would
        // keep that core from the measured processes.
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
