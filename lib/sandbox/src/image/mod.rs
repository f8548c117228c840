//! Root directories from container images: the layers of an image, read-only and shared, below what an instance writes.

mod owners;
mod probing;
mod tree;

pub(crate) use owners::Owners;
pub(crate) use probing::container_images;
pub use tree::{Layers, Tree};

use rustix::fs::ResolveFlags;

/// How paths in an image are resolved: links lead where they lead with the image as the root directory.
pub(crate) const WITHIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
