use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::clock::{ManualClock, MonotonicClock};
use crate::io::{Receiver, Sender};
use crate::memory::{FaultCounts, Faults, MemoryReceiver, MemorySender, queue};
use crate::payload::Kind;
use crate::receive::stream_header;
use crate::spec::{FlowSpec, Transport};

/// Pings a reflector in another thread; the way there has `faults`, the way back has none.
fn round_trips(job: &PingJob, faults: Faults) -> (PingReport, ReflectReport, FaultCounts) {
    let (mut there, mut far_receiver) = queue(1000, faults, 3);
    let (mut far_sender, mut back) = queue(1000, Faults::default(), 4);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reflector = scope.spawn(|| {
            let ports = (&mut far_sender, &mut far_receiver);
            reflect(&ReflectJob::default(), ports, &MonotonicClock, &stop)
        });
        let ports = (&mut there, &mut back);
        let report = ping(
            job,
            ports,
            &MonotonicClock,
            &AtomicBool::new(false),
            &mut |_| {},
        )
        .unwrap();
        stop.store(true, Ordering::Relaxed);
        (report, reflector.join().unwrap().unwrap(), there.counts())
    })
}

fn job(count: u64) -> PingJob {
    PingJob {
        count: Some(count),
        ..PingJob::default()
    }
}

#[test]
fn every_probe_is_answered() {
    let patient = PingJob {
        timeout: "60s".parse().unwrap(),
        ..job(500)
    };
    let (report, reflected, _) = round_trips(&patient, Faults::default());
    assert_eq!((report.sent, report.answered, report.lost), (500, 500, 0));
    assert_eq!((reflected.reflected, reflected.ignored), (500, 0));
    assert_eq!(report.rtt.unwrap().count, 500);
}

#[test]
fn lost_and_doubled_probes_are_counted() {
    let job = PingJob {
        timeout: "500ms".parse().unwrap(),
        interval: Some("50us".parse().unwrap()),
        ..job(400)
    };
    let faults = Faults {
        loss: 0.05,
        ..Faults::default()
    };
    let (report, _, counts) = round_trips(&job, faults);
    assert!(counts.lost > 0);
    // On a busy machine an answer may also come too late, or after the end.
    assert!(report.lost >= counts.lost + report.late);
    assert_eq!(report.answered + report.lost, 400);
    let faults = Faults {
        duplication: 0.5,
        ..Faults::default()
    };
    let (report, _, counts) = round_trips(&PingJob { busy: true, ..job }, faults);
    assert!(counts.duplicated > 0);
    assert!(report.duplicates + report.late <= counts.duplicated + report.lost);
    assert!(report.duplicates > 0);
}

#[test]
fn without_a_reflector_everything_times_out() {
    let (mut sender, _unread) = queue(1000, Faults::default(), 1);
    let (_silent, receiver) = queue(1, Faults::default(), 1);
    let clock = ManualClock::default();
    let mut receiver = receiver.with_clock(clock.clone());
    let mut lines = Vec::new();
    let report = ping(
        &PingJob {
            timeout: "500ms".parse().unwrap(),
            ..job(5)
        },
        (&mut sender, &mut receiver),
        &clock,
        &AtomicBool::new(false),
        &mut |line| lines.push(line.clone()),
    )
    .unwrap();
    assert_eq!((report.sent, report.lost, report.loss_ratio()), (5, 5, 1.0));
    assert_eq!(report.rtt, None);
    assert_eq!(lines.len(), 2);
}

#[test]
fn an_interval_is_kept_whatever_comes_back() {
    let (mut sender, _unread) = queue(1000, Faults::default(), 1);
    let (_silent, receiver) = queue(1, Faults::default(), 1);
    let clock = ManualClock::default();
    let mut receiver = receiver.with_clock(clock.clone());
    let job = PingJob {
        interval: Some("10ms".parse().unwrap()),
        duration: Some("1s".parse().unwrap()),
        ..PingJob::default()
    };
    let ports = (&mut sender, &mut receiver);
    let report = ping(&job, ports, &clock, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.sent, 100);
}

/// Sends a frame through a reflector.
fn reflected(sender: &mut MemorySender, receiver: &mut MemoryReceiver) -> (ReflectReport, Vec<u8>) {
    let (mut far_sender, mut back) = queue(10, Faults::default(), 1);
    sender.flush().unwrap();
    let job = ReflectJob {
        duration: Some("0s".parse().unwrap()),
        ..ReflectJob::default()
    };
    let ports = (&mut far_sender, receiver);
    let report = reflect(
        &job,
        ports,
        &ManualClock::default(),
        &AtomicBool::new(false),
    )
    .unwrap();
    let mut answer = Vec::new();
    back.receive(1, |frame| answer = frame.to_vec()).unwrap();
    (report, answer)
}

#[test]
fn answers_are_valid_and_turned_round() {
    use nfluid_wire::ChecksumState;
    use nfluid_wire::PacketMeta;
    use nfluid_wire::ipv4::Ipv4Packet;
    use nfluid_wire::tcp::TcpPacket;
    use nfluid_wire::udp::UdpPacket;

    for transport in [Transport::Udp, Transport::Tcp] {
        let spec = crate::spec::TrafficSpec {
            sizes: "90".parse().unwrap(),
            flows: FlowSpec {
                transport,
                ..FlowSpec::default()
            },
            ..Default::default()
        };
        let mut templates = crate::template::Templates::new(&spec, Kind::Probe).unwrap();
        let (mut sender, mut receiver) = queue(10, Faults::default(), 1);
        let mut probe = Vec::new();
        sender
            .send(1, |_, slot| {
                let length = templates.write(slot, 77);
                probe = slot[..length].to_vec();
                length
            })
            .unwrap();
        let (report, answer) = reflected(&mut sender, &mut receiver);
        assert_eq!(report.reflected, 1);
        assert_eq!(stream_header(&answer).unwrap().kind, Kind::Reply);
        assert_eq!((&answer[..6], &answer[6..12]), (&probe[6..12], &probe[..6]));
        let (there, back) = (
            PacketMeta::parse(&probe).unwrap(),
            PacketMeta::parse(&answer).unwrap(),
        );
        assert_eq!(
            there.flow_key().unwrap().reversed(),
            back.flow_key().unwrap()
        );
        let packet = Ipv4Packet::new_checked(&answer[14..]).unwrap();
        assert!(packet.verify_checksum());
        let valid = match transport {
            Transport::Udp => UdpPacket::new_checked(packet.payload())
                .unwrap()
                .verify_checksum(packet.pseudo_header(), ChecksumState::Complete),
            Transport::Tcp => TcpPacket::new_checked(packet.payload())
                .unwrap()
                .verify_checksum(packet.pseudo_header(), ChecksumState::Complete),
        };
        assert!(valid);
    }
}

#[test]
fn answers_and_strangers_are_not_reflected() {
    let spec = crate::spec::TrafficSpec::default();
    let (mut sender, mut receiver) = queue(10, Faults::default(), 1);
    for kind in [Kind::Reply, Kind::Data] {
        let mut templates = crate::template::Templates::new(&spec, kind).unwrap();
        sender.send(1, |_, slot| templates.write(slot, 0)).unwrap();
    }
    sender
        .send(1, |_, slot| {
            slot.fill(7);
            2032
        })
        .unwrap();
    let (report, answer) = reflected(&mut sender, &mut receiver);
    assert_eq!((report.ignored, report.reflected), (3, 0));
    assert!(answer.is_empty());
}
