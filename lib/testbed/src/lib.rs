//! Test bed of nfluid's tests and benchmarks: everything that both need on a host, each with a name that nothing else
//! has, and each removed when dropped.
//!
//! | module | what it is |
//! |---|---|
//! | [`namespace`] | network namespaces and veth pairs |
//! | [`platform`] | a daemon with its own name, directories and cgroups: start, stop, kill, its log |
//! | [`api`] | a blocking client of the daemon's API |
//! | [`scratch`] | a switch without a daemon, and instances without a sandbox; [`io_process`]: I/O threads for them |
//! | [`cgroups`] | cgroups in which processes get caps and weights |
//! | [`process`] | programs that run beside: start, wait until they serve, stop |
//! | [`command`] | programs that run to their end; [`program`]: where programs are |
//! | [`flood`] | datagrams at full rate |
//! | [`directory`], [`log`] | scratch directories; a log that is read while a program writes to the log |
//! | [`patience`] | waiting for a condition; [`interrupt`]: ending in between, with clean-up |
//! | [`random`] | random numbers from a seed |
//!
//! Functions return errors, [`CannotRun`] among them. `nfluid-tests` panics on errors and skips tests that cannot run;
//! `nfluid-bench` reports them. The crate is no part of what is shipped: no program of the platform depends on the test bed.

pub mod api;
pub mod cgroups;
pub mod command;
pub mod directory;
pub mod flood;
pub mod interrupt;
pub mod io_process;
pub mod log;
pub mod namespace;
pub mod patience;
pub mod platform;
pub mod process;
pub mod program;
pub mod random;
pub mod scratch;

use std::sync::atomic::{AtomicU32, Ordering};

/// The host lacks something that a test or an experiment needs: what, and what would help. A test is skipped with this
/// reason; an experiment is left out with the error's text.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this host cannot run the experiment: {}", self.0)
    }
}

impl std::error::Error for CannotRun {}

/// Returns a number that nothing else of this process has.
pub fn unique_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Checks that this process is root's.
///
/// # Errors
/// [`CannotRun`] if not.
pub fn need_root() -> Result<(), CannotRun> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        let why = "it needs root, for namespaces and cgroups";
        Err(CannotRun(why.to_owned()))
    }
}
