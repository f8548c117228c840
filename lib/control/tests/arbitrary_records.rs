//! Arbitrary files in place of the saved state: the daemon starts with them, or reports the damage.

#[path = "../../../fuzz/mutation.rs"]
mod mutation;
#[path = "exercise/stored.rs"]
mod stored;

use proptest::prelude::*;
use stored::stored;

#[test]
fn most_seeds_are_states() {
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = mutation::seeds("stored");
    let states = seeds.iter().filter(|seed| stored(folder.path(), seed));
    assert!(states.count() * 2 > seeds.len());
}

// promise: 7.44
#[test]
fn numbers_are_kept_to_their_last_digit() {
    let folder = tempfile::tempdir().expect("a folder");
    // A parser that rounds numbers would read this one as its neighbour.
    let number = "-4.0765893351549374e-163";
    let config = format!(r#"{{"nf":"bridge","config":{{"x":{number}}},"ports":["a","b"]}}"#);
    let state = format!(r#"{{"version":1,"instances":{{"a":{config}}}}}"#);
    assert!(stored(folder.path(), state.as_bytes()));
    let kept = std::fs::read_to_string(folder.path().join("state.json")).expect("it was kept");
    assert!(kept.contains(number), "{kept}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // promise: 7.44
    #[test]
    fn states_and_journals_from_anybody(bytes in mutation::near_the_seeds_of("stored")) {
        let folder = tempfile::tempdir().expect("a folder");
        stored(folder.path(), &bytes);
    }
}
