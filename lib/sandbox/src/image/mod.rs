//! Root directories from container images: the layers of an image, read-only and shared, below what an instance writes.

mod owners;
mod tree;

pub(crate) use owners::Owners;
pub use tree::{Layers, Tree};
