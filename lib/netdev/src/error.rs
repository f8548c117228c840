//! Errors of interfaces.

use std::io;
use std::path::PathBuf;

/// Reason for which a question about an interface, or a change of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum NetdevError {
    /// The namespace is not there.
    #[error(
        "no network namespace at {path}: {source}; make it first ('ip netns add NAME'), 'ip netns' lists those that exist",
        path = .path.display()
    )]
    NoNamespace {
        /// The path of the namespace.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The interface is not there.
    #[error("no interface {interface} in {namespace}; there are: {names}")]
    NoInterface {
        /// The interface that was asked for.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The interfaces that are there.
        names: String,
    },
    /// The interface is somewhere else.
    #[error(
        "no interface {interface} in {namespace}, but there is one in {found}: add 'netns: {found}' to the uplink, or move it"
    )]
    Elsewhere {
        /// The interface that was asked for.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The name of the namespace that has one.
        found: String,
    },
    /// The NIC cannot distribute frames by flow.
    #[error(
        "{interface} cannot steer flows to queues: {why}; classify them by XDP, which works on every interface ('steering: xdp', as without a word)"
    )]
    NoSteering {
        /// The interface.
        interface: String,
        /// The reason.
        why: String,
    },
    /// Another XDP program is attached.
    #[error(
        "interface {interface} has an XDP program already: '{program}' (id {id}); {}",
        way_out(.program, .interface)
    )]
    Busy {
        /// The interface.
        interface: String,
        /// Name of the program.
        program: String,
        /// The id of the program.
        id: u32,
    },
    /// A tunnel was asked for, but the interface is there, and is somebody else's.
    #[error(
        "interface {interface} is there already, and is no tunnel of this uplink: choose another name, or remove 'tunnel'"
    )]
    Taken {
        /// The interface.
        interface: String,
    },
    /// Another uplink receives at tc on the interface.
    #[error(
        "interface {interface} belongs to another uplink: its program is at tc ('tc filter show dev {interface} ingress' or \
         'bpftool net'); if no nfluid daemon runs that has it, remove the program there"
    )]
    BusyAtTc {
        /// The interface.
        interface: String,
    },
    /// The kernel attaches the program in no mode that was allowed.
    #[error("interface {interface} takes no XDP program (native: {native}; generic: {generic})")]
    Refused {
        /// The interface.
        interface: String,
        /// The reason against the native mode.
        native: String,
        /// The reason against the generic mode.
        generic: String,
    },
    /// libxdp's dispatcher cannot be used.
    #[error("libxdp cannot be used on {interface}: {why}")]
    Dispatcher {
        /// The interface.
        interface: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The attempt.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

/// The program of libxdp in which several tools' programs are (`xdp-dispatcher.c` of xdp-tools).
const DISPATCHER: &str = "xdp_dispatcher";

/// The advice to an operator about a program that is in the way.
fn way_out(program: &str, interface: &str) -> String {
    if program == DISPATCHER {
        return format!(
            "it is libxdp's dispatcher, in which other tools' programs are, and the kernel takes one program on each \
             interface: 'xdp-loader status {interface}' lists them, 'xdp-loader unload {interface} --all' takes them away; \
             or use another interface"
        );
    }
    format!("stop its owner, or remove it with 'ip link set dev {interface} xdp off'")
}

impl NetdevError {
    /// Returns true if libxdp's dispatcher is on the interface, in which there may be room.
    pub fn is_dispatcher(&self) -> bool {
        matches!(self, NetdevError::Busy { program, .. } if program == DISPATCHER)
    }

    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| NetdevError::System {
            what,
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 15.18
    #[test]
    fn the_error_names_the_user_of_an_interface_and_the_remedy() {
        let busy = |program: &str| {
            let error = NetdevError::Busy {
                interface: "eth1".to_owned(),
                program: program.to_owned(),
                id: 7,
            };
            error.to_string()
        };
        let stranger = busy("xdp_filter");
        assert!(stranger.contains("'xdp_filter' (id 7)"), "{stranger}");
        assert!(stranger.contains("ip link set dev eth1 xdp off"));
        let dispatcher = busy(DISPATCHER);
        assert!(dispatcher.contains("libxdp's dispatcher"), "{dispatcher}");
        assert!(dispatcher.contains("'xdp-loader unload eth1 --all'"));
    }
}
