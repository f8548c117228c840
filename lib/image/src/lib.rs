//! Container images: read from what `skopeo copy`, `podman save` and `docker save` write, and kept in a [`Store`] as
//! unpacked layers that all instances share.
//!
//! Everything in an image is another party's word. Each blob is compared with its digest. Each layer is unpacked below a
//! directory that no entry can leave, whatever links it makes, within a [`Budget`] of bytes and entries. Device nodes, setuid
//! bits and extended attributes are left out, and counted.
//!
//! Formats: the OCI image format specification 1.1 (layout, index, manifest, configuration, layers with whiteouts), and the
//! archive of `docker save` with its `manifest.json`.

#![forbid(unsafe_code)]

mod blobs;
mod budget;
mod choice;
mod digest;
mod entries;
mod error;
mod layer;
mod reference;
mod settings;
mod store;
mod tree;
mod users;

pub use budget::Budget;
pub use error::ImageError;
pub use layer::LeftOut;
pub use reference::Reference;
pub use settings::Settings;
pub use store::{Image, Imported, Pruned, Record, Store};
pub use users::{Ids, NoUser, User};
