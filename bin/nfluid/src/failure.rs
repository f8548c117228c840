//! The reasons for which the program fails, with their exit codes.

use nfluid_api::client::ClientError;
use nfluid_api::types::{Diagnostic, Problem};
use std::io;
use std::process::ExitCode;

/// A reason to end.
#[derive(Debug)]
pub enum Failure {
    /// The operation failed; the message names the fault and the remedy.
    Operation(String),
    /// A function did not succeed: this exit code, and the reason.
    Function(u8, String),
    /// Options are missing.
    Usage(String),
    /// The operation failed for these reasons.
    Diagnostics(String, Vec<Diagnostic>),
    /// The daemon cannot be reached.
    NotReachable(String),
    /// The socket's permissions keep the user out.
    NotPermitted(String),
    /// The reader of the output has closed it, which is not an error.
    ReaderGone,
    /// All errors have been printed already.
    Reported,
}

impl Failure {
    /// A failed operation with a remedy.
    pub fn operation(message: impl std::fmt::Display, remedy: &str) -> Self {
        if remedy.is_empty() {
            return Failure::Operation(message.to_string());
        }
        Failure::Operation(format!("{message}\n  help: {remedy}"))
    }

    /// Returns the exit code, as `nfluid --help` lists them.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::ReaderGone => 0,
            Failure::Operation(_) | Failure::Diagnostics(..) | Failure::Reported => 1,
            Failure::Function(code, _) => *code,
            Failure::Usage(_) => 2,
            Failure::NotReachable(_) => 3,
            Failure::NotPermitted(_) => 4,
        })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ReaderGone;
        }
        Failure::Operation(format!("cannot write the output: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Operation(format!("cannot write the output as JSON: {error}"))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::NotRunning(_) => Failure::NotReachable(format!(
                "{message}\n  help: start it with 'sudo systemctl start nfluidd', or by hand with \
                 'sudo nfluidd'; 'nfluid doctor' checks the host"
            )),
            ClientError::NotPermitted(_) => Failure::NotPermitted(format!(
                "{message}\n  help: use sudo, or join the group with 'sudo usermod -aG nfluid \
                 $USER' and log in again"
            )),
            ClientError::NotTrusted(..) => Failure::NotPermitted(format!(
                "{message}\n  help: --ca has to have signed the daemon's certificate, and the authority of the daemon's \
                 --api-ca that of --cert; both have to be valid now"
            )),
            ClientError::Unreachable(..)
            | ClientError::Broken(_)
            | ClientError::Misunderstood(_) => Failure::NotReachable(message),
            ClientError::Problem(problem) => (*problem).into(),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let message = match problem.remedy.as_str() {
            "" => problem.detail,
            remedy => format!("{}\n  help: {remedy}", problem.detail),
        };
        if problem.status == 403 {
            return Failure::NotPermitted(message);
        }
        if problem.errors.is_empty() {
            return Failure::Operation(message);
        }
        Failure::Diagnostics(message, problem.errors)
    }
}
