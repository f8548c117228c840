//! The daemon's limit of open descriptors. The daemon keeps one descriptor for the process of each instance. The
//! thread that reads logs has a descriptor table of its own, with another one for each instance.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Descriptors reserved for other uses than instances: connections, files, the switch.
const RESERVE: u64 = 256;

/// Raises the limit of this process as far as it may.
pub fn raise() {
    let now = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open");
    let most: Option<u64> = most.ok().and_then(|text| text.trim().parse().ok());
    // A process with CAP_SYS_RESOURCE can raise the hard limit. Any process may raise its limit up to the hard limit.
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

/// Checks that there is room for more instances. The kernel hands out the lowest free number, so the number of a new
/// descriptor shows how many are open.
///
/// # Errors
/// Names the limit, and the way to raise it.
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
