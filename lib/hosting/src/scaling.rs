//! A member of several instances that share the flows of their ports, while flows move from one member to another
//! (`docs/adr/0022-scale-out.md`).
//!
//! A member that is about to gain flows **stands still** at a batch edge: their frames wait in its rings. A member
//! that loses flows goes on and **drains**: it handles the frames that came before the flows were led elsewhere, and
//! exports its state. After the other member has imported the state of these flows, the first one **forgets** it.

use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Longest time for which a member stands still: after that, the daemon has forgotten it.
const STANDING: Duration = Duration::from_secs(10);
/// Longest time for handling the frames that wait in the rings.
const DRAINING: Duration = Duration::from_secs(2);

/// A standstill of a member.
#[derive(Debug)]
pub struct Standing {
    /// Closed by the daemon, or when the daemon dies, at the end of the standstill.
    way: OwnedFd,
    since: Instant,
}

impl Standing {
    /// Begins a standstill that lasts until the other end of `way` is closed.
    pub fn on(way: OwnedFd) -> Self {
        Standing {
            way,
            since: Instant::now(),
        }
    }

    /// Waits until `wake` is readable or the standstill is over. Returns true if the member still stands still.
    pub fn wait(&self, wake: &OwnedFd) -> anyhow::Result<bool> {
        let left = STANDING.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec::try_from(left)?;
        let mut fds = [&self.way, wake].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns a port whose ring is not read up to the position in `until`, if there is one. `taken` returns the position
/// of a port.
pub fn behind(until: &[u32], taken: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    let mut ports = until.iter().enumerate();
    let behind = ports.find(|(port, position)| {
        // Positions wrap around: a port is behind by less than half of their range.
        taken(*port).is_some_and(|taken| (position.wrapping_sub(taken) as i32) > 0)
    });
    behind.map(|(port, _)| port)
}

/// Checks that a drain that began at `begun` may still go on, with frames waiting on port `behind`.
pub fn check_patience(begun: Instant, behind: usize) -> anyhow::Result<()> {
    if begun.elapsed() > DRAINING {
        bail!(
            "frames still wait on its port {behind} after {} s",
            DRAINING.as_secs()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    // promise: 7.39
    #[test]
    fn it_stands_still_until_the_other_end_is_closed() {
        let kind = (AddressFamily::UNIX, SocketType::STREAM);
        let (way, its_end) =
            socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a pair");
        let wake = eventfd(1, EventfdFlags::NONBLOCK).expect("an eventfd");
        let standing = Standing::on(way);
        assert!(standing.wait(&wake).expect("a wait"), "a request waits");
        drop(its_end);
        assert!(!standing.wait(&wake).expect("a wait"), "it goes on");
    }

    #[test]
    fn a_ring_is_behind_also_around_the_end_of_numbers() {
        let behind = |until: [u32; 2], taken: [u32; 2]| {
            super::behind(&until, |port| taken.get(port).copied())
        };
        assert_eq!(behind([2, 40], [u32::MAX - 1, 40]), Some(0));
        assert_eq!(behind([2, 40], [2, 39]), Some(1));
        assert_eq!(behind([2, 40], [3, 40]), None);
        assert_eq!(
            super::behind(&[1, 1, 1], |_| None),
            None,
            "ports that it does not have"
        );
        assert!(check_patience(Instant::now(), 0).is_ok());
    }
}
