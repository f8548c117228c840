//! The text and map forms, and their errors.

use super::super::items;
use super::super::parse::{self, Context};
use super::super::rule::Rule;
use super::*;
use crate::function::ConfigError;
use proptest::prelude::*;
use std::string::ToString;

fn names() -> Vec<String> {
    ["p0".into(), "p1".into()].to_vec()
}

fn one(line: &str) -> Result<Rule, String> {
    let names = names();
    let rule = parse::rule(line, &mut Context::new(&names))?;
    rule.ok_or_else(|| "no rule".into())
}

fn refused(config: Value) -> ConfigError {
    build(&config, &ports(2)).err().expect("refused")
}

#[test]
fn equivalent_spellings() {
    for (short, canonical) in [
        (
            "add 5 pass all from any to any",
            "5 allow ip from any to any",
        ),
        (
            "5 drop ip4 from any to 10.0.0.0/8 # why",
            "5 deny ip4 from any to 10.0.0.0/8",
        ),
        (
            "permit tcp from any to any dst-port http // web",
            "100 allow tcp from any to any 80",
        ),
        (
            "allow { tcp or udp } from { 1.1.1.1 or 2.2.2.2/32 } to any",
            "100 allow tcp,udp from 1.1.1.1,2.2.2.2 to any",
        ),
        // Catches: lists in braces read for protocols and addresses only.
        (
            "allow tcp from any { 1 or 2-3 } to any not { http or 443 }",
            "100 allow tcp from any 1,2-3 to any not 80,443",
        ),
        (
            "allow tcp from any to any src-port { 1 or 2 } dst-port { 3 or 4 }",
            "100 allow tcp from any 1,2 to any 3,4",
        ),
        (
            "deny ip from any to any not vlan { 1 or 5-9 }",
            "100 deny ip from any to any not vlan 1,5-9",
        ),
        (
            "allow icmp from any to any icmptypes { 0 or 3/4 or 8 }",
            "100 allow icmp from any to any icmptypes 0,3/4,8",
        ),
        (
            "allow icmp6 from any to any icmp6types { 1 or 128 }",
            "100 allow icmp6 from any to any icmp6types 1,128",
        ),
        (
            "allow tcp from any to any tcpflags syn,!ack",
            "100 allow tcp from any to any setup",
        ),
        (
            "allow ip from any to any recv p1",
            "100 allow ip from any to any in",
        ),
        ("allow 6 from any to any", "100 allow tcp from any to any"),
        (
            "deny ipv6-icmp from any to any",
            "100 deny icmp6 from any to any",
        ),
        (
            "allow tcp from any to any limit src-addr 3 max 9",
            "100 allow tcp from any to any limit src-addr 3 max 9",
        ),
    ] {
        assert_eq!(
            one(short).map(|rule| rule.to_string()),
            Ok(canonical.into())
        );
    }
}

// Catches: a manual whose examples are refused.
// promise: 10.30
#[test]
fn the_manuals_examples_are_taken() {
    let manual = include_str!("../README.md");
    let block = manual.split("```yaml\n").nth(1).expect("the example");
    let block = block.split("```").next().expect("it ends");
    let rules = block.split("rules: |\n").nth(1).expect("its rules");
    let rules: Vec<_> = rules.lines().map(one).collect();
    assert_eq!(rules.len(), 7);
    for rule in rules {
        rule.expect("as the manual shows it");
    }
}

#[test]
fn errors_say_what_was_expected() {
    for (line, expected) in [
        (
            "alow tcp from any to any",
            "expected an action (allow, deny, reject, reset, unreach, count or check-state), found 'alow'",
        ),
        (
            "allow tpc from any to any",
            "expected a protocol (ip, ip4, ip6, tcp, udp, icmp, icmp6, ...) (a number up to 255), found 'tpc'",
        ),
        (
            "allow tcp any to any",
            "expected 'from' after the protocol, found 'any'",
        ),
        (
            "allow tcp from any",
            "expected 'to' after the source, found 'the end of the line'",
        ),
        (
            "allow tcp from 10.0.0.0/33 to any",
            "expected a prefix length of 0 to 32 after the '/', found '10.0.0.0/33'",
        ),
        (
            "allow tcp from 10.0.0.1/8 to any",
            "'10.0.0.1/8' has bits set behind its prefix length; the prefix is 10.0.0.0/8",
        ),
        (
            "allow tcp from 10.0.0.256 to any",
            "expected 'any' or an address or prefix such as 10.0.0.0/8 or 2001:db8::/32, found '10.0.0.256'",
        ),
        (
            "allow tcp from any to any 80-70",
            "expected a port (0-65535), a service name or a range such as 8000-8080, found '80-70'",
        ),
        (
            "allow tcp from any to any 70000",
            "expected a port (0-65535), a service name or a range such as 8000-8080, found '70000'",
        ),
        (
            "allow icmp from any to any 80",
            "ports need protocol tcp, udp or ip",
        ),
        (
            "allow udp from any to any setup",
            "TCP flags, 'setup' and 'established' need protocol tcp or ip",
        ),
        (
            "allow tcp from any to any tcpflags syn,urk",
            "expected TCP flags (fin, syn, rst, psh, ack, urg, ece, cwr; '!' before one that must be clear), found 'urk'",
        ),
        (
            "deny tcp from any to any keep-state",
            "'keep-state' and 'limit' go with 'allow' only",
        ),
        (
            "allow ip from 10.0.0.0/8 to fc00::/7",
            "protocol, source and destination are not of one IP version",
        ),
        (
            "allow ip6 from 10.0.0.0/8 to any",
            "protocol, source and destination are not of one IP version",
        ),
        (
            "allow ip from not any to any",
            "'not any' would match nothing",
        ),
        (
            "allow ip from me to any",
            "'me' means nothing here: the firewall has no address of its own",
        ),
        (
            "allow ip from any to any recv eth0",
            "expected a port (p0 or p1), found 'eth0'",
        ),
        (
            "allow ip from any to any in out",
            "'out' contradicts the direction given before",
        ),
        (
            "allow ip from any to any vlan 4096",
            "expected a VLAN (0-4095) or a range such as 10-19, found '4096'",
        ),
        (
            "allow tcp from any to any limit src-addr 0",
            "expected a positive number after 'src-addr', found '0'",
        ),
        (
            "allow ip from any to any loudly",
            "expected an option (in, out, recv, xmit, src-port, dst-port, vlan, frag, established, setup, tcpflags, icmptypes, icmp6types, keep-state or limit), found 'loudly'",
        ),
        (
            "check-state tcp",
            "expected nothing after 'check-state', found 'tcp'",
        ),
    ] {
        assert_eq!(
            one(line).map(|rule| rule.to_string()),
            Err(expected.into()),
            "{line}"
        );
    }
}

#[test]
fn a_bad_line_5000_is_reported_as_line_5000() {
    let mut text = String::new();
    for line in 1..=10_000 {
        text.push_str(match line {
            5000 => "allow tcp form any to any\n",
            _ if line % 3 == 0 => "# comment\n",
            _ => "allow tcp from 10.0.0.0/8 to any 80\n",
        });
    }
    let error = refused(json!({ "rules": text }));
    assert_eq!((error.path.as_str(), error.line), ("rules", Some(5000)));
    assert_eq!(
        error.to_string(),
        "rules line 5000: expected 'from' after the protocol, found 'form'"
    );
}

#[test]
fn numbers_do_not_fall() {
    let text = "100 allow ip from any to any\n\n50 deny ip from any to any";
    let error = refused(json!({ "rules": text }));
    assert_eq!(error.line, Some(3));
    assert!(
        error.message.contains("rule number 50 after 100"),
        "{error}"
    );
    let fine =
        "100 allow tcp from any to any\n100 allow udp from any to any\ndeny ip from any to any";
    let mut fw = Bench::with_rules(fine);
    assert_eq!(fw.command("rules", &[])["rules"][2]["number"], 200);
}

#[test]
fn maps_and_lines_mean_the_same() {
    let maps = json!([
        {"action": "check-state"},
        "# a comment between",
        "deny ip from any to any frag",
        {"action": "deny", "frag": true},
        {"number": 900, "action": "allow", "proto": ["tcp", "udp"], "from": ["10.0.0.0/8", "fc00::/7"],
         "from_ports": "1024-65535", "to": "not 10.1.0.0/16", "to_ports": [80, "443", "8000-8080"],
         "direction": "out", "vlan": 10, "keep_state": {"max": 100, "max_per_source": 5, "timeout": 60}},
        {"action": "allow", "proto": "tcp", "setup": true, "to_ports": "ssh", "keep_state": true},
        {"action": "unreach port", "proto": "udp", "recv": "p1", "established": null},
        {"action": "allow", "proto": "tcp", "tcp_flags": "not syn,!ack", "established": true, "frag": false},
        {"action": "allow", "proto": "icmp", "icmp_types": [0, 8, "3/4"]},
        {"action": "count", "proto": "icmp6", "icmp6_types": 135, "vlan": "not 1-5"},
    ]);
    let lines = [
        "100 check-state",
        "200 deny ip from any to any frag",
        "300 deny ip from any to any frag",
        "900 allow tcp,udp from 10.0.0.0/8,fc00::/7 1024-65535 to not 10.1.0.0/16 80,443,8000-8080 \
         out vlan 10 limit src-addr 5 max 100 timeout 60",
        "1000 allow tcp from any to any 22 setup keep-state",
        "1100 unreach port udp from any to any in",
        "1200 allow tcp from any to any not frag not setup established",
        "1300 allow icmp from any to any icmptypes 0,8,3/4",
        "1400 count icmp6 from any to any not vlan 1-5 icmp6types 135",
    ];
    let mut fw = Bench::new(json!({ "rules": maps }));
    let answer = fw.command("rules", &[]);
    let shown: Vec<&str> = answer["rules"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["rule"].as_str())
        .collect();
    assert_eq!(shown, lines);
    let again = Bench::with_rules(&lines.join("\n")).command("rules", &[]);
    assert_eq!(again["rules"], answer["rules"]);
}

#[test]
fn map_errors_name_the_key() {
    for (config, path, message) in [
        (
            json!({"rules": [{"action": "deny"}, {"action": "deny", "form": "any"}]}),
            "rules[1].form",
            "unknown field `form`",
        ),
        (
            json!({"rules": [{"action": "allow", "from": "10.0.0.0/40"}]}),
            "rules[0].from",
            "prefix length",
        ),
        (
            json!({"rules": [{"action": "allow", "to_ports": [80, 99999]}]}),
            "rules[0].to_ports",
            "expected a port",
        ),
        (
            json!({"rules": [{"action": "permitt"}]}),
            "rules[0].action",
            "expected an action",
        ),
        (
            json!({"rules": ["allow tcp"]}),
            "rules[0]",
            "expected 'from'",
        ),
        (json!({"rules": [5]}), "rules[0]", "expected a rule"),
        (json!({"rules": 5}), "rules", "one rule per line"),
        (json!({"default": "maybe"}), "default", "unknown variant"),
        (json!({"rule": []}), "rule", "unknown field `rule`"),
        (json!({"states": {"max": 0}}), "states.max", "expected 1 to"),
        (
            json!({"states": {"timeouts": {"udp": 0}}}),
            "states.timeouts.udp",
            "expected 1 to",
        ),
        (
            json!({"states": {"timeouts": {"upd": 1}}}),
            "states.timeouts.upd",
            "unknown field `upd`",
        ),
    ] {
        let error = refused(config);
        assert_eq!(error.path, path, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn too_many_rules_or_items_are_refused() {
    let text = "deny tcp from 10.0.0.1 to any\n".repeat(parse::RULES_MAX + 1);
    let error = refused(json!({ "rules": text }));
    assert_eq!(error.line, Some(parse::RULES_MAX as u32 + 1));
    let ports = ["80"; items::LIST_MAX + 1].join(",");
    let error = refused(json!({"rules": format!("allow tcp from any to any {ports}")}));
    assert!(error.message.contains("at most 1024"), "{error}");
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same_rule(rule in arbitrary::rule()) {
        let text = rule.to_string();
        prop_assert_eq!(one(&text), Ok(rule), "{}", text);
    }

    // promise: 10.6
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let names = names();
        let _ = parse::rules(&text, "rules", &mut Context::new(&names));
    }

    #[test]
    fn no_line_of_known_words_panics(words in proptest::collection::vec(word(), 0..20)) {
        if let Ok(rule) = one(&words.join(" ")) {
            prop_assert_eq!(one(&rule.to_string()), Ok(rule));
        }
    }
}

fn word() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(
        "add 5 allow deny reject unreach port count check-state ip tcp udp icmp icmp6 ip6 not { or } \
         from to any 10.0.0.0/8 fc00::/7 1.2.3.4 80 80,443 1-5 http in out recv p0 xmit frag first \
         established setup tcpflags syn,!ack icmptypes 8,3/4 icmp6types vlan keep-state limit src-addr \
         max timeout src-port dst-port # // , / -"
            .split_whitespace()
            .collect::<Vec<_>>(),
    )
}
