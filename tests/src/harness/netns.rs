//! Work within network namespaces.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

/// Does `work` in a thread within a namespace.
///
/// # Panics
/// If there is no such namespace, or the work fails.
pub fn within<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(netns).expect("the namespace exists");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter it");
            work()
        });
        thread.join().expect("the work is done")
    })
}
