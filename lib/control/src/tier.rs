//! Tiers: the isolation of an instance, and the kind of its ports. A tier is a table row: all code asks for its
//! capabilities and never compares its name.

use serde::{Serialize, Serializer};
use std::fmt;

/// The isolation of an instance from its neighbours. The daemon has one runtime for each isolation whose instances are
/// processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation(pub &'static str);

impl Isolation {
    /// A process with namespaces, cgroup, seccomp and Landlock.
    pub const PROCESS: Isolation = Isolation("process");
    /// A program that the kernel's verifier has checked.
    pub const KERNEL: Isolation = Isolation("kernel");
    /// A virtual machine without a kernel, whose monitor is a process as above.
    pub const MICROVM: Isolation = Isolation("microvm");
    /// A virtual machine with a Linux kernel, which an emulator runs beside a monitor as above.
    pub const LINUX: Isolation = Isolation("linux");
    /// A process with a network namespace of its own, beside a process that serves its ports.
    pub const STACK: Isolation = Isolation("stack");
}

/// The kind of an instance's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Rings of the switch.
    Rings,
    /// Sockets on the host's network stack.
    Sockets,
    /// Interfaces, in front of the host's network stack.
    Interfaces,
}

/// The operations that an instance supports, beside starting and ending it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The instance has a process of its own, which can be queried, paused, limited and restarted.
    pub has_process: bool,
    /// A new process can take over the ports and the state of the instance, also one of another such tier.
    pub hands_over: bool,
    /// Templates can create an instance for each client.
    pub on_demand: bool,
    /// Ports of the instance can have several queues, each with a thread of its own.
    pub queues: bool,
    /// The program of an instance is a kernel: no built-in NF, nothing that the host executes, and what starts anew for
    /// another configuration.
    pub boots_kernel: bool,
    /// The program of an instance is one of the host, on a network stack of its own: ports are interfaces.
    pub own_stack: bool,
    /// nfluid's own program runs around the instance's program, and answers for it: also for programs of users.
    pub hosted: bool,
}

/// The properties of a tier.
#[derive(Debug)]
pub struct Row {
    /// Name of the tier in documents.
    pub name: &'static str,
    /// The isolation of its instances.
    pub isolation: Isolation,
    /// The kinds of ports that its instances can have.
    pub ports: &'static [PortKind],
    /// The operations that its instances support.
    pub capabilities: Capabilities,
}

/// A tier.
#[derive(Clone, Copy, Debug)]
pub struct Tier(pub &'static Row);

impl Tier {
    /// A process, with rings of the switch or sockets of the host.
    pub const PROCESS: Tier = Tier(&Row {
        name: "process",
        isolation: Isolation::PROCESS,
        ports: &[PortKind::Rings, PortKind::Sockets],
        capabilities: Capabilities {
            has_process: true,
            hands_over: true,
            on_demand: true,
            queues: true,
            boots_kernel: false,
            own_stack: false,
            hosted: false,
        },
    });

    /// A KVM guest that is one network function and no kernel.
    pub const MICROVM: Tier = Tier(&Row {
        name: "microvm",
        isolation: Isolation::MICROVM,
        ports: &[PortKind::Rings],
        capabilities: Capabilities {
            has_process: true,
            hands_over: true,
            on_demand: true,
            queues: false,
            boots_kernel: false,
            own_stack: false,
            hosted: true,
        },
    });

    /// A virtual machine with a Linux kernel of its own.
    pub const LINUX: Tier = Tier(&Row {
        name: "linux",
        isolation: Isolation::LINUX,
        ports: &[PortKind::Rings],
        capabilities: Capabilities {
            has_process: true,
            hands_over: false,
            on_demand: true,
            queues: false,
            boots_kernel: true,
            own_stack: false,
            hosted: true,
        },
    });

    /// A process on a network stack of its own, with interfaces.
    pub const STACK: Tier = Tier(&Row {
        name: "stack",
        isolation: Isolation::STACK,
        ports: &[PortKind::Rings],
        capabilities: Capabilities {
            has_process: true,
            hands_over: false,
            on_demand: false,
            queues: false,
            boots_kernel: false,
            own_stack: true,
            hosted: true,
        },
    });

    /// An XDP program on interfaces, which handles the common case; the kernel handles the rest.
    pub const XDP: Tier = Tier(&Row {
        name: "xdp",
        isolation: Isolation::KERNEL,
        ports: &[PortKind::Interfaces],
        capabilities: Capabilities {
            has_process: false,
            hands_over: false,
            on_demand: false,
            queues: false,
            boots_kernel: false,
            own_stack: false,
            hosted: false,
        },
    });

    /// All tiers that documents can name.
    pub const ALL: [Tier; 5] = [
        Tier::PROCESS,
        Tier::MICROVM,
        Tier::LINUX,
        Tier::STACK,
        Tier::XDP,
    ];

    /// Returns the isolation of its instances.
    pub fn isolation(self) -> Isolation {
        self.0.isolation
    }

    /// Returns the operations that its instances support.
    pub fn capabilities(self) -> Capabilities {
        self.0.capabilities
    }

    /// Returns true if its instances can have ports of this kind.
    pub fn takes(self, ports: PortKind) -> bool {
        self.0.ports.contains(&ports)
    }
}

impl PartialEq for Tier {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Tier {}

impl Default for Tier {
    fn default() -> Self {
        Tier::PROCESS
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::Tier;

    #[test]
    fn names_are_unique_and_each_tier_has_some_kind_of_port() {
        for (index, tier) in Tier::ALL.iter().enumerate() {
            assert!(!Tier::ALL[..index].contains(tier), "{tier} twice");
            assert!(!tier.0.ports.is_empty(), "{tier}");
        }
    }
}
