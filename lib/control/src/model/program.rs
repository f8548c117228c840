//! Programs of instances.

use super::Frames;
use crate::tier::Tier;
use serde::Serialize;

/// The interface by which a program has its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortApi {
    /// nfluid's port library.
    #[default]
    Library,
    /// A driver of DPDK, which is made of that library.
    Dpdk,
    /// netmap's, by a library that stands before the C library.
    Netmap,
}

impl PortApi {
    /// All, with the words of documents.
    pub const ALL: [(&str, PortApi); 3] = [
        ("library", PortApi::Library),
        ("dpdk", PortApi::Dpdk),
        ("netmap", PortApi::Netmap),
    ];

    fn is_library(&self) -> bool {
        *self == PortApi::Library
    }
}

/// The program of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Program {
    /// A built-in network function, by name.
    BuiltIn {
        /// Name in the catalogue.
        nf: String,
    },
    /// A user's program.
    Path {
        /// Absolute path of the executable.
        program: String,
        /// Arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// How it has its ports.
        #[serde(skip_serializing_if = "PortApi::is_library")]
        api: PortApi,
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
            Program::BuiltIn { nf } if ["signature", "dataflow"].contains(&nf.as_str()) => {
                Frames::Plain
            }
            Program::BuiltIn { .. } | Program::Path { .. } | Program::Image { .. } => Frames::Super,
        }
    }

    /// Returns the interface by which it has its ports.
    pub fn api(&self) -> PortApi {
        match self {
            Program::Path { api, .. } => *api,
            Program::BuiltIn { .. } | Program::Image { .. } => PortApi::Library,
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
