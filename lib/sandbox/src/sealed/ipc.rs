//! An IPC namespace in which nothing can be made.

use crate::error::OsError;
use crate::own_namespace;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Limits of the number of objects of each kind: none. To pass these limits an instance would need a capability of
/// the host's user namespace.
const NONE_OF_ANY: [(&str, &str); 4] = [
    ("/proc/sys/kernel/shmmni", "0"),
    ("/proc/sys/kernel/msgmni", "0"),
    // Per set, in all, per call, sets: of a set that is larger than any may be, the kernel says something else.
    ("/proc/sys/kernel/sem", "32000 0 500 0"),
    ("/proc/sys/fs/mqueue/queues_max", "0"),
];

/// Makes the namespace, in a thread of its own that ends at once. Returns `None` if the limits cannot be set here.
pub(super) fn create() -> Result<Option<OwnedFd>, OsError> {
    own_namespace::within(&own_namespace::IPC, || {
        if !NONE_OF_ANY.iter().all(|(file, none)| set(file, none)) {
            return Ok(None);
        }
        let path = "/proc/thread-self/ns/ipc";
        let file = File::open(path).map_err(|error| OsError::from_io("open", path, &error))?;
        Ok(Some(file.into()))
    })
}

/// Returns true if the limit holds now. A kernel without that kind of object has no limit of it.
fn set(file: &str, limit: &str) -> bool {
    match std::fs::write(file, limit) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
