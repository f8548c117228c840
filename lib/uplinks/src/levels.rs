//! Levels of uplinks: they let in frames with work left to be done, where all uplinks of a domain can send them on
//! (`nfluid_control::frames`).
//!
//! An uplink that lets in less than it was asked to, since its interface or kernel can do no more, holds back the others of
//! its domain: they may send it nothing that it cannot send on. Levels change in two steps. First no uplink lets in what
//! another one cannot take yet, or can no longer take; then each takes what it lets in.

use crate::Uplinks;
use nfluid_api::types::EventKind;
use nfluid_control::frames::{Frames, Levels};
use nfluid_process::uplink::{UplinkAnswer, UplinkOrder, UplinkProcess};
use nfluid_uplink::{Level, Levels as UplinkLevels};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time in which instances pass on the frames that came in before a level was lowered.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// Time for which an uplink that has refused its levels is left alone.
const REST: Duration = Duration::from_secs(10);

/// Converts what an uplink lets in for its process.
pub(crate) fn level_of(frames: Frames) -> Level {
    Level::numbered(frames.number())
}

/// The levels of all uplinks.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The levels that are asked for.
    asked: Levels,
    /// The levels to which the domains of uplinks are held back, by uplink, and the reason.
    held_back: BTreeMap<String, (Level, String)>,
}

impl Wanted {
    /// Returns the level of an uplink.
    pub fn of(&self, name: &str) -> Level {
        let asked = level_of(self.asked.of_uplink(name));
        let held_back = self.held_back.get(name);
        held_back.map_or(asked, |(level, _)| asked.min(*level))
    }

    /// Returns the reason for which an uplink lets in less than is asked for.
    pub fn why(&self, name: &str) -> Option<&str> {
        self.held_back.get(name).map(|(_, why)| why.as_str())
    }

    fn is_lower(&self, name: &str) -> bool {
        self.of(name) < level_of(self.asked.of_uplink(name))
    }
}

impl Uplinks {
    /// Changes what uplinks let in. One that cannot holds back its domain, which is reported as an event.
    pub fn set_levels(&mut self, asked: &Levels) {
        self.levels.asked = asked.clone();
        self.forget_refusals();
        self.settle_levels();
    }

    /// Returns what the stack of an instance may let in: what all uplinks that it leads to send on.
    pub fn level_of_stack(&self, name: &str) -> Level {
        let Some(domain) = self.levels.asked.of_stack(name) else {
            return Level::Plain;
        };
        let uplinks = domain.uplinks.iter().map(|uplink| self.levels.of(uplink));
        uplinks.fold(level_of(domain.frames), Level::min)
    }

    /// Returns the levels of `desired`, if the uplinks of an earlier daemon have them, and else none.
    pub fn adopt_levels(&mut self, desired: &Levels) -> Levels {
        self.levels.asked = desired.clone();
        let mut all = self.running.keys();
        if all.all(|name| self.present(name) == Some(self.levels.of(name).into())) {
            return desired.clone();
        }
        self.levels.asked = Levels::default();
        Levels::default()
    }

    /// Returns the levels of an uplink's process; `None`: the process or its interface is away, and will begin with those that
    /// are wanted.
    fn present(&self, name: &str) -> Option<UplinkLevels> {
        let process = self.running.get(name)?.process.as_ref()?;
        Some(process.status().path?.levels)
    }

    /// Returns true if each uplink has the level that is wanted.
    pub(crate) fn has_settled_levels(&self) -> bool {
        let mut all = self.running.keys();
        all.all(|name| {
            let present = self.present(name);
            let is_so = present.is_none_or(|present| present == self.levels.of(name).into());
            is_so || self.rests(name)
        })
    }

    /// Returns true if an uplink has refused its levels a short time ago: it is asked again later.
    fn rests(&self, name: &str) -> bool {
        let running = self.running.get(name);
        let refused = running.and_then(|running| running.levels_refused);
        refused.is_some_and(|at| at.elapsed() < REST)
    }

    /// All uplinks are asked for what they have refused.
    fn forget_refusals(&mut self) {
        self.levels.held_back.clear();
        for running in self.running.values_mut() {
            running.levels_refused = None;
        }
    }

    /// Gives each uplink the level that is wanted.
    pub(crate) fn settle_levels(&mut self) {
        // Each round but the last lowers some domain, by one of two levels at least.
        let rounds = 1 + 2 * self.running.len();
        for _ in 0..rounds {
            self.change_levels();
            if !self.hold_back() {
                break;
            }
        }
    }

    fn change_levels(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        let mut changing = Vec::new();
        for name in names {
            let wanted = self.levels.of(&name);
            let Some(now) = self.present(&name).filter(|now| *now != wanted.into()) else {
                continue;
            };
            if self.rests(&name) {
                continue;
            }
            let between = UplinkLevels {
                enter: now.enter.min(wanted),
                take: now.take.max(wanted),
            };
            changing.push((name, now, between, wanted));
        }
        let mut is_refused = false;
        for (name, now, between, _) in &changing {
            is_refused |= now != between && !self.order_levels(name, *between);
        }
        if is_refused {
            // Frames that one uplink refuses are not let in by another.
            return;
        }
        if changing
            .iter()
            .any(|(_, now, _, wanted)| now.take > *wanted)
        {
            std::thread::sleep(UNDER_WAY);
        }
        for (name, _, between, wanted) in &changing {
            if *between != (*wanted).into() {
                self.order_levels(name, (*wanted).into());
            }
        }
    }

    /// Orders an uplink to have these levels. Returns false if it refuses.
    fn order_levels(&mut self, name: &str, levels: UplinkLevels) -> bool {
        let Some(running) = self.running.get_mut(name) else {
            return true;
        };
        let order = |process: &UplinkProcess| process.order(UplinkOrder::Levels(levels), &[]);
        // After an error, nothing but plain frames can be counted on.
        let none = UplinkLevels::default();
        let (given, is_refused) = match running.process.as_ref().map(order) {
            Some(Ok(Ok(UplinkAnswer::Levels { levels: given, why }))) => {
                let is_less = given.take < levels.take;
                (Some((given, why)), is_less)
            }
            Some(Ok(Ok(UplinkAnswer::Steered(_)))) | None => (None, false),
            Some(Ok(Err(why))) => (Some((none, why)), true),
            Some(Err(error)) => (Some((none, format!("{error:#}"))), true),
        };
        running.levels = given;
        running.levels_refused = is_refused.then(Instant::now);
        !is_refused
    }

    /// Holds back the domains of uplinks that have a lower level than is wanted. Returns true if there is a new one.
    fn hold_back(&mut self) -> bool {
        let mut weak = Vec::new();
        for (name, running) in &mut self.running {
            let wanted = self.levels.of(name);
            if let Some((levels, why)) = running.levels.take()
                && levels.take < wanted
            {
                weak.push((name.clone(), levels.take, why));
            }
        }
        for (name, level, why) in &weak {
            let mut domain = BTreeSet::from([name.clone()]);
            let raised = self.levels.asked.raised();
            let own = raised.filter(|level| level.uplinks.contains(name));
            domain.extend(own.flat_map(|level| level.uplinks.iter().cloned()));
            for other in domain {
                let why = if other == *name {
                    why.clone()
                } else {
                    format!("uplink '{name}': {why}")
                };
                self.levels.held_back.insert(other, (*level, why));
            }
            let message = format!(
                "super-frames stop at it, and no uplink that leads to it lets them in: {why}"
            );
            self.event(EventKind::Warning, name, message);
        }
        !weak.is_empty()
    }

    /// Asks again for all that was held back: an interface has returned, or a process was started.
    pub(crate) fn ask_again(&mut self, name: &str) {
        if self.levels.is_lower(name) {
            self.forget_refusals();
        }
        self.settle_levels();
    }
}
