//! Attaching, waiting, detaching.

use crate::errors::{Errno, INVALID, status};
use crate::lane::Lane;
use crate::ports::NflPort;
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::{AGEING, Doorbell, Woken};
use nfluid_ring::error::AttachError;
use nfluid_ring::port::Port;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `struct nfl_instance`. The instance owns ports and handles, but does not hold them as Rust values: other threads
/// use single ones while this structure is borrowed.
#[derive(Debug)]
pub struct NflInstance {
    ports: NonNull<[Port]>,
    handles: NonNull<[NflPort]>,
    pub(crate) doorbell: Doorbell,
}

impl NflInstance {
    fn new(attached: Attached) -> Self {
        let lanes: Arc<[Lane]> = attached.ports.iter().map(Lane::of).collect();
        let ports = leak(attached.ports);
        let count = ports.len();
        let handles = (0..count)
            .map(|index| {
                // SAFETY: `index` is within the slice that was leaked just now, and no other code knows the slice
                // yet.
                let port =
                    unsafe { NonNull::new_unchecked(ports.cast::<Port>().as_ptr().add(index)) };
                // SAFETY: as above; the reference ends with this call.
                let entry = unsafe { port.as_ref() }.entry();
                NflPort::new(port, index, entry, Arc::clone(&lanes))
            })
            .collect();
        NflInstance {
            ports,
            handles: leak(handles),
            doorbell: attached.doorbell,
        }
    }

    pub(crate) fn port_count(&self) -> usize {
        self.handles.len()
    }

    /// The handle of a port.
    pub(crate) fn handle(&self, index: usize) -> Option<*mut NflPort> {
        (index < self.port_count()).then(|| {
            // SAFETY: within the slice.
            unsafe { self.handles.cast::<NflPort>().as_ptr().add(index) }
        })
    }
}

impl Drop for NflInstance {
    fn drop(&mut self) {
        // SAFETY: both were leaked by `new` and are freed here only; the caller of `nfl_detach`
        // promises that no thread uses a port any more.
        unsafe {
            drop(Box::from_raw(self.handles.as_ptr()));
            drop(Box::from_raw(self.ports.as_ptr()));
        }
    }
}

fn leak<T>(values: Vec<T>) -> NonNull<[T]> {
    NonNull::from(Box::leak(values.into_boxed_slice()))
}

/// Set once the descriptors of the table have owners: they must not get a second one.
static ATTACHED: AtomicBool = AtomicBool::new(false);

fn attach() -> Result<Box<NflInstance>, Errno> {
    if ATTACHED.swap(true, Ordering::AcqRel) {
        return Err(Errno(libc::EALREADY));
    }
    match Attached::from_env() {
        Ok(attached) => {
            ignore_sigpipe();
            Ok(Box::new(NflInstance::new(attached)))
        }
        Err(error) => {
            if matches!(error, AttachError::NoTable | AttachError::Read { .. }) {
                ATTACHED.store(false, Ordering::Release);
            }
            Err(error.into())
        }
    }
}

/// A peer's doorbell is a pipe: when the peer has ended, a ring must not end this process. A
/// handler of the program's own stays.
fn ignore_sigpipe() {
    // SAFETY: asks for the present action into a zeroed structure of the right type, then replaces
    // the default one by "ignore"; no handler of Rust or C is installed.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut present);
        if asked == 0 && present.sa_sigaction == libc::SIG_DFL {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
    }
}

/// Attaches to the ports that the environment names.
///
/// # Safety
/// `instance` is null or can be written; no other thread changes the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_attach(instance: *mut *mut NflInstance) -> c_int {
    status(|| {
        if instance.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and the caller promises that it can be written.
        unsafe { instance.write(std::ptr::null_mut()) };
        let attached = Box::into_raw(attach()?);
        // SAFETY: as above.
        unsafe { instance.write(attached) };
        Ok(0)
    })
}

/// Gives the instance and its ports back.
///
/// # Safety
/// `instance` is null or came from [`nfl_attach`], and neither it nor its ports are used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_detach(instance: *mut NflInstance) {
    status(|| {
        if !instance.is_null() {
            // SAFETY: made by `Box::into_raw` in `nfl_attach`, given up by the caller now.
            drop(unsafe { Box::from_raw(instance) });
        }
        Ok(0)
    });
}

/// Waits for a frame, for `other_fd`, or for the time to be over.
///
/// # Safety
/// `instance` is null or attached, and no other thread is in a function of it or of its ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nfl_wait(
    instance: *mut NflInstance,
    other_fd: c_int,
    timeout_ms: c_int,
) -> c_int {
    status(|| {
        // SAFETY: null or attached, and used by this thread alone, as the caller promises.
        let instance = unsafe { instance.as_mut() }.ok_or(INVALID)?;
        let other = borrow_fd(other_fd)?;
        let timeout = timeout(timeout_ms);
        // SAFETY: the ports live as long as the instance, and no other thread uses one of them.
        let ports = unsafe { instance.ports.as_mut() };
        let woken = instance.doorbell.wait(ports, other.as_deref(), timeout);
        // The caller may close it before the next call.
        instance
            .doorbell
            .forget()
            .map_err(|error| Errno::from(&error))?;
        match woken {
            Ok(Woken::Frame) => Ok(1),
            Ok(Woken::Other) => Ok(2),
            Ok(Woken::Nothing | Woken::Consumed) => Ok(0),
            Err(error) => Err(Errno::from(&error)),
        }
    })
}

/// A time in milliseconds, as the functions that wait take it.
pub(crate) fn timeout(ms: c_int) -> Duration {
    let wanted = u64::try_from(ms).map_or(AGEING, Duration::from_millis);
    wanted.min(AGEING)
}

/// The caller's descriptor for the time of one call; -1 is none.
fn borrow_fd(fd: c_int) -> Result<Option<ManuallyDrop<OwnedFd>>, Errno> {
    if fd == -1 {
        return Ok(None);
    }
    // SAFETY: only asks the kernel about a number; nothing is dereferenced.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: open, not -1, and never closed by us: the value is not dropped.
    Ok(Some(ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) })))
}
