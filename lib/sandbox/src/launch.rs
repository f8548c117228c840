//! Specification of an instance: the part that depends on its program, and what the program inherits.

use crate::program::Program;
use crate::seccomp::Filter;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, RawFd};

/// A descriptor that the instance inherits, and the number it finds it under.
#[derive(Debug, Clone, Copy)]
pub struct InheritedFd<'a> {
    /// The descriptor; the caller keeps it and may close it once the instance runs.
    pub fd: BorrowedFd<'a>,
    /// The number, 0 to [`Launch::FD_NUMBER_MAX`]. 0, 1 and 2 replace the standard streams.
    pub number: RawFd,
}

/// TCP connections of an instance, as far as Landlock knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// None.
    None,
    /// It connects to this port, at whatever address.
    Port(u16),
    /// Any: it has a network namespace of its own.
    Own,
}

/// The program of an instance. Every descriptor that is not listed here is closed.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Program,
    /// The arguments, beginning with the program's own name.
    pub argv: Vec<CString>,
    /// The environment, `NAME=value` each. Nothing is added.
    pub env: Vec<CString>,
    /// The working directory: absolute.
    pub directory: CString,
    /// The inherited descriptors. Standard streams that are not given are `/dev/null`. A pipe to the daemon as
    /// standard output would kill the instance (SIGPIPE) when the instance writes after the daemon's death: give it a
    /// file or a socket.
    pub fds: Vec<InheritedFd<'a>>,
    /// The system call filter. `None` leaves this barrier out, for tests of the others; never do so for an instance.
    pub filter: Option<&'a Filter>,
    /// Applies Landlock rules, as far as the kernel has them, if true. `false` is for tests of the other barriers.
    pub landlock: bool,
    /// The TCP connections that Landlock lets it make.
    pub network: Network,
    /// Limits per process.
    pub limits: Limits,
    /// The kernel kills the process when the thread that is its parent ends: the thread that prepared the shell or,
    /// with a zygote, the thread that started the zygote. The filter prevents the program from disabling this.
    pub ends_with_parent: bool,
}

impl<'a> Launch<'a> {
    /// The highest number that a descriptor can be inherited under.
    pub const FD_NUMBER_MAX: RawFd = 511;
    /// Most descriptors that an instance can inherit.
    pub const FDS_MAX: usize = 240;
    /// Most arguments and environment entries together.
    pub const STRINGS_MAX: usize = 1024;
    /// The most bytes of arguments and environment.
    pub const STRING_BYTES_MAX: usize = 64 * 1024;

    /// A launch with every barrier, the default limits and no more than the program's own name as argument.
    pub fn new(program: &'a Program, filter: &'a Filter) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let name = program.origin().file_name().unwrap_or_default();
        Self {
            program,
            argv: vec![CString::new(name.as_bytes()).unwrap_or_default()],
            env: Vec::new(),
            directory: c"/".to_owned(),
            fds: Vec::new(),
            filter: Some(filter),
            landlock: true,
            network: Network::None,
            limits: Limits::default(),
            ends_with_parent: false,
        }
    }
}

/// Limits per process (setrlimit(2)). Memory and the number of tasks are limited by the cgroup; these limits stop a
/// program at attempts that it has no reason for. A daemon without CAP_SYS_RESOURCE cannot raise a limit above its
/// own; the instance then has the daemon's. Core dumps are always off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors.
    pub descriptors: u64,
    /// Processes and threads of the instance's user number.
    pub tasks: u64,
    /// Bytes that may be locked in memory.
    pub locked_bytes: u64,
    /// Bytes of the main thread's stack.
    pub stack_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            tasks: 256,
            locked_bytes: 64 << 20,
            stack_bytes: 8 << 20,
        }
    }
}
