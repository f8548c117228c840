//! The error of attaching to ports, and of mapping the memory of ports.

use crate::table::ATTACH_ENV;
use std::io;
use std::os::fd::RawFd;

/// Why an instance could not attach to its ports.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The environment does not name the table.
    #[error(
        "{ATTACH_ENV} is not set to a file descriptor: start this program as an nfluid instance (nfluid apply)"
    )]
    NoTable,
    /// The table could not be read.
    #[error("reading the port table from fd {fd}: {source}")]
    Read {
        /// The table's file descriptor.
        fd: RawFd,
        /// The cause.
        source: io::Error,
    },
    /// The table does not make sense.
    #[error("the port table is damaged: {0}; daemon and library are of different versions?")]
    BadTable(String),
    /// The table is one of another version of nfluid.
    #[error(
        "the port table is of another version of nfluid: build this program with the libnfluid of the running daemon, and start it again"
    )]
    OtherVersion,
    /// The doorbells cannot be listened to.
    #[error("listening to the doorbells: {0}")]
    Listen(io::Error),
    /// A mapping failed.
    #[error("mapping the {what} ({len} bytes): {source}")]
    Map {
        /// The object to be mapped.
        what: &'static str,
        /// The length in bytes.
        len: usize,
        /// The cause.
        source: io::Error,
    },
}
