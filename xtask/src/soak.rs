//! `make soak`: long tests before a release. They take hours.

use anyhow::{Result, bail};
use clap::Args;

use crate::fuzz;
use crate::release;
use crate::session::{Interrupted, Session};
use crate::tally::TestsFailed;
use crate::test;

/// Fuzzing time.
#[derive(Args)]
pub struct Options {
    /// Seconds of fuzzing, for all targets together
    #[arg(long, default_value_t = 3600)]
    fuzz_seconds: u32,
}

/// Runs every experiment with --quick, then the fuzz targets, then the long form of every test. Later parts run also
/// after a failure.
///
/// # Errors
/// A part failed, or an interrupt.
pub fn run(session: &Session, options: &Options) -> Result<()> {
    let experiments = ["all".to_owned(), "--quick".to_owned()];
    let parts: [(&str, &dyn Fn() -> Result<()>); 3] = [
        ("experiments", &|| release::bench(session, &experiments)),
        ("fuzz", &|| fuzz::run_all(session, options.fuzz_seconds)),
        ("tests", &|| test::run(session, &test::Options::soak())),
    ];
    let mut failed = Vec::new();
    for (name, part) in parts {
        println!("\n== soak: {name}");
        match part() {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                if !error.is::<TestsFailed>() {
                    eprintln!("xtask: {name}: {error:#}");
                }
                failed.push(name);
            }
            Ok(()) => {}
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
