use super::*;
use nfluid_wire::ipv6::FragmentInfo;

/// A narrow link on p1.
pub(super) fn narrow(mtu: u16) -> Bench {
    let mut two = ports(2);
    two[1].mtu = mtu;
    let mut config = acquainted();
    if mtu < 1280 {
        config["addresses"]["p1"] = json!(["10.0.1.1/24"]);
        config["routes"].as_array_mut().expect("a list").remove(1);
        let known = config["neighbours"].as_array().expect("a list").clone();
        let v4 = known
            .into_iter()
            .filter(|n| n["port"] == "p0" || !n["address"].as_str().expect("text").contains(':'));
        config["neighbours"] = v4.collect();
    }
    Bench::on(&config, &two)
}

#[test]
fn a_large_packet_that_must_not_be_cut_is_reported_with_the_mtu() {
    let mut router = narrow(1300);
    let large = written(&from_alice("192.0.2.7").dont_fragment(), &[7; 1280]);
    let (port, frame) = router.send_one(0, large.clone());
    let error = icmp(&frame);
    assert_eq!((port, error.kind, error.code), (0, 3, 4));
    assert_eq!(error.rest, [0, 0, 0x05, 0x14]);
    assert_eq!(error.quoted, large[14..14 + 548]);
    assert_eq!(router.dropped("too_big"), 1);

    let large = written(&from_alice("2001:db8:5::7"), &[7; 1280]);
    let (port, frame) = router.send_one(0, large);
    let error = icmp(&frame);
    assert_eq!((port, error.kind, error.code), (0, 2, 0));
    assert_eq!(error.rest, 1300u32.to_be_bytes());
}

#[test]
fn a_packet_of_exactly_the_mtu_passes_whole() {
    let mut router = narrow(1300);
    let exact = written(&from_alice("192.0.2.7").dont_fragment(), &[7; 1300 - 28]);
    assert_eq!(router.send_one(0, exact).0, 1);
    let exact = written(&from_alice("2001:db8:5::7"), &[7; 1300 - 48]);
    assert_eq!(router.send_one(0, exact).0, 1);
}

#[test]
fn a_large_packet_is_cut_into_fragments_that_make_it_up_again() {
    let mut router = narrow(576);
    let payload: Vec<u8> = (0..1400u32).map(|i| (i * 7) as u8).collect();
    let whole = written(&from_alice("192.0.2.7").ident(4711), &payload);
    let sent = router.send(0, whole.clone());
    assert_eq!(sent.len(), 3);
    assert_eq!(offsets(&sent), [0, 552, 1104]);
    assert_eq!(reassembled(&sent), &whole[34..]);
    for (port, frame) in &sent {
        let packet = ipv4(frame);
        assert_eq!((*port, link(frame).0), (1, GATEWAY));
        assert!(packet.total_len() <= 576);
        assert_eq!((packet.ident(), packet.ttl()), (4711, 63));
    }
    assert_eq!(router.metric("packets_made_total", Some("fragment")), 2);
}

/// Catches: fragments that leave before or behind the batch, or one of them in place and the others as copies.
// promise: 10.25
#[test]
fn fragments_leave_in_order_and_in_their_packets_place() {
    let mut router = narrow(576);
    let numbered = |number: u16, len: usize| {
        (
            0,
            written(
                &from_alice("192.0.2.7").ident(number),
                &vec![number as u8; len],
            ),
        )
    };
    let batch = [
        numbered(1, 100),
        numbered(2, 1400),
        numbered(3, 100),
        numbered(4, 700),
        numbered(5, 100),
    ];
    let sent = run(&mut router.nf, router.now, &batch);
    let order: Vec<_> = sent
        .iter()
        .map(|(_, frame)| (ipv4(frame).ident(), ipv4(frame).fragment_offset()))
        .collect();
    assert_eq!(order[..4], [(1, 0), (2, 0), (2, 552), (2, 1104)]);
    assert_eq!(order[4..], [(3, 0), (4, 0), (4, 552), (5, 0)]);
    assert_eq!(router.metric("packets_forwarded_total", None), 5);
}

/// Catches: an answer, or what waited for a neighbour, that overtakes the frames before it, or is overtaken by later ones.
// promise: 10.25
#[test]
fn what_the_router_makes_stays_where_it_was_made() {
    let mut router = narrow(1500);
    let from_bob = |ttl: u8, number: u16| {
        let frame = datagram("10.0.1.9", "10.0.0.9").macs(BOB, P1);
        (1, written(&frame.ttl(ttl).ident(number), &[0; 8]))
    };
    let back = datagram("10.0.1.9", "192.0.2.7").macs(BOB, P1).ident(3);
    let sent = run(
        &mut router.nf,
        router.now,
        &[from_bob(9, 1), from_bob(1, 2), (1, written(&back, &[0; 8]))],
    );
    let ports: Vec<u8> = sent.iter().map(|sent| sent.0).collect();
    assert_eq!(
        ports,
        [0, 1, 1, 1],
        "forwarded, the error, the redirect, forwarded: {sent:02x?}"
    );
    assert_eq!([1, 2].map(|at| icmp(&sent[at].1).kind), [11, 5]);

    let mut config = acquainted();
    config["neighbours"] = json!([]);
    let mut router = Bench::new(&config);
    let to_bob = |number: u16| (0, written(&from_alice("10.0.1.9").ident(number), &[0; 8]));
    router.send(0, to_bob(1).1);
    let batch = [to_bob(2), (1, arp_reply(BOB, [10, 0, 1, 9])), to_bob(3)];
    let sent = run(&mut router.nf, router.now, &batch);
    let idents: Vec<u16> = sent.iter().map(|(_, frame)| ipv4(frame).ident()).collect();
    assert_eq!(idents, [1, 2, 3]);
}

#[test]
fn a_fragment_is_cut_further() {
    let mut router = narrow(576);
    let alice = ip("10.0.0.9");
    for more in [true, false] {
        let fragment = FragmentInfo {
            offset: 1480,
            more,
            ident: 0,
        };
        let piece = Frame::ip(alice, ip("192.0.2.7"), IpProtocol::UDP).macs(ALICE, P0);
        let sent = router.send(0, written(&piece.fragment(fragment), &[7; 800]));
        assert_eq!(sent.len(), 2);
        let places: Vec<_> = sent
            .iter()
            .map(|(_, frame)| {
                let packet = ipv4(frame);
                (
                    packet.fragment_offset(),
                    packet.more_fragments(),
                    packet.payload().len(),
                )
            })
            .collect();
        assert_eq!(places, [(1480, true, 552), (2032, more, 248)]);
    }
}

#[test]
fn only_options_marked_for_it_are_copied_into_all_fragments() {
    let mut router = narrow(576);
    // Router alert (copied), record route (not copied), and a copied option with an unassigned number.
    let options = [148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0xde, 3, 9, 0, 0];
    let whole = super::forwarding::with_options(&from_alice("192.0.2.7"), &options, &[7; 700]);
    let sent = router.send(0, whole);
    let lists: Vec<_> = sent
        .iter()
        .map(|(_, frame)| ipv4(frame).header()[20..].to_vec())
        .collect();
    assert_eq!(
        lists[0],
        [148, 4, 0, 0, 7, 7, 8, 10, 0, 1, 1, 0xde, 3, 9, 0, 0]
    );
    assert_eq!(
        lists[1],
        [148, 4, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0xde, 3, 9, 0, 0]
    );
}

#[test]
fn fragments_wait_for_the_neighbour_together() {
    let mut two = ports(2);
    two[1].mtu = 700;
    let config = json!({"addresses": {"p0": ["10.0.0.1/24"], "p1": ["10.0.1.1/24"]}});
    let mut router = Bench::on(&config, &two);
    let whole = written(&from_alice("10.0.1.9"), &[9; 1000]);
    assert_eq!(link(&router.send_one(0, whole.clone()).1).2, EtherType::ARP);
    let sent = router.send(1, arp_reply(BOB, [10, 0, 1, 9]));
    assert_eq!(offsets(&sent), [0, 680]);
    assert_eq!(reassembled(&sent), &whole[34..]);
}

pub(super) fn offsets(fragments: &[Sent]) -> Vec<u16> {
    let offset = |sent: &Sent| ipv4(&sent.1).fragment_offset();
    fragments.iter().map(offset).collect()
}

/// The payload that the fragments make up.
pub(super) fn reassembled(fragments: &[Sent]) -> Vec<u8> {
    let mut whole = vec![0; 65_536];
    let mut end = None;
    let mut covered = 0;
    for (_, frame) in fragments {
        let packet = ipv4(frame);
        let start = usize::from(packet.fragment_offset());
        let data = packet.payload();
        whole[start..start + data.len()].copy_from_slice(data);
        covered += data.len();
        if !packet.more_fragments() {
            end = Some(start + data.len());
        }
    }
    let end = end.expect("a last fragment");
    assert_eq!(covered, end, "no gap, no overlap");
    whole.truncate(end);
    whole
}
