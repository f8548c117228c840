//! What a TLS terminator is told ([`config`]) and who it is ([`identity`]): for the daemon, which checks both before it starts
//! one, and for the terminator itself.
//!
//! Keys are in memory that is overwritten when it is given up ([`key::Key`]).
#![forbid(unsafe_code)]

pub mod config;
pub mod identity;
pub mod key;
pub mod listening;
#[cfg(feature = "testing")]
pub mod testing;

/// Numbers and names under which a terminator finds what it inherits.
pub mod inherited {
    /// The variable that has its configuration: the number of a file.
    pub const CONFIG: &str = "NFLUID_CONFIG_FD";
    /// The variable that has the sockets on which it accepts: numbers, with commas between them.
    pub const LISTENERS: &str = "NFLUID_LISTEN_FDS";
    /// The variable that has its certificates, PEM: the number of a file.
    pub const CERTIFICATES: &str = "NFLUID_TLS_CERTIFICATES_FD";
    /// The variable that has its key, PEM: the number of a file that it overwrites.
    pub const KEY: &str = "NFLUID_TLS_KEY_FD";
    /// The variable that has the way to its connector: the number of a socket. Absent without a backend.
    pub const CONNECTOR: &str = "NFLUID_CONNECTOR_FD";
    /// The variable that has its memory limit in bytes.
    pub const MEMORY: &str = "NFLUID_MEMORY_BYTES";
    /// The variable that has the daemon's way to it: the number of a listening socket.
    pub const CONTROL: &str = "NFLUID_CONTROL_FD";
    /// The number under which a connector has its way to the terminator.
    pub const CONNECTOR_END: i32 = 3;
}
