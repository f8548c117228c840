//! Dividing the flows of an instance among its members, and giving flows from one to another while frames pass
//! (`docs/adr/0022-scale-out.md`).
//!
//! Members that are to get flows stand still. Then the tables of the ports say whose the flows are from now on: their frames
//! wait in the rings of those. Members that lose flows handle what came before, and export their state; the others take in what
//! is of their flows, and go on. Only then do the former owners forget it.
//!
//! All of that is written down before it begins ([`note`]). A daemon that is killed meanwhile leaves members of which the desired
//! state may know nothing: the next one takes them over as well, carries on, and what is too many then goes as members go.

mod counts;
mod division;
mod exchange;
mod note;

pub use counts::counts_of;

use super::{Host, Shared, lock};
use division::{Front, Member, Scaling};
use nfluid_api::types::{EventKind, Kind, ScaleReport};
use nfluid_control::apply::PlatformError;
use nfluid_control::apply::no_instance;
use nfluid_control::inventory::Inventory;
use nfluid_control::members::{front_of, member_names};
use nfluid_control::model::PortRef;
use nfluid_wiring::Ports as _;
use note::Note;
use std::sync::Arc;

/// Divides the flows of an instance among `new` of its members instead of `old`. The host is not locked while they settle
/// it; what else concerns them is refused meanwhile.
///
/// # Errors
/// They are divided as before.
pub fn scale(host: &Shared, name: &str, old: u16, new: u16) -> Result<(), PlatformError> {
    let (scaling, path) = {
        let mut host = lock(host);
        let scaling = host.begin_scaling(name, old.max(new))?;
        (scaling, host.settings.paths.scaling(name))
    };
    let moved = scaling.divide(new as u8, &path);
    let mut host = lock(host);
    let now = if moved.is_ok() { new } else { old };
    host.end_scaling(name, old.max(new), now);
    let moved = moved?;
    host.scaled = Some((name.to_owned(), moved.report));
    for problem in moved.problems {
        host.event(EventKind::Warning, Some((Kind::Instance, name)), problem);
    }
    let message = format!(
        "its flows are divided among {new} instead of {old}; those that moved waited for {} us; {} entries of state moved, {} left out",
        moved.report.held_us, moved.report.state_taken, moved.report.state_left_out
    );
    host.event(EventKind::Scaled, Some((Kind::Instance, name)), message);
    Ok(())
}

impl Host {
    /// What there is of an instance's members, with whom nothing else happens until it is settled.
    fn begin_scaling(&mut self, name: &str, count: u16) -> Result<Scaling, PlatformError> {
        let names: Vec<String> = member_names(name, count).collect();
        for member in &names {
            self.check_settled(member)?;
            self.check_awake(member)?;
        }
        let scaling = self.scaling_of(name, count)?;
        self.members.insert(name.to_owned(), count);
        for member in &names {
            self.choose_doorbells_of(member);
        }
        self.upgrading.extend(names);
        Ok(scaling)
    }

    fn scaling_of(&self, name: &str, count: u16) -> Result<Scaling, PlatformError> {
        let mut members = Vec::new();
        for (number, member) in (0..=u8::MAX).zip(member_names(name, count)) {
            let running = self.instances.get(&member);
            let running = running.ok_or_else(|| no_instance(&member))?;
            members.push(Member {
                number,
                control: self.settings.paths.control(&member),
                ports: self.own_ports(&member),
                runs: running.process.is_some(),
            });
        }
        Ok(Scaling {
            switch: Arc::clone(&self.switch),
            fronts: self.fronts(name),
            members,
        })
    }

    fn fronts(&self, name: &str) -> Vec<Front> {
        let Some(running) = self.instances.get(name) else {
            return Vec::new();
        };
        let front = |part: &nfluid_switch::instance::PortParts| {
            let port = PortRef::instance(name, &part.spec.name);
            let senders = match self.wires.senders_of(&port) {
                // What an interface receives is counted in the table.
                Some(senders) => senders
                    .iter()
                    .filter(|sender| sender.owner().is_some())
                    .filter_map(|sender| self.port_id(sender))
                    .collect(),
                // Before this daemon knows where wires lead, it may be anybody.
                None => self.all_ports(),
            };
            Front {
                port: part.spec.id,
                senders,
            }
        };
        running.memory.ports.iter().map(front).collect()
    }

    fn own_ports(&self, name: &str) -> Vec<u32> {
        let running = self.instances.get(name).into_iter();
        let ports = running.flat_map(|it| &it.memory.ports);
        ports.map(|part| part.spec.id).collect()
    }

    fn all_ports(&self) -> Vec<u32> {
        let ports = self.instances.values().flat_map(|it| &it.memory.ports);
        ports.map(|part| part.spec.id).collect()
    }

    fn end_scaling(&mut self, name: &str, count: u16, now: u16) {
        let names: Vec<String> = member_names(name, count).collect();
        for member in &names {
            self.upgrading.remove(member);
        }
        if now > 1 {
            self.members.insert(name.to_owned(), now);
        } else {
            self.members.remove(name);
            self.choose_doorbells_of(name);
        }
    }

    /// What the last change of an instance's members has come to, if that was not asked before.
    pub fn take_scaled(&mut self, name: &str) -> Option<ScaleReport> {
        let (of, report) = self.scaled.take()?;
        (of == name).then_some(report)
    }

    /// Whether the switch spreads frames for a port of this instance, or has spread what it gets.
    pub(super) fn is_one_of_several(&self, name: &str) -> bool {
        self.ports().is_member(name)
    }

    /// Carries on with what an earlier daemon has begun and not ended.
    fn resume_scalings(&mut self) {
        for name in nfluid_records::names(&self.settings.paths.scalings()) {
            let path = self.settings.paths.scaling(&name);
            let resumed = Note::load(&path)
                .map_err(|why| why.to_string())
                .and_then(|note| {
                    let scaling = self.scaling_of(&name, note.members);
                    let moved = scaling.and_then(|scaling| scaling.resume(note, &path));
                    moved.map_err(|why| why.message)
                });
            let subject = Some((Kind::Instance, name.as_str()));
            match resumed {
                Ok(moved) => {
                    for problem in moved.problems {
                        self.event(EventKind::Warning, subject, problem);
                    }
                    let message = format!(
                        "carried on with the division of its flows; {} entries of state moved, {} left out",
                        moved.report.state_taken, moved.report.state_left_out
                    );
                    self.event(EventKind::Scaled, subject, message);
                }
                Err(why) => {
                    let message = format!(
                        "the division of its flows was cut off and is not carried on: {why}"
                    );
                    self.event(EventKind::Warning, subject, message);
                    // Of members that are not there.
                    let _absent = std::fs::remove_file(&path);
                }
            }
        }
    }

    /// After an earlier daemon: whose the flows are. What was led to members that are not there is the first one's again.
    pub(super) fn adopt_members(&mut self, present: &mut Inventory) {
        self.resume_scalings();
        let names: Vec<String> = present.instances.keys().cloned().collect();
        for name in names.iter().filter(|name| front_of(name).is_none()) {
            match self.members_of(name) {
                Ok(0 | 1) => {}
                Ok(count) => {
                    self.members.insert(name.clone(), count);
                    present.members.insert(name.clone(), count);
                }
                Err(why) => self.event(
                    EventKind::Warning,
                    Some((Kind::Instance, name)),
                    format!("{why:#}"),
                ),
            }
        }
    }

    /// Among how many members the tables of an instance's ports divide its flows.
    fn members_of(&self, name: &str) -> anyhow::Result<u16> {
        let mut found = None;
        let fronts = self.own_ports(name);
        for (index, front) in fronts.iter().enumerate() {
            let Some(table) = self.switch.spread(*front)? else {
                continue;
            };
            let own = |number: u16| {
                let member = nfluid_control::members::member_name(name, number);
                let parts = &self.instances.get(&member)?.memory.ports;
                Some(parts.get(index)?.spec.id)
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
                    self.switch.end_spread(*front)?;
                }
                anyhow::bail!(
                    "its flows were led to members that are not there any more; the first one has them, without their state"
                );
            }
        }
        Ok(found.flatten().unwrap_or(1))
    }
}
