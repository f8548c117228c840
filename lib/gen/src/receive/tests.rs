use super::*;
use crate::clock::{ManualClock, NS_PER_S};
use crate::io::Sender;
use crate::memory::{FaultCounts, Faults, queue};
use crate::send::{Generator, SendJob, send};
use crate::spec::{FlowSpec, TrafficSpec};

/// Bytes before the payload of an IPv4 UDP frame.
const HEADERS: usize = 42;

fn traffic(flows: u32) -> TrafficSpec {
    TrafficSpec {
        sizes: "imix".parse().unwrap(),
        flows: FlowSpec {
            count: flows,
            ..FlowSpec::default()
        },
        ..TrafficSpec::default()
    }
}

/// Sends `count` frames through a faulty queue, then receives them all.
fn through(faults: Faults, count: u64) -> (ReceiveReport, FaultCounts) {
    let (mut sender, receiver) = queue(usize::MAX, faults, 42);
    let clock = ManualClock::default();
    let stop = AtomicBool::new(false);
    let traffic = TrafficSpec {
        count: Some(count),
        ..traffic(10)
    };
    let job = SendJob {
        traffic,
        script: None,
    };
    send(&job, &mut sender, &clock, &stop, &mut |_| {}).unwrap();
    sender.release();
    let job = ReceiveJob {
        idle: Some("100ms".parse().unwrap()),
        ..ReceiveJob::default()
    };
    let mut receiver = receiver.with_clock(clock.clone());
    let report = receive(&job, &mut receiver, &clock, &stop, &mut |_| {}).unwrap();
    (report, sender.counts())
}

fn check(report: &ReceiveReport) -> CheckReport {
    report.check.unwrap()
}

#[test]
fn a_faultless_path_is_clean() {
    let (report, counts) = through(Faults::default(), 10_000);
    assert!(check(&report).is_clean(), "{report}");
    assert_eq!((report.received.packets, counts.sent), (10_000, 10_000));
    assert_eq!(check(&report).streams, 10);
}

// promise: 12.1
#[test]
fn every_loss_is_found() {
    let (report, counts) = through(
        Faults {
            loss: 0.01,
            ..Faults::default()
        },
        10_000,
    );
    assert!(counts.lost > 50);
    // No frame follows frames that are lost at the very end of a stream.
    let unseen = counts.lost - check(&report).lost;
    assert!(
        unseen <= 10,
        "{} of {} found",
        check(&report).lost,
        counts.lost
    );
    assert_eq!(report.received.packets, 10_000 - counts.lost);
    let expecting = ReceiveReport {
        expected: Some(10_000),
        ..report
    };
    assert_eq!(expecting.lost(), counts.lost);
}

// promise: 12.1
#[test]
fn every_duplicate_is_found() {
    let (report, counts) = through(
        Faults {
            duplication: 0.05,
            ..Faults::default()
        },
        10_000,
    );
    assert!(counts.duplicated > 0);
    assert_eq!(check(&report).duplicates, counts.duplicated);
    assert_eq!((check(&report).lost, check(&report).reordered), (0, 0));
}

// promise: 12.1
#[test]
fn every_reordering_is_found() {
    let faults = Faults {
        reordering: 0.02,
        reorder_distance: 30,
        ..Faults::default()
    };
    let (report, counts) = through(faults, 10_000);
    assert!(counts.reordered > 0);
    // A frame held back at the very end is overtaken by nothing.
    assert!(counts.reordered - check(&report).reordered <= 10);
    assert!(
        (1..=3).contains(&check(&report).reorder_extent_max),
        "30 places, 10 flows"
    );
    assert_eq!((check(&report).lost, check(&report).duplicates), (0, 0));
}

// promise: 12.1
#[test]
fn every_corruption_behind_the_headers_is_found() {
    let faults = Faults {
        corruption: 0.05,
        corrupt_from: HEADERS,
        ..Faults::default()
    };
    let (report, counts) = through(faults, 10_000);
    assert!(counts.corrupted > 0);
    // With a flipped bit in its magic a frame counts as foreign.
    assert_eq!(
        check(&report).corrupt + check(&report).foreign,
        counts.corrupted
    );
    assert!(check(&report).corrupt > check(&report).foreign);
}

#[test]
fn latency_is_the_time_between() {
    let (mut sender, receiver) = queue(usize::MAX, Faults::default(), 1);
    let clock = ManualClock::default();
    let mut generator = Generator::new(&traffic(1), &mut sender).unwrap();
    generator.burst(&mut sender, 100, clock.now_ns()).unwrap();
    clock.advance(2_000_000);
    let job = ReceiveJob {
        expect: Some(100),
        ..ReceiveJob::default()
    };
    let mut receiver = receiver.with_clock(clock.clone());
    let stop = AtomicBool::new(false);
    let report = receive(&job, &mut receiver, &clock, &stop, &mut |_| {}).unwrap();
    let latency = report.latency.unwrap();
    assert_eq!(latency.count, 100);
    assert!(latency.min_ns.abs_diff(2_000_000) < 5_000, "{latency}");
    assert!(latency.max_ns.abs_diff(2_000_000) < 5_000, "{latency}");
}

#[test]
fn a_frame_from_the_future_has_no_latency() {
    let (mut sender, receiver) = queue(10, Faults::default(), 1);
    let clock = ManualClock::default();
    let mut generator = Generator::new(&traffic(1), &mut sender).unwrap();
    generator.burst(&mut sender, 1, NS_PER_S).unwrap();
    let job = ReceiveJob {
        expect: Some(1),
        ..ReceiveJob::default()
    };
    let mut receiver = receiver.with_clock(clock.clone());
    let stop = AtomicBool::new(false);
    let report = receive(&job, &mut receiver, &clock, &stop, &mut |_| {}).unwrap();
    assert_eq!((report.clock_skewed, report.latency), (1, None));
}

#[test]
fn foreign_frames_have_a_counter_of_their_own() {
    let (mut sender, receiver) = queue(10, Faults::default(), 1);
    sender
        .send(3, |_, slot| {
            slot.fill(0xff);
            60
        })
        .unwrap();
    let clock = ManualClock::default();
    let mut receiver = receiver.with_clock(clock.clone());
    let stop = AtomicBool::new(false);
    for (depth, foreign) in [(Depth::Check, Some(3)), (Depth::Count, None)] {
        let job = ReceiveJob {
            depth,
            duration: Some("3s".parse().unwrap()),
            ..ReceiveJob::default()
        };
        let mut lines = Vec::new();
        let mut observe = |line: &ReceiveLine| lines.push(line.clone());
        let report = receive(&job, &mut receiver, &clock, &stop, &mut observe).unwrap();
        assert_eq!(report.check.map(|check| check.foreign), foreign);
        assert_eq!(lines.len(), 3);
    }
}

#[test]
fn padding_behind_the_packet_is_not_part_of_it() {
    let (mut sender, mut receiver) = queue(10, Faults::default(), 1);
    let spec = TrafficSpec {
        sizes: "60".parse().unwrap(),
        ..traffic(1)
    };
    let mut generator = Generator::new(&spec, &mut sender).unwrap();
    generator.burst(&mut sender, 1, 5).unwrap();
    receiver
        .receive(1, |frame| {
            let padded = [frame, &[0; 4]].concat();
            assert_eq!(stream_header(&padded).unwrap().tx_time_ns, 5);
            assert_eq!(stream_header(&padded[..59]), Err(PayloadError::Foreign));
        })
        .unwrap();
}
