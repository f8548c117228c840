//! Having a NIC steer, and undoing it.
//!
//! A queue that is a port's own must get nothing but the frames that the rules for that port send there. So the NIC
//! is first ordered to spread all other frames among other queues, and queues to which another owner's rules lead are
//! left alone. Our rules are found again in the same way, after a crash as well: every rule that leads to one of
//! these queues is ours.

use super::flow::flows;
use super::{Steered, Taken};
use nfluid_netdev::{ANYWHERE, Flow, FlowTable};
use nfluid_switch::QUEUES_MAX;
use nfluid_switch::classifier::Rule;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The cause of a refusal, in words for the operator.
pub type Refusal = String;

fn asking(what: &'static str) -> impl Fn(io::Error) -> Refusal {
    move |error| format!("{what}: {error}")
}

/// Has the NIC send frames that `rules` match to queues of their ports' own, as far as there are queues and room in
/// its table. `keep` records the changes that will have to be undone, before they are made.
///
/// # Errors
/// The reason for which the NIC steers nothing; [`give_back`] undoes the changes made by then.
pub fn take(
    nic: &dyn FlowTable,
    rules: &[Rule],
    keep: &mut dyn FnMut(&Taken) -> Result<(), Refusal>,
) -> Result<Steered, Refusal> {
    let queues = nic.queues().map_err(asking("it tells no queues"))?;
    let spread = nic
        .spread()
        .map_err(asking("how it spreads other frames cannot be asked"))?;
    if queues < 2 || spread.is_empty() {
        return Err(format!(
            "it has {queues} receive queue(s), and spreads frames among them by {} entries",
            spread.len()
        ));
    }
    let mut taken = Taken {
        switched_on: !nic.is_on().map_err(asking("reading 'rx-ntuple-filter'"))?,
        ..Taken::default()
    };
    if taken.switched_on {
        keep(&taken)?;
        nic.switch(true)
            .map_err(asking("switching 'rx-ntuple-filter' on"))?;
    }
    let present = nic.rules().map_err(asking("reading its flow rules"))?;
    let foreign: BTreeSet<u32> = present.iter().filter_map(|(_, queue)| *queue).collect();
    let owners = deal(rules, queues.min(QUEUES_MAX), &foreign);
    taken.queues = owners.values().copied().collect();
    taken.spread.clone_from(&spread);
    keep(&taken)?;
    let elsewhere = spread_elsewhere(&spread, &taken.queues, queues);
    if elsewhere != spread {
        nic.set_spread(&elsewhere)
            .map_err(asking("spreading other frames elsewhere"))?;
    }
    let used: BTreeSet<u32> = present.iter().map(|(place, _)| *place).collect();
    let places = Places::of(nic, used)?;
    Ok(insert_all(nic, rules, &owners, places))
}

/// Queue by port: from the last one on, the first port first; one at least is left for what no rule matches.
fn deal(rules: &[Rule], queues: u32, foreign: &BTreeSet<u32>) -> BTreeMap<u32, u32> {
    let mut free = (1..queues).rev().filter(|queue| !foreign.contains(queue));
    let mut owners = BTreeMap::new();
    for port in rules.iter().filter_map(|rule| rule.to) {
        if owners.contains_key(&port) {
            continue;
        }
        let Some(queue) = free.next() else { break };
        owners.insert(port, queue);
    }
    owners
}

/// Deals the entries that led to an owned queue among the other queues.
fn spread_elsewhere(spread: &[u32], taken: &[u32], queues: u32) -> Vec<u32> {
    let rest: Vec<u32> = (0..queues).filter(|queue| !taken.contains(queue)).collect();
    let entry = |(i, queue): (usize, &u32)| {
        if taken.contains(queue) {
            rest[i % rest.len()]
        } else {
            *queue
        }
    };
    spread.iter().enumerate().map(entry).collect()
}

/// The places of the NIC's table that have no rule.
enum Places {
    /// The driver finds one.
    Any,
    Free(std::vec::IntoIter<u32>),
}

impl Places {
    fn of(nic: &dyn FlowTable, used: BTreeSet<u32>) -> Result<Self, Refusal> {
        let places = nic.places();
        let Some(size) = places.map_err(asking("asking for the size of its table"))? else {
            return Ok(Places::Any);
        };
        let free: Vec<u32> = (0..size).filter(|place| !used.contains(place)).collect();
        Ok(Places::Free(free.into_iter()))
    }

    fn next(&mut self) -> io::Result<u32> {
        match self {
            Places::Any => Ok(ANYWHERE),
            Places::Free(free) => free.next().ok_or_else(|| io::ErrorKind::StorageFull.into()),
        }
    }
}

fn insert_all(
    nic: &dyn FlowTable,
    rules: &[Rule],
    owners: &BTreeMap<u32, u32>,
    mut places: Places,
) -> Steered {
    let mut steered = Steered {
        queues: owners.iter().map(|(port, queue)| (*queue, *port)).collect(),
        ..Steered::default()
    };
    let mut is_full = false;
    for rule in rules {
        let queue = rule.to.and_then(|to| owners.get(&to));
        let outcome = match queue {
            _ if is_full => Err("its table of flow rules is full".to_owned()),
            None => Err(format!("it has no queue left for '{}'", port_of(rule))),
            Some(queue) => {
                insert_rule(nic, rule, *queue, &mut places, &mut steered.flows).map_err(|error| {
                    is_full = error.kind() == io::ErrorKind::StorageFull;
                    format!("it refuses a rule: {error}")
                })
            }
        };
        match outcome {
            Ok(()) => steered.rules += 1,
            Err(why) => steered.leave(1, &why),
        }
    }
    // A queue that no rule leads to belongs to no port.
    if steered.flows == 0 {
        steered.queues.clear();
    }
    steered
}

fn port_of(rule: &Rule) -> String {
    rule.to
        .map_or_else(String::new, |port| format!("port {port}"))
}

fn insert_rule(
    nic: &dyn FlowTable,
    rule: &Rule,
    queue: u32,
    places: &mut Places,
    inserted: &mut u32,
) -> io::Result<()> {
    let flows: Vec<Flow> = flows(rule).map_err(io::Error::other)?;
    for flow in &flows {
        nic.insert(flow, queue, places.next()?)?;
        *inserted += 1;
    }
    Ok(())
}

/// Undoes what [`take`] has done, as far as it was done: rules that lead to the queues, the spread, the feature.
/// Everything is tried.
///
/// # Errors
/// The first thing that could not be undone.
pub fn give_back(nic: &dyn FlowTable, taken: &Taken) -> Result<(), Refusal> {
    let removed = remove_rules(nic, &taken.queues);
    let spread = if taken.spread.is_empty() {
        Ok(())
    } else {
        nic.set_spread(&taken.spread)
            .map_err(asking("spreading frames as before"))
    };
    let switched = if taken.switched_on {
        nic.switch(false)
            .map_err(asking("switching 'rx-ntuple-filter' off"))
    } else {
        Ok(())
    };
    removed.and(spread).and(switched)
}

fn remove_rules(nic: &dyn FlowTable, queues: &[u32]) -> Result<(), Refusal> {
    if queues.is_empty() {
        return Ok(());
    }
    let rules = nic.rules().map_err(asking("reading its flow rules"))?;
    let ours = rules
        .iter()
        .filter(|(_, queue)| queue.is_some_and(|queue| queues.contains(&queue)));
    let mut outcome = Ok(());
    for (place, _) in ours {
        let removed = nic.remove(*place);
        outcome = outcome.and(removed.map_err(asking("removing a flow rule")));
    }
    outcome
}
