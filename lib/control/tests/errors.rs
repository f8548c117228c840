//! Invalid documents: all errors at once, each with its place, cause and remedy.

mod support;

use nfluid_api::types::{ApplyRequest, Cause};
use nfluid_control::document::read;
use nfluid_control::model::Deployment;
use support::{ENVIRONMENT, check, lines, request};

fn errors(text: &str) -> String {
    match check(text) {
        Err(errors) => lines(&errors),
        Ok(checked) => panic!("accepted: {:?}", checked.deployment),
    }
}

#[track_caller]
fn assert_errors(text: &str, expected: &str) {
    let found = errors(text);
    assert!(
        found == expected.trim(),
        "found:\n{found}\n\nexpected:\n{}",
        expected.trim()
    );
}

// promise: 6.8
#[test]
fn all_errors_of_a_document_are_found_at_once() {
    assert_errors(
        include_str!("support/wrong.yaml"),
        include_str!("support/wrong.txt"),
    );
}

#[test]
fn an_instance_without_ports_is_refused_when_it_is_read() {
    for ports in ["[]", "{}"] {
        let text = format!("version: 1\ninstances:\n  x: {{ nf: bridge, ports: {ports} }}\n");
        let found = errors(&text);
        assert!(
            found.contains("instances.x.ports: an instance cannot have 0 ports"),
            "{found}"
        );
        assert_eq!(found.matches("0 ports").count(), 1, "{found}");
        // Without validation too: the printed document would be read with the default ports.
        nfluid_control::document::read_unchecked(&text, None).expect_err("it has none");
    }
}

#[test]
fn structure_that_cannot_be() {
    assert_errors(
        include_str!("support/tangled.yaml"),
        include_str!("support/tangled.txt"),
    );
}

// Catches: a path that is cut at each dot, so that the error has no line.
#[test]
fn an_error_about_a_name_with_dots_or_brackets_has_its_line() {
    for name in ["0.restart", "a.b.c", "x[0]", "a", "a.", "[", "''"] {
        let text = format!(
            "version: 1\ninstances:\n  a.b: {{ nf: bridge }}\n  {name}: {{ restart: never }}\n"
        );
        let errors = check(&text).expect_err("nothing runs in it");
        for error in errors {
            assert!(error.line.is_some(), "{name}: {error:?}");
            let is_of_it = error.path == format!("instances.{name}");
            assert!(!is_of_it || error.line == Some(4), "{name}: {error:?}");
        }
    }
}

#[test]
fn a_text_that_is_not_yaml() {
    assert_errors(
        "version: 1\ninstances:\n  a: { nf: bridge\n  b: {}\n",
        "test.yaml:4:4: error: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'\n  help: check indentation, colons and quotes here and in the line above",
    );
}

#[test]
fn an_empty_document() {
    assert_errors(
        "# nothing\n",
        "test.yaml:1:1: error: the document is empty\n  help: write at least 'version: 1'",
    );
}

#[test]
fn a_document_without_a_version_or_of_another() {
    assert_errors(
        "instances: {}",
        "test.yaml:1:1: error: the document has no version\n  help: write 'version: 1'",
    );
    assert_errors(
        "version: 2",
        "test.yaml:1:10: error: version: this version of the format is not supported\n  help: write 'version: 1'",
    );
}

#[test]
fn a_list_instead_of_a_document() {
    assert!(errors("- a\n- b\n").contains("wrong type: this is a list"));
}

#[test]
fn two_documents() {
    assert!(errors("version: 1\n---\nversion: 1\n").contains("a second document starts here"));
}

// promise: 6.9
#[test]
fn a_file_of_a_hundred_megabytes_is_refused_before_it_is_parsed() {
    let text = format!("version: 1\n#{}", "x".repeat(100 << 20));
    assert_errors(
        &text,
        "test.yaml:1:1: error: the document has 100 MiB, more than the 16 MiB that are read\n  help: keep long rule lists in files of their own (rules_file)",
    );
}

// promise: 6.9
#[test]
fn a_bomb_of_aliases() {
    let mut text = String::from("version: 1\na: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (i, name) in ('b'..='i').enumerate() {
        let before = char::from(b'a' + i as u8);
        let items = vec![format!("*{before}"); 10].join(", ");
        text += &format!("{name}: &{name} [{items}]\n");
    }
    let found = errors(&text);
    assert!(found.contains("more than 2000000 values"), "{found}");
}

#[test]
fn aliases_that_nest_ever_deeper() {
    let mut text = String::from("version: 1\na0: &a0 [[[[[[[[x]]]]]]]]\n");
    for i in 1..20 {
        text += &format!("a{i}: &a{i} [[[[[[[[*a{}]]]]]]]]\n", i - 1);
    }
    assert!(errors(&text).contains("more than 32 levels deep"));
}

#[test]
fn an_alias_of_itself() {
    let found = errors("version: 1\na: &a [*a]\n");
    assert!(found.contains("test.yaml:2:"), "{found}");
}

// promise: 6.9
#[test]
fn brackets_without_end() {
    assert!(errors(&"[".repeat(1 << 20)).contains("recursion limit"));
    assert!(errors(&"{a: ".repeat(1 << 18)).contains("recursion limit"));
    let closed = "[".repeat(40) + &"]".repeat(40);
    assert!(errors(&closed).contains("more than 32 levels deep"));
    let lines: String = (0..1_000).map(|i| " ".repeat(i) + "a:\n").collect();
    assert!(errors(&lines).contains("more than 32 levels deep"));
}

#[test]
fn tags_and_merge_keys_are_refused() {
    assert!(errors("version: !!int 1").contains("tags (!name) are not supported"));
    let found = errors("version: 1\ninstances:\n  a: &a { nf: bridge }\n  b: { <<: *a }\n");
    assert!(found.contains("unknown key '<<'"), "{found}");
}

// promise: 7.34
#[test]
fn trust_groups_that_do_not_fit_are_refused() {
    let member = |name: &str, trust: &str| {
        format!("  {name}: {{ nf: bridge, flavor: wide, trust: {trust} }}\n")
    };
    let deployment = |members: &str| {
        format!(
            "version: 1\nflavors: {{ wide: {{ ring: 1024, memory: 64M }} }}\ninstances:\n{members}"
        )
    };
    let many: String = (0..31)
        .map(|i| member(&format!("x{i}"), "friends"))
        .collect();
    let found = errors(&deployment(&many));
    assert!(
        found.contains(
            "instances.x0.trust: the 31 instances of trust group 'friends' need 67456 slots"
        ),
        "{found}"
    );
    for (trust, expected) in [
        ("no/slash", "instances.x.trust: "),
        ("[a, b]", "instances.x.trust: wrong type"),
    ] {
        let found = errors(&deployment(&member("x", trust)));
        assert!(found.contains(expected), "{trust}:\n{found}");
    }
}

// promise: 7.33
#[test]
fn wake_conditions_that_do_not_fit_are_refused() {
    for (wake, expected) in [
        (
            "{ frames: 1, after: 1ms }",
            "instances.x.wake.frames: 1 is out of range",
        ),
        (
            "{ frames: 513, after: 1ms }",
            "instances.x.wake.frames: 513 is out of range",
        ),
        (
            "{ frames: many, after: 1ms }",
            "instances.x.wake.frames: wrong type",
        ),
        (
            "{ frames: 129, after: 1ms }",
            "rings have 256 slots cannot wait for 129 frames",
        ),
        ("{ frames: 8 }", "instances.x.wake: 'after' is missing"),
        ("{ after: 1ms }", "instances.x.wake: 'frames' is missing"),
        (
            "{ frames: 8, after: 1h }",
            "instances.x.wake.after: '1h' is not a length of time",
        ),
        (
            "{ frames: 8, after: 0us }",
            "instances.x.wake.after: a frame cannot wait 0us for others",
        ),
        (
            "{ frames: 8, after: 2s }",
            "instances.x.wake.after: a frame cannot wait 2000ms for others",
        ),
        ("{ frames: 8, after: 1ms, when: now }", "unknown key 'when'"),
        ("8", "instances.x.wake: wrong type"),
    ] {
        let found = errors(&format!(
            "version: 1\ninstances:\n  x: {{ nf: bridge, wake: {wake} }}\n"
        ));
        assert!(found.contains(expected), "{wake}:\n{found}");
    }
}

// promise: 5.16
#[test]
fn health_checks_that_do_not_fit_are_refused() {
    for (keys, expected) in [
        (
            "nf: bridge, health: always",
            "instances.x.health: wrong type",
        ),
        (
            "nf: bridge, health: { checks: [] }",
            "instances.x.health.checks: nothing is checked",
        ),
        (
            "nf: bridge, health: { checks: [proces] }",
            "help: did you mean 'process'?",
        ),
        (
            "nf: bridge, health: { checks: [process, process] }",
            "instances.x.health.checks[1]: 'process' is in the list already",
        ),
        (
            "nf: bridge, health: { interval: 1ms }",
            "instances.x.health.interval: 1ms is out of range",
        ),
        (
            "nf: bridge, health: { timeout: 2h }",
            "instances.x.health.timeout: 7200s is out of range",
        ),
        (
            "nf: bridge, health: { grace: soon }",
            "'soon' is not a length of time",
        ),
        (
            "nf: bridge, health: { failures: 0 }",
            "instances.x.health.failures: 0 is out of range",
        ),
        (
            "nf: bridge, health: { action: kill }",
            "there is no action 'kill'",
        ),
        ("nf: bridge, health: { every: 1s }", "unknown key 'every'"),
        (
            "program: /bin/true, health: { checks: [process] }",
            "a program of your own has no control socket",
        ),
        (
            "nf: bridge, restart: never, health: restart",
            "its restart policy is 'never'",
        ),
        (
            "nf: bridge, wake: { frames: 8, after: 600ms }, health: restart",
            "write at least 1200ms, twice 'wake.after'",
        ),
    ] {
        let found = errors(&format!("version: 1\ninstances:\n  x: {{ {keys} }}\n"));
        assert!(found.contains(expected), "{keys}:\n{found}");
        assert!(found.contains("line 3") || found.contains(":3:"), "{found}");
    }
}

#[test]
fn the_monitor_of_a_guest_can_be_asked() {
    for (tier, is_asked) in [("microvm", true), ("process", false)] {
        let keys = format!("program: /bin/true, tier: {tier}, health: {{ checks: [process] }}");
        let text = format!("version: 1\ninstances:\n  x: {{ {keys} }}\n");
        assert_eq!(check(&text).is_ok(), is_asked, "{tier}");
    }
}

// promise: 7.40
#[test]
fn replicas_that_cannot_be() {
    for (keys, expected) in [
        (
            "nf: bridge, replicas: 0",
            "instances.x.replicas: 0 is out of range",
        ),
        (
            "nf: bridge, replicas: 17",
            "instances.x.replicas: 17 is out of range",
        ),
        (
            "nf: router, replicas: 2",
            "the NF 'router' cannot be several instances: its neighbours are one table",
        ),
        (
            "program: /bin/true, replicas: 2",
            "the flow state of your own program cannot be moved from one member to another",
        ),
        (
            "nf: bridge, trust: t, replicas: 2",
            "a member of a trust group",
        ),
        (
            "nf: bridge, replicas: 2, ports: { in: { queues: 2 }, out: { queues: 2 } }",
            "port 'in' has queues",
        ),
        (
            "nf: bridge, replicas: 2, ports: { in: { switch: s }, out: {} }",
            "a switch knows port 'in' by its number",
        ),
        (
            "nf: bridge, replicas: 2, io: mix",
            "while I/O threads ('mix') handle its frames",
        ),
    ] {
        let text = format!("version: 1\nswitches: {{ s: {{}} }}\ninstances:\n  x: {{ {keys} }}\n");
        let found = errors(&text);
        assert!(found.contains(expected), "{keys}:\n{found}");
    }
}

// promise: 7.21
#[test]
fn queues_that_cannot_be() {
    let ports = |ports: &str| format!("version: 1\ninstances:\n  x: {{ {ports} }}\n");
    for (instance, expected) in [
        (
            "nf: bridge, ports: { in: { queues: 0 }, out: { queues: 0 } }",
            "instances.x.ports.in.queues: 0 is out of range",
        ),
        (
            "nf: bridge, ports: { in: { queues: 9 }, out: { queues: 9 } }",
            "instances.x.ports.in.queues: 9 is out of range",
        ),
        (
            "nf: bridge, ports: { in: { queues: two }, out: {} }",
            "instances.x.ports.in.queues: wrong type",
        ),
        (
            "nf: bridge, ports: { in: { queues: 2 }, out: {} }",
            "instances.x.ports.out: the ports of the NF 'bridge' have different numbers of queues: 1 and 2",
        ),
        (
            "nf: router, ports: { a: { queues: 2 }, b: { queues: 2 } }",
            "instances.x.ports: the NF 'router' cannot have several queues: its neighbours are one table",
        ),
        (
            "program: /bin/x, ports: { a: { queues: 8 }, b: { queues: 8 }, c: { queues: 8 }, d: { queues: 8 }, e: { queues: 8 }, f: { queues: 8 }, g: { queues: 8 }, h: { queues: 8 }, i: {} }",
            "instances.x.ports: an instance cannot have 65 ports, queues counted",
        ),
        (
            "nf: bridge, memory: 4MiB, ports: { in: { queues: 8 }, out: { queues: 8 } }",
            "16 ports with rings of 256 slots",
        ),
    ] {
        let found = errors(&ports(instance));
        assert!(found.contains(expected), "{instance}:\n{found}");
    }
    let on_switch = "version: 1\nswitches: { s: {} }\ninstances:\n  x: { program: /bin/x, ports: { a: { switch: s, queues: 2 } } }\n";
    let found = errors(on_switch);
    let expected = "instances.x.ports.a.queues: a port on a switch has one queue";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_bad_line_in_the_text_of_a_document() {
    assert_errors(
        "version: 1\ninstances:\n  fw1:\n    nf: firewall\n    config:\n      rules: |\n\n        allow ip from any to any\n        bad\n",
        "test.yaml:9:1: error: instances.fw1.config.rules: 'bad' is not a rule\n  help: 'docs/guide', or the NF's README.md in 'lib/nf/src', describes its configuration",
    );
}

// promise: 6.10
#[test]
fn a_bad_line_5000_in_a_rule_file() {
    let mut request = request(
        "version: 1\ninstances:\n  fw1: { nf: firewall, config: { rules_file: fw.rules } }\n",
    );
    let rules = "allow ip from any to any\n".repeat(4_999) + "bad\n";
    request.attachments.insert("fw.rules".into(), rules);
    let found = read(&request, &Deployment::default(), ENVIRONMENT).expect_err("it is bad");
    assert_eq!(
        lines(&found),
        "fw.rules:5000: error: instances.fw1.config.rules: 'bad' is not a rule"
    );
}

#[test]
fn a_rule_file_that_was_not_sent() {
    assert_errors(
        "version: 1\ninstances:\n  fw1: { nf: firewall, config: { rules_file: fw.rules } }\n",
        "test.yaml:3:46: error: instances.fw1.config.rules_file: the text of 'fw.rules' was not sent along\n  help: 'nfluid apply' sends it; other clients put it into 'attachments'",
    );
}

#[test]
fn attachments_that_are_too_large() {
    let request = ApplyRequest {
        attachments: [("a".into(), "x".repeat(49 << 20))].into(),
        ..request("version: 1")
    };
    let found = read(&request, &Deployment::default(), ENVIRONMENT).expect_err("too large");
    assert!(lines(&found).contains("have 49 MiB together"));
}

#[test]
fn errors_beyond_a_hundred_are_counted() {
    let mut text = String::from("version: 1\ninstances:\n");
    for i in 0..300 {
        text += &format!("  a{i}: {{ nf: bridge, colour: red }}\n");
    }
    let found = check(&text).expect_err("wrong");
    assert_eq!(found.len(), 101);
    assert_eq!(found[100].message, "and 200 more errors");
}

#[test]
fn errors_of_objects_in_force_have_no_line_in_a_document_that_is_added() {
    let present = support::deployment(
        "version: 1\nuplinks: { wan: { interface: eth1 } }\ninstances: { fw: { nf: firewall } }\n\
         links: [[fw.in, wan]]\n",
    );
    let added = ApplyRequest {
        merge: true,
        ..request(
            "version: 1\nuplinks:\n  wan: { interface: eth1, switch: lan }\nswitches: { lan: {} }\n",
        )
    };
    let found = read(&added, &present, ENVIRONMENT).expect_err("wan is used twice");
    assert_eq!(
        lines(&found),
        "error: links[0][1]: port 'wan' is used twice: by switch 'lan' (uplinks.wan.switch) and by a link\n  help: a port is on one switch, or one end of one link, or in one chain; add a port or a switch"
    );
}

// Engines decide by it whether to ask another host, or to wait.
#[test]
fn programs_are_told_the_cause_where_they_decide_by_it() {
    let present = support::deployment(
        "version: 1\ninstances: { theirs: { nf: bridge, owner: 'nomad:1' } }\n",
    );
    for (instance, cause) in [
        (
            "a: { nf: bridge, cpus: [0], share: 80% }, b: { nf: bridge, cpus: [0], share: 30% }",
            Some(Cause::NoRoom),
        ),
        ("a: { nf: bridge, cpus: [9] }", Some(Cause::NoRoom)),
        ("theirs: { nf: bridge }", Some(Cause::NotYours)),
        ("a: { nf: nothing }", None),
    ] {
        let added = ApplyRequest {
            merge: true,
            ..request(&format!("version: 1\ninstances: {{ {instance} }}\n"))
        };
        let found = read(&added, &present, ENVIRONMENT).expect_err("it is refused");
        assert_eq!(found[0].cause, cause, "{}", lines(&found));
    }
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        // promise: 6.9
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = check(&text);
        }

        // promise: 6.9
        #[test]
        fn no_yaml_like_text_panics(
            text in "(version: 1\n)?((instances|uplinks|links|chains|a|in|via|from|nf|ports|- |  |\\{|\\}|\\[|\\]|: |, |\n|\"|'|&a |\\*a|\\||%|[0-9]+|~|!x |#|---|\\?){0,60})"
        ) {
            let _ = check(&text);
        }

        #[test]
        fn no_change_of_a_right_document_panics(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), "[ -~\n]{0,3}"), 1..8)
        ) {
            let mut text = include_str!("support/example.yaml").to_owned();
            for (at, insert) in edits {
                let at = at.index(text.len());
                text.replace_range(at..(at + insert.len()).min(text.len()), &insert);
            }
            if let Err(errors) = check(&text) {
                prop_assert!(!errors.is_empty());
                prop_assert!(errors.iter().all(|error| error.line.is_some()));
            }
        }
    }
}

// promise: 7.38
#[test]
fn congestion_that_cannot_be() {
    assert_errors(
        include_str!("support/congestion.yaml"),
        include_str!("support/congestion.txt"),
    );
}

#[test]
fn a_nic_that_cannot_classify_or_has_nothing_to_is_refused_with_the_alternative() {
    let uplink = |rest: &str| {
        format!(
            "version: 1\nswitches: {{ s: {{}} }}\nuplinks:\n  wan: {{ {rest}, steering: hybrid }}\n"
        )
    };
    assert_errors(
        &uplink("interface: eth1"),
        "test.yaml:4:37: error: uplinks.wan.steering: eth1 cannot steer flows to queues: its driver has no 'rx-ntuple-filter'\n  help: write 'steering: xdp', or remove it: every interface's frames can be classified by XDP",
    );
    let tap = errors(&uplink("interface: tap0, kind: tap"));
    assert!(tap.contains("a tap has no NIC"), "{tap}");
    let on_switch = errors(&uplink("interface: eth4, switch: s"));
    assert!(
        on_switch.contains("nothing is classified at an uplink on switch 's'"),
        "{on_switch}"
    );
    assert!(check(&uplink("interface: eth4")).is_ok());
    let other = errors(&uplink("interface: eth4").replace("hybrid", "magic"));
    assert!(
        other.contains("uplinks.wan.steering") && other.contains("nic"),
        "{other}"
    );
}

// promise: 17.2
#[test]
fn what_only_rings_have_is_refused_on_the_kernels_stack() {
    let found = errors(
        "version: 1
instances:
  a: { nf: tls, listen: 192.0.2.1:443, io: split, wake: { frames: 8, after: 1ms } }
  b: { nf: tls }
  c: { nf: bridge, listen: 192.0.2.1:444 }
  d: { nf: tls, listen: [192.0.2.1:443, 192.0.2.1, 192.0.2.1:0] }
  e: { nf: bridge, netns: blue }
  f: { nf: tls, listen: 192.0.2.1:445, ports: [in] }
  g: { program: /bin/true, listen: 192.0.2.1:446 }
  h: { nf: tls, listen: [] }
",
    );
    for expected in [
        "3:44: error: instances.a.io: an instance with 'listen' has no rings",
        "error: instances.a.wake: an instance with 'listen' has no rings",
        "error: instances.b: the NF 'tls' has no ports",
        "error: instances.c.listen: the NF 'bridge' has ports",
        "error: instances.d.listen[1]: '192.0.2.1' is no IP address with a port",
        "error: instances.d.listen[2]: '192.0.2.1:0' is no IP address with a port",
        "error: instances.d.listen: 'a' listens at 192.0.2.1:443 already",
        "error: instances.e.netns: 'netns' has no effect without 'listen'",
        "error: instances.f.ports: an instance with 'listen' has no rings",
        "error: instances.g.listen: programs of your own",
        "error: instances.h.listen: an instance cannot listen at 0 addresses",
    ] {
        assert!(found.contains(expected), "{expected}\n\nin:\n{found}");
    }
}

#[test]
fn an_address_on_the_kernels_stack_is_written_as_it_was_read() {
    let text = "version: 1
instances:
  a: { nf: tls, listen: [192.0.2.1:443, \"[2001:db8::1]:443\"], netns: blue }
";
    let first = check(text).expect("it is right").deployment;
    let written = serde_json::to_string(&first).expect("it is plain");
    let second = check(&written).expect("it is read again").deployment;
    assert_eq!(first, second);
    assert!(
        second
            .instances
            .get("a")
            .is_some_and(|a| a.ports.is_empty())
    );
}
