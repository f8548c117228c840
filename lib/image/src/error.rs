//! Errors.

use std::io;
use std::path::Path;

/// Reason for which an image cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The kernel refused.
    #[error("cannot {what} {place}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        place: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The text names no image.
    #[error("'{text}' names no image: {why}")]
    Reference {
        /// The text.
        text: String,
        /// The defect.
        why: &'static str,
    },
    /// The image is not what its format or its digests say.
    #[error("{place}: {why}")]
    Bad {
        /// The part of the image.
        place: String,
        /// The defect, and the remedy.
        why: String,
    },
    /// The store has no such image.
    #[error("there is no image '{0}' here; 'nfluid image list' lists them")]
    Unknown(String),
}

impl ImageError {
    /// The kernel's refusal of an operation on a file.
    pub(crate) fn io(what: &'static str, place: &Path, source: impl Into<io::Error>) -> Self {
        let (place, source) = (place.display().to_string(), source.into());
        ImageError::Io {
            what,
            place,
            source,
        }
    }

    /// A defect of a part of an image.
    pub(crate) fn bad(place: impl Into<String>, why: impl Into<String>) -> Self {
        let (place, why) = (place.into(), why.into());
        ImageError::Bad { place, why }
    }
}
