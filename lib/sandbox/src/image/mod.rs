//! Root directories from container images: the layers of an image, read-only and shared, below what an instance writes.

mod owners;
mod probing;
mod tree;

pub(crate) use owners::Owners;
pub(crate) use probing::container_images;
pub use tree::{Layers, Tree};
