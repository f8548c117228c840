//! Errors of uplinks.

use nfluid_netdev::NetdevError;
use nfluid_switch::SwitchError;
use std::io;
use std::path::PathBuf;

/// Reason for which an uplink could not be made, or its leftovers not be removed.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// Not root.
    #[error("uplink '{0}': attaching to an interface needs root; start the daemon as root")]
    NotRoot(String),
    /// A tap was asked for, but the interface is something else.
    #[error(
        "interface {interface} in {namespace} is no tap, but {kind}: choose another name, or remove 'kind: tap'"
    )]
    NoTap {
        /// The interface.
        interface: String,
        /// The namespace of the interface.
        namespace: String,
        /// The kind of the interface.
        kind: String,
    },
    /// A name that the kernel would not take.
    #[error("'{0}' cannot be the name of an interface: 1 to 15 characters, no spaces, no slashes")]
    BadName(String),
    /// The interface refused, or is not there.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
    /// The switch refused.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A state file is damaged.
    #[error("{path} is damaged ({why}); remove it and check the interface by hand", path = .path.display())]
    BadState {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
}

impl UplinkError {
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| UplinkError::System {
            what,
            source: source.into(),
        }
    }
}

/// Which [`UplinkError`] or [`NetdevError`] it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// [`UplinkError::NotRoot`].
    NotRoot,
    /// [`NetdevError::NoNamespace`].
    NoNamespace,
    /// [`NetdevError::NoInterface`].
    NoInterface,
    /// [`NetdevError::Elsewhere`].
    Elsewhere,
    /// [`UplinkError::NoTap`].
    NoTap,
    /// [`NetdevError::Busy`].
    Busy,
    /// [`NetdevError::Refused`].
    Refused,
    /// [`NetdevError::NoSteering`].
    NoSteering,
    /// [`NetdevError::Dispatcher`].
    Dispatcher,
    /// [`UplinkError::BadName`].
    BadName,
    /// [`UplinkError::Switch`].
    Switch,
    /// [`UplinkError::System`] or [`NetdevError::System`].
    System,
    /// [`UplinkError::BadState`].
    BadState,
}

/// An [`UplinkError`] or a [`NetdevError`] as a process reports it to another process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct ReportedError {
    /// Which one.
    pub kind: ErrorKind,
    /// The text of the error.
    pub text: String,
}

impl From<&UplinkError> for ReportedError {
    fn from(error: &UplinkError) -> Self {
        let kind = match error {
            UplinkError::NotRoot(_) => ErrorKind::NotRoot,
            UplinkError::NoTap { .. } => ErrorKind::NoTap,
            UplinkError::BadName(_) => ErrorKind::BadName,
            UplinkError::Netdev(error) => return error.into(),
            UplinkError::Switch(_) => ErrorKind::Switch,
            UplinkError::System { .. } => ErrorKind::System,
            UplinkError::BadState { .. } => ErrorKind::BadState,
        };
        ReportedError {
            kind,
            text: error.to_string(),
        }
    }
}

impl From<&NetdevError> for ReportedError {
    fn from(error: &NetdevError) -> Self {
        let kind = match error {
            NetdevError::NoNamespace { .. } => ErrorKind::NoNamespace,
            NetdevError::NoInterface { .. } => ErrorKind::NoInterface,
            NetdevError::Elsewhere { .. } => ErrorKind::Elsewhere,
            NetdevError::Busy { .. } | NetdevError::BusyAtTc { .. } | NetdevError::Taken { .. } => {
                ErrorKind::Busy
            }
            NetdevError::Refused { .. } => ErrorKind::Refused,
            NetdevError::NoSteering { .. } => ErrorKind::NoSteering,
            NetdevError::Dispatcher { .. } => ErrorKind::Dispatcher,
            NetdevError::System { .. } => ErrorKind::System,
        };
        ReportedError {
            kind,
            text: error.to_string(),
        }
    }
}
