//! Programs of instances.

use serde::Serialize;

/// What runs in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Program {
    /// A network function of nfluid's own, by name.
    BuiltIn {
        /// Its name in the catalogue.
        nf: String,
    },
    /// A program of the user's that links the port library.
    Path {
        /// Absolute path of the executable.
        program: String,
        /// Its arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
    },
}

impl Program {
    /// The NF's name or the program's path.
    pub fn name(&self) -> &str {
        match self {
            Program::BuiltIn { nf } => nf,
            Program::Path { program, .. } => program,
        }
    }
}
