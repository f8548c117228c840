//! A YAML document as a tree in which every node knows its line and column.
//!
//! Reading is bounded before anything is built: bytes, depth, number of nodes, and what aliases
//! expand to. JSON is a subset of YAML and is read by the same code.

mod emit;
mod node;
mod parse;

pub use emit::to_text;
pub use node::{Entry, Kind, Mark, Node, Scalar};
pub use parse::{DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, SyntaxError, parse};
