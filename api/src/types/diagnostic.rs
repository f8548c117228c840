//! Faults of a document or a request: place, cause, remedy.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The document is refused.
    #[default]
    Error,
    /// The document is accepted, but has probably not the meaning that its author intended.
    Warning,
}

/// The cause of an error, where a program that asks may decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// This host has not, or no longer, what is asked for. Another host may have it.
    NoRoom,
    /// The object exists, and is another owner's.
    NotYours,
}

/// An error or a warning: place, cause and remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diagnostic {
    /// Error or warning.
    #[serde(default)]
    pub severity: Severity,
    /// The file as the user named it; absent when no file is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the file, 1-based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in the line, 1-based, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Path of the key, for example `instances.fw1.share`; empty for the whole document.
    #[serde(default)]
    pub path: String,
    /// The cause, if it is one of those that programs decide by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The fault.
    pub message: String,
    /// The remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl fmt::Display for Diagnostic {
    /// Writes `file:line:column: error: path: message` and, on a second line, the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
            if let Some(column) = self.column {
                write!(f, "{column}:")?;
            }
        }
        if self.file.is_some() || self.line.is_some() {
            f.write_str(" ")?;
        }
        f.write_str(match self.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
        })?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "\n  help: {}", self.remedy)?;
        }
        Ok(())
    }
}

/// An error response, `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The type of the problem as a URI reference, for example `/problems/invalid-deployment`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The type in words; the same text for every problem of the type.
    pub title: Box<str>,
    /// HTTP status.
    pub status: u16,
    /// The fault of this request.
    pub detail: String,
    /// The remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// All errors that were found in the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Diagnostic>,
}

impl Problem {
    fn new(status: u16, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("/problems/{kind}"),
            title: title.into(),
            status,
            detail: detail.into(),
            ..Problem::default()
        }
    }

    /// 400: the request itself is malformed.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Problem::new(400, "bad-request", "The request is malformed", detail)
    }

    /// 403: the caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Problem::new(403, "forbidden", "The caller may not do this", detail)
    }

    /// 404: no object has this name.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(404, "not-found", "There is nothing of that name", detail)
    }

    /// 409: the request is valid, but not in the present state.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Problem::new(
            409,
            "conflict",
            "The present state does not allow this",
            detail,
        )
    }

    /// 413: the request exceeds a limit.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Problem::new(413, "too-large", "The request is too large", detail)
    }

    /// 422: the document has errors; nothing was changed.
    pub fn invalid(detail: impl Into<String>, errors: Vec<Diagnostic>) -> Self {
        Problem {
            errors,
            ..Problem::new(
                422,
                "invalid-deployment",
                "The deployment has errors",
                detail,
            )
        }
    }

    /// 500: a valid request failed, and its changes were undone.
    pub fn failed(detail: impl Into<String>) -> Self {
        Problem::new(500, "operation-failed", "The operation failed", detail)
    }

    /// 503: the daemon cannot serve the request now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Problem::new(
            503,
            "unavailable",
            "The daemon cannot take this now",
            detail,
        )
    }

    /// 507: the state cannot be saved, for example on a full disk; nothing was changed.
    pub fn not_saved(detail: impl Into<String>) -> Self {
        Problem::new(
            507,
            "state-not-saved",
            "The state could not be saved",
            detail,
        )
    }

    /// Returns the problem with a remedy added.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if !self.remedy.is_empty() {
            write!(f, "\n  help: {}", self.remedy)?;
        }
        for error in &self.errors {
            write!(f, "\n{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
