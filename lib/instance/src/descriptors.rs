//! How many descriptors the daemon may have open: it keeps one for every instance, that of its
//! process, and the thread that reads logs, which has a table of its own, another.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Kept for everything but instances: connections, files, the switch.
const RESERVE: u64 = 256;

/// Raises the limit of this process as far as it may.
pub fn raise() {
    let now = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open");
    let most: Option<u64> = most.ok().and_then(|text| text.trim().parse().ok());
    // The hard limit can be raised by who has CAP_SYS_RESOURCE; everybody may go up to it.
    for limit in [most.max(now.maximum), now.maximum] {
        let both = Rlimit {
            current: limit,
            maximum: limit,
        };
        if setrlimit(Resource::Nofile, both).is_ok() {
            return;
        }
    }
    tracing::warn!(limit = ?now.current, "the limit of open files stays as it is");
}

/// Whether there is room for more instances. The kernel gives out the lowest free number: that of a new descriptor tells
/// how many there are.
///
/// # Errors
/// Says what the limit is and how to raise it.
pub fn check_room(newest: &OwnedFd) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let used = newest.as_raw_fd().unsigned_abs();
    if u64::from(used) + RESERVE <= limit {
        return Ok(());
    }
    anyhow::bail!(
        "the daemon has {used} of at most {limit} files open, and keeps one for every instance; raise the limit (LimitNOFILE= of \
         its service, or ulimit -Hn and fs.nr_open) and start it again"
    )
}

#[cfg(test)]
mod tests {
    use super::check_room;
    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::process::{Resource, getrlimit};
    use std::fs::File;

    // promise: 5.18
    #[test]
    fn only_a_number_near_the_limit_is_refused() {
        let null = File::open("/dev/null").unwrap();
        check_room(&null.try_clone().unwrap().into()).unwrap();
        let limit = getrlimit(Resource::Nofile).current.unwrap();
        let near = i32::try_from(limit - 10).unwrap();
        let last = fcntl_dupfd_cloexec(&null, near).unwrap();
        let why = check_room(&last).unwrap_err().to_string();
        assert!(why.contains("LimitNOFILE"), "{why}");
    }
}
