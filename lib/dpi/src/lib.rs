//! Deep packet inspection: what flows carry, found out by nDPI from their first packets, with a fast path in XDP for those that
//! are decided (`docs/adr/0020-edpi.md`).
//!
//! [`classifier`] alone classifies what it is shown. [`inspector`] is fed by the fast path and tells it what to do with the rest of
//! each flow.

pub mod classifier;
pub mod headers;
pub mod inspector;
pub mod ledger;
pub mod library;
pub mod policy;
