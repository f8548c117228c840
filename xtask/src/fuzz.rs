//! `cargo xtask fuzz`: runs the fuzz targets one after the other, each from its seeds and its corpus of earlier runs.
//!
//! libFuzzer with AddressSanitizer. The compiler's flags for both are unstable ones: the stable compiler takes them
//! with RUSTC_BOOTSTRAP, so that no second toolchain is needed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::deps;
use crate::session::{Interrupted, Session};

/// The host's own target triple: given explicitly, so that build scripts are not instrumented.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Counters for every edge and tracing of comparisons, so that libFuzzer sees what an input reaches (LLVM,
/// SanitizerCoverage).
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 -Cdebug-assertions \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Seconds for one input, after which the input counts as endless.
const INPUT_SECONDS_MAX: u32 = 60;

/// Largest allocation in MB. Inputs have some KB: a larger allocation trusts a length that an input states.
const ALLOCATION_MB_MAX: u32 = 32;

/// The targets, and the fuzzing time.
#[derive(Args)]
pub struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Fuzz only these targets (repeatable); default: all of fuzz/fuzz_targets
    #[arg(long = "target")]
    targets: Vec<String>,
}

/// Fuzzes. The next targets run also after one has failed.
///
/// # Errors
/// A failing input was found (it is in fuzz/artifacts), the build fails, or a target does not exist.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    deps::install(session, deps::FOR_FUZZ)?;
    let targets = chosen(&session.root.join("fuzz/fuzz_targets"), &options.targets)?;
    let folder = session.target.join("fuzz");
    build(session, &folder)?;
    let mut failed = Vec::new();
    for target in targets {
        let program = folder.join(TRIPLE).join("release").join(&target);
        match fuzz(session, &program, &target, options.seconds) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(_) => failed.push(target),
            Ok(()) => {}
        }
    }
    if !failed.is_empty() {
        bail!(
            "found something in {}: the inputs are in fuzz/artifacts",
            failed.join(", ")
        );
    }
    Ok(())
}

/// Fuzzes all targets, for `seconds` in total.
///
/// # Errors
/// As [`run`].
pub fn run_all(session: &Session, seconds: u32) -> Result<()> {
    let targets = chosen(&session.root.join("fuzz/fuzz_targets"), &[])?;
    let each = seconds / u32::try_from(targets.len().max(1))?;
    let options = Options {
        seconds: each.max(1),
        targets,
    };
    run(session, &options)
}

/// Returns all targets of the folder, sorted, or the `wanted` targets.
fn chosen(folder: &Path, wanted: &[String]) -> Result<Vec<String>> {
    let sources = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut targets: Vec<String> = sources
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    targets.sort();
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        bail!(
            "there is no target {unknown}; there are {}",
            targets.join(", ")
        );
    }
    targets.retain(|target| wanted.is_empty() || wanted.contains(target));
    Ok(targets)
}

fn build(session: &Session, folder: &Path) -> Result<()> {
    let mut cargo = session.cargo(["build", "--release", "--bins", "--target", TRIPLE]);
    cargo.arg("--manifest-path").arg("fuzz/Cargo.toml");
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    session.run(cargo.env("CARGO_TARGET_DIR", folder))
}

fn fuzz(session: &Session, program: &Path, target: &str, seconds: u32) -> Result<()> {
    println!("\n== {target}");
    let folder = |name: &str| -> PathBuf { session.root.join("fuzz").join(name).join(target) };
    let (corpus, artifacts) = (folder("corpus"), folder("artifacts"));
    for made in [&corpus, &artifacts] {
        fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
    }
    let mut command = session.command(program);
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-malloc_limit_mb={ALLOCATION_MB_MAX}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
        "-verbosity=1".to_owned(),
    ]);
    // libFuzzer writes new inputs to the first folder.
    session.run(command.args([corpus, folder("seeds")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_files_of_the_folder_or_those_that_are_wanted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.rs", "a.rs"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(chosen(folder.path(), &[]).unwrap(), ["a", "b"]);
        assert_eq!(chosen(folder.path(), &["b".to_owned()]).unwrap(), ["b"]);
        let unknown = chosen(folder.path(), &["c".to_owned()]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no target c; there are a, b");
    }

    #[test]
    fn every_target_is_built_and_has_seeds() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        for target in chosen(&fuzz.join("fuzz_targets"), &[]).unwrap() {
            let binary = format!("path = \"fuzz_targets/{target}.rs\"");
            assert!(manifest.contains(&binary), "{target}");
            let mut seeds = fs::read_dir(fuzz.join("seeds").join(&target)).unwrap();
            assert!(seeds.next().is_some(), "{target}");
        }
    }
}
