//! Network namespaces as a deployment names them.

use std::path::{Path, PathBuf};

/// Returns the path of a network namespace. `netns: NAME` is the name that `ip netns` uses; a name with a slash is a path.
pub fn path(name: &str) -> PathBuf {
    if name.contains('/') {
        PathBuf::from(name)
    } else {
        Path::new("/run/netns").join(name)
    }
}
