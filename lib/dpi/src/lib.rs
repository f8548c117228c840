//! Deep packet inspection: what flows carry, found out by nDPI from their first packets, with a fast path in XDP for those that
//! are decided (`docs/adr/0020-edpi.md`).
//!
//! [`classifier`] alone classifies the packets that it is given. [`inspector`] is fed by the fast path and directs
//! its treatment of the rest of each flow.

pub mod classifier;
pub mod headers;
pub mod inspector;
pub mod ledger;
pub mod library;
pub mod policy;
