//! Ends the instances of clients that are silent.
//!
//! A client's frames are made to wait first; when none can be on its way to the instance any more, it is looked whether one has
//! come nevertheless. Only if not is the instance ended: frames that come from then on find another one.

use super::Demand;
use super::book::Stay;
use crate::host::lock;
use nfluid_switch::Switch;
use nfluid_switch::client::Client;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often clients are looked at; templates' shortest idle time.
const LOOK: Duration = Duration::from_millis(100);
/// The same while there are none.
const NOBODY: Duration = Duration::from_secs(1);
/// Instances that are ended at once, while others wait to be made.
const TOGETHER: usize = 4;

/// Runs until the daemon ends.
pub fn run(demand: &Demand) {
    let switch = lock(&demand.host).switch();
    loop {
        let nobody = demand.book().seats().next().is_none();
        std::thread::sleep(if nobody { NOBODY } else { LOOK });
        if nobody {
            continue;
        }
        let silent = suspend_silent(demand, &switch);
        if silent.is_empty() {
            continue;
        }
        if let Err(error) = switch.await_programs() {
            tracing::warn!(%error, "instances on demand stay");
            resume(demand, &switch, &silent);
            continue;
        }
        let ending = confirm(demand, &switch, &silent);
        for some in ending.chunks(TOGETHER) {
            end(demand, &switch, some);
        }
    }
}

/// Frames that the ports of a client have got.
fn heard(switch: &Switch, ports: crate::host::ClientPorts) -> u64 {
    switch.delivered(ports.entry) + switch.delivered(ports.back)
}

/// Has the frames of clients wait that seem silent.
fn suspend_silent(demand: &Demand, switch: &Switch) -> Vec<Client> {
    let idle: BTreeMap<String, Duration> = {
        let desired = demand.desired.read();
        let templates = desired.templates.iter();
        templates
            .map(|(name, template)| (name.to_owned(), template.idle.duration()))
            .collect()
    };
    let now = Instant::now();
    let mut book = demand.book();
    let mut silent = Vec::new();
    let mut gone = Vec::new();
    let host = lock(&demand.host);
    for (client, seat) in book.seats() {
        if !host.has_client(&seat.instance) && seat.stay != Stay::Ending {
            gone.push(*client);
            continue;
        }
        let frames = heard(switch, seat.ports);
        if frames != seat.heard {
            (seat.heard, seat.since) = (frames, now);
        }
        let patience = idle.get(&seat.template).copied().unwrap_or_default();
        if seat.stay == Stay::Here && now.duration_since(seat.since) >= patience {
            if let Err(error) = switch.suspend_client(client, seat.ports.back) {
                tracing::warn!(instance = seat.instance, %error, "it stays");
                continue;
            }
            seat.stay = Stay::Leaving;
            silent.push(*client);
        }
    }
    drop(host);
    gone.iter().for_each(|client| book.strike(client));
    silent
}

/// Those that are silent indeed. The others' frames go to them again.
fn confirm(demand: &Demand, switch: &Switch, suspended: &[Client]) -> Vec<(Client, String)> {
    let mut book = demand.book();
    let mut silent = Vec::new();
    let mut others = Vec::new();
    for (client, seat) in book.seats() {
        if seat.stay != Stay::Leaving || !suspended.contains(client) {
            continue;
        }
        if heard(switch, seat.ports) == seat.heard {
            seat.stay = Stay::Ending;
            silent.push((*client, seat.instance.clone()));
        } else {
            others.push(*client);
        }
    }
    drop(book);
    resume(demand, switch, &others);
    silent
}

/// Has the frames of clients go to their instances again.
fn resume(demand: &Demand, switch: &Switch, clients: &[Client]) {
    let now = Instant::now();
    let mut book = demand.book();
    let host = lock(&demand.host);
    for (client, seat) in book.seats() {
        // One that was ended meanwhile, by somebody else, has no ports any more.
        if !clients.contains(client) || !host.has_client(&seat.instance) {
            continue;
        }
        if let Err(error) = switch.set_client(client, seat.ports.entry, seat.ports.back) {
            tracing::warn!(instance = seat.instance, %error, "its frames go by the daemon");
        }
        (seat.stay, seat.since) = (Stay::Here, now);
    }
}

fn end(demand: &Demand, switch: &Switch, clients: &[(Client, String)]) {
    let names: Vec<String> = clients.iter().map(|(_, name)| name.clone()).collect();
    let failures = demand.controller().farewell(&names);
    for (name, why) in &failures {
        tracing::warn!(instance = name, "it cannot be ended: {why}");
    }
    let (left, ended): (Vec<_>, Vec<_>) = clients
        .iter()
        .partition(|(_, name)| failures.iter().any(|(failed, _)| failed == name));
    let mut book = demand.book();
    ended.iter().for_each(|(client, _)| book.strike(client));
    drop(book);
    let left: Vec<Client> = left.into_iter().map(|(client, _)| *client).collect();
    resume(demand, switch, &left);
}
