//! The network namespace of an instance. It stays empty, own or shared: an instance's network is its ports. An exception is
//! the own one of a program on the kernel's stack, in which the daemon makes the interfaces that are its ports.

use crate::error::OsError;
use crate::own_namespace;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Which network namespace an instance gets.
#[derive(Debug, Clone, Copy)]
pub enum NetNs<'a> {
    /// A namespace of the instance's own: 0.2 ms to make, more with many others on the host.
    Own,
    /// A namespace that several instances share, see [`EmptyNetNs`]. The instances have no capabilities in it and
    /// cannot make sockets. Sharing loses the second line between the instances should the system call filter have a
    /// hole.
    Shared(BorrowedFd<'a>),
}

/// An empty network namespace with nothing in it but a loopback device that is down. Lives as long as this value or a
/// process inside.
#[derive(Debug)]
pub struct EmptyNetNs {
    fd: OwnedFd,
}

impl EmptyNetNs {
    /// Makes one, in a thread of its own that ends at once: the caller's namespace is not touched.
    ///
    /// # Errors
    /// EPERM without root, ENOSPC at the limit of user.max_net_namespaces.
    pub fn create() -> Result<Self, OsError> {
        let fd = own_namespace::within(&own_namespace::NETWORK, || {
            let path = "/proc/thread-self/ns/net";
            let file = File::open(path).map_err(|error| OsError::from_io("open", path, &error))?;
            Ok(file.into())
        })?;
        Ok(Self { fd })
    }
}

impl AsFd for EmptyNetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
