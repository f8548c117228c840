//! From the desired state to actions.
//!
//! A document ([`yaml`]) is decoded ([`decode`]) into a [`model::Deployment`] and checked
//! ([`validate`]) against the host and the catalogue of NFs; its [`inventory::Inventory`] is
//! compared with the present one ([`plan`]), the difference is carried out as one transaction
//! ([`apply`]) and kept on disk ([`state`]). [`controller::Controller`] does all of it in order.
//!
//! This crate does no system call but file I/O in [`state::FileStore`], knows no HTTP, no clock and
//! no thread: the host, the actuator and time are handed to it.
#![forbid(unsafe_code)]

pub mod access;
pub mod action;
pub mod apply;
pub mod attachments;
pub mod balance;
pub mod capacity;
pub mod change;
pub mod changes;
pub mod congestion;
pub mod controller;
pub mod decode;
mod departures;
pub mod desired;
pub mod diff;
pub mod document;
pub mod events;
pub mod fast;
pub mod frames;
pub mod group;
pub mod guards;
mod guests;
pub mod health;
pub mod host;
pub mod interface;
pub mod inventory;
pub mod io;
mod levels;
pub mod matching;
pub mod members;
pub mod model;
pub mod netns;
pub mod placement;
pub mod plan;
pub mod pool;
pub mod portion;
pub mod promise;
pub mod quantity;
pub mod report;
pub mod setting;
pub mod single;
pub mod slices;
pub mod spec;
pub mod stack;
pub mod state;
pub mod stopwatch;
pub mod supervise;
pub mod table;
pub mod template;
pub mod tier;
pub mod validate;
pub mod wake;
pub mod wiring;
pub mod yaml;
