//! The counters of a member that is removed: the first member continues them.
//!
//! The daemon reads the counters before the member ends, and adds them to the first member afterwards. A daemon that
//! is killed in between loses the counts; none is counted twice.

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

/// The counters of a member.
pub struct Counts {
    /// The control socket of the first member.
    first: PathBuf,
    state: OwnedFd,
    bytes: u64,
}

/// Returns the counters of this instance, if it is a further member. The host is not locked meanwhile.
pub fn counts_of<C: Services>(host: &Mutex<C>, name: &str, budget: &mut Budget) -> Option<Counts> {
    let front = front_of(name)?;
    let (own, first) = {
        let host = lock(host);
        let socket = |name| {
            let running = host.instances().get(name)?;
            // A paused instance does not answer.
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
    /// Adds the counters to the first member. No flow is among them.
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
