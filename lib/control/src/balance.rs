//! On which core which instance goes: the policy of the placements `pinned`, `spread` and `packed`.
//!
//! Pure: it is given what was measured, and answers with moves. An instance's load is what it would use of a core by
//! itself: the time that it ran and the time that it was ready and waited, over the time that passed. A core's load is the
//! sum, so that more than 1 on a core means that somebody waits there.
//!
//! Moves cost caches and scatter figures, so each must pay: it takes a least gain, no instance moves again before it has
//! dwelt where it is, and what fills a core (`fill`) is less than what empties it (`full`), so that a move is never the
//! reason for the next.

use crate::placement::Placement;
use crate::quantity::Millis;
use std::collections::BTreeMap;

/// What is weighed when a move is thought about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Least gain: by how much of a core the load of the fuller of two cores must go down.
    pub gain_min: f64,
    /// How long an instance stays where it was put.
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
    /// Its name.
    pub name: String,
    /// The core that it is on, the first of several.
    pub core: u32,
    /// On how many it is: as many as its ports have queues, and so threads.
    pub width: usize,
    /// The cores that it may be on.
    pub allowed: Vec<u32>,
    /// Who decides.
    pub placement: Placement,
    /// Measured, as a part of a core.
    pub load: f64,
    /// Promised, as a part of a core.
    pub promised: f64,
    /// Guaranteed, as a part of a core; 0: nothing.
    pub guaranteed: f64,
    /// When it was put there.
    pub since: Millis,
}

impl Placed {
    /// The cores that it is on.
    pub fn cores(&self) -> Vec<u32> {
        window(&self.allowed, self.core, self.width)
    }
}

/// The cores of an instance that is on `core` and has `width` threads: so many of those that it may be on, from that one
/// on, around the end of the list.
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

/// A move that pays.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The instance.
    pub name: String,
    /// Where it is.
    pub from: u32,
    /// Where it goes.
    pub to: u32,
    /// Why, for the operator.
    pub why: String,
}

/// What is on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Burden {
    load: f64,
    promised: f64,
}

/// Every core that somebody is or may be on.
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

/// Those who are guaranteed more than what is left for them where they are, when all there want the CPU; and how much
/// that is, as a part of a core. A core is divided by what was promised on it.
pub fn violated_guarantees(placed: &[Placed]) -> Vec<(&Placed, f64)> {
    let cores = burdens(placed);
    let guaranteed = placed.iter().filter(|one| one.guaranteed > 0.0);
    let left = |one: &Placed| left_for(one, &one.cores(), &cores);
    guaranteed
        .map(|one| (one, left(one)))
        .filter(|(one, left)| one.guaranteed > *left + ROUNDING)
        .collect()
}

/// What is left for an instance on these cores, whose burdens it is part of.
fn left_for(one: &Placed, on: &[u32], cores: &BTreeMap<u32, Burden>) -> f64 {
    let own = one.promised / on.len().max(1) as f64;
    let of_core = |core: &u32| {
        let all = cores.get(core).map_or(own, |burden| burden.promised);
        if all > 0.0 { own / all } else { 1.0 }
    };
    on.iter().map(of_core).sum()
}

/// Whether all guarantees hold on `core`, of those that are there and of `one`, once that is there too.
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

/// The core on which `one` starts: `packed` goes where most is and it fits, the others where least was promised, and of
/// those where least is done; of all, where no guarantee is broken, if there is such a core. Nothing if it may be nowhere.
pub fn first_core(placed: &[Placed], one: &Placed, rules: Rules) -> Option<u32> {
    let keeping = |core: &&u32| guarantees_hold(placed, one, **core);
    let kept: Vec<u32> = one.allowed.iter().filter(keeping).copied().collect();
    let allowed = if kept.is_empty() { &one.allowed } else { &kept };
    choose_core(placed, one, allowed, rules)
}

fn choose_core(placed: &[Placed], one: &Placed, allowed: &[u32], rules: Rules) -> Option<u32> {
    let cores = burdens(placed);
    // Of several cores, the heaviest counts.
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

/// The moves that pay now; few at a time, as the loads that follow are measured before the next.
pub fn moves(placed: &[Placed], now: Millis, rules: Rules) -> Vec<Move> {
    let cores = burdens(placed);
    if let Some(one) = keep_a_guarantee(placed, now, rules) {
        return vec![one];
    }
    if let Some(one) = relieve(placed, &cores, now, rules) {
        return vec![one];
    }
    empty_a_core(placed, &cores, now, rules)
}

/// A move off a core where a guarantee does not hold, to one where all do: whoever may move there with the least load.
fn keep_a_guarantee(placed: &[Placed], now: Millis, rules: Rules) -> Option<Move> {
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
                    "{} was guaranteed {:.2} of a core, and {left:.2} was left",
                    broken.name, broken.guaranteed
                );
                return Some(step(one, *to, why));
            }
        }
    }
    None
}

/// One with several threads is on several cores, among which the kernel divides them.
fn may_move(one: &Placed, now: Millis, rules: Rules) -> bool {
    one.width <= 1 && one.placement.is_moved() && now.0.saturating_sub(one.since.0) >= rules.dwell.0
}

/// What is lost in divisions.
const ROUNDING: f64 = 1e-9;

/// Whether what is promised on a core still fits with one more: not more than a core, or than where it is now.
fn promises_fit(one: &Placed, from: Burden, to: Burden) -> bool {
    to.promised + one.promised <= from.promised.max(1.0) + ROUNDING
}

/// The one move that takes most load off a fuller core.
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

/// Takes all packed instances off the core that does least, if they fit where others are already.
fn empty_a_core(
    placed: &[Placed],
    cores: &BTreeMap<u32, Burden>,
    now: Millis,
    rules: Rules,
) -> Vec<Move> {
    let is_used = |core: &u32| placed.iter().any(|one| one.cores().contains(core));
    // Who is spread would flee from who follows.
    let takes_packed = |core: &u32| {
        let mut there = placed.iter().filter(|one| one.core == *core).peekable();
        there.peek().is_some() && there.all(|one| one.placement != Placement::Spread)
    };
    let mut candidates: Vec<(&u32, &Burden)> =
        cores.iter().filter(|(core, _)| is_used(core)).collect();
    // Of two that do as little, the higher number: else who fits nowhere would go to and fro.
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

/// Whether no guarantee is broken by these moves that holds now.
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

/// First fit, the largest first, on the fullest core that has room.
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
        let why = format!("core {} rests, {to} is at {:.2}", one.core, burden.load);
        moves.push(step(one, to, why));
    }
    Some(moves)
}

#[cfg(test)]
mod tests;
