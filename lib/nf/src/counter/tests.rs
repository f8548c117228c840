use super::build;
use crate::function::{CommandError, Nanos, NetworkFunction};
use crate::super_frames::{assert_same_as_packets, ends, shapes};
use crate::testing::{Sent, ports, run, run_offload};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nfluid_wire::{MacAddr, TcpFlags, VlanTag, build as wire};
use proptest::prelude::*;
use serde_json::{Value, json};

fn counter() -> Box<dyn NetworkFunction> {
    build(&Value::Null, &ports(2)).unwrap()
}

/// The value of `name` with these label values, in order; `None` if it is not reported.
fn metric(nf: &dyn NetworkFunction, name: &str, labels: &[&str]) -> Option<f64> {
    let mut found = None;
    nf.metrics(&mut |m| {
        let values: Vec<&str> = m.labels.iter().map(|(_, value)| value.as_str()).collect();
        if m.name == name && values == labels {
            found = Some(m.value);
        }
    });
    found
}

fn frame(description: wire::Frame<'_>, payload: usize) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let len = description
        .write(&mut buffer, &[0; 1600][..payload])
        .unwrap();
    buffer[..len].to_vec()
}

fn v4() -> wire::Frame<'static> {
    wire::Frame::udp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap())
}

fn v6() -> wire::Frame<'static> {
    let (src, dst) = ("[::1]:1".parse().unwrap(), "[::2]:2".parse().unwrap());
    wire::Frame::tcp(src, dst, TcpFlags::SYN)
}

#[test]
fn everything_passes_and_is_counted_by_kind() {
    let mut nf = counter();
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let tag = [VlanTag::new(7)];
    let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    let frames: Vec<Sent> = vec![
        (0, frame(v4(), 18)),
        (1, frame(v4().vlans(&tag), 100)),
        (0, frame(v6(), 0)),
        (0, frame(v4().macs(MacAddr([2; 6]), group), 0)),
        (0, arp),
        (0, [vec![0; 12], vec![8, 0, 0x45]].concat()),
    ];
    let sent = run(&mut *nf, Nanos(0), &frames);
    let expected: Vec<Sent> = frames.into_iter().map(|(port, f)| (port ^ 1, f)).collect();
    assert_eq!(sent, expected);
    let count = |name, label| metric(&*nf, name, &[label]);
    assert_eq!(count("ethertype_packets_total", "ipv4"), Some(3.0));
    assert_eq!(
        count("ethertype_bytes_total", "ipv4"),
        Some(60.0 + 146.0 + 42.0)
    );
    assert_eq!(count("ethertype_packets_total", "ipv6"), Some(1.0));
    assert_eq!(count("ethertype_packets_total", "arp"), Some(1.0));
    assert_eq!(count("kind_packets_total", "tagged"), Some(1.0));
    assert_eq!(count("kind_packets_total", "broadcast"), Some(1.0));
    assert_eq!(count("kind_packets_total", "multicast"), Some(1.0));
    assert_eq!(count("kind_packets_total", "malformed"), Some(1.0));
    assert_eq!(
        metric(&*nf, "protocol_packets_total", &["udp", "ipv4"]),
        Some(3.0)
    );
    assert_eq!(
        metric(&*nf, "protocol_packets_total", &["tcp", "ipv6"]),
        Some(1.0)
    );
    assert_eq!(
        metric(&*nf, "protocol_packets_total", &["tcp", "ipv4"]),
        None
    );
}

#[test]
fn sizes_make_a_histogram() {
    let mut nf = counter();
    let sizes = [14, 60, 61, 123, 124, 1514, 1515];
    let frames: Vec<Sent> = sizes.iter().map(|&size| (0, vec![0; size])).collect();
    run(&mut *nf, Nanos(0), &frames);
    let bucket = |bound: &str| metric(&*nf, "frame_size_bytes_bucket", &[bound]);
    let counts = ["60", "123", "251", "507", "1019", "1514", "+Inf"].map(bucket);
    assert_eq!(counts, [2.0, 4.0, 5.0, 5.0, 5.0, 6.0, 7.0].map(Some));
    let sum = sizes.iter().sum::<usize>() as f64;
    assert_eq!(metric(&*nf, "frame_size_bytes_sum", &[]), Some(sum));
    assert_eq!(metric(&*nf, "frame_size_bytes_count", &[]), Some(7.0));
}

#[test]
fn many_ethertypes_are_counted_together() {
    let mut nf = counter();
    let frames: Vec<Sent> = (0..40u8)
        .map(|i| (0, [vec![0; 12], vec![0x90, i], vec![0; 46]].concat()))
        .collect();
    run(&mut *nf, Nanos(0), &frames);
    let count = |label| metric(&*nf, "ethertype_packets_total", &[label]);
    assert_eq!(count("0x9000"), Some(1.0));
    assert_eq!(count("other"), Some(8.0));
}

#[test]
fn reset_starts_anew() {
    let mut nf = counter();
    run(&mut *nf, Nanos(0), &[(0, frame(v4(), 0))]);
    let wrong: [String; 1] = ["now".to_string()];
    assert!(nf.command(Nanos(0), "reset", &wrong).is_err());
    let unknown = nf.command(Nanos(0), "clear", &[]);
    assert_eq!(unknown, Err(CommandError::Unknown(&["reset"])));
    assert_eq!(metric(&*nf, "frame_size_bytes_count", &[]), Some(1.0));
    nf.command(Nanos(0), "reset", &[]).unwrap();
    assert_eq!(metric(&*nf, "frame_size_bytes_count", &[]), Some(0.0));
}

#[test]
fn an_unknown_key_is_refused() {
    assert!(build(&json!({"by": "size"}), &ports(2)).is_err());
}

proptest! {
    /// Catches: a super-frame that counts as one packet, of its whole length, in any counter.
    // promise: 10.44
    #[test]
    fn a_super_frame_counts_as_its_packets(
        shape in shapes(), (src, dst) in ends(), to in prop_oneof![any::<[u8; 6]>(), Just([0xff; 6])],
    ) {
        let macs = (MacAddr([2; 6]), MacAddr(to));
        let frame = shape.between(src, dst).macs(macs.0, macs.1);
        let (bytes, offload) = shape.written(&frame);
        let [mut whole, mut cut] = [counter(), counter()];
        assert_same_as_packets(&mut *whole, &mut *cut, Nanos(0), &[(0, bytes.clone(), offload)]);
        let mut malformed = bytes;
        malformed[14 + 4 * shape.tags.len()] = 0;
        let packets = offload.segments(malformed.len()) as f64;
        run_offload(&mut *whole, Nanos(0), &[(0, malformed, offload)]);
        prop_assert_eq!(metric(&*whole, "kind_packets_total", &["malformed"]), Some(packets));
    }

    // promise: 10.19
    #[test]
    fn any_frame_is_counted_once(
        frames in proptest::collection::vec(
            (0..2u8, proptest::collection::vec(any::<u8>(), 14..100)), 1..100),
    ) {
        let mut nf = counter();
        let sent = run(&mut *nf, Nanos(0), &frames);
        prop_assert_eq!(sent.len(), frames.len());
        let total = frames.len() as f64;
        prop_assert_eq!(metric(&*nf, "frame_size_bytes_count", &[]), Some(total));
        let mut by_ethertype = metric(&*nf, "kind_packets_total", &["malformed"]).unwrap();
        nf.metrics(&mut |m| {
            if m.name == "ethertype_packets_total" {
                by_ethertype += m.value;
            }
        });
        prop_assert_eq!(by_ethertype, total);
    }
}
