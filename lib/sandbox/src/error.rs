//! The parts of every error of this crate: the operation, its path or number, the kernel's answer, and the operator's
//! remedy.

use std::borrow::Cow;
use std::fmt;

pub use rustix::io::Errno;

/// A refused system call, reported so that an operator can act on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsError {
    /// The attempted operation, as a verb phrase: `create cgroup`.
    pub operation: &'static str,
    /// The path, number or name that it was attempted on.
    pub subject: String,
    /// The kernel's answer.
    pub errno: Errno,
    /// The remedy, or empty where the message is enough.
    pub remedy: Cow<'static, str>,
}

impl OsError {
    /// An error without a remedy.
    pub fn new(operation: &'static str, subject: impl fmt::Display, errno: Errno) -> Self {
        Self {
            operation,
            subject: subject.to_string(),
            errno,
            remedy: Cow::Borrowed(""),
        }
    }

    /// As [`OsError::new`], from a standard library error.
    pub fn from_io(
        operation: &'static str,
        subject: impl fmt::Display,
        error: &std::io::Error,
    ) -> Self {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self::new(operation, subject, errno)
    }

    /// Adds the operator's remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        write!(f, ": {}", self.errno)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for OsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_operation_subject_errno_and_remedy() {
        let error =
            OsError::new("create cgroup", "/sys/fs/cgroup/x", Errno::ACCESS).remedy("run as root");
        let text = error.to_string();
        for part in ["create cgroup", "/sys/fs/cgroup/x", "denied", "run as root"] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
}
