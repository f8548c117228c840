use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

use super::*;
use crate::clock::{ManualClock, NS_PER_S};
use crate::io::Receiver;
use crate::memory::{Faults, MemorySender, queue};

/// A capture of (milliseconds, original length, kept length) frames, each filled with its number.
fn capture(frames: &[(u64, u32, usize)], link: DataLink) -> Vec<u8> {
    let header = PcapHeader {
        datalink: link,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (number, &(ms, original_len, kept)) in frames.iter().enumerate() {
        let bytes = vec![number as u8; kept];
        let packet = PcapPacket::new(Duration::from_millis(ms), original_len, &bytes);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// Notes the time of each frame.
struct Timed {
    inner: MemorySender,
    clock: ManualClock,
    times_ns: Vec<u64>,
}

impl Sender for Timed {
    fn send(
        &mut self,
        count: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, IoError> {
        let taken = self.inner.send(count, fill)?;
        self.times_ns
            .extend(std::iter::repeat_n(self.clock.now_ns(), taken));
        Ok(taken)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.inner.flush()
    }
}

struct Outcome {
    report: Result<ReplayReport, ReplayError>,
    times_ns: Vec<u64>,
    frames: Vec<Vec<u8>>,
}

fn run(file: &[u8], job: &ReplayJob) -> Outcome {
    let (inner, mut receiver) = queue(usize::MAX, Faults::default(), 1);
    let clock = ManualClock::default();
    let mut port = Timed {
        inner,
        clock: clock.clone(),
        times_ns: Vec::new(),
    };
    let stop = AtomicBool::new(false);
    let open = || Capture::new(file, "test.pcap");
    let report = replay(job, open, &mut port, &clock, &stop, &mut |_| {});
    let mut frames = Vec::new();
    receiver
        .receive(usize::MAX, |frame| frames.push(frame.to_vec()))
        .unwrap();
    Outcome {
        report,
        times_ns: port.times_ns,
        frames,
    }
}

fn three() -> Vec<u8> {
    capture(
        &[(1000, 60, 60), (1010, 100, 100), (1040, 60, 60)],
        DataLink::ETHERNET,
    )
}

fn ms(times_ns: &[u64]) -> Vec<u64> {
    times_ns.iter().map(|ns| ns / 1_000_000).collect()
}

#[test]
fn the_recorded_timing_is_kept_and_loops_follow_at_the_mean_gap() {
    let job = ReplayJob {
        loops: 2,
        ..ReplayJob::default()
    };
    let outcome = run(&three(), &job);
    assert_eq!(ms(&outcome.times_ns), [0, 10, 40, 60, 70, 100]);
    let report = outcome.report.unwrap();
    assert_eq!(
        (report.loops, report.sent.packets, report.sent.bytes),
        (2, 6, 440)
    );
    assert!(report.lag_max_ns < 1000, "{}", report.lag_max_ns);
    assert_eq!(outcome.frames[1], [1; 100]);
    assert_eq!(outcome.frames[..3], outcome.frames[3..]);
}

#[test]
fn the_recorded_timing_can_be_scaled() {
    let job = ReplayJob {
        timing: Timing::Recorded(0.5),
        ..ReplayJob::default()
    };
    assert_eq!(ms(&run(&three(), &job).times_ns), [0, 20, 80]);
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let job = ReplayJob {
            timing: Timing::Recorded(speed),
            ..ReplayJob::default()
        };
        assert!(matches!(
            run(&three(), &job).report,
            Err(ReplayError::Speed(_))
        ));
    }
}

#[test]
fn a_rate_replaces_the_timing() {
    let at = |rate: &str| {
        let timing = Timing::Rate(rate.parse().unwrap());
        ms(&run(
            &three(),
            &ReplayJob {
                timing,
                loops: 2,
                ..ReplayJob::default()
            },
        )
        .times_ns)
    };
    assert_eq!(at("1kpps"), [0, 1, 2, 3, 4, 5]);
    // 60 bytes take 60 ms at 8 kbit/s.
    assert_eq!(at("8kbps"), [0, 60, 160, 220, 280, 380]);
    assert_eq!(at("max"), [0; 6]);
}

#[test]
fn count_and_duration_end_an_endless_replay() {
    let endless = ReplayJob {
        loops: 0,
        ..ReplayJob::default()
    };
    let job = ReplayJob {
        count: Some(7),
        ..endless.clone()
    };
    assert_eq!(run(&three(), &job).frames.len(), 7);
    let job = ReplayJob {
        duration: Some("1s".parse().unwrap()),
        ..endless
    };
    let report = run(&three(), &job).report.unwrap();
    assert!((16..18).contains(&report.loops), "{}", report.loops);
    assert_eq!(report.sent.seconds as u64, NS_PER_S / NS_PER_S);
}

#[test]
fn times_that_go_back_do_not_stop_it() {
    let file = capture(
        &[(50, 60, 60), (10, 60, 60), (60, 60, 60)],
        DataLink::ETHERNET,
    );
    let outcome = run(&file, &ReplayJob::default());
    assert_eq!(ms(&outcome.times_ns), [0, 0, 10]);
    assert_eq!(outcome.report.unwrap().time_reversed, 1);
}

#[test]
fn what_does_not_fit_is_left_out_and_counted() {
    let frames = [(0, 13, 13), (0, 60, 60), (0, 2033, 2033), (0, 2032, 2032)];
    let job = ReplayJob {
        loops: 3,
        ..ReplayJob::default()
    };
    let outcome = run(&capture(&frames, DataLink::ETHERNET), &job);
    assert_eq!(outcome.frames.len(), 6);
    assert_eq!(outcome.report.unwrap().bad_length, 2);
    let outcome = run(&capture(&frames[..1], DataLink::ETHERNET), &job);
    assert!(matches!(
        outcome.report,
        Err(ReplayError::Empty { left_out: 1 })
    ));
}

#[test]
fn cut_frames_are_treated_as_asked() {
    let file = capture(&[(0, 200, 64), (0, 70, 70)], DataLink::ETHERNET);
    for (snapped, lengths) in [
        (Snapped::Send, &[64, 70][..]),
        (Snapped::Pad, &[200, 70]),
        (Snapped::Skip, &[70]),
    ] {
        let outcome = run(
            &file,
            &ReplayJob {
                snapped,
                ..ReplayJob::default()
            },
        );
        let sent: Vec<_> = outcome.frames.iter().map(Vec::len).collect();
        assert_eq!(sent, lengths);
        assert_eq!(outcome.report.unwrap().snapped, 1);
    }
}

#[test]
fn bare_ip_packets_get_a_header() {
    let file = capture(&[(0, 40, 40), (0, 50, 50)], DataLink::RAW);
    let outcome = run(&file, &ReplayJob::default());
    assert_eq!(outcome.frames[0].len(), 54);
    assert_eq!(outcome.frames[0][..6], ReplayJob::default().macs.1.0);
    assert_eq!(outcome.frames[0][12..14], [8, 0]);
}

#[test]
fn cooked_packets_get_a_header_of_their_own_ethertype() {
    let file = capture(&[(0, 15, 15), (0, 76, 76)], DataLink::LINUX_SLL);
    let outcome = run(&file, &ReplayJob::default());
    assert_eq!(
        outcome.frames,
        [[&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &[1; 62]].concat()]
    );
    assert_eq!(outcome.report.unwrap().bad_length, 1);
}

#[test]
fn damage_fails_or_stops_with_what_was_read_before() {
    let file = three();
    let cut = &file[..file.len() - 1];
    let failed = run(cut, &ReplayJob::default());
    let text = failed.report.unwrap_err().to_string();
    assert!(
        text.contains("record 3") && text.contains("read 2 packets"),
        "{text}"
    );
    assert_eq!(failed.frames.len(), 2);
    let job = ReplayJob {
        on_damage: OnDamage::Stop,
        ..ReplayJob::default()
    };
    let stopped = run(cut, &job);
    let report = stopped.report.unwrap();
    assert_eq!(report.sent.packets, 2);
    assert!(report.damage.unwrap().contains("record 3"));
}
