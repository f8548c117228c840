//! Programs of instances.

use super::Frames;
use crate::tier::Tier;
use serde::Serialize;

/// The program of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Program {
    /// A built-in network function, by name.
    BuiltIn {
        /// Name in the catalogue.
        nf: String,
    },
    /// A user's program that links the port library.
    Path {
        /// Absolute path of the executable.
        program: String,
        /// Arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
    },
    /// The program of a container image.
    Image {
        /// Where the image is: see the guide.
        image: String,
        /// The program and its first arguments, instead of the image's entrypoint and command.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        entrypoint: Vec<String>,
        /// Arguments, instead of the image's command.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
    },
}

impl Program {
    /// Returns the most that the program can take, as far as that is known. What a built-in NF takes is in the catalogue; a
    /// test compares.
    pub fn frames(&self) -> Frames {
        match self {
            Program::BuiltIn { nf } if nf == "signature" => Frames::Plain,
            Program::BuiltIn { .. } | Program::Path { .. } | Program::Image { .. } => Frames::Super,
        }
    }

    /// Returns true if in an instance of this tier nfluid's own program runs around it: it answers requests, and takes a
    /// new configuration.
    pub fn is_hosted(&self, tier: Tier) -> bool {
        matches!(self, Program::BuiltIn { .. }) || tier.capabilities().hosted
    }

    /// Returns the NF's name, the program's path or the image.
    pub fn name(&self) -> &str {
        match self {
            Program::BuiltIn { nf } => nf,
            Program::Path { program, .. } => program,
            Program::Image { image, .. } => image,
        }
    }
}
