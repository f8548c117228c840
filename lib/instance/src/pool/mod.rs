//! The pools of shells: filled in the background, a batch at a time.

mod lane;

use crate::maker::Maker;
use crate::making::Making;
use crate::making::shell::{name_of, spec_of};
use lane::{Lane, WINDOW};
use nfluid_api::types::PoolStatus;
use nfluid_control::group::Groups as Tenants;
use nfluid_control::pool::{PoolSpec, Pools};
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::runtime::Site;
use nfluid_sandbox::Linkage;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shells that are created together.
const BATCH: u32 = 16;
/// After a failure, no shell of that pool is created for this time. After instances needed the resources of shells,
/// no shell of any pool.
const REST: Duration = Duration::from_secs(5);
/// Shells are created after this time without a request, so that requests have the cores and the kernel's locks to
/// themselves. If few shells are left, they are created earlier.
const QUIET: Duration = Duration::from_millis(10);
/// Limit of the pools named in the log as unsuitable for an instance.
const LOGGED_POOLS_MAX: usize = 8;
/// The thread yields to all other work.
const NICE: i32 = 19;

/// All pools.
#[derive(Default)]
pub struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    /// Signalled when the thread is idle.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<String, Lane>,
    /// The number of the next shell.
    made: u64,
    has_ended: bool,
    rests_until: Option<Instant>,
    taken_at: Option<Instant>,
    /// The thread sleeps for long, and the first request wakes it.
    sleeps_long: bool,
    /// Number of [`Held`] values that prevent the creation of shells.
    holders: u32,
    /// The groups of tenants. While they change, no shell is in a group.
    tenants: Option<Arc<Tenants>>,
    /// The thread is creating or removing shells.
    is_busy: bool,
}

/// While this value lives, no shells are created, however few are left: see [`Pool::hold`].
pub struct Held(Arc<Pool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().holders -= 1;
        self.0.changed.notify_one();
    }
}

/// An order for shells.
struct Order {
    lane: String,
    spec: PoolSpec,
    names: Vec<String>,
    site: Site,
}

/// The next task of the thread.
enum Task {
    Make(Box<Order>),
    TakeDown(Vec<Making>),
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pools to keep. Shells without a pool are removed in the background.
    pub fn set(&self, pools: &Pools) {
        let mut state = self.state();
        let mut before = std::mem::take(&mut state.lanes);
        for (name, spec) in pools {
            let kept = before.remove(name).filter(|lane| lane.spec.makes_as(spec));
            let lane = kept.unwrap_or_else(|| Lane::new(spec));
            let spec = spec.clone();
            let rests_until = None;
            let lane = Lane {
                spec,
                rests_until,
                ..lane
            };
            state.lanes.insert(name.clone(), lane);
        }
        state.rests_until = None;
        drop(state);
        // The processes of removed pools end at once; the rest is removed later.
        drop(before);
        self.changed.notify_one();
    }

    /// Prevents the creation of shells while an urgent operation needs the cores and the kernel's locks: a shell
    /// takes milliseconds of a core within the kernel, where no priority helps.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.state().holders += 1;
        Held(Arc::clone(self))
    }

    /// Sets the number of the first shell.
    pub fn number_from(&self, first: u64) {
        self.state().made = first;
    }

    /// Returns true if a shell may become such an instance, depending on the linkage of its program.
    pub fn asks_for_linkage(&self, spec: &InstanceSpec) -> bool {
        let state = self.state();
        let mut lanes = state.lanes.values();
        lanes.any(|lane| lane.depends_on_linkage(spec))
    }

    /// Returns a ready shell for such an instance, whose program, if it is a user's, has this linkage. Logs the
    /// reasons if no pool suits.
    pub fn take(
        &self,
        name: &str,
        spec: &InstanceSpec,
        linkage: Option<&Linkage>,
    ) -> Option<Making> {
        let pool = self.pool_for(name, spec, linkage)?;
        // Looking at a shell takes time, and so does the removal of one that is of no use.
        let found = std::iter::from_fn(|| self.pop(&pool)).find_map(|mut shell| {
            let is_of_use = shell.waits() && !shell.is_outdated();
            is_of_use.then_some(shell)
        });
        let now = Instant::now();
        let mut state = self.state();
        let is_half_empty = state.lanes.get_mut(&pool).is_some_and(|lane| {
            match found {
                Some(_) => lane.taken += 1,
                None => lane.missed += 1,
            }
            lane.is_half_empty(now)
        });
        state.taken_at = Some(now);
        let is_first = std::mem::take(&mut state.sleeps_long);
        drop(state);
        // Otherwise the thread checks by itself in a moment.
        if is_half_empty || is_first {
            self.changed.notify_one();
        }
        found
    }

    /// Returns the name of the pool that serves such an instance, and counts the request.
    fn pool_for(
        &self,
        name: &str,
        spec: &InstanceSpec,
        linkage: Option<&Linkage>,
    ) -> Option<String> {
        let mut state = self.state();
        let mut lanes = state.lanes.iter_mut();
        let Some((pool, lane)) = lanes.find(|(_, lane)| lane.misfit(spec, linkage).is_none())
        else {
            state.log_misfits(name, spec, linkage);
            return None;
        };
        lane.recent.count(Instant::now());
        Some(pool.clone())
    }

    fn pop(&self, pool: &str) -> Option<Making> {
        self.state().lanes.get_mut(pool)?.ready.pop_front()
    }

    /// Removes the shells that are in groups, before groups change or end. No shell is created in a group until
    /// [`Pool::enter_groups`].
    pub fn leave_groups(&self) {
        let mut shells = Vec::new();
        let mut state = self.state();
        state.tenants = None;
        let lanes = state.lanes.values_mut();
        for lane in lanes.filter(|lane| lane.spec.group.is_some()) {
            shells.extend(lane.ready.drain(..));
        }
        drop(state);
        Making::take_back(&mut shells);
        let mut state = self.state();
        while state.is_busy {
            let waited = self.idle.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the present groups; shells may be created in them again.
    pub fn enter_groups(&self, tenants: Tenants) {
        self.state().tenants = Some(Arc::new(tenants));
        self.changed.notify_one();
    }

    /// Removes all shells, so that instances can have their resources. Returns true if there were any.
    pub fn release_shells(&self) -> bool {
        let mut shells = Vec::new();
        let mut state = self.state();
        for lane in state.lanes.values_mut() {
            shells.extend(lane.ready.drain(..));
        }
        state.rests_until = Some(Instant::now() + REST);
        drop(state);
        !shells.is_empty()
    }

    /// Removes all shells for good.
    pub fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let lanes = std::mem::take(&mut state.lanes);
        drop(state);
        self.changed.notify_one();
        let mut shells: Vec<Making> = lanes.into_values().flat_map(|lane| lane.ready).collect();
        Making::take_back(&mut shells);
    }

    /// Returns the state of all pools.
    pub fn statuses(&self) -> Vec<PoolStatus> {
        let now = Instant::now();
        let mut state = self.state();
        let lanes = state.lanes.iter_mut();
        lanes.map(|(name, lane)| lane.status(name, now)).collect()
    }

    /// Keeps the pools filled until they end.
    pub fn refill(&self, maker: &Arc<Maker>) {
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::warn!(%error, "shells are made at the same priority as everything else");
        }
        while let Some(task) = self.next_task() {
            match task {
                Task::TakeDown(mut shells) => Making::take_back(&mut shells),
                Task::Make(order) => {
                    let (made, problem) = make(maker, &order);
                    self.put(&order, made, problem);
                }
            }
            // A waiting operation finds no partly created shell in a group.
            self.state().is_busy = false;
            self.idle.notify_all();
        }
    }

    /// Waits for a task.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.has_ended {
                return None;
            }
            let now = Instant::now();
            if let Some(task) = state.task(now) {
                state.is_busy = true;
                return Some(task);
            }
            state = if state.lanes.is_empty() {
                let waited = self.changed.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            } else {
                let look = state.next_look(now);
                state.sleeps_long = state.is_quiet(now);
                let waited = self.changed.wait_timeout(state, look);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn put(&self, order: &Order, made: Vec<Making>, problem: Option<String>) {
        let mut state = self.state();
        let is_welcome = order.spec.group.is_none() || state.tenants.is_some();
        let lane = state.lanes.get_mut(&order.lane);
        let unwanted = match lane.filter(|lane| is_welcome && lane.spec.makes_as(&order.spec)) {
            Some(lane) => {
                lane.rests_until = problem.is_some().then(|| Instant::now() + REST);
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
            if lane.is_resting(now) || !is_quiet && !lane.is_half_empty(now) {
                continue;
            }
            let groups = match (&lane.spec.group, &self.tenants) {
                (None, _) => Arc::default(),
                (Some(_), Some(tenants)) => Arc::clone(tenants),
                (Some(_), None) => continue,
            };
            let missing = lane.wanted(now).saturating_sub(lane.ready.len() as u32);
            if missing > 0 {
                let first = self.made;
                self.made += u64::from(missing.min(BATCH));
                return Some(Task::Make(Box::new(Order {
                    lane: name.clone(),
                    spec: lane.spec.clone(),
                    names: (first..self.made).map(name_of).collect(),
                    site: Site { groups, core: None },
                })));
            }
        }
        None
    }

    /// Logs why no pool has a shell for an instance. Logs nothing if there are no pools.
    fn log_misfits(&self, name: &str, spec: &InstanceSpec, linkage: Option<&Linkage>) {
        if self.lanes.is_empty() {
            return;
        }
        let told = |(pool, lane): (&String, &Lane)| {
            let reason = lane.misfit(spec, linkage)?;
            Some(format!("{pool}: {reason}"))
        };
        let reasons: Vec<String> = self
            .lanes
            .iter()
            .filter_map(told)
            .take(LOGGED_POOLS_MAX)
            .collect();
        tracing::info!(
            instance = name,
            "made without a shell, no pool is for it: {}",
            reasons.join("; ")
        );
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.taken_at
            .is_none_or(|taken| now.duration_since(taken) >= QUIET)
    }

    /// Returns the longest time for which the thread may sleep without a request: rates fall, and rests end, with
    /// time.
    fn next_look(&self, now: Instant) -> Duration {
        if self.is_quiet(now) {
            WINDOW / 2
        } else {
            QUIET
        }
    }
}

/// Creates shells. Returns those that were created, and the reason if some were not.
fn make(maker: &Arc<Maker>, order: &Order) -> (Vec<Making>, Option<String>) {
    let spec = spec_of(&order.spec);
    let mut begun = Vec::new();
    let mut problem = None;
    for name in &order.names {
        match Making::begin(maker, name, &spec, order.site.clone(), Vec::new()) {
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
        match making.complete_waiting(order.spec.purpose) {
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
    use super::{Lane, Pool, Task};
    use nfluid_control::group::Groups;
    use nfluid_control::pool::{PoolSpec, Purpose, Size};
    use nfluid_control::quantity::Bytes;
    use std::sync::Arc;
    use std::time::Instant;

    fn two_shells() -> PoolSpec {
        PoolSpec {
            flavor: "small".to_owned(),
            ring: 64,
            memory: Bytes(16 << 20),
            ports: 2,
            long: 0,
            purpose: Purpose::BuiltIn,
            image: None,
            group: None,
            trust: None,
            size: Size::Fixed(2),
        }
    }

    // promise: 5.20
    #[test]
    fn shells_are_in_groups_only_while_these_do_not_change() {
        let spec = PoolSpec {
            group: Some("us".to_owned()),
            ..two_shells()
        };
        let pool = Pool::default();
        pool.state().lanes.insert("p".to_owned(), Lane::new(&spec));
        let is_made = || pool.state().task(Instant::now()).is_some();
        assert!(!is_made(), "nobody has said which groups there are");
        pool.enter_groups(Groups::new());
        assert!(is_made());
        pool.leave_groups();
        assert!(!is_made());
    }

    // promise: 5.14
    #[test]
    fn a_pool_that_cannot_be_filled_holds_up_no_other() {
        let spec = two_shells();
        let pool = Pool::default();
        for name in ["a", "b"] {
            pool.state().lanes.insert(name.to_owned(), Lane::new(&spec));
        }
        let next = || match pool.state().task(Instant::now()) {
            Some(Task::Make(order)) => Some(order),
            _ => None,
        };
        let first = next().expect("both are empty");
        assert_eq!(first.lane, "a");
        pool.put(&first, Vec::new(), Some("no room".to_owned()));
        let second = next().expect("the other one is empty still");
        assert_eq!(second.lane, "b");
        pool.put(&second, Vec::new(), Some("no room".to_owned()));
        assert!(next().is_none(), "both have failed just now");
        let told = pool.statuses();
        assert!(
            told.iter()
                .all(|it| it.problem.as_deref() == Some("no room"))
        );
    }

    // promise: 5.35
    #[test]
    fn nothing_is_made_while_somebody_is_in_a_hurry() {
        let spec = two_shells();
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
}
