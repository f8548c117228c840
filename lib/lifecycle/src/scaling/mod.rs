//! Dividing the flows of an instance among its members, and moving flows from one member to another while frames pass
//! (`docs/adr/0022-scale-out.md`).
//!
//! First, the members that gain flows stand still. Then the tables of the ports lead the flows to them: frames of
//! these flows wait in their rings. The members that lose flows handle the frames that came before, and export their
//! state. The gaining members import the state of their flows, and go on. Only then do the former owners forget that
//! state.
//!
//! The division is recorded before it begins (`note`). A daemon that is killed meanwhile may leave members that the
//! desired state does not contain. The next daemon takes over these members as well, continues the division, and then
//! removes surplus members in the usual way.

mod counts;
mod division;
mod exchange;
mod note;
#[cfg(test)]
mod stand_in;
mod tables;
#[cfg(test)]
mod tests;

pub use counts::counts_of;
pub use tables::{FlowTables, Table};

use crate::running::Running;
use crate::services::{Services, lock, report};
use crate::workload::Port;
use division::{Front, Member, Scaling};
use nfluid_api::types::{EventKind, ScaleReport};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::inventory::Inventory;
use nfluid_control::members::{front_of, member_name, member_names};
use nfluid_control::model::PortRef;
use note::Note;
use std::sync::Mutex;

/// Divides the flows of an instance among `new` of its members instead of `old`. The host is not locked meanwhile.
/// Other operations on the members are refused until the division ends.
///
/// # Errors
/// The flows are divided as before.
pub fn scale<C: Services>(
    host: &Mutex<C>,
    name: &str,
    old: u16,
    new: u16,
) -> Result<(), PlatformError> {
    let (scaling, path) = {
        let host = &mut *lock(host);
        (begin(host, name, old.max(new))?, host.scaling_note(name))
    };
    let moved = scaling.divide(new as u8, &path);
    let host = &mut *lock(host);
    let now = if moved.is_ok() { new } else { old };
    end(host, name, old.max(new), now);
    let moved = moved?;
    host.instances_mut().scaled = Some((name.to_owned(), moved.report));
    for problem in moved.problems {
        report(host, EventKind::Warning, name, problem);
    }
    let message = format!(
        "its flows are divided among {new} instead of {old}; those that moved waited for {} us; {} entries of state moved, {} left out",
        moved.report.held_us, moved.report.state_taken, moved.report.state_left_out
    );
    report(host, EventKind::Scaled, name, message);
    Ok(())
}

/// Collects an instance's members, and blocks other operations on them until [`end`].
fn begin(services: &mut dyn Services, name: &str, count: u16) -> Result<Scaling, PlatformError> {
    let names: Vec<String> = member_names(name, count).collect();
    for member in &names {
        services.instances().check_settled(member)?;
        services.instances().check_awake(member)?;
    }
    let scaling = scaling_of(services, name, count)?;
    let members = &mut services.instances_mut().members;
    members.insert(name.to_owned(), count);
    for member in &names {
        services.choose_doorbells_of(member);
    }
    services.instances_mut().upgrading.extend(names);
    Ok(scaling)
}

fn scaling_of(services: &dyn Services, name: &str, count: u16) -> Result<Scaling, PlatformError> {
    let mut members = Vec::new();
    for (number, member) in (0..=u8::MAX).zip(member_names(name, count)) {
        let running = services.instances().find(&member)?;
        members.push(Member {
            number,
            control: running.workload.control().to_owned(),
            ports: running.port_numbers().collect(),
            runs: running.has_process(),
        });
    }
    Ok(Scaling {
        tables: services.flow_tables(),
        fronts: fronts(services, name),
        members,
    })
}

fn fronts(services: &dyn Services, name: &str) -> Vec<Front> {
    let Some(running) = services.instances().get(name) else {
        return Vec::new();
    };
    let front = |part: &Port| {
        let port = PortRef::instance(name, &part.name);
        // Before this daemon knows the wires, any port may be a sender.
        let senders = services.senders_to(&port);
        Front {
            port: part.number,
            senders: senders.unwrap_or_else(|| all_ports(services)),
        }
    };
    running.workload.ports().iter().map(front).collect()
}

fn all_ports(services: &dyn Services) -> Vec<u32> {
    let instances = services.instances().values();
    instances.flat_map(Running::port_numbers).collect()
}

fn own_ports(services: &dyn Services, name: &str) -> Vec<u32> {
    let running = services.instances().get(name).into_iter();
    running.flat_map(Running::port_numbers).collect()
}

fn end(services: &mut dyn Services, name: &str, count: u16, now: u16) {
    let instances = services.instances_mut();
    for member in member_names(name, count) {
        instances.upgrading.remove(&member);
    }
    if now > 1 {
        instances.members.insert(name.to_owned(), now);
    } else {
        instances.members.remove(name);
        services.choose_doorbells_of(name);
    }
}

/// Returns the report of the last division of an instance's flows, and removes the report.
pub fn take_report(services: &mut dyn Services, name: &str) -> Option<ScaleReport> {
    let (of, report) = services.instances_mut().scaled.take()?;
    (of == name).then_some(report)
}

/// Continues the divisions that an earlier daemon has not finished.
fn resume(services: &mut dyn Services) {
    for name in services.scaling_notes() {
        let path = services.scaling_note(&name);
        let resumed = Note::load(&path)
            .map_err(|why| why.to_string())
            .and_then(|note| {
                let scaling = scaling_of(services, &name, note.members);
                let moved = scaling.and_then(|scaling| scaling.resume(note, &path));
                moved.map_err(|why| why.message)
            });
        match resumed {
            Ok(moved) => {
                for problem in moved.problems {
                    report(services, EventKind::Warning, &name, problem);
                }
                let message = format!(
                    "carried on with the division of its flows; {} entries of state moved, {} left out",
                    moved.report.state_taken, moved.report.state_left_out
                );
                report(services, EventKind::Scaled, &name, message);
            }
            Err(why) => {
                let message =
                    format!("the division of its flows was cut off and is not carried on: {why}");
                report(services, EventKind::Warning, &name, message);
                // A record about members that do not exist.
                let _absent = std::fs::remove_file(&path);
            }
        }
    }
}

/// After an earlier daemon: reads the owners of the flows. Flows of members that do not exist go to the first member
/// again.
pub fn adopt(services: &mut dyn Services, present: &mut Inventory) {
    resume(services);
    let names: Vec<String> = present.instances.keys().cloned().collect();
    for name in names.iter().filter(|name| front_of(name).is_none()) {
        match members_of(services, name) {
            Ok(0 | 1) => {}
            Ok(count) => {
                let members = &mut services.instances_mut().members;
                members.insert(name.clone(), count);
                present.members.insert(name.clone(), count);
            }
            Err(why) => report(services, EventKind::Warning, name, why.message),
        }
    }
}

/// Returns among how many members the tables of an instance's ports divide its flows.
fn members_of(services: &dyn Services, name: &str) -> Result<u16, PlatformError> {
    let tables = services.flow_tables();
    let mut found = None;
    let fronts = own_ports(services, name);
    for (index, front) in fronts.iter().enumerate() {
        let Some(table) = tables.get(*front)? else {
            continue;
        };
        let own = |number: u16| {
            let running = services.instances().get(&member_name(name, number))?;
            Some(running.workload.ports().get(index)?.number)
        };
        let ports: Vec<u32> = (0..).map_while(own).collect();
        let count = table.iter().try_fold(0, |most, port| {
            let number = ports.iter().position(|own| own == port)?;
            Some(most.max(number as u16 + 1))
        });
        let agrees = count.is_some() && found.is_none_or(|found| found == count);
        found = Some(count);
        if !agrees {
            for front in &fronts {
                tables.end(*front)?;
            }
            let message = "its flows were led to members that are not there any more; the first one has them, without their state";
            return Err(PlatformError::new(PlatformErrorKind::Failed, message));
        }
    }
    Ok(found.flatten().unwrap_or(1))
}
