//! Random rule sets for nftables.

use nfluid_testbed::random::Random;

/// The text of a rule set: raw, forward and input chains with what operators write, in two tables.
pub fn random(random: &mut Random) -> String {
    let mut text = String::from(
        "flush ruleset\ntable inet t {\n\
         set nets { type ipv4_addr; flags interval; elements = { 10.0.0.4/31, 192.0.2.3 } }\n\
         set services { type inet_service; flags interval; elements = { 53, 1024-65535 } }\n\
         set seen { type ipv4_addr; size 64; flags dynamic; elements = { 10.0.0.5 } }\n\
         map last { type ipv4_addr : inet_service; size 64; flags dynamic; }\n\
         set over { type ipv4_addr; quota over 400 bytes; elements = { 10.0.0.2, 10.0.0.3 } }\n\
         counter own { }\n\
         chain sub { udp dport 53 drop; ip saddr 10.0.0.3 return; counter; }\n",
    );
    for (chain, hook, priority) in [
        ("raw", "prerouting", "-300"),
        ("forward", "forward", "0"),
        ("input", "input", "0"),
    ] {
        text += &chain_of(random, chain, hook, priority, true);
    }
    text += "}\n";
    if random.one_in(3) {
        let chain = chain_of(random, "f", "forward", "5", false);
        text += &format!("table ip only4 {{ {chain} }}\n");
    }
    if random.one_in(4) {
        text += "table inet off { flags dormant; chain f { type filter hook forward priority -5; policy drop; }\n}\n";
    }
    if random.one_in(6) {
        text += "table ip translate { chain pre { type nat hook prerouting priority -100; \
                 tcp dport 81 dnat to 192.0.2.4:80; }\n}\n";
    }
    text
}

fn chain_of(random: &mut Random, name: &str, hook: &str, priority: &str, inet: bool) -> String {
    let policy = if random.one_in(3) { "drop" } else { "accept" };
    let mut text = format!(
        "chain {name} {{ type filter hook {hook} priority {priority}; policy {policy};\n\
         {} daddr 192.0.2.250 accept\n",
        "ip"
    );
    for _ in 0..random.below(8) {
        let mut about = (None, None);
        for _ in 0..random.below(3) {
            let condition = condition(random, inet);
            if is_possible(&mut about, &condition) {
                text += &condition;
                text.push(' ');
            }
        }
        text += match verdict(random) {
            "jump sub" if !inet => "drop",
            "counter" if inet && is_possible(&mut about, "ip saddr") => fills(random),
            verdict => verdict,
        };
        text.push('\n');
    }
    text + "}\n"
}

/// Returns true if nft accepts the condition after others about these IP version and transport. nft refuses conditions
/// that can never hold.
fn is_possible(about: &mut (Option<char>, Option<char>), condition: &str) -> bool {
    let version = match condition {
        c if c.starts_with("ip6") => Some('6'),
        c if c.contains("ip saddr") || c.contains("ipv4") => Some('4'),
        c if c.starts_with("ip ") || c.starts_with("icmp") => Some('4'),
        _ => None,
    };
    let transport = match condition {
        c if c.starts_with("tcp") || c.ends_with("protocol tcp") => Some('t'),
        c if c.contains(": tcp dport") => Some('t'),
        c if c.starts_with("udp") || c.ends_with("l4proto udp") => Some('u'),
        c if c.starts_with("icmp") => Some('i'),
        c if c.contains("th ") => Some('h'),
        _ => None,
    };
    let fits = |own: &mut Option<char>, new: Option<char>| match (*own, new) {
        (Some(own), Some(new)) => own == new,
        _ => {
            *own = own.or(new);
            true
        }
    };
    fits(&mut about.0, version) && fits(&mut about.1, transport)
}

/// `inet`: in the table that has sets, and both IP versions.
fn condition(random: &mut Random, inet: bool) -> String {
    let host = random.below(4) + 2;
    let side = random.pick(&["saddr", "daddr"]);
    let port = random.pick(&["sport", "dport"]);
    let proto = random.pick(&["tcp", "udp", "th"]);
    let not = if random.one_in(4) { "!= " } else { "" };
    match random.below(if inet { 17 } else { 11 }) {
        0 => format!("ip {side} {not}10.0.0.{host}"),
        1 => format!("ip {side} {not}192.0.2.{host}"),
        2 => format!("ip {side} {not}10.0.0.0/30"),
        3 => format!("ip {side} {not}192.0.2.2-192.0.2.4"),
        4 => format!("ip {side} {not}{{ 10.0.0.2, 10.0.0.5, 192.0.2.0/29 }}"),
        5 => format!("iifname {not}\"n0\""),
        6 => "meta l4proto udp".into(),
        // Sets that packets fill, conditions with a state of their own, and a counter.
        7 if inet && random.one_in(2) => random
            .pick(&[
                "ip saddr @seen",
                "ip saddr != @seen",
                "ip daddr @seen",
                "ip saddr @over",
                "counter name ip saddr map { 10.0.0.2 : \"own\", 10.0.0.4 : \"own\" }",
                "add @last { ip saddr : tcp dport }",
            ])
            .into(),
        7 => random
            .pick(&[
                "ct state new",
                "ct state established",
                "tcp flags syn",
                "ip ttl 64",
            ])
            .into(),
        8 if proto == "th" => format!("meta l4proto {{ tcp, udp }} th {port} 80"),
        8 => format!("{proto} {port} {not}80"),
        9 => format!("tcp {port} {not}{{ 22, 80, 443 }}"),
        10 => format!("udp {port} {not}80-1024"),
        11 => "tcp dport @services".into(),
        12 => format!("ip6 {side} {not}2001:db8:1::/48"),
        13 => format!("ip6 {side} {not}2001:db8:0::{host}"),
        14 => "meta nfproto ipv4".into(),
        15 => "ip saddr @nets".into(),
        _ => random
            .pick(&[
                "icmp type echo-request",
                "meta length > 60",
                "ip protocol tcp",
                "oifname \"n1\"",
            ])
            .into(),
    }
}

/// Returns a statement that changes the set which other rules look up, sometimes with a verdict: a full set ends the
/// rule.
fn fills(random: &mut Random) -> &'static str {
    random.pick(&[
        "add @seen { ip saddr }",
        "update @seen { ip saddr } drop",
        "delete @seen { ip saddr }",
        "delete @seen { ip daddr } accept",
    ])
}

fn verdict(random: &mut Random) -> &'static str {
    random.pick(&[
        "accept",
        "accept",
        "counter accept",
        "drop",
        "drop",
        "drop",
        "counter drop",
        "counter",
        "reject",
        "jump sub",
        "return",
        "meta mark set 7",
    ])
}
