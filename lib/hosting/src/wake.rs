//! Waiting for several descriptors through one.

use anyhow::Context;
use rustix::event::epoll;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Returns a descriptor that is readable when one of these is.
///
/// # Errors
/// The kernel refuses.
pub fn any_of(descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll descriptor")?;
    for descriptor in descriptors {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&all, descriptor, data, epoll::EventFlags::IN)
            .context("watching a descriptor")?;
    }
    Ok(all)
}
