//! Inputs near the seeds of a fuzz target, for the property test that runs the target's body in `make test`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::path::Path;

/// The seeds of a fuzz target, each cut, extended and overwritten at a few places.
pub fn near_the_seeds_of(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<Index>(), 0..4_usize, vec(any::<u8>(), 0..9));
    (select(seeds(target)), vec(edit, 0..12)).prop_map(|(mut bytes, edits)| {
        for (at, removed, inserted) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, inserted);
        }
        bytes
    })
}

/// The seeds themselves.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let entries = std::fs::read_dir(folder.join(target)).expect("the target has seeds");
    let files = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let seeds = files
        .iter()
        .map(|file| std::fs::read(file).expect("a seed can be read"));
    seeds.collect()
}
