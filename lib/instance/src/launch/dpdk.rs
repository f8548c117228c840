//! What a program on DPDK sees beside libraries: what its environment abstraction layer (EAL) does not start without.

use nfluid_sandbox::{Root, Shown, View};
use std::path::PathBuf;

/// Which CPUs there are, and which memory is near to each.
const TOPOLOGY: [&str; 2] = ["/sys/devices/system/cpu", "/sys/devices/system/node"];
/// Modules of the kernel, of which it finds none: its drivers for devices of the host have no work here. The instance
/// makes no files there: its system call filter has no call for that.
const MODULES: [&str; 1] = ["/sys/module"];

/// The root directory of such a program.
pub(super) fn root() -> Root {
    Root::Libraries(Shown {
        extra: TOPOLOGY.map(|path| View::from(PathBuf::from(path))).into(),
        scratch: &MODULES,
        ..Shown::default()
    })
}
