//! Placement of instances on cores: the policy of the placements `pinned`, `spread` and `packed`.
//!
//! A pure function from measurements to moves. An instance's load is its demand of a core: the time that it ran and
//! the time that it was ready and waited, over the time that passed. A core's load is the sum of these, so that more
//! than 1 on a core means that an instance waits there.
//!
//! Moves cost cache contents and make measurements scatter, so each must pay: a move needs a minimum gain, an
//! instance stays for a dwell time after a move, and the load up to which a core is filled (`fill`) is less than the
//! load from which it is relieved (`full`), so that a move never causes the next one.

use crate::placement::Placement;
use crate::quantity::Millis;
use std::collections::BTreeMap;

/// The parameters of a decision about moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Least gain: by how much of a core the load of the fuller of two cores must go down.
    pub gain_min: f64,
    /// Minimum time for which an instance stays on a core.
    pub dwell: Millis,
    /// `packed` fills a core up to this load.
    pub fill: f64,
    /// `packed` relieves a core from this load on.
    pub full: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            gain_min: 0.15,
            dwell: Millis::secs(5),
            fill: 0.7,
            full: 0.95,
        }
    }
}

/// An instance on a core.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Name of the instance.
    pub name: String,
    /// The instance's core, the first one of several.
    pub core: u32,
    /// The number of the instance's cores: one for each queue of its ports, and so for each thread.
    pub width: usize,
    /// The cores that the instance can use.
    pub allowed: Vec<u32>,
    /// The policy by which the core is chosen.
    pub placement: Placement,
    /// Measured load, as a part of a core.
    pub load: f64,
    /// Promised share, as a part of a core.
    pub promised: f64,
    /// Guaranteed share, as a part of a core; 0: none.
    pub guaranteed: f64,
    /// Time of the last move to this core.
    pub since: Millis,
}

impl Placed {
    /// Returns the cores of the instance.
    pub fn cores(&self) -> Vec<u32> {
        window(&self.allowed, self.core, self.width)
    }
}

/// Returns the cores of an instance on `core` with `width` threads: this many of the allowed cores, from `core` on,
/// wrapping around at the end of the list.
pub fn window(allowed: &[u32], core: u32, width: usize) -> Vec<u32> {
    let Some(first) = allowed.iter().position(|one| *one == core) else {
        return vec![core];
    };
    let around = allowed.iter().cycle().skip(first);
    around
        .take(width.clamp(1, allowed.len()))
        .copied()
        .collect()
}

/// A move that gains enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The instance.
    pub name: String,
    /// The present core.
    pub from: u32,
    /// The new core.
    pub to: u32,
    /// The reason, for the operator.
    pub why: String,
}

/// The load and the promises on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Burden {
    load: f64,
    promised: f64,
}

/// Returns the burden of every core that an instance is on or may be on.
fn burdens(placed: &[Placed]) -> BTreeMap<u32, Burden> {
    let mut cores: BTreeMap<u32, Burden> = BTreeMap::new();
    for one in placed {
        for core in &one.allowed {
            cores.entry(*core).or_default();
        }
        let on = one.cores();
        for core in &on {
            let burden = cores.entry(*core).or_default();
            burden.load += one.load / on.len() as f64;
            burden.promised += one.promised / on.len() as f64;
        }
    }
    cores
}

/// Returns the instances whose guarantee is more than what their core leaves them when all instances there want the
/// CPU, with the amount left, as a part of a core. A core is divided in proportion to the promises on it.
pub fn violated_guarantees(placed: &[Placed]) -> Vec<(&Placed, f64)> {
    let cores = burdens(placed);
    let guaranteed = placed.iter().filter(|one| one.guaranteed > 0.0);
    let left = |one: &Placed| left_for(one, &one.cores(), &cores);
    guaranteed
        .map(|one| (one, left(one)))
        .filter(|(one, left)| one.guaranteed > *left + ROUNDING)
        .collect()
}

/// Returns what is left for an instance on these cores, whose burdens include the instance.
fn left_for(one: &Placed, on: &[u32], cores: &BTreeMap<u32, Burden>) -> f64 {
    let own = one.promised / on.len().max(1) as f64;
    let of_core = |core: &u32| {
        let all = cores.get(core).map_or(own, |burden| burden.promised);
        if all > 0.0 { own / all } else { 1.0 }
    };
    on.iter().map(of_core).sum()
}

/// Returns true if all guarantees hold on `core`, for the instances there and for `one`, once `one` is there too.
fn guarantees_hold(placed: &[Placed], one: &Placed, core: u32) -> bool {
    let mut all = placed.iter().chain([one]);
    if all.all(|it| it.guaranteed <= 0.0) {
        return true;
    }
    let mut there: Vec<Placed> = placed
        .iter()
        .filter(|it| it.name != one.name)
        .cloned()
        .collect();
    there.push(Placed {
        core,
        ..one.clone()
    });
    let touched = window(&one.allowed, core, one.width);
    let is_touched = |it: &Placed| it.cores().iter().any(|core| touched.contains(core));
    !violated_guarantees(&there)
        .iter()
        .any(|(it, _)| is_touched(it))
}

/// Returns the core on which `one` starts. `packed` takes the fullest core on which it fits. The others take the core
/// with the least promises and, among equals, the least load. Cores on which no guarantee is broken come first.
/// `None` if `one` may be nowhere.
pub fn first_core(placed: &[Placed], one: &Placed, rules: Rules) -> Option<u32> {
    let keeping = |core: &&u32| guarantees_hold(placed, one, **core);
    let kept: Vec<u32> = one.allowed.iter().filter(keeping).copied().collect();
    let allowed = if kept.is_empty() { &one.allowed } else { &kept };
    choose_core(placed, one, allowed, rules)
}

fn choose_core(placed: &[Placed], one: &Placed, allowed: &[u32], rules: Rules) -> Option<u32> {
    let cores = burdens(placed);
    // The heaviest one of several cores counts.
    let on = |core: &u32| {
        let several = window(&one.allowed, *core, one.width);
        let burdens = several.iter().filter_map(|core| cores.get(core));
        burdens.fold(Burden::default(), |most, burden| Burden {
            load: most.load.max(burden.load),
            promised: most.promised.max(burden.promised),
        })
    };
    let promised = one.promised / one.width.max(1) as f64;
    let heaviness = |burden: Burden| burden.promised.max(burden.load);
    let fits = |core: &&u32| heaviness(on(core)) + promised <= rules.fill;
    let most = || {
        let fitting = allowed.iter().filter(fits);
        fitting.min_by(|a, b| heaviness(on(b)).total_cmp(&heaviness(on(a))).then(a.cmp(b)))
    };
    let least = || {
        allowed.iter().min_by(|a, b| {
            let (one, other) = (on(a), on(b));
            let by_promise = one.promised.total_cmp(&other.promised);
            by_promise
                .then(one.load.total_cmp(&other.load))
                .then(a.cmp(b))
        })
    };
    let core = match one.placement {
        Placement::Packed => most().or_else(least),
        _ => least(),
    };
    core.copied()
}

/// Returns the moves that pay now. They are few at a time, since the resulting loads are measured before the next
/// moves.
pub fn moves(placed: &[Placed], now: Millis, rules: Rules) -> Vec<Move> {
    let cores = burdens(placed);
    if let Some(one) = move_for_guarantee(placed, now, rules) {
        return vec![one];
    }
    if let Some(one) = relieve(placed, &cores, now, rules) {
        return vec![one];
    }
    empty_a_core(placed, &cores, now, rules)
}

/// Finds a move off a core where a guarantee does not hold, to a core where all hold: the movable instance with the
/// least load.
fn move_for_guarantee(placed: &[Placed], now: Millis, rules: Rules) -> Option<Move> {
    for (broken, left) in violated_guarantees(placed) {
        let on = broken.cores();
        let mut here: Vec<&Placed> = placed
            .iter()
            .filter(|one| on.contains(&one.core) && may_move(one, now, rules))
            .collect();
        here.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.name.cmp(&b.name)));
        for one in here {
            let elsewhere = one.allowed.iter().filter(|core| !on.contains(core));
            let mut holds = elsewhere.filter(|core| guarantees_hold(placed, one, **core));
            if let Some(to) = holds.next() {
                let why = format!(
                    "the guarantee of {} is {:.2} of a core, and {left:.2} was left",
                    broken.name, broken.guaranteed
                );
                return Some(step(one, *to, why));
            }
        }
    }
    None
}

/// Returns true if `one` can be moved now. An instance with several threads has several cores, among which the kernel
/// divides the threads, and is not moved.
fn may_move(one: &Placed, now: Millis, rules: Rules) -> bool {
    one.width <= 1 && one.placement.is_moved() && now.0.saturating_sub(one.since.0) >= rules.dwell.0
}

/// Tolerance for rounding in divisions.
const ROUNDING: f64 = 1e-9;

/// Returns true if the promises on a core still fit with one more instance: at most a whole core, or less than where
/// the instance is now.
fn promises_fit(one: &Placed, from: Burden, to: Burden) -> bool {
    to.promised + one.promised <= from.promised.max(1.0) + ROUNDING
}

/// Finds the move that takes the most load off a fuller core.
fn relieve(
    placed: &[Placed],
    cores: &BTreeMap<u32, Burden>,
    now: Millis,
    rules: Rules,
) -> Option<Move> {
    let mut best: Option<(f64, Move)> = None;
    for one in placed.iter().filter(|one| may_move(one, now, rules)) {
        let from = cores.get(&one.core).copied().unwrap_or_default();
        if one.placement == Placement::Packed && from.load < rules.full {
            continue;
        }
        for core in one.allowed.iter().filter(|core| **core != one.core) {
            let to = cores.get(core).copied().unwrap_or_default();
            let after = (from.load - one.load).max(to.load + one.load);
            let gain = from.load - after;
            if gain < rules.gain_min || !promises_fit(one, from, to) {
                continue;
            }
            if best.as_ref().is_none_or(|(most, _)| gain > *most)
                && guarantees_hold(placed, one, *core)
            {
                let why = format!(
                    "load {:.2} there and {:.2} here became {:.2} and {:.2}",
                    from.load,
                    to.load,
                    from.load - one.load,
                    to.load + one.load
                );
                best = Some((gain, step(one, *core, why)));
            }
        }
    }
    best.map(|(_, found)| found)
}

fn step(one: &Placed, to: u32, why: String) -> Move {
    Move {
        name: one.name.clone(),
        from: one.core,
        to,
        why,
    }
}

/// Moves all packed instances off the core with the least load, if they fit on other cores in use.
fn empty_a_core(
    placed: &[Placed],
    cores: &BTreeMap<u32, Burden>,
    now: Millis,
    rules: Rules,
) -> Vec<Move> {
    let is_used = |core: &u32| placed.iter().any(|one| one.cores().contains(core));
    // A spread instance would move away from packed ones that follow.
    let takes_packed = |core: &u32| {
        let mut there = placed.iter().filter(|one| one.core == *core).peekable();
        there.peek().is_some() && there.all(|one| one.placement != Placement::Spread)
    };
    let mut candidates: Vec<(&u32, &Burden)> =
        cores.iter().filter(|(core, _)| is_used(core)).collect();
    // If two cores have equal loads, the core with the higher number is emptied: otherwise an instance that fits
    // nowhere would move back and forth.
    candidates.sort_by(|a, b| a.1.load.total_cmp(&b.1.load).then(b.0.cmp(a.0)));
    for (core, _) in candidates {
        let is_here = |one: &&Placed| one.cores().contains(core);
        let here: Vec<&Placed> = placed.iter().filter(is_here).collect();
        let is_packed = |one: &&Placed| one.placement == Placement::Packed;
        if !here
            .iter()
            .all(|one| is_packed(one) && may_move(one, now, rules))
        {
            continue;
        }
        let moves = fit_elsewhere(&here, cores, &takes_packed, rules);
        if let Some(moves) = moves.filter(|moves| keeps_guarantees(placed, moves)) {
            return moves;
        }
    }
    Vec::new()
}

/// Returns true if these moves break no guarantee that holds now.
fn keeps_guarantees(placed: &[Placed], moves: &[Move]) -> bool {
    let mut after = placed.to_vec();
    for step in moves {
        let moved = after.iter_mut().find(|one| one.name == step.name);
        moved.into_iter().for_each(|one| one.core = step.to);
    }
    let before = violated_guarantees(placed);
    let is_old = |one: &Placed| before.iter().any(|(old, _)| old.name == one.name);
    violated_guarantees(&after)
        .iter()
        .all(|(one, _)| is_old(one))
}

/// First fit, the largest first, on the fullest core with room.
fn fit_elsewhere(
    here: &[&Placed],
    cores: &BTreeMap<u32, Burden>,
    takes_packed: &dyn Fn(&u32) -> bool,
    rules: Rules,
) -> Option<Vec<Move>> {
    let mut cores = cores.clone();
    let mut here = here.to_vec();
    here.sort_by(|a, b| b.load.total_cmp(&a.load).then(a.name.cmp(&b.name)));
    let mut moves = Vec::with_capacity(here.len());
    for one in here {
        let room = |core: &&u32| {
            let burden = cores.get(core).copied().unwrap_or_default();
            **core != one.core
                && takes_packed(core)
                && burden.load + one.load <= rules.fill
                && promises_fit(one, Burden::default(), burden)
        };
        let load = |core: &u32| cores.get(core).map_or(0.0, |burden| burden.load);
        let fitting = one.allowed.iter().filter(room);
        let to = *fitting.max_by(|a, b| load(a).total_cmp(&load(b)).then(b.cmp(a)))?;
        let burden = cores.entry(to).or_default();
        burden.load += one.load;
        burden.promised += one.promised;
        let why = format!(
            "core {} becomes idle, core {to} is at {:.2}",
            one.core, burden.load
        );
        moves.push(step(one, to, why));
    }
    Some(moves)
}

#[cfg(test)]
mod tests;
