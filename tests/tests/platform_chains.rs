//! Changes of chains while frames pass: the new way is ready before frames are led into it, and what is on the old way still
//! arrives.

use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::soak::choose;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};

/// Requests that are answered between two changes.
const BETWEEN: u64 = 300;

/// A chain of bridges with these names, and no instance besides them.
fn chain(names: &[&str]) -> String {
    let instances: String = names
        .iter()
        .map(|name| format!("  {name}: {{ nf: bridge }}\n"))
        .collect();
    let instances = if names.is_empty() {
        "  {}\n".to_owned()
    } else {
        instances
    };
    format!(
        "{UPLINKS}instances:\n{instances}chains:\n  way: {{ from: lan, to: wan, via: [{}] }}\n",
        names.join(", ")
    )
}

// promise: 7.46
#[test]
fn a_chain_is_changed_without_loss() {
    let Some(platform) = two_hosts("a_chain_is_changed_without_loss") else {
        return;
    };
    platform.apply(&chain(&["a"]));
    eventually("frames pass", || platform.pings("client", SERVER));
    let talk = Conversation::start(&platform);
    talk.has_answers(BETWEEN, "before");
    // Inserted, removed, replaced; at the beginning, at the end, in between; all, and two at once.
    let chains: [&[&str]; 10] = [
        &["a", "b"],
        &["b"],
        &["a", "b"],
        &["a", "c", "b"],
        &["a", "b"],
        &["c", "d"],
        &[],
        &["a"],
        &["b"],
        &["a"],
    ];
    for _ in 0..choose(2, 50) {
        for names in chains {
            platform.apply(&chain(names));
            talk.has_answers(BETWEEN, &names.join(" "));
        }
    }
    // As fast as it goes.
    for _ in 0..choose(2, 50) {
        for names in chains {
            platform.apply(&chain(names));
        }
    }
    let books = talk.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0), "{books:?}");
}
