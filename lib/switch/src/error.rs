//! Errors of the switch.

use std::io;
use std::path::PathBuf;

/// Error of the switch.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The kernel refused the program in both loop forms.
    #[error(
        "the kernel refused the switch program (with may_goto: {goto}; with bpf_loop: {call}); it needs Linux 6.1 or newer, root, and BPF enabled: run 'nfluid doctor'"
    )]
    Load {
        /// Error of the form with may_goto.
        goto: String,
        /// Error of the form with bpf_loop.
        call: String,
    },
    /// A bpf operation failed.
    #[error("{what}: {source}")]
    Bpf {
        /// The operation that failed.
        what: String,
        /// The cause.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The platform's own limit.
    #[error("{0}")]
    Limit(String),
    /// A path that should exist does not.
    #[error("{what} {path}: not found")]
    Missing {
        /// The purpose of the path.
        what: &'static str,
        /// The path.
        path: PathBuf,
    },
}

impl SwitchError {
    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        move |source| SwitchError::Bpf { what, source }
    }

    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| SwitchError::System {
            what,
            source: source.into(),
        }
    }
}
