//! Refuses dependency cycles of more than a few modules within a crate.
//!
//! A module depends on another module if it names an item of it, by a path that begins with `crate`, `super` or `self`.
//! A `pub use` is no dependency of its module: the user of the name depends on the origin of the name. Tests are left
//! out.

mod graph;
mod paths;

use crate::session::Session;
use anyhow::{Result, bail};
use paths::Module;
use serde_json::Value;
use std::path::Path;

/// Largest accepted cycle, in modules. A cycle of a struct and its parts is common and harmless.
const CYCLE_MAX: usize = 5;

/// Checks all crates of the workspace.
///
/// # Errors
/// There is a longer cycle, or a source cannot be read.
pub fn check(session: &Session) -> Result<()> {
    let mut found = 0;
    for name in members(session)? {
        let modules = paths::read(&session.root.join(&name).join("src"))?;
        for cycle in long_cycles(&modules) {
            found += 1;
            eprintln!(
                "{name}: {} modules depend on each other, of which {CYCLE_MAX} may: {}",
                cycle.len(),
                cycle.join(", ")
            );
        }
    }
    if found > 0 {
        bail!("cycles of modules are too long: move what they share to a module of its own");
    }
    Ok(())
}

/// Returns the folders of the workspace's crates, below its root.
fn members(session: &Session) -> Result<Vec<String>> {
    let metadata = session.metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(&session.root).ok()?;
        Some(folder.to_str()?.to_owned())
    };
    Ok(packages.filter_map(folder).collect())
}

/// Returns the cycles of more than [`CYCLE_MAX`] modules, each as its modules' names.
fn long_cycles(modules: &[Module]) -> Vec<Vec<String>> {
    let edges = paths::edges(modules);
    let cycles = graph::cycles(&edges).into_iter();
    let long = cycles.filter(|cycle| cycle.len() > CYCLE_MAX);
    long.map(|cycle| cycle.iter().map(|at| modules[*at].name()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &[&str], text: &str) -> Module {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Module::parse(path, text).expect("Rust")
    }

    fn cycles(modules: &[Module]) -> Vec<Vec<usize>> {
        graph::cycles(&paths::edges(modules))
    }

    #[test]
    fn a_module_that_names_another_depends_on_it() {
        let modules = [
            module(&[], "mod a; mod b; mod c;"),
            module(&["a"], "use crate::b::{self, Thing}; use super::c;"),
            module(&["b"], "fn f() { crate::a::g(); }"),
            module(&["c"], "struct C;"),
        ];
        assert_eq!(cycles(&modules), [vec![1, 2]]);
    }

    #[test]
    fn what_is_handed_on_comes_from_where_it_is() {
        let modules = [
            module(&[], "mod a; mod b; pub use a::Thing; pub use b::*;"),
            module(&["a"], "pub struct Thing;"),
            module(&["b"], "use crate::Thing; pub fn f(_: super::a::Thing) {}"),
        ];
        assert!(cycles(&modules).is_empty(), "the root depends on nobody");
    }

    #[test]
    fn tests_are_no_part_of_it() {
        let modules = [
            module(&[], "mod a; mod b;"),
            module(&["a"], "use crate::b::B;"),
            module(&["b"], "#[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert!(cycles(&modules).is_empty());
    }

    #[test]
    fn a_module_inside_a_file_is_that_file() {
        let modules = [
            module(&[], "mod a; mod b;"),
            module(&["a"], "mod inner { use crate::b::B; }"),
            module(&["b"], "use super::a::inner::A;"),
        ];
        assert_eq!(cycles(&modules), [vec![1, 2]]);
    }

    #[test]
    fn a_long_cycle_is_named_and_a_short_one_is_not() {
        let ring = |count: usize| {
            let mut all = vec![module(&[], "")];
            for at in 0..count {
                let next = (at + 1) % count;
                let name = format!("m{at}");
                all.push(module(&[&name], &format!("use crate::m{next}::X;")));
            }
            all
        };
        assert!(long_cycles(&ring(CYCLE_MAX)).is_empty());
        let long = long_cycles(&ring(CYCLE_MAX + 1));
        assert_eq!(long.len(), 1);
        assert_eq!(long[0].len(), CYCLE_MAX + 1);
    }
}
