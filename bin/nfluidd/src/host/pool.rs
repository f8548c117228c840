//! The pools of shells: made in the background, a batch at a time, and handed out.

use super::making::shell::{name_of, spec_of};
use super::making::{Maker, Making, Site};
use nfluid_api::types::PoolStatus;
use nfluid_control::pool::{PoolSpec, Pools, Size};
use nfluid_control::spec::InstanceSpec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shells that are made together.
const BATCH: u32 = 16;
/// A pool that follows the rate of creations has at least so many.
const LEAST: u32 = 4;
/// The rate is that of so long.
const WINDOW: Duration = Duration::from_secs(1);
/// After a failure nothing is made for so long.
const REST: Duration = Duration::from_secs(5);
/// Shells are made when none was taken for so long, so that whoever takes one has the cores and the kernel's locks for
/// itself; earlier if few are left.
const QUIET: Duration = Duration::from_millis(10);
/// The thread yields to everybody.
const NICE: i32 = 19;

/// All pools.
#[derive(Default)]
pub struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<String, Lane>,
    /// The number of the next shell.
    made: u64,
    has_ended: bool,
    rests_until: Option<Instant>,
    taken_at: Option<Instant>,
    /// How many want nothing to be made now.
    holders: u32,
}

/// While it lives, no shells are made, however few are left: see [`Pool::hold`].
pub struct Held(Arc<Pool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().holders -= 1;
        self.0.changed.notify_one();
    }
}

struct Lane {
    spec: PoolSpec,
    ready: VecDeque<Making>,
    taken: u64,
    missed: u64,
    problem: Option<String>,
    recent: Recent,
}

/// How many were asked for of late.
#[derive(Default)]
struct Recent {
    since: Option<Instant>,
    now: u32,
    before: u32,
}

impl Recent {
    fn turn(&mut self, now: Instant) {
        let passed = self.since.map(|since| now.duration_since(since));
        if passed.is_none_or(|passed| passed >= WINDOW) {
            let is_next = passed.is_some_and(|passed| passed < 2 * WINDOW);
            self.before = if is_next { self.now } else { 0 };
            self.now = 0;
            self.since = Some(now);
        }
    }

    fn count(&mut self, now: Instant) {
        self.turn(now);
        self.now += 1;
    }

    fn rate(&mut self, now: Instant) -> u32 {
        self.turn(now);
        self.now.max(self.before)
    }
}

impl Lane {
    fn new(spec: &PoolSpec) -> Self {
        Lane {
            spec: spec.clone(),
            ready: VecDeque::new(),
            taken: 0,
            missed: 0,
            problem: None,
            recent: Recent::default(),
        }
    }

    fn wanted(&mut self, now: Instant) -> u32 {
        match self.spec.size {
            Size::Fixed(count) => count,
            Size::Rate { most } => self.recent.rate(now).clamp(LEAST.min(most), most),
        }
    }

    /// Whether half of the shells are gone: then they are made at once.
    fn are_few(&mut self, now: Instant) -> bool {
        self.ready.len() <= self.wanted(now) as usize / 2
    }
}

/// What the thread does next.
enum Task {
    Make(String, PoolSpec, Vec<String>),
    TakeDown(Vec<Making>),
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which pools there are to be. Shells that none has any more are taken down in the background.
    pub fn set(&self, pools: &Pools) {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.lanes);
        for (name, spec) in pools {
            let kept = before.remove(name).filter(|lane| lane.spec.makes_as(spec));
            let lane = kept.unwrap_or_else(|| Lane::new(spec));
            let spec = spec.clone();
            state.lanes.insert(name.clone(), Lane { spec, ..lane });
        }
        state.rests_until = None;
        drop(state);
        // Those of pools that are gone: their processes end at once, the rest follows.
        drop(before);
        self.changed.notify_one();
    }

    /// Leaves the cores and the kernel's locks to something that is in a hurry: a shell takes milliseconds of a core within
    /// the kernel, where no priority helps.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.state().holders += 1;
        Held(Arc::clone(self))
    }

    /// The number of the first shell.
    pub fn number_from(&self, first: u64) {
        self.state().made = first;
    }

    /// A shell for such an instance, if one is ready.
    pub fn take(&self, spec: &InstanceSpec) -> Option<Making> {
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut state = self.state();
        let mut lanes = state.lanes.values_mut();
        let lane = lanes.find(|lane| lane.spec.suits(spec))?;
        lane.recent.count(now);
        let mut found = None;
        while let Some(mut shell) = lane.ready.pop_front() {
            if shell.waits() {
                found = Some(shell);
                break;
            }
            gone.push(shell);
        }
        match found {
            Some(_) => lane.taken += 1,
            None => lane.missed += 1,
        }
        let are_few = lane.are_few(now);
        state.taken_at = Some(now);
        drop(state);
        // Otherwise it looks by itself, in a moment.
        if are_few {
            self.changed.notify_one();
        }
        found
    }

    /// Gives up all shells, so that instances can have their numbers; whether there were any.
    pub fn give_up(&self) -> bool {
        let mut shells = Vec::new();
        let mut state = self.state();
        for lane in state.lanes.values_mut() {
            shells.extend(lane.ready.drain(..));
        }
        state.rests_until = Some(Instant::now() + REST);
        drop(state);
        !shells.is_empty()
    }

    /// Takes all shells down, for good.
    pub fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let lanes = std::mem::take(&mut state.lanes);
        drop(state);
        self.changed.notify_one();
        let mut shells: Vec<Making> = lanes.into_values().flat_map(|lane| lane.ready).collect();
        Making::take_back(&mut shells);
    }

    /// How they are.
    pub fn statuses(&self) -> Vec<PoolStatus> {
        let now = Instant::now();
        let mut state = self.state();
        let status = |(name, lane): (&String, &mut Lane)| PoolStatus {
            name: name.clone(),
            flavor: lane.spec.flavor.clone(),
            ports: lane.spec.ports,
            wanted: lane.wanted(now),
            ready: lane.ready.len() as u32,
            taken: lane.taken,
            missed: lane.missed,
            problem: lane.problem.clone(),
        };
        state.lanes.iter_mut().map(status).collect()
    }

    /// Keeps the pools as they are to be, until they end.
    pub fn refill(&self, maker: &Arc<Maker>) {
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::warn!(%error, "shells are made at the same priority as everything else");
        }
        while let Some(task) = self.next_task() {
            match task {
                Task::TakeDown(mut shells) => Making::take_back(&mut shells),
                Task::Make(lane, spec, names) => {
                    let (made, problem) = make(maker, &spec, &names);
                    self.put(&lane, &spec, made, problem);
                }
            }
        }
    }

    /// Waits for something to do.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.has_ended {
                return None;
            }
            let now = Instant::now();
            if let Some(task) = state.task(now) {
                return Some(task);
            }
            state = if state.lanes.is_empty() {
                let waited = self.changed.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            } else {
                let look = state.next_look(now);
                let waited = self.changed.wait_timeout(state, look);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn put(&self, lane: &str, spec: &PoolSpec, made: Vec<Making>, problem: Option<String>) {
        let mut state = self.state();
        if problem.is_some() {
            state.rests_until = Some(Instant::now() + REST);
        }
        let lane = state.lanes.get_mut(lane);
        let unwanted = match lane.filter(|lane| lane.spec.makes_as(spec)) {
            Some(lane) => {
                lane.problem = problem;
                lane.ready.extend(made);
                Vec::new()
            }
            None => made,
        };
        drop(state);
        drop(unwanted);
    }
}

impl State {
    fn task(&mut self, now: Instant) -> Option<Task> {
        if self.holders > 0 {
            return None;
        }
        for lane in self.lanes.values_mut() {
            let surplus = lane.ready.len().saturating_sub(lane.wanted(now) as usize);
            if surplus > 0 {
                return Some(Task::TakeDown(lane.ready.drain(..surplus).collect()));
            }
        }
        if self.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        let is_quiet = self.is_quiet(now);
        for (name, lane) in &mut self.lanes {
            if !is_quiet && !lane.are_few(now) {
                continue;
            }
            let missing = lane.wanted(now).saturating_sub(lane.ready.len() as u32);
            if missing > 0 {
                let first = self.made;
                self.made += u64::from(missing.min(BATCH));
                let names = (first..self.made).map(name_of).collect();
                return Some(Task::Make(name.clone(), lane.spec.clone(), names));
            }
        }
        None
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.taken_at
            .is_none_or(|taken| now.duration_since(taken) >= QUIET)
    }

    /// How long nothing is to be done if nobody says a word: rates fall, and rests end, by themselves.
    fn next_look(&self, now: Instant) -> Duration {
        if self.is_quiet(now) {
            WINDOW / 2
        } else {
            QUIET
        }
    }
}

/// Makes shells of these names; those that were made, and why not all.
fn make(maker: &Arc<Maker>, pool: &PoolSpec, names: &[String]) -> (Vec<Making>, Option<String>) {
    let spec = spec_of(pool);
    let mut begun = Vec::new();
    let mut problem = None;
    for name in names {
        match Making::begin(maker, name, &spec, Site::default(), Vec::new()) {
            Ok(making) => begun.push(making),
            Err(why) => {
                problem = Some(format!("{why:#}"));
                break;
            }
        }
    }
    if let Err(why) = Making::enter(&mut begun) {
        return (Vec::new(), Some(format!("{why:#}")));
    }
    let mut made = Vec::new();
    for mut making in begun {
        match making.complete_waiting() {
            Ok(()) => made.push(making),
            Err(why) => problem = Some(format!("{why:#}")),
        }
    }
    if let Some(why) = &problem {
        tracing::warn!("making shells: {why}");
    }
    (made, problem)
}

#[cfg(test)]
mod tests {
    use super::{Lane, Pool, Recent, WINDOW};
    use nfluid_control::pool::{PoolSpec, Size};
    use nfluid_control::quantity::Bytes;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn nothing_is_made_while_somebody_is_in_a_hurry() {
        let spec = PoolSpec {
            flavor: "small".to_owned(),
            ring: 64,
            memory: Bytes(16 << 20),
            ports: 2,
            size: Size::Fixed(2),
        };
        let pool = Arc::new(Pool::default());
        pool.state().lanes.insert("p".to_owned(), Lane::new(&spec));
        let is_made = || pool.state().task(Instant::now()).is_some();
        assert!(is_made());
        let (one, other) = (pool.hold(), pool.hold());
        assert!(!is_made());
        drop(one);
        assert!(!is_made());
        drop(other);
        assert!(is_made());
    }

    #[test]
    fn the_rate_is_that_of_the_last_window_and_is_forgotten() {
        let mut recent = Recent::default();
        let start = Instant::now();
        assert_eq!(recent.rate(start), 0);
        for _ in 0..7 {
            recent.count(start);
        }
        assert_eq!(recent.rate(start), 7);
        assert_eq!(recent.rate(start + WINDOW), 7);
        assert_eq!(recent.rate(start + 2 * WINDOW), 0);
        recent.count(start + 9 * WINDOW);
        assert_eq!(recent.rate(start + 9 * WINDOW), 1);
    }
}
