//! A thread with descriptors of its own: the limit of open files holds for each table, so that the thread's open
//! files take no number from the rest of the process.

use crate::error::OsError;
use crate::sys;
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Starts a thread that has `shared` and the standard streams open, nothing else, and does `work`, which opens
/// whatever else it needs. Descriptors that the thread opens are not open in other threads, and the other way round:
/// `work` must bring no other descriptor.
///
/// # Errors
/// When the kernel has no thread or no memory left.
pub fn start_with_own_files(
    name: &str,
    shared: Arc<OwnedFd>,
    work: impl FnOnce(&OwnedFd) + Send + 'static,
) -> Result<(), OsError> {
    let refused = |error: io::Error| OsError::from_io("start thread", name, &error);
    let (report, result) = channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let body = move || {
        // SAFETY: from here on the thread uses `shared`, which its table keeps under the same number, the standard
        // streams, and what it opens itself.
        let own = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) };
        let own = own.and_then(|()| sys::close_all_but(&mut [0, 1, 2, shared.as_raw_fd()]));
        let has_own = own.is_ok();
        // The starting thread waits for the result.
        let _ = report.send(own);
        if has_own {
            work(&shared);
        }
    };
    thread.spawn(body).map_err(refused)?;
    match result.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(OsError::new(
            "give descriptors of its own to thread",
            name,
            errno,
        )),
        Err(_) => Err(refused(io::ErrorKind::BrokenPipe.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::start_with_own_files;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    // promise: 5.19
    #[test]
    fn files_that_the_thread_opens_are_its_own_and_vice_versa() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let shared = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let (told, tells) = channel();
        let number = writer.as_raw_fd();
        start_with_own_files("apart", Arc::clone(&shared), move |shared| {
            let own = std::fs::read_link(format!("/proc/thread-self/fd/{number}"));
            let opened: Vec<File> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
            rustix::io::write(shared, &7u64.to_ne_bytes()).unwrap();
            told.send((own.is_err(), opened.len())).unwrap();
            std::thread::park();
        })
        .unwrap();
        assert_eq!(tells.recv().unwrap(), (true, 64));
        let mut count = [0; 8];
        rustix::io::read(&*shared, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 7);
        let nulls = std::fs::read_dir("/proc/thread-self/fd")
            .unwrap()
            .flatten()
            .filter(|entry| {
                std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "/dev/null")
            })
            .count();
        assert!(nulls < 64, "{nulls}");
        // The thread, which lives on, has no copy of it.
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
