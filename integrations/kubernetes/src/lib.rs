//! A node agent for Kubernetes: a host of nfluid is a node, and the pods bound to it are instances.
//!
//! The agent runs beside the daemon. It registers the host as a node and renews its lease ([`agent`], `node.rs`). For each pod that the
//! scheduler binds to the node, it makes the instances that the pod asks for (`wanted.rs`, `pods.rs`), and tells Kubernetes what has become of
//! them (`status.rs`). It keeps nothing on disk: what there is to do follows from the pods and from the daemon's instances at any moment.
//! Network functions and chains are objects of Kubernetes (`crds`), of which a [`controller`] makes such pods, once for a cluster. Switches
//! and uplinks are objects too, which the agents make on their hosts (`parts.rs`); the controller says what all nodes have in common
//! (`summary.rs`).
//! Nodes can be simulated, to try a cluster larger than one has ([`simulation`]).
//! `kubectl logs` and `exec`, and the readers of metrics, reach it as they reach a kubelet (`service`).
#![forbid(unsafe_code)]

pub mod agent;
mod amounts;
mod child;
mod children;
mod cluster;
mod configs;
pub mod controller;
pub mod crds;
mod events;
mod files;
mod foreign;
mod latest;
mod node;
mod parts;
mod pods;
mod render;
mod service;
pub mod settings;
pub mod simulation;
mod status;
mod summary;
mod wanted;
