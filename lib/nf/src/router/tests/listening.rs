//! Multicast listener reports.

use super::*;

const ROUTER: &str = "fe80::ff:fe00:1";
const GROUPS: [&str; 4] = [
    "ff02::2",
    "ff02::1:ff00:0",
    "ff02::1:ff00:1",
    "ff02::1:ff00:1",
];

/// The message behind a router alert, from the router, with hop limit 1.
fn message(frame: &[u8]) -> (Ipv6Addr, Vec<u8>) {
    let packet = ipv6(frame);
    assert_eq!(
        (packet.hop_limit(), packet.src()),
        (1, ROUTER.parse().expect("valid"))
    );
    let [mac @ .., _, _, _, _] = nfluid_wire::ndp::multicast_mac(packet.dst()).0;
    assert_eq!(
        (link(frame).0.0[..2].to_vec(), link(frame).1),
        (mac.to_vec(), P1)
    );
    let (options, message) = packet.payload().split_at(8);
    assert_eq!(options, [58, 0, 5, 2, 0, 0, 1, 0]);
    let message_of = Icmpv6Packet::new_checked(message).expect("ICMPv6");
    assert!(message_of.verify_checksum(packet.src(), packet.dst()));
    (packet.dst(), message.to_vec())
}

/// The groups of a report of RFC 3810, all with this kind of record.
fn reported(frame: &[u8], kind: u8) -> Vec<String> {
    let (to, message) = message(frame);
    assert_eq!((to, message[0]), ("ff02::16".parse().expect("valid"), 143));
    let records = message[8..].chunks(20);
    assert_eq!(records.len(), usize::from(message[7]));
    let group = |record: &[u8]| {
        assert_eq!(record[..4], [kind, 0, 0, 0]);
        let octets: [u8; 16] = record[4..].try_into().expect("16 bytes");
        Ipv6Addr::from(octets).to_string()
    };
    records.map(group).collect()
}

fn query(len: usize, code: u16, hop_limit: u8) -> Vec<u8> {
    query_from("fe80::9", len, code, hop_limit)
}

fn query_from(from: &str, len: usize, code: u16, hop_limit: u8) -> Vec<u8> {
    let (from, to) = (ip(from), ip("ff02::1"));
    let [high, low] = code.to_be_bytes();
    let frame = Frame::icmp(from, to, 130, 0, [high, low, 0, 0]).ttl(hop_limit);
    let frame = frame.macs(BOB, MacAddr([0x33, 0x33, 0, 0, 0, 1]));
    written(&frame, &vec![0; len - 8])
}

/// Catches: reports longer than the shortest MTU of an IPv6 link, and groups that are in none of several.
#[test]
fn many_groups_are_reported_in_frames_that_fit_every_link() {
    let mut config = plain();
    let own = |host: u32| format!("2001:db8:1::{host:x}/64");
    config["addresses"]["p1"] = (1..=64).map(own).collect();
    config["routes"] = json!([]);
    let mut router = Bench::new(&config);
    assert!(router.send(1, query(28, 0, 1)).is_empty());
    let sent = router.wait(100);
    // Each has 1280 octets of IPv6 at most, which is 61 records.
    let lengths: Vec<_> = sent.iter().map(|(_, frame)| frame.len()).collect();
    let of = |records: usize| 14 + 40 + 8 + 8 + 20 * records;
    assert_eq!(lengths.iter().max(), Some(&of(61)));
    let groups: Vec<_> = sent
        .iter()
        .flat_map(|(_, frame)| reported(frame, 2))
        .collect();
    for host in 1..=64 {
        let group = format!("ff02::1:ff00:{host:x}");
        assert!(groups.contains(&group), "{group}");
    }
    let records = lengths.iter().map(|length| (length - of(0)) / 20);
    assert_eq!(records.sum::<usize>(), groups.len());
}

/// Catches: routers that all answer a query at once, which is what its time is there to prevent (RFC 3810 section 6.2).
#[test]
fn answers_are_spread_over_the_time_that_a_query_gives() {
    let mut delays: Vec<u64> = (0..20)
        .map(|turn| {
            let mut router = Bench::new(&plain());
            router.now.0 += turn * 1_234_567_891;
            assert!(router.send(1, query(28, 10_000, 1)).is_empty());
            (router.nf.next_tick().0 - router.now.0) / 1_000_000
        })
        .collect();
    delays.sort_unstable();
    assert!(delays[4] < 5000 && delays[15] > 5000, "{delays:?}");
    assert!(delays[19] <= 10_000, "{delays:?}");
}

fn unique(groups: &[&str]) -> Vec<String> {
    let mut groups: Vec<_> = groups.iter().map(|group| group.to_string()).collect();
    groups.dedup();
    groups
}

/// Catches: groups never reported, so that a switch that listens to reports keeps solicitations from the router.
// promise: 10.27
#[test]
fn groups_are_reported_twice_when_they_are_new() {
    let parsed = Config::parse(&plain(), &ports(2)).expect("valid");
    let mut router = Bench {
        nf: Router::new(parsed),
        now: Nanos::from_secs(1000),
    };
    let mut sent = router.tick();
    assert!(router.nf.has_timers());
    assert_eq!(router.nf.next_tick(), Nanos::from_secs(1001));
    sent.extend(router.wait(10_000));
    let reports = sent.iter().filter(|(port, frame)| {
        *port == 1 && frame.get(20) == Some(&0) && link(frame).2 == EtherType::IPV6
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 2);
    for (_, report) in reports {
        assert_eq!(reported(report, 4), unique(&GROUPS));
    }
    assert_eq!(
        router.metric("packets_made_total", Some("listener_report")),
        4
    );
    assert!(!router.nf.has_timers(), "nothing else is to come");
}

/// Catches: queries without an answer, in either version of the protocol; answers to a query that came from another
/// link.
// promise: 10.27
#[test]
fn a_query_is_answered_in_its_version_within_its_time() {
    let mut router = Bench::new(&plain());
    assert!(router.send(1, query(28, 10_000, 1)).is_empty());
    assert!(router.nf.next_tick() < Nanos(router.now.0 + 10_000_000_000));
    let sent = router.wait(10_000);
    assert_eq!(sent.len(), 1, "on that port: {sent:02x?}");
    assert_eq!((sent[0].0, reported(&sent[0].1, 2)), (1, unique(&GROUPS)));

    assert!(router.send(1, query(24, 0, 1)).is_empty());
    let sent = router.wait(100);
    let old: Vec<_> = sent.iter().map(|(_, frame)| message(frame)).collect();
    let groups: Vec<_> = old.iter().map(|(to, _)| to.to_string()).collect();
    assert_eq!(groups, unique(&GROUPS));
    for (to, message) in old {
        assert_eq!((message[0], &message[8..]), (131, &to.octets()[..]));
    }
    router.refuses(1, query(28, 0, 2), "local_malformed");
    router.refuses(1, query(20, 0, 1), "local_malformed");
    for from in ["2001:db8:1::9", "::"] {
        router.refuses(1, query_from(from, 28, 0, 1), "local_malformed");
    }
    assert!(router.wait(1_000).is_empty());
}
