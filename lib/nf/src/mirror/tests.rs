use super::build;
use crate::function::{CommandError, Nanos, NetworkFunction};
use crate::super_frames::{ends, metrics, shapes, super_frame};
use crate::testing::{Sent, on_wire, ports, run, run_offload};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_ring::offload::PartialChecksum;
use nfluid_ring::{Batch, Frame, Offload, Outbox};
use nfluid_wire::{TcpFlags, build as wire};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mirror(config: Value, port_count: u8) -> Box<dyn NetworkFunction> {
    build(&config, &ports(port_count)).unwrap()
}

fn tcp(src: &str, dst: &str) -> Vec<u8> {
    let mut buffer = [0; 200];
    let frame = wire::Frame::tcp(src.parse().unwrap(), dst.parse().unwrap(), TcpFlags::ACK);
    let len = frame.write(&mut buffer, b"payload").unwrap();
    buffer[..len].to_vec()
}

fn metric(nf: &dyn NetworkFunction, name: &str, label: &str) -> f64 {
    let mut sum = 0.0;
    nf.metrics(&mut |m| {
        if m.name == name && (label.is_empty() || m.labels.iter().any(|(_, v)| v == label)) {
            sum += m.value;
        }
    });
    sum
}

/// The frames of a `pcap` answer: timestamp in nanoseconds, whole length, bytes.
fn captured(nf: &mut dyn NetworkFunction, args: &[&str]) -> Vec<(u64, u32, Vec<u8>)> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
    let answer = nf.command(Nanos(0), "pcap", &args).unwrap();
    let file = STANDARD.decode(answer["file"].as_str().unwrap()).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(20)), (0xa1b2_3c4d, 0x0004_0002, 1));
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let len = word(at + 8) as usize;
        frames.push((time, word(at + 12), file[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    assert_eq!(answer["frames"], frames.len());
    frames
}

// promise: 10.25
#[test]
fn everything_passes_and_a_copy_goes_to_the_mirror_port() {
    let mut nf = mirror(Value::Null, 3);
    let (there, back) = (tcp("10.0.0.1:1", "10.0.0.2:80"), vec![7; 60]);
    let sent = run(&mut *nf, Nanos(0), &[(0, there.clone()), (1, back.clone())]);
    let expected = [(2, there.clone()), (1, there), (2, back.clone()), (0, back)];
    assert_eq!(sent, expected);
}

#[test]
fn only_what_matches_is_copied() {
    let web = tcp("10.0.0.1:999", "10.0.0.2:80");
    let ssh = tcp("10.0.0.1:999", "10.9.0.2:22");
    let v6 = tcp("[2001:db8::1]:80", "[2001:db8::2]:999");
    let garbage = vec![8; 60];
    let frames: Vec<Sent> = [&web, &ssh, &v6, &garbage].map(|f| (0, f.clone())).into();
    let copies = |selection: Value| {
        let mut nf = mirror(json!({ "match": selection }), 2);
        run(&mut *nf, Nanos(0), &frames);
        let frames = captured(&mut *nf, &[]);
        frames
            .into_iter()
            .map(|(.., bytes)| bytes)
            .collect::<Vec<_>>()
    };
    assert_eq!(copies(json!({"ports": [80]})), [web.clone(), v6.clone()]);
    assert_eq!(
        copies(json!({"prefixes": ["10.9.0.0/16"]})),
        std::slice::from_ref(&ssh)
    );
    assert_eq!(
        copies(json!({"prefixes": ["10.9.0.0/16", "::/0"]})),
        [ssh.clone(), v6.clone()]
    );
    assert_eq!(
        copies(json!({"prefixes": ["10.0.0.0/8"], "ports": [80]})),
        std::slice::from_ref(&web)
    );
    assert_eq!(copies(json!({"protocol": "tcp"})), [web, ssh, v6]);
    assert!(copies(json!({"protocol": "udp"})).is_empty());
    assert_eq!(copies(json!({"direction": "forward"})).len(), 4);
    assert!(copies(json!({"direction": "reverse"})).is_empty());
}

#[test]
fn copies_are_cut_to_the_snap_length() {
    let mut nf = mirror(json!({"snaplen": 20}), 3);
    let frame: Vec<u8> = (0..100).collect();
    let sent = run(&mut *nf, Nanos(5), &[(0, frame.clone())]);
    assert_eq!(sent, [(2, frame[..20].to_vec()), (1, frame.clone())]);
    assert_eq!(captured(&mut *nf, &[]), [(5, 100, frame[..20].to_vec())]);
}

#[test]
fn copies_are_bounded_by_the_rate() {
    let mut nf = mirror(json!({"rate": 10}), 3);
    let frames: Vec<Sent> = (0..30).map(|_| (0, vec![1; 60])).collect();
    let copies = |sent: Vec<Sent>| sent.iter().filter(|(port, _)| *port == 2).count();
    assert_eq!(copies(run(&mut *nf, Nanos::from_secs(1), &frames)), 10);
    assert_eq!(copies(run(&mut *nf, Nanos(1_500_000_000), &frames)), 5);
    assert_eq!(metric(&*nf, "copies_lost_total", "rate"), 45.0);
    assert_eq!(metric(&*nf, "packets_forwarded_total", ""), 60.0);
}

// promise: 10.17
#[test]
fn memory_is_bounded_and_the_oldest_frames_give_way() {
    let mut nf = mirror(json!({"memory_bytes": 500}), 2);
    let frames: Vec<Sent> = (0..10).map(|i| (0, vec![i; 60])).collect();
    run(&mut *nf, Nanos(0), &frames);
    let kept: Vec<u8> = captured(&mut *nf, &[])
        .iter()
        .map(|(.., bytes)| bytes[0])
        .collect();
    assert_eq!(kept, [6, 7, 8, 9]);
    assert_eq!(metric(&*nf, "copies_lost_total", "overwritten"), 6.0);
    nf.reconfigure(&json!({"memory_bytes": 130}), &ports(2))
        .unwrap();
    assert_eq!(captured(&mut *nf, &[]).len(), 1);
    nf.reconfigure(&json!({"memory_bytes": 0}), &ports(2))
        .unwrap();
    run(&mut *nf, Nanos(0), &frames);
    assert_eq!(captured(&mut *nf, &[]).len(), 0);
}

#[test]
fn a_capture_is_limited_dated_and_cleared_on_demand() {
    let mut nf = mirror(Value::Null, 2);
    for i in 0..5u8 {
        run(&mut *nf, Nanos(u64::from(i)), &[(0, vec![i; 60])]);
    }
    let dated = captured(&mut *nf, &["limit=2", "epoch_ns=1700000000000000000"]);
    let times: Vec<u64> = dated.iter().map(|(time, ..)| *time).collect();
    assert_eq!(
        times,
        [1_700_000_000_000_000_003, 1_700_000_000_000_000_004]
    );
    assert_eq!(captured(&mut *nf, &["clear=true"]).len(), 5);
    assert_eq!(captured(&mut *nf, &[]).len(), 0);
    run(&mut *nf, Nanos(0), &[(0, vec![0; 60])]);
    assert_eq!(
        nf.command(Nanos(0), "clear", &[]),
        Ok(json!({"cleared": 1}))
    );
}

#[test]
fn frames_on_the_mirror_port_are_dropped() {
    let mut nf = mirror(Value::Null, 3);
    assert_eq!(run(&mut *nf, Nanos(0), &[(2, vec![0; 60])]), []);
    assert_eq!(
        metric(&*nf, "packets_dropped_total", "from_mirror_port"),
        1.0
    );
}

#[test]
fn bad_configurations_and_arguments_are_refused() {
    let path = |config: Value| build(&config, &ports(2)).err().expect("refused").path;
    assert_eq!(
        path(json!({"match": {"prefixes": ["10.0.0.0/8", "x"]}})),
        "match.prefixes[1]"
    );
    assert_eq!(
        path(json!({"match": {"ports": [70_000]}})),
        "match.ports[0]"
    );
    assert_eq!(
        path(json!({"match": {"ports": vec![1; 65]}})),
        "match.ports"
    );
    assert_eq!(
        path(json!({"match": {"protocol": "ipx"}})),
        "match.protocol"
    );
    assert_eq!(path(json!({"snaplen": 13})), "snaplen");
    assert_eq!(path(json!({"rate": 0})), "rate");
    assert_eq!(path(json!({"memory_bytes": 1u64 << 40})), "memory_bytes");
    let mut nf = mirror(Value::Null, 2);
    for arg in [
        "limit=0",
        "limit=x",
        "clear=1",
        "epoch_ns=-1",
        "limit",
        "all=true",
    ] {
        let error = nf.command(Nanos(0), "pcap", &[arg.to_string()]);
        assert!(matches!(error, Err(CommandError::BadArgument(_))), "{arg}");
    }
    let unknown = nf.command(Nanos(0), "dump", &[]);
    assert_eq!(unknown, Err(CommandError::Unknown(&["clear", "pcap"])));
}

/// Catches: metadata beside a copy that has not all of the frame, and a true length that is the copy's.
#[test]
fn a_copy_keeps_its_metadata_if_it_is_whole() {
    let (src, dst) = (
        "10.0.0.1:1".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (bytes, offload) = super_frame(&description, &[7; 44 * 1448], 1448);
    let frames = [(0, bytes.clone(), offload)];
    let mut nf = mirror(Value::Null, 3);
    let sent = run_offload(&mut *nf, Nanos(0), &frames);
    let passed = (1, bytes.clone(), offload);
    assert_eq!(sent, [(2, bytes.clone(), offload), passed.clone()]);
    let len = bytes.len() as u32;
    assert_eq!(captured(&mut *nf, &[]), [(0, len, bytes.clone())]);
    let mut nf = mirror(json!({"snaplen": 2032}), 3);
    let sent = run_offload(&mut *nf, Nanos(0), &frames);
    let cut = bytes[..2032].to_vec();
    assert_eq!(sent, [(2, cut.clone(), Offload::NONE), passed]);
    assert_eq!(captured(&mut *nf, &[]), [(0, len, cut)]);
}

/// Catches: memory beyond the bound for a frame that does not fit, and older frames that give way to it in vain.
#[test]
fn a_copy_that_is_larger_than_the_memory_is_not_kept() {
    let mut nf = mirror(json!({"memory_bytes": 500}), 2);
    run(&mut *nf, Nanos(0), &[(0, vec![1; 60]), (0, vec![2; 437])]);
    assert_eq!(captured(&mut *nf, &[]).len(), 1);
    assert_eq!(metric(&*nf, "copies_lost_total", "overwritten"), 1.0);
    run(&mut *nf, Nanos(0), &[(0, vec![3; 436])]);
    assert_eq!(captured(&mut *nf, &[])[0].2, [3; 436]);
    assert_eq!(metric(&*nf, "copies_lost_total", "overwritten"), 2.0);
}

/// Catches: super-frames that are copied at many times the rate, or never.
#[test]
fn the_copies_of_a_super_frame_are_those_of_its_packets() {
    let mut nf = mirror(json!({"rate": 10, "memory_bytes": 0}), 3);
    let (src, dst) = (
        "10.0.0.1:1".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (bytes, offload) = super_frame(&description, &[7; 40 * 100], 100);
    let mut copies = |seconds: u64| {
        let frames = [(0, bytes.clone(), offload)];
        let sent = run_offload(&mut *nf, Nanos::from_secs(seconds), &frames);
        sent.len() - 1
    };
    // 40 packets are a debt of 30, which takes 3 s; a tenth of a second later there is one copy.
    assert_eq!([copies(0), copies(1), copies(3), copies(4)], [1, 0, 0, 1]);
    assert_eq!(metric(&*nf, "copies_total", ""), 80.0);
    assert_eq!(metric(&*nf, "copies_lost_total", "rate"), 80.0);
}

/// An outbox without room.
struct Full;

impl Outbox for Full {
    fn emit_offload(&mut self, _port: u8, _frame: &[u8], _offload: Offload) -> bool {
        false
    }

    fn commit(&mut self, _decided: &[Frame<'_>]) {}
}

/// Catches: a super-frame that is lost as one packet.
#[test]
fn copies_without_room_are_counted() {
    let mut nf = mirror(Value::Null, 3);
    let (src, dst) = (
        "10.0.0.1:1".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (mut bytes, offload) = super_frame(&description, &[7; 4 * 100], 100);
    let len = bytes.len() as u16;
    let mut frames = ArrayVec::new();
    frames.push(Frame::new(&mut bytes, len, 0));
    frames[0].set_offload(offload);
    nf.process(Nanos(0), &mut Batch::new(&mut frames, &mut Full));
    assert_eq!(metric(&*nf, "copies_lost_total", "no_room"), 4.0);
    assert_eq!(metric(&*nf, "packets_forwarded_total", ""), 4.0);
}

/// Catches: a port that a checksum is written over after the mirror has looked.
#[test]
fn a_frame_is_chosen_by_what_it_is_on_a_wire() {
    let mut nf = mirror(json!({"match": {"ports": [22]}}), 3);
    // The checksum is written over the destination port.
    let over = Offload::partial_checksum(PartialChecksum {
        start: 30,
        offset: 6,
    });
    let frame = tcp("10.0.0.1:999", "10.0.0.2:22");
    let sent = run_offload(&mut *nf, Nanos(0), &[(0, frame.clone(), over)]);
    assert_eq!(sent.len(), 1, "not port 22 any more");
    assert_ne!(sent[0].1, frame);
}

proptest! {
    /// Catches: packets that are copied or counted otherwise than by themselves.
    // promise: 10.44
    #[test]
    fn a_super_frame_is_copied_as_its_packets(shape in shapes(), (src, dst) in ends(), port in 0..3_u8) {
        let (bytes, offload) = shape.written(&shape.between(src, dst));
        let config = json!({"memory_bytes": 0, "match": {"protocol": "tcp"}});
        let [mut whole, mut cut] = [mirror(config.clone(), 3), mirror(config, 3)];
        let frames = [(port, bytes, offload)];
        let by_port = |mut sent: Vec<Sent>| {
            sent.sort_by_key(|(port, _)| *port);
            sent
        };
        let by_frame = on_wire(&run_offload(&mut *whole, Nanos(0), &frames));
        let by_packets = run(&mut *cut, Nanos(0), &on_wire(&frames));
        prop_assert_eq!(by_port(by_frame), by_port(by_packets));
        prop_assert_eq!(metrics(&*whole), metrics(&*cut));
    }

    // promise: 10.17
    #[test]
    fn random_frames_pass_unchanged(
        frames in proptest::collection::vec(
            (0..2u8, proptest::collection::vec(any::<u8>(), 14..100)), 0..100),
        port: u16,
    ) {
        let selection = json!({"prefixes": ["0.0.0.0/1", "::/1"], "ports": [port, 80]});
        let mut nf = mirror(json!({ "match": selection }), 2);
        let sent = run(&mut *nf, Nanos(0), &frames);
        let expected: Vec<Sent> = frames.into_iter().map(|(port, f)| (port ^ 1, f)).collect();
        prop_assert_eq!(sent, expected);
    }
}
