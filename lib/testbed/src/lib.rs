//! Test bed of nfluid's tests and benchmarks: the objects that both need on a host. Each object has a unique name and
//! is removed when dropped.
//!
//! | module | content |
//! |---|---|
//! | [`namespace`] | network namespaces and veth pairs |
//! | [`platform`] | a daemon with its own name, directories and cgroups: start, stop, kill, its log |
//! | [`api`] | a blocking client of the daemon's API |
//! | [`scratch`] | a switch without a daemon, and instances without a sandbox; [`io_process`]: I/O threads for them |
//! | [`cgroups`] | cgroups in which processes get caps and weights |
//! | [`process`] | programs that run in the background: start, wait until they serve, stop |
//! | [`command`] | programs that run to their end; [`program`]: paths of programs |
//! | [`flood`] | datagrams at full rate |
//! | [`image`] | container images of given layers |
//! | [`dpdk`], [`netmap`] | nfluid's driver and DPDK's examples, netmap's programs: built from source |
//! | [`directory`], [`log`] | scratch directories; a log that is read while a program writes to the log |
//! | [`patience`] | waiting for a condition; [`interrupt`]: early end with clean-up |
//! | [`random`] | random numbers from a seed |
//!
//! Functions return errors, [`CannotRun`] among them. `nfluid-tests` panics on errors and skips tests that cannot run;
//! `nfluid-bench` reports errors. The crate is not shipped: no program of the platform depends on the test bed.

pub mod api;
pub mod cgroups;
pub mod command;
pub mod directory;
pub mod dpdk;
pub mod flood;
pub mod http;
pub mod image;
pub mod interrupt;
pub mod io_process;
pub mod json_process;
pub mod kubernetes;
pub mod log;
pub mod namespace;
pub mod netmap;
pub mod nomad;
pub mod openstack;
pub mod openvim;
pub mod ovs;
pub mod patience;
pub mod platform;
pub mod port;
pub mod process;
pub mod program;
pub mod random;
pub mod scratch;

use std::sync::atomic::{AtomicU32, Ordering};

/// The host lacks something that a test or an experiment needs; the text names it and the remedy. A test is skipped
/// with this reason; an experiment is left out with the error's text.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl std::fmt::Display for CannotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this host cannot run the experiment: {}", self.0)
    }
}

impl std::error::Error for CannotRun {}

/// Returns a number that is unique in this process.
pub fn unique_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Checks that this process runs as root.
///
/// # Errors
/// [`CannotRun`] if the process does not run as root.
pub fn need_root() -> Result<(), CannotRun> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        let why = "it needs root, for namespaces and cgroups";
        Err(CannotRun(why.to_owned()))
    }
}
