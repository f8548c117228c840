//! Specification of an instance: the part that does not depend on its program. The rest is a
//! [`Launch`](crate::launch::Launch).

use crate::capability::Capabilities;
use crate::cgroup::Cgroup;
use crate::identity::KernelId;
use crate::netns::NetNs;
use crate::root::Root;
use crate::sealed::Sealed;
use crate::zygote::Zygote;

/// The part of an instance that can be prepared before its program is known.
#[derive(Debug, Clone)]
pub struct ShellSpec<'a> {
    /// The host name that the instance sees, and what messages call it.
    pub name: String,
    /// The user number; no two instances may share a number.
    pub id: KernelId,
    /// The cgroup that the instance is charged to. Limits set before or after the start hold at once.
    pub cgroup: &'a Cgroup,
    /// The content of the root directory.
    pub root: Root,
    /// Which network namespace it gets.
    pub net: NetNs<'a>,
    /// Capabilities that the program has, in its own user namespace: they mean something in a network namespace of its own.
    pub capabilities: Capabilities,
    /// Sealed mount and IPC namespaces, which it shares with others; without, it has its own.
    pub sealed: Option<&'a Sealed>,
    /// The CPUs that the instance may use, by number; all of the parent's if `None`. The instance cannot change this
    /// set, [`crate::Instance::pin`] can.
    pub cpus: Option<Vec<usize>>,
    /// The process that forks the instance: a process that is small and stays small, or, without a zygote, the caller
    /// itself.
    pub zygote: Option<&'a Zygote>,
}
