use super::build;
use crate::function::{CommandError, Nanos, NetworkFunction};
use crate::stateful::{export, forged, import};
use crate::super_frames::{assert_same_as_packets, ends, shapes, super_frame};
use crate::testing::{Collected, ports, run, run_offload, run_one};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use nfluid_ring::Offload;
use nfluid_ring::offload::{PartialChecksum, SegmentKind, Segmentation};
use nfluid_wire::TcpFlags;
use nfluid_wire::ipv4::Ipv4Packet;
use nfluid_wire::{PacketMeta, build as wire};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::SocketAddr;

fn limiter(config: Value) -> Box<dyn NetworkFunction> {
    build(&config, &ports(2)).unwrap()
}

/// A frame with an IP packet of `total` bytes from `src`.
fn packet(src: &str, total: usize) -> Vec<u8> {
    let src: SocketAddr = src.parse().unwrap();
    let (dst, header) = match src {
        SocketAddr::V4(_) => ("192.0.2.9:9", 28),
        SocketAddr::V6(_) => ("[2001:db8::9]:9", 48),
    };
    let mut buffer = [0; 2000];
    let frame = wire::Frame::udp(src, dst.parse().unwrap()).traffic_class(0b1010_1001);
    let len = frame
        .write(&mut buffer, &[0; 1500][..total - header])
        .unwrap();
    buffer[..len].to_vec()
}

fn metric(nf: &dyn NetworkFunction, name: &str, labels: &[&str]) -> f64 {
    let mut sum = 0.0;
    nf.metrics(&mut |m| {
        if m.name == name && labels.iter().all(|l| m.labels.iter().any(|(_, v)| v == l)) {
            sum += m.value;
        }
    });
    sum
}

// promise: 10.16
#[test]
fn the_burst_passes_and_then_the_rate() {
    // 8 kbit/s: 1000 bytes a second.
    let mut nf = limiter(json!({"forward": {"cir": 8000, "cbs": 2000}}));
    let frame = packet("10.0.0.1:1", 1000);
    let sent = |nf: &mut dyn NetworkFunction, at| run_one(nf, Nanos(at), 0, &frame).len();
    let mut outcome = Vec::new();
    for at in [0, 0, 0, 500_000_000, 1_000_000_000, 1_000_000_000] {
        outcome.push(sent(&mut *nf, at));
    }
    assert_eq!(outcome, [1, 1, 0, 0, 1, 0]);
    assert_eq!(metric(&*nf, "packets_dropped_total", &["red"]), 3.0);
    assert_eq!(
        metric(&*nf, "colour_packets_total", &["forward", "green"]),
        3.0
    );
    assert_eq!(
        metric(&*nf, "colour_bytes_total", &["forward", "red"]),
        3.0 * 1014.0
    );
}

/// Catches: bytes behind a packet that pass for nothing; the padding of short frames charged.
// promise: 10.29
#[test]
fn what_follows_a_packet_is_charged_but_for_the_padding_of_a_short_frame() {
    let passed = |len: usize| {
        let mut nf = limiter(json!({"forward": {"cir": 8, "cbs": 2000}}));
        let mut frame = packet("10.0.0.1:1", 40);
        frame.resize(len, 0);
        let frames: Vec<_> = (0..64).map(|_| (0, frame.clone())).collect();
        run(&mut *nf, Nanos(0), &frames).len()
    };
    assert_eq!(passed(54), 2000 / 40);
    assert_eq!(passed(60), 2000 / 40, "padded to what Ethernet asks for");
    assert_eq!(passed(1014), 2, "1,000 bytes each");
}

#[test]
fn each_direction_has_its_own_limit_or_none() {
    let mut nf = limiter(json!({"reverse": {"cir": 8000, "cbs": 2000}}));
    let frame = packet("10.0.0.1:1", 1000);
    let from = |port| (0..5).map(|_| (port, frame.clone())).collect::<Vec<_>>();
    assert_eq!(run(&mut *nf, Nanos(0), &from(0)).len(), 5);
    assert_eq!(run(&mut *nf, Nanos(0), &from(1)).len(), 2);
}

#[test]
fn yellow_packets_pass_with_another_code_point() {
    let limits = json!({"cir": 8000, "cbs": 2000, "ebs": 3000, "yellow": {"dscp": 12}});
    for source in ["10.0.0.1:1", "[2001:db8::1]:1"] {
        let mut nf = limiter(json!({ "forward": limits }));
        let frame = packet(source, 1000);
        let frames: Vec<_> = (0..6).map(|_| (0, frame.clone())).collect();
        let sent = run(&mut *nf, Nanos(0), &frames);
        let classes: Vec<u8> = sent
            .iter()
            .map(|(_, frame)| PacketMeta::parse(frame).unwrap().traffic_class)
            .collect();
        let marked = 12 << 2 | 0b01;
        assert_eq!(classes, [0b1010_1001, 0b1010_1001, marked, marked, marked]);
        if source.starts_with("10.") {
            assert!(Ipv4Packet::new_unchecked(&sent[4].1[14..]).verify_checksum());
        }
        assert_eq!(metric(&*nf, "packets_marked_total", &[]), 3.0);
        assert_eq!(
            metric(&*nf, "colour_packets_total", &["forward", "yellow"]),
            3.0
        );
    }
}

// promise: 10.16
#[test]
fn two_rates_bound_the_peak() {
    let limits = json!({"cir": 8000, "cbs": 2000, "pir": 16000, "pbs": 3000});
    let mut nf = limiter(json!({ "forward": limits }));
    let frames: Vec<_> = (0..4).map(|_| (0, packet("10.0.0.1:1", 1000))).collect();
    assert_eq!(run(&mut *nf, Nanos(0), &frames).len(), 3);
    assert_eq!(metric(&*nf, "colour_packets_total", &["yellow"]), 1.0);
    assert_eq!(run(&mut *nf, Nanos::from_secs(1), &frames).len(), 2);
}

fn per_source(prefixes_max: usize) -> Value {
    let per = json!({"address": "source", "ipv4": 24, "ipv6": 64, "prefixes_max": prefixes_max});
    json!({"forward": {"cir": 8000, "cbs": 2000, "per": per}})
}

#[test]
fn each_prefix_has_its_own_buckets() {
    let mut nf = limiter(per_source(10));
    let frames: Vec<_> = ["10.0.0.1:1", "10.0.0.2:1", "10.0.1.1:1", "[2001:db8::1]:1"]
        .iter()
        .flat_map(|source| (0..2).map(|_| (0, packet(source, 1000))))
        .collect();
    // The first two sources share a /24: two of their four packets pass.
    let sent = run(&mut *nf, Nanos(0), &frames);
    assert_eq!(sent.len(), 6);
    assert_eq!(metric(&*nf, "prefixes", &[]), 3.0);
    let buckets = nf.command(Nanos(0), "buckets", &[]).unwrap();
    assert_eq!(buckets["forward"]["list"][0]["network"], "10.0.0.0");
    assert_eq!(buckets["forward"]["list"][0]["dropped"], 2);
    assert_eq!(buckets["reverse"], Value::Null);
}

#[test]
fn prefixes_beyond_the_bound_share_and_idle_ones_are_forgotten() {
    let mut nf = limiter(per_source(2));
    let frames: Vec<_> = (0..6)
        .map(|i| (0, packet(&format!("10.0.{i}.1:1"), 1000)))
        .collect();
    // Two of their own, and two of the other four out of the shared burst.
    assert_eq!(run(&mut *nf, Nanos(0), &frames).len(), 4);
    assert_eq!(metric(&*nf, "prefix_table_full_total", &[]), 4.0);
    nf.tick(Nanos(1), &mut Collected::default());
    assert_eq!(metric(&*nf, "prefixes", &[]), 2.0);
    nf.tick(Nanos::from_secs(1), &mut Collected::default());
    assert_eq!(metric(&*nf, "prefixes", &[]), 0.0);
}

#[test]
fn what_is_not_ip_is_limited_too() {
    let mut nf = limiter(per_source(2));
    let mut arp = [0; 1014];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut cut_off = [0; 1014];
    cut_off[12..14].copy_from_slice(&[8, 0]);
    let frames = [(0, arp.to_vec()), (0, cut_off.to_vec()), (0, arp.to_vec())];
    assert_eq!(run(&mut *nf, Nanos(0), &frames).len(), 2);
}

#[test]
fn a_reconfiguration_keeps_the_tokens_of_unchanged_limits() {
    let config = json!({"forward": {"cir": 8000, "cbs": 2000}});
    let mut nf = limiter(config.clone());
    let frame = packet("10.0.0.1:1", 1000);
    run(
        &mut *nf,
        Nanos(0),
        &[(0, frame.clone()), (0, frame.clone())],
    );
    nf.reconfigure(&config, &ports(2)).unwrap();
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &frame).len(), 0);
    nf.reconfigure(&json!({"forward": {"cir": 8001, "cbs": 2000}}), &ports(2))
        .unwrap();
    assert_eq!(run_one(&mut *nf, Nanos(0), 0, &frame).len(), 1);
}

// promise: 10.29
#[test]
fn bad_configurations_name_the_key() {
    let path = |direction: Value| {
        let config = json!({ "forward": direction });
        build(&config, &ports(2)).err().expect("refused").path
    };
    let with = |extra: Value| {
        let mut direction = json!({"cir": 8000, "cbs": 2000});
        for (key, value) in extra.as_object().unwrap() {
            direction[key] = value.clone();
        }
        path(direction)
    };
    assert_eq!(with(json!({"cir": 0})), "forward.cir");
    assert_eq!(with(json!({"cir": -1})), "forward.cir");
    assert_eq!(with(json!({"cbs": 100})), "forward.cbs");
    // Catches: a burst into which no packet of the port's MTU ever fits.
    let mut wide = ports(2);
    wide[1].mtu = 2018;
    for (cbs, is_taken) in [(2017, false), (2018, true)] {
        let config = json!({ "reverse": {"cir": 8000, "cbs": cbs} });
        assert_eq!(build(&config, &wide).is_ok(), is_taken, "{cbs}");
    }
    assert_eq!(with(json!({"pir": 9000})), "forward.pbs");
    assert_eq!(with(json!({"pbs": 9000})), "forward.pir");
    assert_eq!(with(json!({"pir": 100, "pbs": 9000})), "forward.pir");
    assert_eq!(
        with(json!({"ebs": 1, "pir": 9000, "pbs": 9000})),
        "forward.ebs"
    );
    assert_eq!(with(json!({"yellow": {"dscp": 64}})), "forward.yellow.dscp");
    assert_eq!(
        with(json!({"per": {"address": "source", "ipv4": 33}})),
        "forward.per.ipv4"
    );
    assert_eq!(
        with(json!({"per": {"address": "mac"}})),
        "forward.per.address"
    );
    let none = json!({"per": {"address": "source", "prefixes_max": 0}});
    assert_eq!(with(none), "forward.per.prefixes_max");
    let mut nf = limiter(json!({}));
    let unknown = nf.command(Nanos(0), "bucket", &[]);
    assert_eq!(unknown, Err(CommandError::Unknown(&["buckets"])));
}

/// Catches: an address that a checksum is written over after the frame was charged to another.
#[test]
fn a_checksum_over_the_address_is_computed_before_the_frame_is_charged() {
    let mut nf = limiter(per_source(10));
    // The destination's upper half; the source is what `per_source` looks at.
    let over = |offset| Offload::partial_checksum(PartialChecksum { start: 20, offset });
    let frame = packet("10.0.0.1:1", 200);
    run_offload(&mut *nf, Nanos(0), &[(0, frame.clone(), over(6))]);
    let buckets = nf.command(Nanos(0), "buckets", &[]).unwrap();
    assert_ne!(buckets["forward"]["list"][0]["network"], "10.0.0.0");
    let cut = Segmentation {
        kind: SegmentKind::Udp,
        header_len: 28,
        payload_len: 100,
        is_ecn: false,
    };
    let sent = run_offload(
        &mut *nf,
        Nanos(0),
        &[(0, frame, Offload::segmented(20, cut))],
    );
    assert_eq!(sent.len(), 1);
    assert_eq!(metric(&*nf, "prefixes", &[]), 1.0, "charged to no address");
}

/// Catches: a super-frame that a small burst never lets pass, or that costs one packet.
#[test]
fn a_super_frame_passes_a_small_burst_and_pays_for_all_of_its_packets() {
    let mut nf = limiter(json!({"forward": {"cir": 8_000_000, "cbs": 2000}}));
    let (src, dst) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (bytes, offload) = super_frame(&description, &[7; 44 * 1448], 1448);
    let mut passed = |micros: u64| {
        let frames = [(0, bytes.clone(), offload)];
        run_offload(&mut *nf, Nanos(micros * 1000), &frames).len()
    };
    // 44 packets of 1488 bytes at 1 byte per microsecond.
    let debt = 44 * 1488 - 2000;
    assert_eq!([passed(0), passed(0), passed(debt + 1487)], [1, 0, 0]);
    assert_eq!([passed(debt + 1488), passed(debt + 1488)], [1, 0]);
    assert_eq!(metric(&*nf, "packets_forwarded_total", &[]), 88.0);
    assert_eq!(metric(&*nf, "packets_dropped_total", &["red"]), 132.0);
}

/// The image of a limiter as version 1 has it: tokens without the offset of a bucket that may owe some.
fn as_version_1(image: &[u8], tokens: u64) -> Vec<u8> {
    let level = |bytes: u64| postcard::to_allocvec(&(bytes * 8_000_000_000)).unwrap();
    let debt_max = 1 << 19;
    let now = [level(debt_max + tokens), level(debt_max)].concat();
    let before = [level(tokens), level(0)].concat();
    let head = 8 + 2 + 2 + 1 + "limiter".len() + 8;
    let mut records = image[head..image.len() - 8].to_vec();
    let at = records.windows(now.len()).position(|window| window == now);
    let at = at.expect("the level");
    records.splice(at..at + now.len(), before);
    forged("limiter", 1, &records).unwrap()
}

/// Catches: tokens of an image of version 1 that are taken for a debt, and a debt that a move forgives.
#[test]
fn tokens_and_debts_go_to_the_next_instance() {
    let (src, dst) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (bytes, offload) = super_frame(&description, &[7; 4 * 1000], 1000);
    let shared = json!({"forward": {"cir": 8000, "cbs": 2000}});
    for (config, place) in [(shared, "/shared"), (per_source(9), "/list/0/tokens")] {
        let moved = |image: &[u8]| {
            let mut next = limiter(config.clone());
            import("limiter", &mut *next, Nanos(0), image).expect("imported");
            let buckets = next.command(Nanos(0), "buckets", &[]).unwrap();
            buckets["forward"].pointer(place).cloned()
        };
        let tokens =
            |bytes: i64| Some(json!({"committed_bytes": bytes, "excess_or_peak_bytes": 0}));
        let mut old = limiter(config.clone());
        run_one(&mut *old, Nanos(0), 0, &packet("10.0.0.1:1", 500));
        let image = export("limiter", &mut *old, Nanos(0)).expect("exported");
        assert_eq!(moved(&image), tokens(1500));
        assert_eq!(moved(&as_version_1(&image, 1500)), tokens(1500));
        run_offload(&mut *old, Nanos(0), &[(0, bytes.clone(), offload)]);
        let image = export("limiter", &mut *old, Nanos(0)).expect("exported");
        assert_eq!(moved(&image), tokens(1500 - 4 * 1040));
    }
}

/// Catches: a super-frame that counts as one packet where the table of prefixes is full.
#[test]
fn packets_of_prefixes_beyond_the_bound_are_counted() {
    let mut nf = limiter(per_source(1));
    run_one(&mut *nf, Nanos(0), 0, &packet("10.0.9.1:1", 500));
    let (src, dst) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
    let description = wire::Frame::tcp(src, dst, TcpFlags::ACK);
    let (bytes, offload) = super_frame(&description, &[7; 4 * 1000], 1000);
    run_offload(&mut *nf, Nanos(0), &[(0, bytes, offload)]);
    assert_eq!(metric(&*nf, "prefix_table_full_total", &[]), 4.0);
}

proptest! {
    /// Catches: packets of a super-frame that are charged, marked or counted otherwise than by themselves.
    // promise: 10.44
    #[test]
    fn a_super_frame_is_its_packets_where_they_have_one_colour(
        shape in shapes(), (src, dst) in ends(), colour in 0..3_usize,
    ) {
        let limits = [
            json!({"cir": 8, "cbs": 1 << 20, "ebs": 5}),
            json!({"cir": 8, "cbs": 1514, "ebs": 1 << 20, "yellow": {"dscp": 12}}),
            json!({"cir": 8, "cbs": 1514}),
        ];
        let per = json!({"address": "source", "ipv4": 32});
        let mut config = json!({"forward": limits[colour], "seed": 5});
        config["forward"]["per"] = per;
        let [mut whole, mut cut] = [limiter(config.clone()), limiter(config)];
        // Of the committed burst, less than a packet is left.
        let burst = packet(&src.to_string(), 1500);
        for nf in [&mut whole, &mut cut] {
            run_one(&mut **nf, Nanos(0), 0, &burst);
        }
        let (bytes, offload) = shape.written(&shape.between(src, dst));
        let frames = [(0, bytes, offload), (0, packet(&src.to_string(), 60), Offload::NONE)];
        let packets = assert_same_as_packets(&mut *whole, &mut *cut, Nanos(0), &frames);
        prop_assert_eq!(packets.is_empty(), colour == 2);
        let buckets = |nf: &mut dyn NetworkFunction| nf.command(Nanos(0), "buckets", &[]);
        prop_assert_eq!(buckets(&mut *whole), buckets(&mut *cut));
    }

    #[test]
    fn random_frames_never_panic(
        frames in proptest::collection::vec(
            (0..2u8, proptest::collection::vec(any::<u8>(), 14..120)), 1..100),
        times in proptest::collection::vec(any::<u64>(), 1..5),
    ) {
        let mut config = per_source(4);
        config["forward"]["ebs"] = 5000.into();
        config["forward"]["yellow"] = json!({"dscp": 63});
        config["reverse"] = config["forward"].clone();
        let mut nf = limiter(config);
        for time in times {
            let sent = run(&mut *nf, Nanos(time), &frames);
            prop_assert!(sent.len() <= frames.len());
            nf.tick(Nanos(time), &mut Collected::default());
        }
        let coloured = metric(&*nf, "colour_packets_total", &[]);
        let passed = metric(&*nf, "packets_forwarded_total", &[]);
        prop_assert_eq!(coloured, passed + metric(&*nf, "packets_dropped_total", &[]));
    }
}
