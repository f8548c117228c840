//! A PE whose units run in processes, one for each slice, as the core manager sees it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustix::process::{Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use super::Tenant;
use super::apart::Apart;
use super::maker::{Birth, Maker, PeSettings, Request};
use super::region::Block;
use super::seat::{Seat, Word};
use crate::engine::array::Part;
use crate::engine::remote::Remote;
use crate::manager::{Dispatch, SliceId};
use crate::queue::{self, Line};

/// Nanoseconds between two looks at whether a process is still there.
const LOOK_EVERY: u64 = 20_000;

/// A unit that no process has yet.
struct Waiting {
    slice: SliceId,
    dispatch: Dispatch,
    ticket: u64,
    block: Arc<Block>,
}

/// A process, from when it is asked for until it is known to have ended.
struct Handle {
    birth: Arc<Birth>,
    /// Its number may be another's now.
    has_ended: bool,
}

impl Handle {
    /// Why the process has ended; `None` if it has not. Says it once.
    fn end(&mut self, options: WaitOptions) -> Option<String> {
        let pid = match *self.birth.get().filter(|_| !self.has_ended)? {
            Ok(pid) => pid,
            Err(errno) => {
                self.has_ended = true;
                return Some(format!("no process could be forked for it: {errno}"));
            }
        };
        let why = match waitpid(Some(pid), options) {
            Ok(None) => return None,
            Ok(Some((_, status))) => describe(status),
            // This process was told to ignore the ends of its children.
            Err(_) => "its process has ended".to_owned(),
        };
        self.has_ended = true;
        Some(why)
    }

    fn kill(&self) {
        if let Some(Ok(pid)) = self.birth.get().filter(|_| !self.has_ended) {
            // It is a child that nobody has waited for: the number is its own.
            let _ended_already = kill_process(*pid, Signal::KILL);
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => format!("its process was ended by signal {signal}"),
        (_, Some(code)) => format!("its process ended with status {code}"),
        _ => "its process has ended".to_owned(),
    }
}

/// A process of a slice.
struct Process {
    tenant: Arc<Tenant>,
    handle: Handle,
    remote: Remote<Part<Line>, Word>,
    seat: Seat,
    /// The blocks of the units that it has: no later interval gets one as long as the process may write to it.
    blocks: VecDeque<Arc<Block>>,
}

impl Process {
    fn run(&mut self, next: Waiting) {
        let Dispatch { slot, unit, .. } = next.dispatch;
        self.remote.run(slot, unit, next.ticket, next.block.first());
        self.blocks.push_back(next.block);
    }

    /// Kills the process, and returns true once it has ended. One that was not there yet is killed when it is.
    fn is_gone(&mut self) -> bool {
        self.handle.kill();
        let _why = self.handle.end(WaitOptions::NOHANG);
        self.handle.has_ended
    }
}

/// A PE.
pub struct Seats {
    maker: Arc<Maker>,
    pe: PeSettings,
    /// Messages that a process has at once.
    room: usize,
    processes: BTreeMap<SliceId, Process>,
    /// Units that wait until the process that runs has none left: one process of a PE runs at a time.
    waiting: VecDeque<Waiting>,
    /// The slice whose process has units, or has had them last.
    active: Option<SliceId>,
    /// Processes that were given up. They keep the memory that they may still write to.
    dying: Vec<Process>,
    looked: u64,
}

impl Seats {
    pub fn new(maker: Arc<Maker>, pe: PeSettings, room: usize) -> Self {
        Self {
            maker,
            pe,
            room,
            processes: BTreeMap::new(),
            waiting: VecDeque::new(),
            active: None,
            dying: Vec::new(),
            looked: 0,
        }
    }

    /// Sees to it that a slice has a process here. Returns false if its memory has no room for one.
    pub fn prepare(&mut self, tenant: &Arc<Tenant>) -> bool {
        if self.processes.contains_key(&tenant.slice) {
            return true;
        }
        let process = self.process(tenant);
        let is_there = process.is_some();
        self.processes
            .extend(process.map(|process| (tenant.slice, process)));
        is_there
    }

    fn process(&self, tenant: &Arc<Tenant>) -> Option<Process> {
        let seat = Seat::take(&tenant.region, self.room)?;
        let (commands, reports) = seat.manager()?;
        let birth = Arc::<Birth>::default();
        self.maker.fork(Request {
            pe: self.pe,
            tenant: Arc::clone(tenant),
            seat: seat.clone(),
            birth: Arc::clone(&birth),
        });
        Some(Process {
            tenant: Arc::clone(tenant),
            handle: Handle {
                birth,
                has_ended: false,
            },
            remote: Remote::new(commands, reports, seat.word()?),
            seat,
            blocks: VecDeque::new(),
        })
    }

    /// Gives a unit to the process of its slice, in its turn. Returns false if there is none and cannot be one.
    pub fn give(
        &mut self,
        tenant: &Arc<Tenant>,
        dispatch: Dispatch,
        ticket: u64,
        apart: &Apart,
    ) -> bool {
        let is_there = self.prepare(tenant);
        if is_there {
            self.waiting.push_back(Waiting {
                slice: tenant.slice,
                dispatch,
                ticket,
                block: Arc::clone(&apart.block),
            });
            self.advance();
        }
        is_there
    }

    fn advance(&mut self) {
        while let Some(next) = self.waiting.pop_front() {
            if self.active != Some(next.slice) {
                if self.running().is_some() {
                    return self.waiting.push_front(next);
                }
                // It would wait awake, on the core of the next one.
                self.let_sleep();
                self.active = Some(next.slice);
            }
            // A slice that loses its process loses the units that wait for it.
            if let Some(process) = self.processes.get_mut(&next.slice) {
                process.run(next);
            }
        }
    }

    fn running(&mut self) -> Option<(SliceId, &mut Process)> {
        let slice = self.active?;
        let process = self.processes.get_mut(&slice)?;
        (!process.blocks.is_empty()).then_some((slice, process))
    }

    /// The next word of the process that has units.
    pub fn report(&mut self) -> Option<queue::Word> {
        self.running()?.1.remote.report()
    }

    /// A unit has ended.
    pub fn ended(&mut self) {
        if let Some((_, process)) = self.running() {
            process.blocks.pop_front();
        }
        self.advance();
    }

    /// The slice of the process that has units.
    pub fn running_slice(&mut self) -> Option<SliceId> {
        Some(self.running()?.0)
    }

    /// Why a task of the process that has units failed, as it says.
    pub fn told(&mut self) -> String {
        let running = self.running();
        running.map_or_else(String::new, |(_, process)| process.seat.told())
    }

    /// Wakes the process of a slice, of which a graph will come.
    pub fn wake(&mut self, slice: SliceId) {
        if let Some(process) = self.processes.get(&slice) {
            process.remote.wake();
        }
    }

    /// Lets all processes sleep.
    pub fn let_sleep(&mut self) {
        let processes = self.processes.values_mut();
        processes.for_each(|process| process.remote.let_sleep());
    }

    /// Gives the process of a slice up, with all units that the slice has here. Returns false if there is none.
    pub fn lose(&mut self, slice: SliceId) -> bool {
        let Some(mut process) = self.processes.remove(&slice) else {
            return false;
        };
        self.waiting.retain(|waiting| waiting.slice != slice);
        if !process.is_gone() {
            self.dying.push(process);
        }
        self.advance();
        true
    }

    /// Looks whether the process that has units is still there. Returns its slice and why it has ended.
    pub fn look(&mut self, now: u64) -> Option<(SliceId, String)> {
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return None;
        }
        self.looked = now;
        self.dying.retain_mut(|dying| !dying.is_gone());
        let (slice, process) = self.running()?;
        Some((slice, process.handle.end(WaitOptions::NOHANG)?))
    }

    /// Replaces processes that have ended while they had nothing to do. Returns how many.
    pub fn renew(&mut self) -> usize {
        let ended = |(slice, process): (&SliceId, &mut Process)| {
            process.handle.end(WaitOptions::NOHANG)?;
            Some((*slice, Arc::clone(&process.tenant)))
        };
        let ended: Vec<_> = self.processes.iter_mut().filter_map(ended).collect();
        for (slice, tenant) in &ended {
            self.lose(*slice);
            self.prepare(tenant);
        }
        ended.len()
    }

    /// Kills all processes, and waits for their ends.
    pub fn end(&mut self) {
        let slices: Vec<SliceId> = self.processes.keys().copied().collect();
        for slice in slices {
            self.lose(slice);
        }
        for mut dying in self.dying.drain(..) {
            self.maker.await_birth(&dying.handle.birth);
            if !dying.is_gone() {
                let _why = dying.handle.end(WaitOptions::empty());
            }
        }
    }
}
