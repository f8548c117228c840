use super::{
    FORMAT, Imported, Part, StateError, export, export_into, forged, import, import_part, rehearse,
};
use crate::catalogue::{ENTRIES, build};
use crate::function::{Nanos, NetworkFunction};
use crate::testing::{Sent, ports, run};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use nfluid_ring::flow::{Buckets, Shares};
use nfluid_ring::offload::OFFLOAD_BYTES;
use nfluid_wire::arp::ArpRepr;
use nfluid_wire::build::{self as frames, Frame};
use nfluid_wire::{MacAddr, TcpFlags};
use proptest::prelude::*;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

/// A moment, and one on the clock of another host.
const THERE: Nanos = Nanos(7_000_000_000_000);
const HERE: Nanos = Nanos(3_000_000_000);
const STATEFUL: [&str; 5] = ["counter", "firewall", "limiter", "nat", "router"];

fn config(nf: &str, seed: u64) -> Value {
    let keeping = "allow udp from any to any keep-state\nallow tcp from any to any keep-state";
    match nf {
        "firewall" => json!({ "rules": keeping, "seed": seed }),
        "nat" => json!({ "pool": ["192.0.2.1"], "seed": seed }),
        "limiter" => {
            let per = json!({ "address": "source" });
            json!({ "forward": { "cir": 8000, "cbs": 2000, "per": per }, "seed": seed })
        }
        "router" => json!({ "addresses": { "p0": ["10.0.0.1/24"], "p1": ["10.0.1.1/24"] } }),
        "vlan" => json!({ "push": { "id": 7 } }),
        _ => Value::Null,
    }
}

fn made(nf: &str, seed: u64) -> Box<dyn NetworkFunction> {
    let made = build(nf, &config(nf, seed), &ports(2));
    made.unwrap_or_else(|error| panic!("{nf}: {error}"))
}

fn udp(from: (u8, u8, u16), to: (u8, u8, u16)) -> Vec<u8> {
    let end = |(net, host, port)| SocketAddr::new(Ipv4Addr::new(10, 0, net, host).into(), port);
    let mut buffer = [0; 128];
    let frame = Frame::udp(end(from), end(to)).macs(MacAddr([2; 6]), MacAddr([2, 0, 0, 0, 0, 0]));
    let len = frame
        .dont_fragment()
        .write(&mut buffer, b"data")
        .expect("it fits");
    buffer[..len].to_vec()
}

fn arp(from: u8) -> Vec<u8> {
    let sender = MacAddr([2, 0, 0, 0, 9, from]);
    let (from, to) = (Ipv4Addr::new(10, 0, 0, from), Ipv4Addr::new(10, 0, 0, 1));
    let mut buffer = [0; 64];
    let question = ArpRepr::request(sender, from, to);
    let len = frames::arp(&mut buffer, &[], &question).expect("it fits");
    buffer[..len].to_vec()
}

/// Flows of `hosts` hosts, and an answer in each.
fn talk(nf: &mut dyn NetworkFunction, now: Nanos, hosts: u8) {
    let mut sent: Vec<Sent> = Vec::new();
    for host in 2..2 + hosts {
        sent.push((0, arp(host)));
        sent.push((0, udp((0, host, 4000), (1, 9, 53))));
        sent.push((1, udp((1, 9, 53), (0, host, 4000))));
    }
    run(nf, now, &sent);
}

fn metrics(nf: &dyn NetworkFunction) -> Vec<crate::Metric> {
    let mut all = Vec::new();
    nf.metrics(&mut |metric| all.push(metric));
    all
}

// promise: 10.21
#[test]
fn every_nf_of_the_catalogue_can_be_moved_and_counts_on() {
    for entry in ENTRIES {
        let name = entry.name;
        let mut nf = made(name, 1);
        talk(&mut *nf, THERE, 20);
        let image = export(name, &mut *nf, THERE).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut other = made(name, 99);
        let imported = import(name, &mut *other, HERE, &image);
        let imported = imported.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(imported.left_out, 0, "{name}");
        // Frames that a mirror keeps to be looked at are no state of its work.
        for (old, new) in metrics(&*nf).iter().zip(metrics(&*other)) {
            assert!(
                *old == new || old.name == "captured_frames",
                "{name}: {old:?} became {new:?}"
            );
        }
    }
}

// promise: 5.8
#[test]
fn a_rehearsal_leaves_nothing_behind_and_changes_no_import() {
    let limits = json!({ "max_per_source": 3 });
    let limited = json!({ "action": "allow", "proto": "udp", "keep_state": limits });
    let forward = ["udp 192.0.2.1:53 -> 10.0.0.2:53"];
    let also = [
        ("firewall", json!({ "rules": [limited], "seed": 5 })),
        (
            "nat",
            json!({ "pool": ["192.0.2.1"], "forward": forward, "seed": 5 }),
        ),
    ];
    let usual = ENTRIES.iter().map(|it| (it.name, config(it.name, 5)));
    for (name, config) in usual.chain(also) {
        let mut old = made(name, 1);
        talk(&mut *old, THERE, 20);
        let image = export(name, &mut *old, THERE).unwrap_or_else(|why| panic!("{name}: {why}"));
        let [mut fresh, mut rehearsed] = [(), ()].map(|()| {
            let made = build(name, &config, &ports(2));
            made.unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        rehearse(name, &mut *rehearsed, HERE, &image).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(metrics(&*rehearsed), metrics(&*fresh), "{name}");
        let none = export(name, &mut *rehearsed, HERE);
        assert_eq!(none, export(name, &mut *fresh, HERE), "{name}");
        let later = Nanos(HERE.0 + 1_000_000);
        let imported = import(name, &mut *rehearsed, later, &image);
        assert_eq!(imported, import(name, &mut *fresh, later, &image), "{name}");
        assert_eq!(metrics(&*rehearsed), metrics(&*fresh), "{name}");
        let more = [
            (0, udp((0, 2, 7), (1, 9, 53))),
            (1, udp((1, 9, 53), (0, 3, 4000))),
        ];
        let sent = run(&mut *rehearsed, later, &more);
        assert_eq!(sent, run(&mut *fresh, later, &more), "{name}");
    }
}

fn metric(nf: &dyn NetworkFunction, name: &str) -> f64 {
    let mut sum = 0.0;
    nf.metrics(&mut |metric| {
        if metric.name == name {
            sum += metric.value;
        }
    });
    sum
}

// promise: 7.39
#[test]
fn a_firewalls_flows_are_divided_among_several_and_brought_together_again() {
    let out_only = json!({ "rules": "allow udp from any to any out keep-state", "seed": 3 });
    let member = || build("firewall", &out_only, &ports(2)).expect("valid");
    let mut first = member();
    let flow = |host| udp((0, host, 4000), (1, 9, 53));
    let answer = |host| udp((1, 9, 53), (0, host, 4000));
    let pass = |nf: &mut dyn NetworkFunction, host| run(nf, HERE, &[(1, answer(host))]).len();
    for host in 2..102 {
        run(&mut *first, HERE, &[(0, flow(host))]);
    }
    let shares = Shares::ONE.among(3);
    let image = export("firewall", &mut *first, HERE).expect("exported");
    let mut others = [member(), member()];
    for (nf, number) in others.iter_mut().zip(1..) {
        let flows = shares.buckets_of(number);
        let part = Part {
            flows,
            counts: false,
        };
        let imported = import_part("firewall", &mut **nf, HERE, &image, &part).expect("imported");
        assert!(imported.taken > 0 && imported.left_out == 0);
        assert_eq!(
            metric(&**nf, "states_created_total"),
            0.0,
            "the first has counted them"
        );
    }
    let stateful = first.stateful().expect("it has states");
    let gone = stateful.part_with(&shares.buckets_of(0));
    let [one, two] = &mut others;
    let left = metric(&*first, "states");
    assert_eq!(
        (
            gone,
            left + metric(&**one, "states") + metric(&**two, "states")
        ),
        (100 - left as u64, 100.0)
    );
    for host in 2..102 {
        let passed = [&mut first, one, two].map(|nf| pass(&mut **nf, host));
        assert_eq!(
            passed.iter().sum::<usize>(),
            1,
            "one of them knows the flow of {host}"
        );
    }
    // Back again, with what they have counted.
    let before: f64 = [&first, one, two]
        .iter()
        .map(|nf| metric(&***nf, "packets_forwarded_total"))
        .sum();
    for nf in [one, two] {
        let image = export("firewall", &mut **nf, HERE).expect("exported");
        let part = Part {
            flows: Buckets::ALL,
            counts: true,
        };
        import_part("firewall", &mut *first, HERE, &image, &part).expect("imported");
    }
    assert_eq!(metric(&*first, "states"), 100.0);
    assert_eq!(metric(&*first, "states_created_total"), 100.0);
    assert_eq!(metric(&*first, "packets_forwarded_total"), before);
    for host in 2..102 {
        assert_eq!(pass(&mut *first, host), 1);
    }
}

// promise: 7.40
#[test]
fn a_part_is_counters_alone_where_there_are_no_flows_and_nothing_where_flows_share_state() {
    for entry in ENTRIES {
        let name = entry.name;
        let mut nf = made(name, 1);
        talk(&mut *nf, THERE, 5);
        let image = export(name, &mut *nf, THERE).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut other = made(name, 2);
        let none = Part {
            flows: Buckets::default(),
            counts: false,
        };
        let imported = import_part(name, &mut *other, THERE, &image, &none);
        if let Err(why) = nf.divides_by_flow() {
            let nf = name.into();
            assert_eq!(imported, Err(StateError::Shared { nf, why }));
            continue;
        }
        assert_eq!(imported, Ok(Imported::default()), "{name}");
        assert_eq!(metrics(&*other), metrics(&*made(name, 2)), "{name}");
        let all = Part {
            flows: Buckets::ALL,
            counts: true,
        };
        import_part(name, &mut *other, THERE, &image, &all)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(metrics(&*other), metrics(&*nf), "{name}");
    }
}

#[test]
fn what_a_buffer_had_before_is_not_in_an_image() {
    let mut nf = made("firewall", 1);
    talk(&mut *nf, THERE, 3);
    let image = export("firewall", &mut *nf, THERE).expect("exported");
    let again = export_into(alloc::vec![7; 9000], "firewall", &mut *nf, THERE);
    assert_eq!(again.as_ref(), Ok(&image));
}

// promise: 10.21
#[test]
fn flows_of_a_firewall_go_on_for_as_long_as_was_left_of_them() {
    let mut old = made("firewall", 1);
    let there = udp((0, 2, 4000), (1, 9, 53));
    let back = udp((1, 9, 53), (0, 2, 4000));
    let closed = json!({ "rules": "allow udp from any to any out keep-state", "seed": 3 });
    run(&mut *old, THERE, &[(0, there)]);
    let later = Nanos(THERE.0 + 10_000_000_000);
    let image = export("firewall", &mut *old, later).expect("exported");
    let successor = |at: Nanos| {
        let mut new = build("firewall", &closed, &ports(2)).expect("valid");
        let imported = import("firewall", &mut *new, HERE, &image).expect("imported");
        assert_eq!((imported.taken, imported.left_out), (1, 0));
        run(&mut *new, at, &[(1, back.clone())]).len()
    };
    assert_eq!(successor(HERE), 1, "the answer passes");
    assert_eq!(successor(Nanos(HERE.0 + 15_000_000_000)), 1);
    assert_eq!(
        successor(Nanos(HERE.0 + 25_000_000_000)),
        0,
        "30 s, of which 10 had passed"
    );
}

// promise: 10.21
#[test]
fn a_flow_that_no_rule_keeps_any_more_is_left_out() {
    let mut old = made("firewall", 1);
    talk(&mut *old, THERE, 5);
    let image = export("firewall", &mut *old, THERE).expect("exported");
    let stricter =
        json!({ "rules": "deny ip from 10.0.0.2 to any\nallow udp from any to any keep-state" });
    let mut new = build("firewall", &stricter, &ports(2)).expect("valid");
    let imported = import("firewall", &mut *new, HERE, &image).expect("imported");
    assert_eq!((imported.taken, imported.left_out), (4, 1));
}

// promise: 10.21
#[test]
fn limits_of_the_new_instance_hold() {
    let mut old = made("firewall", 1);
    talk(&mut *old, THERE, 50);
    let image = export("firewall", &mut *old, THERE).expect("exported");
    let rules = "allow udp from any to any keep-state";
    let small = json!({ "rules": rules, "states": { "max": 8 } });
    let mut new = build("firewall", &small, &ports(2)).expect("valid");
    let imported = import("firewall", &mut *new, HERE, &image).expect("imported");
    assert_eq!((imported.taken, imported.left_out), (8, 42));
    let mut old = made("nat", 1);
    talk(&mut *old, THERE, 50);
    let image = export("nat", &mut *old, THERE).expect("exported");
    let small = json!({ "pool": ["192.0.2.1"], "sessions_max": 16 });
    let mut new = build("nat", &small, &ports(2)).expect("valid");
    let imported = import("nat", &mut *new, HERE, &image).expect("imported");
    assert!(
        imported.taken >= 16 && imported.left_out >= 34,
        "{imported:?}"
    );
}

// promise: 10.21
#[test]
fn a_nat_keeps_external_ports() {
    let mut old = made("nat", 1);
    let out = udp((0, 2, 4000), (1, 9, 53));
    let before = run(&mut *old, THERE, &[(0, out.clone())]);
    let image = export("nat", &mut *old, THERE).expect("exported");
    let mut new = made("nat", 77);
    import("nat", &mut *new, HERE, &image).expect("imported");
    assert_eq!(run(&mut *new, HERE, &[(0, out.clone())]), before);
    let answer = {
        let (_, sent) = &before[0];
        let port = u16::from_be_bytes([sent[34], sent[35]]);
        let mut buffer = [0; 128];
        let from: IpAddr = Ipv4Addr::new(10, 0, 1, 9).into();
        let to: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
        let frame = Frame::udp((from, 53).into(), (to, port).into());
        let len = frame.write(&mut buffer, b"data").expect("it fits");
        buffer[..len].to_vec()
    };
    assert_eq!(
        run(&mut *new, HERE, &[(1, answer)]).len(),
        1,
        "the answer comes in"
    );
}

// promise: 10.21
#[test]
fn packets_that_wait_in_a_router_go_on_waiting() {
    let mut old = made("router", 1);
    run(
        &mut *old,
        THERE,
        &[(0, arp(2)), (0, udp((0, 2, 1), (1, 9, 2)))],
    );
    let image = export("router", &mut *old, THERE).expect("exported");
    let mut new = made("router", 2);
    let imported = import("router", &mut *new, HERE, &image).expect("imported");
    assert_eq!(
        imported,
        Imported {
            taken: 3,
            left_out: 0
        },
        "two neighbours, a packet"
    );
    let mut buffer = [0; 64];
    let own = MacAddr([2, 0, 0, 0, 0, 1]);
    let (bob, port) = (Ipv4Addr::new(10, 0, 1, 9), Ipv4Addr::new(10, 0, 1, 1));
    let answer = ArpRepr::request(own, port, bob).reply_from(MacAddr([2, 0xb, 0, 0, 0, 9]));
    let len = frames::arp(&mut buffer, &[], &answer).expect("it fits");
    let sent = run(&mut *new, HERE, &[(1, buffer[..len].to_vec())]);
    assert!(
        sent.iter()
            .any(|(port, frame)| *port == 1 && frame.ends_with(b"data")),
        "{sent:?}"
    );
}

// promise: 10.21
#[test]
fn tokens_of_a_limiter_are_those_that_were_left() {
    let packet = udp((0, 2, 1), (1, 9, 2));
    let many: Vec<Sent> = (0..200).map(|_| (0, packet.clone())).collect();
    let mut old = made("limiter", 1);
    let passed = run(&mut *old, THERE, &many).len();
    assert!((1..200).contains(&passed), "{passed} passed");
    let image = export("limiter", &mut *old, THERE).expect("exported");
    let mut new = made("limiter", 5);
    import("limiter", &mut *new, HERE, &image).expect("imported");
    assert_eq!(run(&mut *new, HERE, &many).len(), 0);
    let mut faster = config("limiter", 5);
    faster["forward"]["cir"] = json!(16_000);
    let mut faster = build("limiter", &faster, &ports(2)).expect("valid");
    let imported = import("limiter", &mut *faster, HERE, &image).expect("imported");
    assert_eq!((imported.taken, imported.left_out), (0, 1), "another rate");
}

fn sealed(mut image: Vec<u8>) -> Vec<u8> {
    let end = image.len() - 8;
    let sum = xxh3_64(&image[..end]);
    image[end..].copy_from_slice(&sum.to_le_bytes());
    image
}

// promise: 10.22
#[test]
fn what_is_no_image_of_this_nf_is_refused_with_its_reason() {
    let mut nf = made("firewall", 1);
    talk(&mut *nf, THERE, 3);
    let image = export("firewall", &mut *nf, THERE).expect("exported");
    let refused =
        |nf: &str, image: &[u8]| import(nf, &mut *made(nf, 1), HERE, image).expect_err("refused");
    assert_eq!(refused("firewall", b"#!/bin/sh"), StateError::NoImage);
    assert!(matches!(refused("nat", &image), StateError::Foreign { .. }));
    for cut in 0..image.len() {
        refused("firewall", &image[..cut]);
    }
    let mut longer = image.clone();
    longer.push(0);
    assert!(matches!(
        refused("firewall", &longer),
        StateError::Length { .. }
    ));
    let mut other = image.clone();
    other[8] = FORMAT as u8 + 1;
    assert_eq!(
        refused("firewall", &other),
        StateError::Format { found: FORMAT + 1 }
    );
    let mut old = image.clone();
    old[10] = 200;
    let refusal = refused("firewall", &sealed(old));
    assert!(
        matches!(refusal, StateError::Version { found: 200, .. }),
        "{refusal}"
    );
    for at in 12..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 0x10;
        refused("firewall", &damaged);
    }
}

/// Images of version 1, of the last program that wrote it: a TCP connection that 10.0.0.2:4000 has opened to 10.0.1.9:80, with
/// sequence numbers 100 and 900, and a UDP packet.
const IMAGES_V1: [(&str, &str); 2] = [
    (
        "firewall",
        concat!(
            "4e464c535441544501000100086669726577616c6cab00000000000000020264013608000000000000000004000000000000",
            "020200022831303020616c6c6f77207564702066726f6d20616e7920746f20616e79206b6565702d7374617465012e283230",
            "3020616c6c6f77207463702066726f6d20616e7920746f20616e79206b6565702d7374617465026c02898280d0a08080800a",
            "000000d08080fd60000180c0ba94c4d80101360136898280d0a08080800a000000b580a09c9102000080d88ee16f012e0000",
            "5eee43658dd9b864",
        ),
    ),
    (
        "nat",
        concat!(
            "4e464c535441544501000100036e61747b000000000000000202640136120000000000000000000000000000000000000702",
            "01000000000002020002000082808050a01f818480800ca01f020202020202020202020202020a0100828080508827818480",
            "800c882702020202020202020202020201b8170200898280505003a0c50401898280500000b8170182808050000000a1a5d2",
            "23d955c5d8",
        ),
    ),
];

/// Catches: an upgrade from the last version loses all flows, or its connections are refused for the want of windows.
// promise: 10.34
#[test]
fn images_of_version_1_are_taken_over() {
    for (name, hex) in IMAGES_V1 {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        let image: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let mut nf = made(name, 9);
        let imported =
            import(name, &mut *nf, HERE, &image).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(imported.left_out, 0, "{name}");
        assert_eq!(metric(&*nf, "packets_forwarded_total"), 3.0, "{name}");
        let there: SocketAddr = "10.0.1.9:80".parse().expect("an address");
        let here: SocketAddr = match name {
            "nat" => "192.0.2.1:4000".parse().expect("an address"),
            _ => "10.0.0.2:4000".parse().expect("an address"),
        };
        let mut buffer = [0; 128];
        let data = Frame::tcp(there, here, TcpFlags::ACK).sequence(77_000, 88_000);
        let len = data.write(&mut buffer, b"data").expect("it fits");
        let sent = run(&mut *nf, HERE, &[(1, buffer[..len].to_vec())]);
        assert_eq!(sent.len(), 1, "{name}: the connection goes on");
    }
}

/// Catches: an upgrade to a firewall with one more counter loses its flows, or counts one thing as another. Foreign addresses came with
/// version 3, at the end of the drops.
// promise: 10.34
#[test]
fn a_firewalls_image_of_version_2_is_taken_over() {
    let mut old = made("firewall", 1);
    talk(&mut *old, THERE, 2);
    let image = export("firewall", &mut *old, THERE).expect("exported");
    let mut records = records_of("firewall", &image).to_vec();
    // Behind packets and bytes of two ports; the last byte of a number is below 128.
    let mut ends = records[1..]
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte < 128);
    let drops = 2 + ends.nth(2 * 2 - 1).expect("four numbers").0;
    let count = usize::from(records[drops]);
    records[drops] -= 1;
    records.remove(drops + count);
    let image = forged("firewall", 2, &records).expect("short");
    let mut new = made("firewall", 2);
    let imported = import("firewall", &mut *new, HERE, &image).expect("imported");
    assert_eq!(imported.left_out, 0);
    for name in ["packets_forwarded_total", "states"] {
        assert_eq!(metric(&*new, name), metric(&*old, name), "{name}");
    }
}

/// The part of an image that is the NF's.
fn records_of<'a>(nf: &str, image: &'a [u8]) -> &'a [u8] {
    &image[8 + 2 + 2 + 1 + nf.len() + 8..image.len() - 8]
}

/// Catches: an upgrade to a router with one more counter loses its neighbours, or counts one thing as another. Redirects came with
/// version 3.
// promise: 10.39
#[test]
fn a_routers_image_of_version_1_is_taken_over_with_and_without_listener_reports() {
    let mut old = made("router", 1);
    talk(&mut *old, THERE, 2);
    let image = export("router", &mut *old, THERE).expect("exported");
    let mut records = records_of("router", &image).to_vec();
    // The metadata of waiting frames came with version 4. These frames have none.
    let metadata = [&b"data"[..], &[0; OFFLOAD_BYTES]].concat();
    let is_it = |window: &[u8]| window == metadata;
    for _ in 0..2 {
        let mut windows = records.windows(metadata.len());
        let at = windows.position(is_it).expect("a frame waits") + b"data".len();
        records.drain(at..at + OFFLOAD_BYTES);
    }
    // Behind the counters of 8 ports (none reaches 128) and the drops are the frames made.
    let ports = 1 + 2 * 8 + records[1..17].iter().filter(|byte| **byte > 127).count();
    // Bad metadata came with version 4, at the end of the drops.
    let drops = usize::from(records[ports]) - 1;
    records[ports] = drops as u8;
    records.remove(ports + 1 + drops);
    let made_at = ports + 1 + drops;
    // Redirects came with version 3, at the end.
    let count = usize::from(records[made_at]) - 1;
    records[made_at] = count as u8;
    records.remove(made_at + 1 + count);
    let report = made_at + 1 + 8;
    // Reports, and after them fragments and released packets.
    records[report..report + 3].copy_from_slice(&[0, 5, 7]);
    let mut before = records.clone();
    before[made_at] = count as u8 - 1;
    before.remove(report);
    let made_of = |nf: &dyn NetworkFunction| -> Vec<f64> {
        let all = metrics(nf).into_iter();
        let made = all.filter(|it| it.name == "packets_made_total");
        made.map(|it| it.value).collect()
    };
    for (version, records) in [(1, &records), (1, &before), (2, &records)] {
        let image = forged("router", version, records).expect("short");
        let mut new = made("router", 2);
        let imported = import("router", &mut *new, HERE, &image).expect("imported");
        assert_eq!(imported.left_out, 0);
        assert_eq!(made_of(&*new)[8..], [0.0, 5.0, 7.0, 0.0]);
    }
    let short = forged("router", 2, &before).expect("short");
    assert!(import("router", &mut *made("router", 2), HERE, &short).is_err());
}

proptest! {
    /// A forger's image has the right checksum. Such an image makes no NF panic, grow beyond its limits, or fail
    /// later.
    // promise: 10.22
    #[test]
    fn forged_images_do_no_harm(
        nf in 0..STATEFUL.len(),
        hosts in 0u8..6,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        oldest: bool,
    ) {
        let nf = STATEFUL[nf];
        let mut old = made(nf, 1);
        talk(&mut *old, THERE, hosts);
        let mut image = export(nf, &mut *old, THERE).expect("exported");
        let records = 8 + 2 + 2 + 1 + nf.len() + 8;
        let count = image.len() - 8 - records;
        for (at, value) in changes {
            image[records + at.index(count)] = value;
        }
        let kept = cut.map_or(count, |cut| cut.index(count));
        let mut new = made(nf, 2);
        let stateful = new.stateful().expect("it has a state");
        let version = if oldest { stateful.oldest_version() } else { stateful.state_version() };
        let image = forged(nf, version, &image[records..records + kept]).expect("short");
        let nothing = export(nf, &mut *new, HERE);
        rehearse(nf, &mut *new, HERE, &image).expect("an image of this NF");
        prop_assert_eq!(export(nf, &mut *new, HERE), nothing, "a rehearsal leaves nothing");
        // Refused or not.
        let _ = import(nf, &mut *new, HERE, &image);
        talk(&mut *new, HERE, 4);
        new.tick(Nanos(HERE.0 + 1_000_000_000), &mut crate::testing::Collected::default());
        talk(&mut *new, Nanos(u64::MAX), 2);
        prop_assert!(export(nf, &mut *new, HERE).is_ok());
    }

    // promise: 10.22
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for nf in STATEFUL {
            prop_assert!(import(nf, &mut *made(nf, 1), HERE, &bytes).is_err());
        }
    }
}
