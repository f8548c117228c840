//! `cargo xtask test --changed`: selects the tests that a change can affect.
//!
//! A file of a crate affects the crate and all crates that depend on it. A crate of the platform's programs also
//! affects the tests of the platform and the guests. A file that no rule names affects everything: too many tests are
//! better than too few.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::session::Session;

/// Files that no test reads.
const NO_TESTS: [&str; 8] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "docs/adr",
    "docs/images",
    "docs/internals",
    "docs/promises.md",
];
/// Folders outside the crates, and the crates that compile or test their content.
const OUTSIDE: [(&str, &[&str]); 8] = [
    ("README.md", &["nfluid-control"]),
    ("SPECIFICATION.md", &["xtask"]),
    ("bpf/evnf", &["nfluid-evnf", "nfluid-netdev"]),
    ("bpf/include", &["nfluid-switch", "nfluid-ring"]),
    ("bpf/switch", &["nfluid-switch"]),
    ("docs", &["nfluid-control", "nfluid-tests"]),
    ("examples", &["nfluid-control", "nfluid-tests"]),
    ("packaging", &["xtask"]),
];
/// The packages of the programs that the platform tests start.
const PLATFORM: [&str; 7] = [
    "nfluid",
    "nfluid-bench",
    "nfluid-nf-host",
    "nfluid-vmm-monitor",
    "nfluid-tests",
    "nfluid-tls-host",
    "nfluidd",
];

/// The tests that a change can affect.
#[derive(Debug, PartialEq, Eq)]
pub enum Touched {
    Everything,
    Some {
        packages: BTreeSet<String>,
        /// Programs of tests/tests; empty: none.
        platform: Platform,
    },
}

/// Selection of the programs of tests/tests.
#[derive(Debug, PartialEq, Eq)]
pub enum Platform {
    All,
    /// The programs of these names.
    Only(BTreeSet<String>),
}

impl Touched {
    /// Returns true if the unit tests of this package must run.
    pub fn package(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Some { packages, .. } => packages.contains(name),
        }
    }

    /// Returns true if this program of tests/tests must run.
    pub fn program(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Some { platform, .. } => match platform {
                Platform::All => true,
                Platform::Only(programs) => programs.contains(name),
            },
        }
    }
}

/// Returns the tests that the differences from the commit `base` can affect, uncommitted files included.
///
/// # Errors
/// git or cargo fails.
pub fn since(session: &Session, base: &str) -> Result<Touched> {
    let changed = session.output(session.command("git").args(["diff", "--name-only", base]))?;
    let mut untracked = session.command("git");
    untracked.args(["ls-files", "--others", "--exclude-standard"]);
    let untracked = session.output(&mut untracked)?;
    let files: Vec<&str> = changed.lines().chain(untracked.lines()).collect();
    Ok(touched(&Crates::read(session)?, &files))
}

/// Folders of the workspace's packages, and the dependencies between them.
#[derive(Default)]
struct Crates {
    folders: BTreeMap<String, String>,
    /// For each package, the packages that depend on it, tests included.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Crates {
    fn read(session: &Session) -> Result<Self> {
        let metadata = session.metadata()?;
        let mut crates = Self::default();
        let packages = metadata["packages"].as_array();
        for package in packages.context("cargo metadata names no packages")? {
            crates.add(&session.root, package);
        }
        Ok(crates)
    }

    fn add(&mut self, root: &Path, package: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&package["name"]);
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().unwrap_or(root);
        let folder = folder.strip_prefix(root).unwrap_or(folder);
        self.folders
            .insert(folder.display().to_string(), name.clone());
        for needed in package["dependencies"].as_array().into_iter().flatten() {
            let dependents = self.dependents.entry(text(&needed["name"])).or_default();
            dependents.insert(name.clone());
        }
    }

    /// Returns the package of the innermost folder that contains the file.
    fn of(&self, file: &str) -> Option<&String> {
        let folders = Path::new(file).ancestors().skip(1);
        folders
            .filter_map(|folder| self.folders.get(folder.to_str()?))
            .next()
    }

    /// Returns these packages and all that depend on them.
    fn with_dependents(&self, packages: BTreeSet<String>) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let mut next: Vec<String> = packages.into_iter().collect();
        while let Some(package) = next.pop() {
            let dependents = self.dependents.get(&package).into_iter().flatten();
            if all.insert(package.clone()) {
                next.extend(dependents.cloned());
            }
        }
        all
    }
}

fn touched(crates: &Crates, files: &[&str]) -> Touched {
    let mut packages = BTreeSet::new();
    let mut programs = BTreeSet::new();
    for file in files {
        if let Some(program) = platform_program(file) {
            programs.insert(program.to_owned());
        } else if let Some(package) = crates.of(file) {
            packages.insert(package.clone());
        } else if let Some((_, named)) = OUTSIDE.iter().find(|(start, _)| is_below(file, start))
            && !NO_TESTS.iter().any(|start| is_below(file, start))
        {
            packages.extend(named.iter().map(|name| (*name).to_owned()));
        } else if !NO_TESTS.iter().any(|start| is_below(file, start)) {
            return Touched::Everything;
        }
    }
    let packages = crates.with_dependents(packages);
    let platform = if PLATFORM.iter().any(|name| packages.contains(*name)) {
        Platform::All
    } else {
        Platform::Only(programs)
    };
    Touched::Some { packages, platform }
}

fn is_below(file: &str, start: &str) -> bool {
    Path::new(file).starts_with(start)
}

/// Returns `platform_pool` for `tests/tests/platform_pool.rs` and for `tests/tests/platform_pool/main.rs`; `None` for
/// files that several programs share.
fn platform_program(file: &str) -> Option<&str> {
    let inner = file.strip_prefix("tests/tests/")?;
    let (first, rest) = inner.split_once('/').unwrap_or((inner, ""));
    let program = first.strip_suffix(".rs").unwrap_or(first);
    (rest.is_empty() || !program.ends_with("_fixture")).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Crates {
        let mut crates = Crates::default();
        for (name, folder, needs) in [
            ("nfluid-wire", "lib/wire", &[][..]),
            ("nfluid-figures", "lib/figures", &[]),
            ("nfluid-switch", "lib/switch", &["nfluid-wire"]),
            ("nfluidd", "bin/nfluidd", &["nfluid-switch"]),
            ("nfluid-tests", "tests", &["nfluid-switch"]),
            ("xtask", "xtask", &[]),
        ] {
            let dependencies: Vec<_> = needs
                .iter()
                .map(|name| serde_json::json!({ "name": name }))
                .collect();
            let package = serde_json::json!({
                "name": name,
                "manifest_path": format!("/p/{folder}/Cargo.toml"),
                "dependencies": dependencies,
            });
            crates.add(Path::new("/p"), &package);
        }
        crates
    }

    fn of(files: &[&str]) -> Touched {
        touched(&crates(), files)
    }

    #[test]
    fn what_depends_on_a_crate_is_touched_with_it() {
        let touched = of(&["lib/wire/src/lib.rs"]);
        assert!(touched.package("nfluidd") && touched.package("nfluid-wire"));
        assert!(!touched.package("nfluid-figures"));
        assert!(touched.program("platform_pool"));
        let touched = of(&["lib/figures/src/lib.rs"]);
        assert!(touched.package("nfluid-figures") && !touched.program("platform_pool"));
    }

    #[test]
    fn a_test_program_touches_itself_and_shared_fixtures_all_of_them() {
        let touched = of(&[
            "tests/tests/platform_pool.rs",
            "tests/tests/oracle_nat/main.rs",
        ]);
        assert!(touched.program("platform_pool") && touched.program("oracle_nat"));
        assert!(!touched.program("platform_life") && !touched.package("nfluidd"));
        assert!(of(&["tests/tests/switch_fixture/mod.rs"]).program("guest_switch"));
        assert!(of(&["tests/src/harness/mod.rs"]).program("guest_switch"));
    }

    #[test]
    fn ebpf_sources_touch_the_crates_that_have_them_and_prose_touches_nothing() {
        assert!(of(&["bpf/switch/copy.h"]).package("nfluid-switch"));
        let prose = of(&["CHANGELOG.md", "docs/adr/0001-x.md"]);
        assert!(!prose.package("nfluidd") && !prose.program("platform_pool"));
        assert!(of(&["docs/guide/nf-in-rust.md"]).program("nf_in_rust"));
    }

    #[test]
    fn what_nobody_knows_touches_everything() {
        assert_eq!(of(&["Cargo.lock"]), Touched::Everything);
        assert_eq!(of(&["CHANGELOG.md", "rustfmt.toml"]), Touched::Everything);
    }
}
