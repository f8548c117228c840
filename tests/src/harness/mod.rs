//! Test harness on top of the test bed (`nfluid_testbed`): errors of the test bed fail the test, tests that the host
//! cannot run are skipped with the reason, and a failing test leaves evidence.

pub mod attempt;
pub mod command;
pub mod conversation;
pub mod evidence;
pub mod experiments;
pub mod images;
pub mod linux;
pub mod loopback;
pub mod measure;
pub mod mishaps;
pub mod mounts;
pub mod oracle;
pub mod patience;
pub mod platform;
pub mod pools;
pub mod program;
pub mod remote;
pub mod sandboxed;
pub mod segments;
pub mod skip;
pub mod soak;
pub mod transfer;
pub mod two_daemons;
pub mod two_hosts;
pub mod two_platforms;

use std::path::Path;

/// Turns IPv6 on in the network namespace at `netns`, and on its `eth0`.
///
/// # Panics
/// If the kernel refuses.
pub fn enable_ipv6(netns: &Path) {
    within(netns, || {
        for which in ["all", "eth0"] {
            let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            std::fs::write(path, "0").expect("IPv6");
        }
    });
}

/// Does `work` in a thread in the network namespace at `netns`.
///
/// # Panics
/// If there is no such namespace, or the work fails.
pub fn within<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> T {
    nfluid_testbed::namespace::within(netns, work).unwrap_or_else(|error| panic!("{error:#}"))
}
