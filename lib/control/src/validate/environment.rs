//! Inputs of validation: the host and the NF catalogue, and the origin of the deployment.

use crate::host::{Catalogue, Host};
use crate::model::Deployment;
use crate::yaml::Node;

/// The facts that a deployment is checked against.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The host.
    pub host: &'a dyn Host,
    /// The NFs.
    pub catalogue: &'a dyn Catalogue,
}

/// The origin of a deployment.
#[derive(Clone, Copy, Default)]
pub struct Background<'a> {
    /// The document that the deployment was read from, if any.
    pub root: Option<&'a Node>,
    /// The deployment in force: its configurations are valid already, and are not checked again.
    pub present: Option<&'a Deployment>,
}
