//! The mechanisms of the `process` tier: an ordinary program, run as if it were alone on the host.
//!
//! | barrier | what it keeps an instance from |
//! |---|---|
//! | user namespace, a kernel user of its own | signalling, tracing, owning anything outside |
//! | pid namespace | naming any other process |
//! | mount namespace, empty read-only root; its own, or [`Sealed`] | naming any file of the host; dynamically linked programs see library directories, read-only |
//! | network namespace, empty | reaching any interface or abstract socket |
//! | ipc namespace, its own, or [`Sealed`] | shared memory and queues |
//! | uts, cgroup namespace | the host's name, the host's cgroup tree |
//! | no capabilities, securebits, no_new_privs | becoming more than it is |
//! | system call filter ([`seccomp`]) | making sockets, programs in the kernel, namespaces; the kernel's rarer code |
//! | Landlock, as far as the kernel has it | files, TCP, abstract sockets and signals, should a descriptor leak |
//! | closed descriptors | everything of the daemon's but what is listed |
//! | cgroup ([`cgroup`]) | CPU time, memory and tasks of others |
//!
//! A program on the kernel's stack has sockets, the capabilities that were asked for, and directories of its own for
//! writing ([`seccomp::Policy::with_own_network`], [`Capabilities`], [`Shown`]); the other barriers are the same.
//!
//! An instance outlives the daemon that started it, and a restarted daemon adopts it. [`spawn`] starts one;
//! [`Shell`] does it in two steps, for a pool; [`probe`] says what this host can do and what to do about the rest.
//!
//! This crate has mechanisms only: other crates decide which instances there are, and when an instance is restarted.

pub mod cgroup;
// The parser is public for the fuzz target.
#[doc(hidden)]
pub mod elf;
pub mod error;
pub mod fds;
pub mod seccomp;

mod accelerator;
mod affinity;
mod capability;
mod capacity;
mod child;
mod dpdk;
mod freed_memory;
mod identity;
mod image;
mod instance;
mod landlock_rules;
mod launch;
mod lifeline;
mod machines;
mod netns;
mod own_files;
mod own_namespace;
mod own_time;
mod polling;
mod probing;
mod program;
mod regular;
mod root;
mod sealed;
mod shell;
mod spec;
mod sys;
mod zygote;

/// A signal for [`Instance::signal`].
pub use elf::Linkage;
pub use rustix::process::Signal;

pub use accelerator::Accelerator;
pub use capability::Capabilities;
pub use freed_memory::return_freed_memory;
pub use identity::{BadKernelIdRange, INSIDE_ID, KernelId, KernelIdRange};
pub use image::{Layers, Tree};
pub use instance::{Ended, Instance, InstanceError, ProcessIdentity, ThreadUse};
pub use landlock_rules::{LandlockSupport, landlock_support};
pub use launch::{InheritedFd, Launch, Limits, Network};
pub use lifeline::kill_when_closed;
pub use machines::{EMULATOR, has_kvm, runs_kernels};
pub use netns::{EmptyNetNs, NetNs};
pub use own_files::start_with_own_files;
pub use own_time::OwnTime;
pub use probing::{Feature, Status, probe};
pub use program::{FileVersion, Program, ProgramError, file_version};
pub use regular::open_regular;
pub use root::{LIBRARY_DIRECTORIES, Root, Shown, View};
pub use sealed::Sealed;
pub use shell::{Barriers, Shell, SpawnError, Spawned, Step, spawn};
pub use spec::ShellSpec;
pub use zygote::{Zygote, ZygoteError};
