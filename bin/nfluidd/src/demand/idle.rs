//! Ends the instances of clients that are silent.
//!
//! First, the switch holds the client's frames back. When no frame can be on its way to the instance any more, the
//! daemon checks whether a frame has arrived nevertheless. Only if none has arrived does the instance end. Frames
//! that come from then on get another instance.

use super::Demand;
use super::client_table::ClientState;
use crate::host::lock;
use nfluid_switch::Switch;
use nfluid_switch::client::Client;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval between two looks at the clients; the shortest idle time of a template.
const LOOK: Duration = Duration::from_millis(100);
/// The same interval while there are no clients.
const NOBODY: Duration = Duration::from_secs(1);
/// Instances that are ended at once, while other instances wait to be created.
const TOGETHER: usize = 4;

/// Runs until the daemon ends.
pub fn run(demand: &Demand) {
    let switch = lock(&demand.host).switch();
    loop {
        let nobody = demand.client_table().instances().next().is_none();
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

/// Returns the number of frames that the ports of a client have received.
fn received(switch: &Switch, ports: crate::host::ClientPorts) -> u64 {
    switch.delivered(ports.entry) + switch.delivered(ports.back)
}

/// Holds back the frames of clients that seem silent.
fn suspend_silent(demand: &Demand, switch: &Switch) -> Vec<Client> {
    let idle: BTreeMap<String, Duration> = {
        let desired = demand.desired.read();
        let templates = desired.templates.iter();
        templates
            .map(|(name, template)| (name.to_owned(), template.idle.duration()))
            .collect()
    };
    let now = Instant::now();
    let mut table = demand.client_table();
    let mut silent = Vec::new();
    let mut gone = Vec::new();
    let host = lock(&demand.host);
    for (client, served) in table.instances() {
        if !host.has_client(&served.instance) && served.state != ClientState::Ending {
            gone.push(*client);
            continue;
        }
        let frames = received(switch, served.ports);
        if frames != served.received {
            (served.received, served.since) = (frames, now);
        }
        let patience = idle.get(&served.template).copied().unwrap_or_default();
        if served.state == ClientState::Served && now.duration_since(served.since) >= patience {
            if let Err(error) = switch.suspend_client(client, served.ports.back) {
                tracing::warn!(instance = served.instance, %error, "suspending the client; its instance stays");
                continue;
            }
            served.state = ClientState::Suspended;
            silent.push(*client);
        }
    }
    drop(host);
    gone.iter().for_each(|client| table.remove(client));
    silent
}

/// Returns the clients that are silent indeed. The frames of the others go to their instances again.
fn confirm(demand: &Demand, switch: &Switch, suspended: &[Client]) -> Vec<(Client, String)> {
    let mut table = demand.client_table();
    let mut silent = Vec::new();
    let mut others = Vec::new();
    for (client, served) in table.instances() {
        if served.state != ClientState::Suspended || !suspended.contains(client) {
            continue;
        }
        if received(switch, served.ports) == served.received {
            served.state = ClientState::Ending;
            silent.push((*client, served.instance.clone()));
        } else {
            others.push(*client);
        }
    }
    drop(table);
    resume(demand, switch, &others);
    silent
}

/// Lets the frames of clients go to their instances again.
fn resume(demand: &Demand, switch: &Switch, clients: &[Client]) {
    let now = Instant::now();
    let mut table = demand.client_table();
    let host = lock(&demand.host);
    for (client, served) in table.instances() {
        // An instance that another request has ended meanwhile has no ports any more.
        if !clients.contains(client) || !host.has_client(&served.instance) {
            continue;
        }
        if let Err(error) = switch.set_client(client, served.ports.entry, served.ports.back) {
            tracing::warn!(instance = served.instance, %error, "the frames of the client go through the daemon");
        }
        (served.state, served.since) = (ClientState::Served, now);
    }
}

fn end(demand: &Demand, switch: &Switch, clients: &[(Client, String)]) {
    let names: Vec<String> = clients.iter().map(|(_, name)| name.clone()).collect();
    let failures = demand.controller().farewell(&names);
    for (name, why) in &failures {
        tracing::warn!(instance = name, "the instance cannot be ended: {why}");
    }
    let (left, ended): (Vec<_>, Vec<_>) = clients
        .iter()
        .partition(|(_, name)| failures.iter().any(|(failed, _)| failed == name));
    let mut table = demand.client_table();
    ended.iter().for_each(|(client, _)| table.remove(client));
    drop(table);
    let left: Vec<Client> = left.into_iter().map(|(client, _)| *client).collect();
    resume(demand, switch, &left);
}
