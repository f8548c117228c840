//! What a member has counted, when it goes: the first one goes on counting from there.
//!
//! It is asked before it ends and told on after that: a daemon that is killed in between loses it, and nothing is counted twice.

use crate::services::{Services, lock};
use nfluid_control::members::front_of;
use nfluid_protocol::Request;
use nfluid_protocol::answer::{self, Exported};
use nfluid_protocol::daemon::{Budget, memory_file};
use nfluid_protocol::request::Part;
use nfluid_ring::flow::Buckets;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;

/// What a member has counted.
pub struct Counts {
    /// Where the first member listens.
    first: PathBuf,
    state: OwnedFd,
    bytes: u64,
}

/// What this instance has counted, if it is a further member of one. The host is not locked meanwhile.
pub fn counts_of<C: Services>(host: &Mutex<C>, name: &str, budget: &mut Budget) -> Option<Counts> {
    let front = front_of(name)?;
    let (own, first) = {
        let host = lock(host);
        let socket = |name| {
            let running = host.instances().get(name)?;
            // Who stands still answers nobody.
            let control = running.workload.control().to_owned();
            running.answers().then_some(control)
        };
        (socket(name)?, socket(front)?)
    };
    let state = memory_file("state", &[]).ok()?;
    let request = Request::Export { state_only: true };
    let answer = budget.ask_about(&own, &request, Some(state.as_fd()));
    let answer = answer.inspect_err(|why| {
        tracing::debug!(
            instance = name,
            "it does not say what it has counted: {why:#}"
        );
    });
    let bytes = answer::read::<Exported>(answer.ok()?)?.state_bytes;
    Some(Counts {
        first,
        state,
        bytes,
    })
}

impl Counts {
    /// Leaves them to the first member. None of them is a flow.
    pub fn leave(self, budget: &mut Budget) {
        let request = Request::Import {
            bytes: self.bytes,
            part: Some(Part {
                flows: Buckets::default().0,
                counts: true,
            }),
        };
        if let Err(why) = budget.ask_about(&self.first, &request, Some(self.state.as_fd())) {
            tracing::warn!("what a member that has gone has counted is lost: {why:#}");
        }
    }
}
