use super::build;
use crate::function::{Nanos, NetworkFunction};
use crate::super_frames::{assert_same_as_packets, ends, shapes};
use crate::testing::{ports, run_offload, run_one};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use nfluid_ring::Offload;
use nfluid_ring::layout::{FRAME_MAX, LONG_MAX};
use nfluid_ring::offload::PartialChecksum;
use nfluid_wire::build as wire;
use nfluid_wire::ether::{EtherType, VlanStack, VlanTag};
use proptest::prelude::*;
use serde_json::{Value, json};

fn vlan(config: Value) -> Box<dyn NetworkFunction> {
    build(&config, &ports(2)).unwrap()
}

fn drops(nf: &dyn NetworkFunction, reason: &str) -> f64 {
    let mut count = 0.0;
    nf.metrics(&mut |m| {
        if m.name == "packets_dropped_total"
            && m.labels == [("reason".into(), String::from(reason))]
        {
            count = m.value;
        }
    });
    count
}

fn tagged(tags: &[VlanTag]) -> Vec<u8> {
    let mut buffer = [0; 200];
    let (src, dst) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    let frame = wire::Frame::udp(src, dst).vlans(tags);
    let len = frame.write(&mut buffer, b"payload").unwrap();
    buffer[..len].to_vec()
}

fn tag(tpid: EtherType, vid: u16, pcp: u8) -> VlanTag {
    VlanTag {
        tpid,
        pcp,
        dei: false,
        vid,
    }
}

#[test]
fn the_trunk_gets_the_tag_and_the_access_port_loses_it() {
    let mut nf = vlan(json!({"push": {"id": 100, "priority": 5}}));
    let on_trunk = tagged(&[tag(EtherType::VLAN, 100, 5)]);
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 0, &tagged(&[])),
        [(1, on_trunk.clone())]
    );
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 1, &on_trunk),
        [(0, tagged(&[]))]
    );
}

#[test]
fn a_service_tag_goes_around_a_customer_tag() {
    let mut nf = vlan(json!({"push": {"id": 9, "kind": "802.1ad"}}));
    let inner = tag(EtherType::VLAN, 7, 3);
    let outer = tag(EtherType::QINQ, 9, 0);
    let on_trunk = tagged(&[outer, inner]);
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 0, &tagged(&[inner])),
        [(1, on_trunk.clone())]
    );
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 1, &on_trunk),
        [(0, tagged(&[inner]))]
    );
}

#[test]
fn a_foreign_tag_on_the_trunk_is_dropped_or_passed() {
    let foreign = [
        tagged(&[]),
        tagged(&[tag(EtherType::VLAN, 101, 0)]),
        tagged(&[tag(EtherType::QINQ, 100, 0)]),
    ];
    let mut strict = vlan(json!({"push": {"id": 100}}));
    let mut lenient = vlan(json!({"push": {"id": 100}, "unmatched": "pass"}));
    for frame in foreign {
        assert_eq!(run_one(&mut *strict, Nanos(0), 1, &frame), []);
        assert_eq!(run_one(&mut *lenient, Nanos(0), 1, &frame), [(0, frame)]);
    }
    assert_eq!(drops(&*strict, "unmatched"), 3.0);
}

#[test]
fn identifiers_are_translated_both_ways() {
    let mut nf = vlan(json!({"translate": [
        {"access": 10, "trunk": 20},
        {"access": 20, "trunk": 10},
    ]}));
    for (port, from, to) in [(0, 10, 20), (0, 20, 10), (1, 20, 10), (1, 10, 20)] {
        let before = tagged(&[tag(EtherType::VLAN, from, 6)]);
        let after = tagged(&[tag(EtherType::VLAN, to, 6)]);
        assert_eq!(
            run_one(&mut *nf, Nanos(0), port, &before),
            [(1 - port, after)]
        );
    }
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &tagged(&[])), []);
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 0, &tagged(&[VlanTag::new(11)])),
        []
    );
    assert_eq!(
        run_one(&mut *nf, Nanos(0), 0, &tagged(&[VlanTag::new(4095)])),
        []
    );
    assert_eq!(drops(&*nf, "unmatched"), 3.0);
}

#[test]
fn what_does_not_fit_with_its_tag_is_dropped() {
    let mut nf = vlan(json!({"push": {"id": 100}}));
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &[0; LONG_MAX - 3]), []);
    assert_eq!(drops(&*nf, "too_long"), 1.0);
    for len in [FRAME_MAX, LONG_MAX].map(|most| most - 4) {
        let sent = run_one(&mut *nf, Nanos(0), 0, &vec![0; len]);
        assert_eq!(sent[0].1.len(), len + 4);
    }
}

/// Catches: a frame that is lost since it fills its slots, one that overtakes others, or metadata that is not moved.
#[test]
fn a_frame_that_fills_its_slots_gets_its_tag_in_order() {
    let mut nf = vlan(json!({"push": {"id": 100}}));
    let checksum = |start| Offload::partial_checksum(PartialChecksum { start, offset: 16 });
    let lengths = [60, FRAME_MAX, 61, FRAME_MAX - 3, FRAME_MAX - 4];
    let frames = lengths.map(|len| (0, vec![0; len], checksum(34)));
    let sent = run_offload(&mut *nf, Nanos(0), &frames);
    let sent = sent.into_iter().map(|(port, frame, offload)| {
        assert_eq!(
            VlanStack::peek(&frame).unwrap().outer(),
            Some(VlanTag::new(100))
        );
        (port, frame.len(), offload)
    });
    let expected = lengths.map(|len| (1, len + 4, checksum(38)));
    assert_eq!(Vec::from_iter(sent), expected);
    assert_eq!(drops(&*nf, "too_long"), 0.0);
}

#[test]
fn a_frame_that_ends_in_its_tag_is_dropped() {
    let mut frame = [0; 15];
    frame[12..14].copy_from_slice(&[0x81, 0]);
    let mut pop = vlan(json!({"push": {"id": 100}}));
    assert_eq!(run_one(&mut *pop, Nanos(0), 1, &frame), []);
    assert_eq!(drops(&*pop, "malformed"), 1.0);
    let mut translate = vlan(json!({"translate": [{"access": 1, "trunk": 2}]}));
    assert_eq!(run_one(&mut *translate, Nanos(0), 1, &frame), []);
    assert_eq!(drops(&*translate, "malformed"), 1.0);
}

#[test]
fn bad_configurations_name_the_key() {
    let path = |config: Value| build(&config, &ports(2)).err().expect("refused").path;
    assert_eq!(path(json!({})), "");
    assert_eq!(
        path(json!({"push": {"id": 1}, "translate": [{"access": 1, "trunk": 2}]})),
        ""
    );
    assert_eq!(path(json!({"push": {"id": 0}})), "push.id");
    assert_eq!(path(json!({"push": {"id": 4095}})), "push.id");
    assert_eq!(
        path(json!({"push": {"id": 1, "priority": 8}})),
        "push.priority"
    );
    assert_eq!(path(json!({"push": {"id": 1, "kind": "isl"}})), "push.kind");
    assert_eq!(
        path(json!({"translate": [{"access": 1, "trunk": 5000}]})),
        "translate[0].trunk"
    );
    let twice = json!([{"access": 1, "trunk": 2}, {"access": 1, "trunk": 3}]);
    assert_eq!(path(json!({ "translate": twice })), "translate[1].access");
    let merged = json!([{"access": 1, "trunk": 2}, {"access": 3, "trunk": 2}]);
    assert_eq!(path(json!({ "translate": merged })), "translate[1].trunk");
}

/// Catches: metadata that is not moved with the headers, or moved where there is no room.
#[test]
fn headers_that_become_too_long_are_dropped() {
    let mut nf = vlan(json!({"push": {"id": 100}}));
    let checksum = |start| Offload::partial_checksum(PartialChecksum { start, offset: 16 });
    for (start, drop) in [(252, 0.0), (253, 1.0)] {
        let frames = [(0, vec![0; 600], checksum(start))];
        let sent = run_offload(&mut *nf, Nanos(0), &frames);
        assert_eq!(drops(&*nf, "too_long"), drop);
        for (_, _, offload) in sent {
            assert_eq!(offload, checksum(start + 4));
        }
    }
    // A checksum within the tag that is taken out.
    let frames = [(1, tagged(&[VlanTag::new(100)]), checksum(17))];
    assert_eq!(run_offload(&mut *nf, Nanos(0), &frames), []);
    assert_eq!(drops(&*nf, "malformed"), 1.0);
}

proptest! {
    /// Catches: a tag that only the first packet of a super-frame gets or loses.
    // promise: 10.44
    #[test]
    fn all_packets_of_a_super_frame_get_and_lose_the_tag(
        mut shape in shapes(), (src, dst) in ends(), service: bool, from_trunk: bool,
    ) {
        let kind = if service { "802.1ad" } else { "802.1q" };
        let tpid = if service { EtherType::QINQ } else { EtherType::VLAN };
        shape.tags.truncate(1);
        if from_trunk {
            shape.tags.insert(0, tag(tpid, 100, 3));
        }
        let (bytes, offload) = shape.written(&shape.between(src, dst));
        let rules = [
            json!({"push": {"id": 100, "kind": kind}, "unmatched": "pass"}),
            json!({"translate": [{"access": 1, "trunk": 100}], "unmatched": "pass"}),
            json!({"translate": [{"access": 1, "trunk": 100}]}),
        ];
        for rules in rules {
            let [mut whole, mut cut] = [vlan(rules.clone()), vlan(rules)];
            let frames = [(u8::from(from_trunk), bytes.clone(), offload)];
            let packets = assert_same_as_packets(&mut *whole, &mut *cut, Nanos(0), &frames);
            prop_assert!([0, offload.segments(bytes.len())].contains(&packets.len()));
        }
    }

    // promise: 10.18
    #[test]
    fn what_was_pushed_is_popped(
        frame in proptest::collection::vec(any::<u8>(), 14..100),
        id in 1..4095u16,
        priority in 0..8u8,
        service: bool,
    ) {
        let kind = if service { "802.1ad" } else { "802.1q" };
        let mut nf = vlan(json!({"push": {"id": id, "priority": priority, "kind": kind}}));
        let on_trunk = run_one(&mut *nf, Nanos(0), 0, &frame).remove(0).1;
        let outer = VlanStack::peek(&on_trunk).map(|stack| stack.outer());
        // A random inner ethertype may be a tag that is cut off.
        if let Ok(outer) = outer {
            let tpid = if service { EtherType::QINQ } else { EtherType::VLAN };
            prop_assert_eq!(outer, Some(tag(tpid, id, priority)));
            prop_assert_eq!(run_one(&mut *nf, Nanos(0), 1, &on_trunk), [(0, frame)]);
        }
    }
}
