//! Network functions that write a false read position into their ring. Cost metering and congestion control take
//! nothing else from a network function.

use crate::kernel::Answer;
use nfluid_ring::attach::Attached;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

type Attempt = fn(&[&str]) -> Answer;

/// All attempts by name.
pub const TABLE: &[(&str, Attempt)] = &[("lie", lie)];

/// Frames between two false positions.
const BATCH: usize = 16;
/// Loop iterations per frame: some microseconds of work.
const WORK: u64 = 3_000;
/// Longest sleep while no frame arrives.
const SLEEP: Duration = Duration::from_millis(20);

/// Receives frames on its first port, works for each, and forwards none, until it is killed. After each batch it
/// publishes a read position according to its argument: `honest`, `ahead` (beyond the frames that arrived), `back`
/// (before the frames that it has read), `flipping` (alternately), or `random`.
fn lie(arguments: &[&str]) -> Answer {
    let claim: fn(u32) -> u32 = match arguments.first().copied().unwrap_or("honest") {
        "honest" => |_| 0,
        "ahead" => |_| 97,
        "back" => |_| 0u32.wrapping_sub(53),
        "flipping" => |turn| {
            if turn % 2 == 0 {
                0
            } else {
                0u32.wrapping_sub(200)
            }
        },
        "random" => |turn| turn.wrapping_mul(2_654_435_761),
        other => panic!("no lie is called {other}"),
    };
    let mut attached = Attached::from_env().expect("it runs as an instance");
    let mut turn = 0u32;
    loop {
        let Attached {
            ports, doorbell, ..
        } = &mut attached;
        let port = &mut ports[0];
        let received = port.receive(BATCH, |frame| {
            let mut sum = u64::from(frame[0]);
            for step in 0..WORK {
                sum = black_box(sum.wrapping_add(step));
            }
        });
        turn = turn.wrapping_add(1);
        let actual = port.taken();
        // After an empty batch the true position is published: with false positions alone the ring would stay full
        // forever.
        let claimed = if received == 0 { 0 } else { claim(turn) };
        let released = &port.raw_ring().receiver.rx_released;
        released.store(u64::from(actual.wrapping_add(claimed)), Relaxed);
        if received == 0 {
            let _woken = doorbell.wait(ports, None, SLEEP);
        }
    }
}
