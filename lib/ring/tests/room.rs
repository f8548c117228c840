//! An I/O thread that has consumed frames ends a sleep when slots are short, or when the slots are the sleeper's own.
#![cfg(all(feature = "port", not(loom)))]

mod served;

use nfluid_ring::doorbell::{Doorbell, Woken};
use nfluid_ring::port::{Port, WhenFull};
use served::{IN_SLOTS, ports};
use std::sync::atomic::Ordering;
use std::time::Duration;

const FRAME: usize = 64;

/// Returns the reason for waking after the I/O thread has consumed one frame of the second port.
fn after_one_is_consumed(ports: &mut [Port; 2]) -> Woken {
    let flushed = ports[1].flush(WhenFull::Drop).expect("nobody is called");
    assert_eq!(flushed, 0);
    ports[1]
        .raw_ring()
        .switch
        .tx_tail
        .fetch_add(1, Ordering::Release);
    let mut doorbell = Doorbell::new(None, None).expect("a doorbell");
    let woken = doorbell.wait(ports, None, Duration::from_millis(1));
    woken.expect("it sleeps")
}

fn pass_on(ports: &mut [Port; 2], count: u32) {
    for slot in 0..count {
        ports[1].queue_raw(FRAME as u16, slot);
    }
}

#[test]
fn a_forwarder_of_few_frames_sleeps_on() {
    let mut ports = ports();
    pass_on(&mut ports, IN_SLOTS / 2 - 1);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Nothing);
}

#[test]
fn a_forwarder_of_half_of_the_smallest_ring_is_woken() {
    let mut ports = ports();
    pass_on(&mut ports, IN_SLOTS / 2);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
}

#[test]
fn a_sender_of_its_own_frames_is_woken_until_all_are_consumed() {
    let mut ports = ports();
    for _ in 0..2 {
        assert!(ports[1].send(|_| FRAME));
    }
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
    assert_eq!(ports[1].collect(), 1);
    pass_on(&mut ports, 1);
    assert_eq!(after_one_is_consumed(&mut ports), Woken::Consumed);
    ports[1]
        .raw_ring()
        .switch
        .tx_tail
        .fetch_add(1, Ordering::Release);
    assert_eq!(ports[1].collect(), 2);
    pass_on(&mut ports, 2);
    assert_eq!(
        after_one_is_consumed(&mut ports),
        Woken::Nothing,
        "they are all others'"
    );
}
