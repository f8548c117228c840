//! The loop of an I/O thread.

use crate::duty::Duty;
use crate::placement::Pin;
use nfluid_ring::doorbell::{AGEING, fresh_epoch};
use nfluid_switch::abi::SERVE_PORTS;
use nfluid_switch::serve::Serve;
use rustix::event::{Timespec, epoll};
use rustix::thread::sched_yield;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The behaviour of a thread while no port has frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The thread lets others on its core run and looks again: fastest, and a whole core.
    Poll,
    /// The thread looks so many times more, then sleeps until an instance rings. On the instance's own core 0 is
    /// right: no frame comes while the thread looks.
    Sleep {
        /// Looks at all ports.
        looks: u32,
    },
}

/// Counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Frames consumed, as the instances' rings say.
    pub frames: u64,
    /// Visits of ports that had frames.
    pub visits: u64,
    /// Runs of the switch, each over many ports.
    pub runs: u64,
    /// Runs that failed.
    pub errors: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Doorbells rung, of receivers and of senders.
    pub rings: u64,
}

/// Serves ports.
#[derive(Debug)]
pub struct Worker {
    serve: Serve,
    idle: Idle,
    duties: Vec<Duty>,
    /// The place of a port in `duties`.
    places: HashMap<u32, usize>,
    /// Doorbells of the instances, and whatever else its owner listens to.
    doorbells: OwnedFd,
    shares_core: bool,
    epoch: u32,
    empty_looks: u32,
    /// Sleeps over frames that a full link has kept, since one has gone on.
    retries: u32,
    stats: WorkerStats,
}

/// Key of the owner's descriptor; instances' doorbells have others.
const OWNER: u64 = 1;
const INSTANCE: u64 = 0;
/// Longest sleep over frames that a full link has kept.
const RETRY: Duration = Duration::from_micros(20);
/// Number of such sleeps in a row. Every frame that is forwarded resets their count.
const RETRIES: u32 = 16;
/// The pause between retries from then on. A receiver that takes no frames any more, or two instances that cooperate in
/// this, would otherwise make a thread for many instances poll 50,000 times a second.
const RETRY_LATER: Duration = Duration::from_micros(500);
/// Visits of a port that is removed. The frames that a ring holds take four. The thread does not wait for an instance
/// that goes on handing frames over after it was notified of the removal, or writes nonsense into its ring.
const LAST_VISITS: u32 = 64;
/// Doorbells answered at once; the rest by the next wait.
const EVENTS: usize = 16;

impl Worker {
    /// A worker without ports. `owner`: a descriptor that ends its sleep when it becomes readable.
    ///
    /// # Errors
    /// When no epoll instance can be made.
    pub fn new(serve: Serve, idle: Idle, owner: Option<&OwnedFd>) -> io::Result<Self> {
        let doorbells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(owner) = owner {
            let data = epoll::EventData::new_u64(OWNER);
            epoll::add(&doorbells, owner, data, epoll::EventFlags::IN)?;
        }
        Ok(Worker {
            serve,
            idle,
            duties: Vec::new(),
            places: HashMap::new(),
            doorbells,
            shares_core: false,
            epoch: fresh_epoch(),
            empty_looks: 0,
            retries: 0,
            stats: WorkerStats::default(),
        })
    }

    /// Declares that the thread runs on its instance's core: the instance need not ring before it sleeps itself.
    pub(crate) fn set_shares_core(&mut self) {
        self.shares_core = true;
    }

    /// Returns the counters.
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    /// Numbers of the ports that it serves.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.duties.iter().map(Duty::port)
    }

    /// Serves one more port: its instance makes no calls from now on.
    ///
    /// # Errors
    /// When its doorbell cannot be listened to; the port is as it was.
    pub fn add(&mut self, duty: Duty) -> io::Result<()> {
        let data = epoll::EventData::new_u64(INSTANCE);
        // The doorbell is listened to by edge: each ring is an event, and need not be read.
        let by_edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        match epoll::add(&self.doorbells, duty.doorbells().io.as_fd(), data, by_edge) {
            // Another port of the same instance was added before.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        duty.take_over(self.shares_core);
        self.places.insert(duty.port(), self.duties.len());
        self.duties.push(duty);
        Ok(())
    }

    /// Stops serving a port: its instance makes its calls itself. Frames that the instance has handed over are
    /// switched, except for frames that a full link keeps: the instance's next call takes those along.
    pub fn remove(&mut self, port: u32) -> Option<Duty> {
        let at = self.places.remove(&port)?;
        let mut duty = self.duties.swap_remove(at);
        if let Some(moved) = self.duties.get(at) {
            self.places.insert(moved.port(), at);
        }
        duty.leave();
        visit_last(|| duty.has_frames() && self.visit_alone(&mut duty));
        self.stats.rings += u64::from(duty.ring_instance(&self.serve));
        let last = !self
            .duties
            .iter()
            .any(|other| Arc::ptr_eq(other.doorbells(), duty.doorbells()));
        if last {
            // The doorbell was added before; an error would mean that it is gone already.
            let _ = epoll::delete(&self.doorbells, duty.doorbells().io.as_fd());
        }
        Some(duty)
    }

    /// Serves no port any longer.
    pub(crate) fn remove_all(&mut self) {
        let ports: Vec<u32> = self.ports().collect();
        for port in ports {
            self.remove(port);
        }
    }

    /// Returns true if frames were consumed.
    fn visit_alone(&mut self, duty: &mut Duty) -> bool {
        duty.note_head();
        self.run(&[duty.port()]) && duty.finish(&self.serve).frames > 0
    }

    /// Runs the switch once for all ports that have frames. Returns the number of frames consumed.
    pub fn turn(&mut self) -> u64 {
        self.serve_places(0..self.duties.len())
    }

    /// Runs the switch for the ports that `next` names, at most as many as one run takes, and looks at no others: for
    /// thousands of ports whose senders say in a ring of their own that they have frames (`nfluid_ring::mpsc`). Ports
    /// that this thread does not serve, or that have no frames, are passed over. Returns the number of frames
    /// consumed.
    pub fn turn_of(&mut self, next: impl FnMut() -> Option<u32>) -> u64 {
        let mut named = [0; SERVE_PORTS];
        let mut count = 0;
        for port in std::iter::from_fn(next).take(SERVE_PORTS) {
            if let Some(&at) = self.places.get(&port) {
                named[count] = at;
                count += 1;
            }
        }
        self.serve_places(named.into_iter().take(count))
    }

    /// Runs the switch for the ports at these places that have frames. Returns the number of frames consumed.
    fn serve_places(&mut self, places: impl Iterator<Item = usize>) -> u64 {
        let before = self.stats.frames;
        let mut busy = [(0usize, 0u32); SERVE_PORTS];
        let mut count = 0;
        for at in places {
            let duty = &mut self.duties[at];
            if !duty.has_frames() {
                continue;
            }
            duty.note_head();
            busy[count] = (at, duty.port());
            count += 1;
            if count == busy.len() {
                self.visit(&busy);
                count = 0;
            }
        }
        if count > 0 {
            self.visit(&busy[..count]);
        }
        self.stats.frames - before
    }

    fn visit(&mut self, busy: &[(usize, u32)]) {
        let mut ports = [0; SERVE_PORTS];
        for (port, (_, number)) in ports.iter_mut().zip(busy) {
            *port = *number;
        }
        if !self.run(&ports[..busy.len()]) {
            return;
        }
        self.stats.visits += busy.len() as u64;
        for (at, _) in busy {
            let visit = self.duties[*at].finish(&self.serve);
            self.stats.frames += u64::from(visit.frames);
            self.stats.rings += u64::from(visit.rings);
        }
    }

    fn run(&mut self, ports: &[u32]) -> bool {
        self.stats.runs += 1;
        let run = self.serve.run(ports);
        if let Err(error) = &run {
            self.stats.errors += 1;
            tracing::error!(%error, "an I/O thread cannot run the switch");
        }
        run.is_ok()
    }

    /// Runs a turn. After enough turns without frames, the thread sleeps until an instance or the owner rings.
    /// Returns true if the owner has rung.
    ///
    /// # Errors
    /// As `epoll_wait` reports them.
    pub(crate) fn turn_or_sleep(&mut self, pin: &mut Pin) -> io::Result<bool> {
        // An instance may send on some of its ports only: a port that has frames is chosen.
        let sends = self.duties.iter().find(|duty| duty.has_frames());
        pin.follow(sends.and_then(Duty::sender_cpu));
        if self.turn() > 0 {
            (self.empty_looks, self.retries) = (0, 0);
            return Ok(false);
        }
        match self.idle {
            Idle::Poll => {
                sched_yield();
                Ok(false)
            }
            Idle::Sleep { looks } if self.empty_looks < looks => {
                self.empty_looks += 1;
                std::hint::spin_loop();
                Ok(false)
            }
            Idle::Sleep { .. } => {
                self.empty_looks = 0;
                self.sleep()
            }
        }
    }

    /// Sleeps, unless an instance hands frames over before the sleep has been announced to all instances.
    fn sleep(&mut self) -> io::Result<bool> {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.announce(self.epoch);
        // The fence lies between the announcement and the last look; a sender stores `tx_head` before it looks at the
        // announcement. So either the thread sees the frame, or the sender sees the announcement.
        fence(Ordering::SeqCst);
        let owner = if self.duties.iter().any(Duty::has_new_frames) {
            false
        } else {
            self.stats.sleeps += 1;
            // No doorbell is rung when a full link has room again.
            let keeps = self.duties.iter().any(Duty::has_frames);
            let timeout = if keeps {
                self.retries = self.retries.saturating_add(1);
                retry_after(self.retries)
            } else {
                AGEING
            };
            self.wait(&timeout.try_into().map_err(io::Error::other)?)?
        };
        self.announce(0);
        Ok(owner)
    }

    fn announce(&self, epoch: u32) {
        for duty in &self.duties {
            duty.announce(epoch);
        }
    }

    fn wait(&self, timeout: &Timespec) -> io::Result<bool> {
        let nothing = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(INSTANCE),
        };
        let mut events = [nothing; EVENTS];
        match epoll::wait(&self.doorbells, &mut events, Some(timeout)) {
            Ok(count) => Ok(events[..count]
                .iter()
                .any(|event| event.data.u64() == OWNER)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns the time to sleep over frames that a full link has kept, for that many times in a row.
fn retry_after(times: u32) -> Duration {
    if times > RETRIES { RETRY_LATER } else { RETRY }
}

/// Visits a port that is left, as long as that does something.
fn visit_last(mut visit: impl FnMut() -> bool) {
    for _ in 0..LAST_VISITS {
        if !visit() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LAST_VISITS, RETRIES, RETRY, retry_after, visit_last};
    use nfluid_ring::layout::RING_MAX;
    use nfluid_switch::abi::CALL_FRAMES;
    use std::time::Duration;

    // promise: 3.17
    #[test]
    fn a_link_that_stays_full_is_looked_at_two_thousand_times_a_second_at_most() {
        let sleeps = |times: u32| (1..=times).map(retry_after).sum::<Duration>();
        assert_eq!(sleeps(RETRIES), RETRY * RETRIES);
        assert!(sleeps(RETRIES + 2000) - sleeps(RETRIES) >= Duration::from_secs(1));
        assert_eq!(retry_after(u32::MAX), retry_after(RETRIES + 1));
    }

    #[test]
    fn a_port_that_always_has_frames_is_left_nevertheless() {
        let mut visits = 0;
        visit_last(|| {
            visits += 1;
            true
        });
        assert_eq!(visits, LAST_VISITS);
        assert!(
            visits as usize * CALL_FRAMES as usize >= RING_MAX,
            "all that was there is switched"
        );
    }

    #[test]
    fn a_port_is_visited_until_nothing_moves() {
        let mut left = 3;
        visit_last(|| {
            left -= 1;
            left > 0
        });
        assert_eq!(left, 0);
    }
}
