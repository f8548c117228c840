//! The CPU time of a cgroup, read often.

use super::group::Cgroup;
use super::{Controller, control_file};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The files are 20 bytes (v1) and about 400 (v2).
const FILE_BYTES_MAX: usize = 1024;

/// CPU time of a cgroup by the kernel's accounting. The file is opened at the first reading, and closed by
/// [`CpuClock::rest`]: a clock that is not read costs no descriptor.
#[derive(Debug)]
pub struct CpuClock {
    path: PathBuf,
    v2: bool,
    file: Option<File>,
}

impl CpuClock {
    /// The clock of a group; nothing if the host does not count CPU time.
    pub(super) fn of(group: &Cgroup) -> Option<Self> {
        let (path, v2) = match group.seat(Controller::CpuAcct) {
            Some(seat) => (seat.path.join("cpuacct.usage"), false),
            None => (group.v2_directory()?.join("cpu.stat"), true),
        };
        Some(CpuClock {
            path,
            v2,
            file: None,
        })
    }

    /// CPU time used since the group was made, in nanoseconds (microsecond steps with v2). `None`: it is gone.
    pub fn read_ns(&mut self) -> Option<u64> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut bytes = [0; FILE_BYTES_MAX];
        let read = self.file.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(bytes.get(..read)?).ok()?;
        if self.v2 {
            control_file::keyed(text, "usage_usec").map(|us| us.saturating_mul(1000))
        } else {
            text.trim().parse().ok()
        }
    }

    /// Closes the file until it is read again.
    pub fn rest(&mut self) {
        self.file = None;
    }
}
