use super::build;
use crate::function::{Nanos, NetworkFunction};
use crate::super_frames::{assert_same_as_packets, ends, shapes};
use crate::testing::{Sent, ports, run};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nfluid_ring::Offload;
use proptest::prelude::*;
use serde_json::{Value, json};

fn bridge() -> Box<dyn NetworkFunction> {
    build(&Value::Null, &ports(2)).expect("a bridge needs no configuration")
}

fn metric(nf: &dyn NetworkFunction, name: &str, from: &str) -> f64 {
    let mut found = None;
    nf.metrics(&mut |m| {
        if m.name == name && m.labels == [("from".into(), from.into())] {
            found = Some(m.value);
        }
    });
    found.expect("the metric exists")
}

#[test]
fn a_frame_leaves_unchanged_on_the_other_port() {
    let mut nf = bridge();
    let there = (0..60).collect::<Vec<u8>>();
    let back = vec![0xee; 1514];
    let sent = run(&mut *nf, Nanos(0), &[(0, there.clone()), (1, back.clone())]);
    assert_eq!(sent, [(1, there), (0, back)]);
}

#[test]
fn each_direction_has_its_own_counters() {
    let mut nf = bridge();
    let frame = |port, len| (port, vec![0u8; len]);
    run(
        &mut *nf,
        Nanos(0),
        &[frame(0, 60), frame(0, 100), frame(1, 14)],
    );
    assert_eq!(metric(&*nf, "packets_forwarded_total", "p0"), 2.0);
    assert_eq!(metric(&*nf, "bytes_forwarded_total", "p0"), 160.0);
    assert_eq!(metric(&*nf, "packets_forwarded_total", "p1"), 1.0);
    assert_eq!(metric(&*nf, "bytes_forwarded_total", "p1"), 14.0);
}

#[test]
fn a_reconfiguration_renames_ports_and_keeps_counts() {
    let mut nf = bridge();
    run(&mut *nf, Nanos(0), &[(0, vec![0; 60])]);
    let mut renamed = ports(2);
    renamed[0].name = "left".into();
    nf.reconfigure(&json!({}), &renamed).expect("valid");
    assert_eq!(metric(&*nf, "packets_forwarded_total", "left"), 1.0);
}

#[test]
fn an_unknown_key_is_refused() {
    let error = build(&json!({"speed": 9}), &ports(2))
        .err()
        .expect("refused");
    assert!(error.message.contains("speed"), "{error}");
    assert!(bridge().reconfigure(&json!({"x": 1}), &ports(2)).is_err());
}

proptest! {
    /// Catches: metadata that is lost, and a super-frame that counts as one packet.
    // promise: 10.44
    #[test]
    fn a_super_frame_passes_as_its_packets(shape in shapes(), (src, dst) in ends()) {
        let (bytes, offload) = shape.written(&shape.between(src, dst));
        let [mut whole, mut cut] = [bridge(), bridge()];
        let frames = [(1, bytes, offload), (0, vec![7; 60], Offload::NONE)];
        assert_same_as_packets(&mut *whole, &mut *cut, Nanos(0), &frames);
    }
}

fn any_frame() -> impl Strategy<Value = Sent> {
    (0..2u8, proptest::collection::vec(any::<u8>(), 14..200))
}

proptest! {
    // promise: 10.2
    #[test]
    fn every_frame_passes_in_order(frames in proptest::collection::vec(any_frame(), 0..150)) {
        let sent = run(&mut *bridge(), Nanos(0), &frames);
        let expected: Vec<Sent> = frames.into_iter().map(|(port, bytes)| (port ^ 1, bytes)).collect();
        prop_assert_eq!(sent, expected);
    }
}
