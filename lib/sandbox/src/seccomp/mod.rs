//! The system call filter of an instance: an allow-list, with a reason for every entry, compiled to a seccomp program.
//!
//! Three verdicts: what the tables of `allowed` name is allowed (some of it only with certain arguments); what
//! `hostile` names has no place in any network function and kills the process; everything else fails with EPERM, so
//! that a program that merely asks for more than it needs (a run-time looking for a newer call) goes on. `clone3` fails
//! with ENOSYS: its flags are in memory, where a filter cannot see them, and libraries then fall back to `clone`.
//!
//! Two profiles. [`Profile::Strict`] is for statically linked programs: it opens no file and never maps memory
//! executable. [`Profile::Loader`] adds what the dynamic loader needs: opening files for reading and executable
//! mappings, never writable ones.
//!
//! The hyperio call is a `setsockopt` and must stay cheap. The kernel remembers which calls a filter allows whatever
//! their arguments are, but `setsockopt` is allowed for one level only, so that the filter runs each time: its test
//! therefore comes first, before the list.

mod allowed;
mod compile;
mod hostile;
mod rule;
#[cfg(test)]
mod verdict_tests;

use crate::accelerator::Accelerator;
use crate::elf::Linkage;

/// The part of the list that a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Statically linked: no files, no executable mappings.
    Strict,
    /// Dynamically linked: files for reading, executable mappings that are not writable.
    Loader,
}

/// The calls that an instance's filter allows. Compile the policy once per kind of instance and use the [`Filter`]
/// for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    profile: Profile,
    setsockopt_level: u32,
    processes: bool,
    components: bool,
    message_sockets: bool,
    connections: bool,
    handed_maps: bool,
    virtual_machines: bool,
    emulator: Option<Accelerator>,
    own_network: bool,
    programs: bool,
    dpdk: bool,
}

impl Policy {
    /// The least that a program of this linkage needs. `setsockopt` is allowed with `setsockopt_level` alone: the
    /// level that the switch listens to.
    pub fn new(linkage: &Linkage, setsockopt_level: u32) -> Self {
        let profile = match linkage {
            Linkage::Static => Profile::Strict,
            Linkage::Dynamic { .. } => Profile::Loader,
        };
        Self {
            profile,
            setsockopt_level,
            processes: false,
            components: false,
            message_sockets: false,
            connections: false,
            handed_maps: false,
            virtual_machines: false,
            emulator: None,
            own_network: false,
            programs: false,
            dpdk: false,
        }
    }

    /// Also allows to fork, to wait for children and to signal them. The children stay in the sandbox, under its
    /// limits.
    #[must_use]
    pub fn with_processes(mut self) -> Self {
        self.processes = true;
        self
    }

    /// Also allows to fork, and each process to take calls away from itself that its program does not need: to have processes
    /// that can do no harm to each other.
    #[must_use]
    pub fn with_components(mut self) -> Self {
        self.components = true;
        self.with_processes()
    }

    /// Also allows `sendmsg`, `sendmmsg` and `sendto` with an address. A filter cannot see the address in the
    /// message, so an inherited datagram socket can then send to any host that its network namespace reaches: hand
    /// over connected or stream sockets only.
    #[must_use]
    pub fn with_message_sockets(mut self) -> Self {
        self.message_sockets = true;
        self
    }

    /// Also allows to make TCP sockets, to connect them, and to send descriptors. An instance with this right in a
    /// network namespace with interfaces can connect to any host in reach: limit the port with
    /// [`Network::Port`](crate::Network::Port), and let the instance read no input from untrusted
    /// parties.
    #[must_use]
    pub fn with_connections(mut self) -> Self {
        self.connections = true;
        self
    }

    /// Also allows `bpf` to read and write values of maps that the instance was handed; the instance makes, loads and
    /// finds nothing. For an instance that shares tables with a program in the kernel: it may change those tables in
    /// any way.
    #[must_use]
    pub fn with_handed_maps(mut self) -> Self {
        self.handed_maps = true;
        self
    }

    /// Also allows to make and run virtual machines with the descriptor of `/dev/kvm` that the instance was handed.
    #[must_use]
    pub fn with_virtual_machines(mut self) -> Self {
        self.virtual_machines = true;
        self
    }

    /// Also allows what QEMU does beside an instance: to translate code and run it, or to have KVM run a machine that it
    /// gives devices and interrupts.
    #[must_use]
    pub fn with_emulator(mut self, accelerator: Accelerator) -> Self {
        self.emulator = Some(accelerator);
        self
    }

    /// Also allows what servers on the kernel's network stack do: sockets with all their options, files of their own,
    /// processes. Takes the hyperio call away, except of programs on DPDK. For instances in a network namespace of their own.
    #[must_use]
    pub fn with_own_network(mut self) -> Self {
        self.own_network = true;
        self.processes = true;
        self.message_sockets = true;
        self
    }

    /// Also allows to execute programs, and to map code that the instance has made itself. No call kills: programs that nobody
    /// has written for a sandbox try many. For instances whose root directory is an image of their own.
    #[must_use]
    pub fn with_programs(mut self) -> Self {
        self.programs = true;
        self.processes = true;
        // Programs that it executes are dynamically linked, whatever the first is.
        self.profile = Profile::Loader;
        self
    }

    /// Also allows what programs on DPDK do when they start. They end if a thread cannot be pinned to a CPU: they are told
    /// that it was, and the platform's choice stays. One of DPDK's drivers reaches for hardware ports as soon as it is
    /// loaded: that fails and does not kill.
    #[must_use]
    pub fn with_dpdk(mut self) -> Self {
        self.dpdk = true;
        // Linked statically or not, it reads what CPUs there are.
        self.profile = Profile::Loader;
        self
    }

    /// The profile in force.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Compiles the filter.
    ///
    /// # Errors
    /// [`PolicyError::Compile`] if the tables do not fit a filter, or on an unsupported architecture.
    pub fn compile(&self) -> Result<Filter, PolicyError> {
        compile::compile(self)
    }
}

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    instructions: seccompiler::BpfProgram,
}

impl Filter {
    /// The largest filter that the kernel takes (BPF_MAXINSNS).
    pub const INSTRUCTIONS_MAX: usize = 4096;

    /// Returns the number of instructions.
    pub fn instruction_count(&self) -> usize {
        self.instructions.len()
    }

    /// The instructions as (code, jump if true, jump if false, constant).
    pub(crate) fn instructions(&self) -> impl ExactSizeIterator<Item = (u16, u8, u8, u32)> + '_ {
        self.instructions.iter().map(|i| (i.code, i.jt, i.jf, i.k))
    }
}

/// Reason for which a policy has no filter.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The compiler's complaint.
    #[error("the system call filter cannot be compiled for {arch}: {source}", arch = std::env::consts::ARCH)]
    Compile {
        /// The compiler's message.
        #[from]
        source: seccompiler::BackendError,
    },
}
