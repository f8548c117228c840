//! What a deployment is checked against, and what is known beside it.

use crate::host::{Catalogue, Host};
use crate::model::Deployment;
use crate::yaml::Node;

/// What a deployment is checked against.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The host.
    pub host: &'a dyn Host,
    /// The NFs.
    pub catalogue: &'a dyn Catalogue,
}

/// What is known about a deployment beside itself.
#[derive(Clone, Copy, Default)]
pub struct Background<'a> {
    /// The document that it was read from, if it was.
    pub root: Option<&'a Node>,
    /// The deployment in force: configurations that it has already need no second look.
    pub present: Option<&'a Deployment>,
}
