//! A YAML document as a tree in which every node knows its line and column.
//!
//! Bounds are checked before anything is allocated: bytes, depth, number of nodes, and the expansion of aliases. JSON
//! is a subset of YAML and is read by the same code.

mod emit;
mod node;
mod parse;

pub use emit::to_text;
pub use node::{Entry, Kind, Mark, Node, Scalar};
pub use parse::{DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, SyntaxError, parse};
