//! Errors, as OpenVIM's clients read them.

use axum::http::StatusCode;
use nfluid_api::client::ClientError;
use nfluid_engine::requests;
use uuid::Uuid;

/// The reason why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The status of the answer.
    pub status: StatusCode,
    /// The reason in words.
    pub text: String,
}

impl Fault {
    /// The request makes no sense.
    pub fn bad(text: impl Into<String>) -> Self {
        Fault::new(StatusCode::BAD_REQUEST, text)
    }

    /// The caller needs the administrator's address.
    pub fn of_administrators(what: &str) -> Self {
        Fault::new(
            StatusCode::UNAUTHORIZED,
            format!(
                "{what} needs the rights of an administrator: use the address of --admin-listen"
            ),
        )
    }

    /// There is no such object.
    pub fn unknown(word: &str, id: impl std::fmt::Display) -> Self {
        Fault::new(StatusCode::NOT_FOUND, format!("{word} {id} not found"))
    }

    /// The state of an object does not allow this action.
    pub fn not_now(text: impl Into<String>) -> Self {
        Fault::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// Something else is in the way.
    pub fn conflict(text: impl Into<String>) -> Self {
        Fault::new(StatusCode::CONFLICT, text)
    }

    /// A host does not answer.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// This server, or its database, has failed.
    pub fn internal(text: impl Into<String>) -> Self {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Fault { status, text }
    }

    /// Returns the fault of a request to a daemon, which has refused or not answered. `place` turns the place of a fault in a deployment into the place in OpenVIM's object.
    pub fn of_daemon(error: &ClientError, host: &str, place: impl Fn(&str) -> String) -> Self {
        let text = format!("host {host}: {}", requests::words(error, place));
        let ClientError::Problem(problem) = error else {
            return Fault::unavailable(text);
        };
        match problem.status {
            404 => Fault::new(StatusCode::NOT_FOUND, text),
            409 | 429 => Fault::conflict(text),
            // The daemon does not let this server do it: nothing that the client could change.
            401 | 403 | 500.. => Fault::internal(text),
            _ => Fault::bad(text),
        }
    }

    /// Returns true if the same request may succeed later, with nothing changed but the hosts.
    pub fn may_pass(&self) -> bool {
        self.status.is_server_error()
    }
}

/// Reads an id.
///
/// # Errors
/// The text is no UUID, so there is no such object.
pub fn id(word: &str, text: &str) -> Result<Uuid, Fault> {
    // Other ways to write UUIDs (without hyphens, in braces) are none in OpenVIM.
    let is_hyphenated = text.len() == uuid::fmt::Hyphenated::LENGTH;
    let parsed = Uuid::try_parse(text).ok().filter(|_| is_hyphenated);
    parsed.ok_or_else(|| Fault::unknown(word, format_args!("'{}'", shortened(text))))
}

/// Returns the beginning of a text of a client.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
