//! Random rules in two languages: the firewall's and nftables'.

use crate::kernel::LATER_FRAGMENT;
use nfluid_testbed::random::Random;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// A rule whose parts have been written down in both languages.
pub struct Rule {
    /// `allow`, `deny` or `count`.
    action: &'static str,
    protocol: String,
    from: String,
    to: String,
    options: String,
    nft: Vec<String>,
    /// Only packets that arrive on this port.
    pub in_port: Option<u8>,
}

impl Rule {
    /// For the firewall.
    pub fn ipfw(&self) -> String {
        let Rule {
            action,
            protocol,
            from,
            to,
            options,
            ..
        } = self;
        let direction = match self.in_port {
            Some(0) => " out",
            Some(_) => " in",
            None => "",
        };
        format!("{action} {protocol} from {from} to {to}{options}{direction}")
    }

    /// The conditions for nftables; the direction is for the caller, and the action too.
    pub fn nft(&self) -> String {
        self.nft.join(" ")
    }

    /// Returns the nftables statement for a match; `other` is the output interface.
    pub fn nft_action(&self, other: &str) -> String {
        match self.action {
            "allow" => format!("fwd to \"{other}\""),
            "deny" => "drop".into(),
            _ => String::new(),
        }
    }

    /// A random rule of the world that [`crate::packets`] lives in.
    pub fn random(random: &mut Random) -> Rule {
        let mut rule = Rule {
            action: random.pick(&["allow", "allow", "allow", "deny", "deny", "deny", "count"]),
            protocol: "ip".into(),
            from: "any".into(),
            to: "any".into(),
            options: String::new(),
            nft: Vec::new(),
            in_port: random.one_in(6).then(|| random.below(2) as u8),
        };
        let family = match random.below(5) {
            0 => None,
            1 | 2 => Some(Family::V6),
            _ => Some(Family::V4),
        };
        if let Some(family) = family {
            rule.addresses(random, family);
        }
        match random.below(8) {
            0 => {}
            1..=3 => rule.tcp(random),
            4 | 5 => rule.ports(random, "udp"),
            6 => rule.icmp(random, family),
            _ => rule.other_protocol(random),
        }
        if random.one_in(8) {
            rule.fragment(random, family);
        }
        if random.one_in(8) {
            let vlan = random.below(4) + 1;
            rule.options += &format!(" vlan {vlan}");
            // First, so that what nft derives from the other conditions looks behind the tag.
            rule.nft.insert(0, format!("vlan id {vlan}"));
        }
        rule
    }

    /// Pins one side to prefixes of the family, which says what family the rule is about in both languages; the
    /// other side may be negated or any.
    fn addresses(&mut self, random: &mut Random, family: Family) {
        let pinned = if random.one_in(3) {
            let (all, nft) = match family {
                Family::V4 => ("0.0.0.0/0", "ip version 4"),
                Family::V6 => ("::/0", "ip6 version 6"),
            };
            self.nft.push(nft.into());
            all.into()
        } else {
            self.address(random, family, "saddr", false)
        };
        self.from = pinned;
        if random.one_in(2) {
            let negated = random.one_in(3);
            self.to = self.address(random, family, "daddr", negated);
        }
    }

    /// Prefixes of one side, disjoint because nft wants them so.
    fn address(
        &mut self,
        random: &mut Random,
        family: Family,
        field: &str,
        negated: bool,
    ) -> String {
        let mut areas: Vec<u32> = (0..4).filter(|_| random.one_in(2)).collect();
        if areas.is_empty() {
            areas.push(random.below(4));
        }
        let mut one = |area: &u32| prefix(random, family, *area);
        let prefixes: Vec<String> = areas.iter().map(&mut one).collect();
        let word = match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        self.nft
            .push(format!("{word} {field} {}", set(&prefixes, negated)));
        let not = if negated { "not " } else { "" };
        format!("{not}{}", prefixes.join(","))
    }

    /// Later fragments have none; see [`LATER_FRAGMENT`].
    fn looks_into_the_transport_header(&mut self) {
        self.nft.push(format!("meta mark != {LATER_FRAGMENT}"));
    }

    fn tcp(&mut self, random: &mut Random) {
        self.ports(random, "tcp");
        let (option, nft) = match random.below(5) {
            0 => ("established", "tcp flags & 0x14 != 0"),
            1 => ("setup", "tcp flags & 0x12 == 0x02"),
            2 => ("tcpflags fin,!rst,!psh", "tcp flags & 0x0d == 0x01"),
            _ => return,
        };
        self.looks_into_the_transport_header();
        self.options += &format!(" {option}");
        self.nft.push(nft.into());
    }

    fn ports(&mut self, random: &mut Random, protocol: &str) {
        self.protocol = protocol.into();
        self.nft.push(format!("meta l4proto {protocol}"));
        for (side, field) in [(0, "sport"), (1, "dport")] {
            if !random.one_in(3) {
                continue;
            }
            let mut ranges = port_ranges(random);
            let negated = random.one_in(4);
            if negated && ranges.len() == 1 {
                // nft 1.0.6 joins `sport != 1` and `dport != 1` to one comparison of both, which is not the same.
                ranges.push("1000".into());
            }
            self.looks_into_the_transport_header();
            self.nft
                .push(format!("{protocol} {field} {}", set(&ranges, negated)));
            let not = if negated { " not" } else { "" };
            let text = format!("{not} {}", ranges.join(","));
            if side == 0 {
                self.from += &text;
            } else {
                self.to += &text;
            }
        }
    }

    fn icmp(&mut self, random: &mut Random, family: Option<Family>) {
        let (word, number, option, nft) = match family {
            Some(Family::V6) => ("icmp6", 58, "icmp6types", "icmpv6"),
            _ => ("icmp", 1, "icmptypes", "icmp"),
        };
        self.protocol = word.into();
        self.nft.push(format!("meta l4proto {number}"));
        let kind = random.pick(&[0, 3, 8, 128, 129]);
        let (types, nft) = match random.below(3) {
            0 => (
                format!("{kind}/1"),
                format!("{nft} type {kind} {nft} code 1"),
            ),
            1 => ("3,8,128".into(), format!("{nft} type {{ 3, 8, 128 }}")),
            _ => return,
        };
        self.looks_into_the_transport_header();
        self.options += &format!(" {option} {types}");
        self.nft.push(nft);
    }

    fn other_protocol(&mut self, random: &mut Random) {
        let number = random.pick(&[47, 50, 200, 6, 17]);
        self.protocol = number.to_string();
        self.nft.push(format!("meta l4proto {number}"));
    }

    /// Only within one family: nft asks each family's own header.
    fn fragment(&mut self, random: &mut Random, family: Option<Family>) {
        match family {
            Some(Family::V4) if random.one_in(3) => {
                self.options += " not frag";
                self.nft.push("ip frag-off & 0x1fff == 0".into());
            }
            Some(Family::V4) => {
                self.options += " frag";
                self.nft.push("ip frag-off & 0x1fff != 0".into());
            }
            Some(Family::V6) => {
                self.options += " frag";
                self.nft.push("frag frag-off != 0".into());
            }
            None => {}
        }
    }
}

/// `{ a, b }` or `!= { a, b }`.
fn set(items: &[String], negated: bool) -> String {
    let not = if negated { "!= " } else { "" };
    format!("{not}{{ {} }}", items.join(", "))
}

/// A prefix within area 0..4 of the world: 10.AREA.0.0/16, 2001:db8:AREA::/48.
fn prefix(random: &mut Random, family: Family, area: u32) -> String {
    let host = random.below(4);
    match (family, random.below(3)) {
        (Family::V4, 0) => format!("10.{area}.0.0/16"),
        (Family::V4, 1) => format!("10.{area}.{host}.0/24"),
        (Family::V4, _) => format!("10.{area}.{host}.{host}"),
        (Family::V6, 0) => format!("2001:db8:{area}::/48"),
        (Family::V6, 1) => format!("2001:db8:{area}:{host}::/64"),
        (Family::V6, _) => format!("2001:db8:{area}:{host}::{host}"),
    }
}

/// Disjoint ranges among the first ports and at the end.
fn port_ranges(random: &mut Random) -> Vec<String> {
    let choices = [
        vec!["80"],
        vec!["1-3"],
        vec!["0", "2", "80"],
        vec!["1024-65535"],
        vec!["4-79", "81-443"],
        vec!["65535"],
    ];
    let chosen = &choices[random.below(choices.len() as u32) as usize];
    chosen.iter().map(|range| (*range).to_owned()).collect()
}
