//! Addresses that the protected side may call its own.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use nfluid_wire::arp::{ArpRepr, Operation};
use nfluid_wire::ndp::{AdvertFlags, NdpRepr, solicited_node};
use nfluid_wire::{EtherType, MacAddr};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn guarded() -> Bench {
    Bench::new(json!({
        "default": "allow",
        "own_addresses": ["10.0.0.5", "10.1.0.0/16", "fe80::5", "2001:db8::/64"],
    }))
}

fn arp(operation: Operation, sender: &str, vlans: &[VlanTag]) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    let packet = ArpRepr {
        operation,
        sender_mac: OWN,
        sender_ip: address(sender),
        target_mac: OTHER,
        target_ip: address("10.0.0.1"),
    };
    let mut buffer = [0; 64];
    let len = nfluid_wire::build::arp(&mut buffer, vlans, &packet).expect("fits");
    buffer[..len].to_vec()
}

fn neighbour(message: &NdpRepr) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = (
        "fe80::5".parse().expect("an address"),
        solicited_node(Ipv6Addr::LOCALHOST),
    );
    let mut buffer = [0; 128];
    let len = nfluid_wire::build::ndp(&mut buffer, (OWN, OTHER), (from, to), &[], message);
    buffer[..len.expect("fits")].to_vec()
}

fn advert(target: &str) -> Vec<u8> {
    neighbour(&NdpRepr::Advert {
        target: target.parse().expect("an address"),
        flags: AdvertFlags::default(),
        target_link_layer: Some(OWN),
    })
}

// promise: 10.47
#[test]
fn the_protected_side_claims_its_own_addresses_only() {
    let mut fw = guarded();
    for operation in [Operation::REQUEST, Operation::REPLY, Operation(7)] {
        for vlans in [
            &[][..],
            &[VlanTag::new(5)],
            &[VlanTag::new(5), VlanTag::new(6)],
        ] {
            assert!(fw.passes(INSIDE, &arp(operation, "10.0.0.5", vlans)));
            assert!(fw.passes(INSIDE, &arp(operation, "10.1.200.7", vlans)));
            assert!(
                !fw.passes(INSIDE, &arp(operation, "10.0.0.6", vlans)),
                "{vlans:?}"
            );
            assert!(
                fw.passes(OUTSIDE, &arp(operation, "10.0.0.6", vlans)),
                "of others"
            );
        }
    }
    assert!(
        fw.passes(INSIDE, &arp(Operation::REQUEST, "0.0.0.0", &[])),
        "a probe"
    );
    assert!(fw.passes(INSIDE, &advert("fe80::5")) && fw.passes(INSIDE, &advert("2001:db8::77")));
    assert!(!fw.passes(INSIDE, &advert("fe80::1")) && !fw.passes(INSIDE, &advert("2001:db8:1::1")));
    assert!(fw.passes(OUTSIDE, &advert("fe80::1")), "of others");
    let question = NdpRepr::Solicit {
        target: "2001:db8:1::1".parse().expect("an address"),
        source_link_layer: Some(OWN),
    };
    assert!(
        fw.passes(INSIDE, &neighbour(&question)),
        "a question claims nothing"
    );
    assert_eq!(fw.dropped("foreign_address"), 11);
    assert!(Bench::with_rules("").passes(INSIDE, &arp(Operation::REPLY, "10.0.0.6", &[])));
}

// promise: 10.47
#[test]
fn claims_that_cannot_be_read_do_not_pass() {
    let mut fw = guarded();
    let whole = arp(Operation::REPLY, "10.0.0.5", &[]);
    for (at, byte) in [(15, 6), (17, 1), (18, 8), (19, 16)] {
        let mut odd = whole.clone();
        odd[at] = byte;
        assert!(!fw.passes(INSIDE, &odd), "byte {at}");
    }
    for len in 14..whole.len().min(42) {
        assert!(!fw.passes(INSIDE, &whole[..len]), "{len} bytes");
    }
    let advert = advert("fe80::5");
    let header = advert.len() - 32;
    let mut short = advert[..header + 15].to_vec();
    let payload = (short.len() - 14 - 40) as u16;
    short[18..20].copy_from_slice(&payload.to_be_bytes());
    assert!(!fw.passes(INSIDE, &short), "the target is cut off");
    let mut odd = [0; 64];
    let len =
        nfluid_wire::build::ethernet(&mut odd, (OWN, OTHER), &[], EtherType(0x8035), &[0; 28]);
    assert!(
        !fw.passes(INSIDE, &odd[..len.expect("fits")]),
        "reverse ARP is not IP"
    );
}

#[test]
fn a_prefix_that_is_none_is_refused_with_its_place() {
    let config = json!({ "own_addresses": ["10.0.0.5", "10.0.0.5/8"] });
    let error = build(&config, &ports(2)).err().expect("host bits");
    assert_eq!(error.path, "own_addresses[1]");
}
