//! Supervision of instances and uplinks: the ports of an ended process are reclaimed at once, and the process is
//! started again as its policy says.

use super::{Host, Shared, lock};
use nfluid_lifecycle::running::Running;
use nfluid_lifecycle::services::Services as _;
use nfluid_lifecycle::{placing, supervision};
use nfluid_switch::Gaps;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Interval at which the list of instances is read again while nothing ends and nothing is due.
const LOOK: Duration = Duration::from_millis(200);
/// Interval at which some instances are checked whose end the kernel may not have reported.
const ROUND: Duration = Duration::from_secs(1);
/// Interval at which aged addresses are removed, and rings that may be stuck are checked.
const SWEEP: Duration = Duration::from_secs(5);

/// Supervises the host's instances; never returns.
pub fn run(host: &Shared) -> ! {
    let mut last_sweep = Instant::now();
    let mut last_look = Instant::now();
    let mut last_balance = Instant::now();
    let mut gaps = Gaps::default();
    let exits = lock(host).maker.exits.readable();
    loop {
        let (pidfds, wait) = lock(host).watched();
        let mut fds: Vec<PollFd<'_>> = pidfds
            .iter()
            .chain([&*exits])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(wait).unwrap_or_default();
        // Interrupted or not, the loop checks all descriptors.
        let _ = poll(&mut fds, Some(&timeout));
        let host = &mut *lock(host);
        let ended = host.maker.exits.ended();
        supervision::note_exits(host, &ended);
        supervision::start_due(host);
        host.watch_uplinks();
        host.meter_uplinks();
        if host.io.watch(&mut host.instances) {
            host.set_io_weights();
        }
        if last_look.elapsed() > ROUND {
            last_look = Instant::now();
            supervision::check_some(host);
            // An uplink may take less than it was asked to.
            host.settle_stacks(None);
        }
        if last_balance.elapsed() > placing::ROUND {
            last_balance = Instant::now();
            placing::balance(host);
            placing::report_guarantees(host);
        }
        if last_sweep.elapsed() > SWEEP {
            last_sweep = Instant::now();
            host.maker.connectors.reap();
            if let Err(error) = host.switch.fdb_sweep() {
                tracing::warn!(%error, "removing aged addresses");
            }
            host.heal_rings(&mut gaps);
        }
    }
}

impl Host {
    /// Marks holes in rings whose receivers wait for a frame that no sender will publish any more.
    fn heal_rings(&self, gaps: &mut Gaps) {
        let of_instances = self.instances.values().flat_map(Running::port_numbers);
        let ports = of_instances.chain(self.uplinks.port_ids());
        match self.switch.heal(gaps, ports) {
            Ok(healed) => {
                for (port, frames) in healed {
                    tracing::error!(
                        port,
                        frames,
                        "a ring was stuck; the frames are counted as reclaimed"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "looking for rings that are stuck"),
        }
    }

    /// Returns the descriptors that become readable when a process of an uplink or of the I/O threads ends, and the
    /// longest time to wait.
    fn watched(&self) -> (Vec<OwnedFd>, Duration) {
        let now = self.instances.now();
        let due = supervision::due_at(self);
        let (uplinks, uplink_due) = self.uplinks.watched();
        let (io, io_due) = self.io.watched();
        let wait = due
            .into_iter()
            .chain(uplink_due)
            .chain(io_due)
            .map(|at| Duration::from_millis(at.0.saturating_sub(now.0)))
            .min();
        (
            uplinks.into_iter().chain(io).collect(),
            wait.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK),
        )
    }
}
