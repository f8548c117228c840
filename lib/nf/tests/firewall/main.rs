//! The firewall with rules and frames of any content.

mod exercise;

use proptest::prelude::*;

/// Lines that are nearly rules: known words in any order.
fn text() -> impl Strategy<Value = String> {
    let words = "allow deny reject reset unreach port count check-state ip tcp udp icmp icmp6 ip4 ip6 17 \
                 not { or } from to any any 10.0.0.0/8 10.0.0.1 ::/0 fe80::/10 0-5 80,443 in out recv p0 \
                 frag first setup established tcpflags syn,!ack icmptypes 8 icmp6types 1/2 vlan 5 \
                 keep-state max 3 limit src-addr 1 timeout 9";
    let words: Vec<&'static str> = words.split_whitespace().collect();
    let any_line =
        prop::collection::vec(prop::sample::select(words), 0..12).prop_map(|w| w.join(" "));
    let pick = |list: &'static [&'static str]| prop::sample::select(list);
    let action = pick(&["allow", "deny", "reject", "count", "unreach port", "reset"]);
    let protocol = pick(&["ip", "tcp", "udp", "icmp", "ip6", "not udp"]);
    let address = pick(&[
        "any",
        "0.0.0.0/1",
        "not 64.0.0.0/2",
        "::/3",
        "8.0.0.0/5,::1",
    ]);
    let end = pick(&[
        "",
        "in",
        "not frag",
        "vlan 0-7",
        "keep-state",
        "limit src-addr 2",
    ]);
    let rule = (action, protocol, address.clone(), address, end).prop_map(
        |(action, protocol, from, to, end)| {
            format!("{action} {protocol} from {from} to {to} {end}")
        },
    );
    let line = prop_oneof![1 => any_line, 4 => rule];
    prop::collection::vec(line, 0..80).prop_map(|lines| lines.join("\n"))
}

/// Frames with a plausible beginning, each behind its length.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let ethernet = prop_oneof![
        Just([0x08, 0x00, 0x45]),
        Just([0x86, 0xdd, 0x60]),
        Just([0x81, 0x00, 0x00]),
        any::<[u8; 3]>(),
    ];
    let protocol = prop::sample::select(vec![1_u8, 6, 17, 58, 44, 0]);
    let rest = prop::collection::vec(any::<u8>(), 0..90);
    let frame = (ethernet, protocol, rest).prop_map(|(ethernet, protocol, mut rest)| {
        let ipv4 = ethernet[1] == 0;
        let len = (rest.len() + 1) as u16;
        // Lengths and next header where the version has them, so that most packets are whole.
        let fields: &[(usize, u8)] = if ipv4 {
            &[
                (1, (len >> 8) as u8),
                (2, len as u8),
                (5, 0),
                (6, 0),
                (8, protocol),
            ]
        } else {
            &[(3, 0), (4, len.saturating_sub(40) as u8), (5, protocol)]
        };
        for (at, value) in fields {
            if let Some(byte) = rest.get_mut(*at) {
                *byte = *value;
            }
        }
        let mut frame = vec![(12 + 3 + rest.len()) as u8];
        frame.extend([2; 12]);
        frame.extend(ethernet);
        frame.extend(rest);
        frame
    });
    prop::collection::vec(frame, 0..30).prop_map(|frames| frames.concat())
}

proptest! {
    // promise: 10.6
    #[test]
    fn rules_and_frames_from_anybody(text in text(), frames in frames()) {
        exercise::rules_and_frames(&text, &frames);
    }

    // promise: 10.6
    #[test]
    fn bytes_from_anybody(text in "\\PC{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise::rules_and_frames(&text, &bytes);
    }
}
