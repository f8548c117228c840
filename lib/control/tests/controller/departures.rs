//! Changes of an instance while it moves to another host: they would be lost there.

use super::support::{ENVIRONMENT, request};
use super::{TestController, apply, assert_consistent, controller, with_links};
use nfluid_api::types::{ApplyRequest, Problem};
use nfluid_control::single::proposal::Proposal;

const DOCUMENT: &str = "\
version: 1
switches: { lan: {} }
security_groups:
  web: { rules: [{ direction: in, protocol: tcp, ports: 80 }] }
  store: { rules: [{ direction: in, protocol: tcp, ports: 5432 }] }
instances:
  a: { nf: bridge, ports: { in: { switch: lan, security_groups: [web] }, out: {} } }
  b: { nf: bridge, ports: { in: { switch: lan, security_groups: [web] }, out: {} } }
  c: { nf: bridge }
links: [[a.out, b.out]]
";

/// Instance `a` moves, and `change` is refused; then it stays, and `change` is made.
fn is_refused_while_it_moves<T>(
    controller: &mut TestController,
    change: impl Fn(&mut TestController) -> Result<T, Problem>,
) {
    let before = controller.deployment().clone();
    controller.platform_mut().moving = Some("a".to_owned());
    let Err(refused) = change(controller) else {
        panic!("the change is made, and lost");
    };
    assert!(refused.detail.contains("it is moved"), "{refused}");
    assert_eq!(*controller.deployment(), before);
    assert_consistent(controller);
    controller.platform_mut().moving = None;
    change(controller).unwrap_or_else(|problem| panic!("{problem}"));
}

// promise: 5.36, 33.6
#[test]
fn an_instance_that_moves_is_not_changed_here_alone() {
    for (old, new) in [
        ("[web] }, out: {} } }\n  b", "[store] }, out: {} } }\n  b"),
        (
            "[web] }, out: {} } }\n  b",
            "[web], allowed_addresses: [10.0.0.5] }, out: {} } }\n  b",
        ),
        ("a.out, b.out", "a.out, c.in"),
        ("links: [[a.out, b.out]]\n", ""),
    ] {
        let mut controller = controller(DOCUMENT);
        let text = DOCUMENT.replacen(old, new, 1);
        assert_ne!(text, DOCUMENT);
        is_refused_while_it_moves(&mut controller, |it| apply(it, &text));
    }
}

// promise: 5.36
#[test]
fn a_single_instance_takes_no_link_of_one_that_moves() {
    let text = DOCUMENT.replace("links: [[a.out, b.out]]\n", "");
    let text = text.replace(", security_groups: [web]", "");
    let mut controller = controller(&text);
    let added = ApplyRequest {
        merge: true,
        ..request("version: 1\ninstances: { d: { nf: bridge } }\nlinks: [[a.out, d.in]]\n")
    };
    is_refused_while_it_moves(&mut controller, |it| {
        let proposal = Proposal::of(&added).expect("a single instance");
        it.add(proposal, ENVIRONMENT).expect("a single instance")
    });
    is_refused_while_it_moves(&mut controller, |it| {
        let removed = it.take_out(&with_links("d"));
        removed.expect("a single instance")
    });
}

// promise: 33.6
#[test]
fn what_concerns_others_is_changed_while_an_instance_moves() {
    let mut controller = controller(DOCUMENT);
    controller.platform_mut().moving = Some("a".to_owned());
    let of_b = "b: { nf: bridge, ports: { in: { switch: lan, security_groups: [";
    // Each host has groups of its own, with rules of their own.
    for (old, new) in [
        ("ports: 80", "ports: 81".to_owned()),
        (&format!("{of_b}web"), format!("{of_b}store")),
    ] {
        let text = DOCUMENT.replacen(old, &new, 1);
        assert_ne!(text, DOCUMENT);
        apply(&mut controller, &text).unwrap_or_else(|problem| panic!("{problem}"));
        assert_consistent(&mut controller);
    }
}
