//! Dividing the flows of an instance among its members, and giving flows from one to another while frames pass
//! (`docs/adr/0022-scale-out.md`).
//!
//! Members that are to get flows stand still. Then the tables of the ports say whose the flows are from now on: their frames
//! wait in the rings of those. Members that lose flows handle what came before, and export their state; the others take in what
//! is of their flows, and go on. Only then do the former owners forget it.

use super::launch::memory_file;
use super::platform::{error, no_instance};
use super::wires::failed;
use super::{Host, Shared, lock, nf_socket};
use anyhow::Context;
use nfluid_api::types::{EventKind, Kind, ScaleReport};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::inventory::Inventory;
use nfluid_control::members::{front_of, member_names};
use nfluid_control::model::PortRef;
use nfluid_ring::flow::{BUCKETS, Buckets, Shares};
use nfluid_switch::spread::Members;
use nfluid_switch::{Switch, SwitchError};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a frame may be under way by a table that has changed. Only a sender that is kept from its core takes long.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// How long a member that was just made may take until it answers.
const STARTING: Duration = Duration::from_secs(15);
/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// One of several instances that are one to those who send to them.
struct Member {
    number: u8,
    control: PathBuf,
    /// Its ports, in the order of the first member's.
    ports: Vec<u32>,
    /// It has a process, which can be asked.
    runs: bool,
}

impl Member {
    /// It stands still until what is returned is dropped. One that has just been made is waited for.
    fn stand(&self) -> anyhow::Result<OwnedFd> {
        let begun = Instant::now();
        loop {
            let kind = (AddressFamily::UNIX, SocketType::STREAM);
            let (way, its_end) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)
                .context("making the way to it")?;
            let request = json!({ "op": "stand" });
            match nf_socket::ask_about(&self.control, &request, Some(its_end.as_fd())) {
                Ok(_) => return Ok(way),
                Err(why) if begun.elapsed() > STARTING => return Err(why),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}

/// A port of the first member, to which frames for all are sent.
struct Front {
    port: u32,
    /// Ports of instances that send there.
    senders: Vec<u32>,
}

/// What is to be changed.
struct Scaling {
    switch: Arc<Switch>,
    fronts: Vec<Front>,
    members: Vec<Member>,
}

/// What a change has come to.
#[derive(Default)]
struct Moved {
    report: ScaleReport,
    /// What did not go as it should.
    problems: Vec<String>,
}

/// Divides the flows of an instance among `new` of its members instead of `old`. The host is not locked while they settle
/// it; what else concerns them is refused meanwhile.
///
/// # Errors
/// They are divided as before.
pub fn scale(host: &Shared, name: &str, old: u16, new: u16) -> Result<(), PlatformError> {
    let scaling = lock(host).begin_scaling(name, old.max(new))?;
    let moved = scaling.divide(new as u8);
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
        let mut members = Vec::new();
        let names: Vec<String> = member_names(name, count).collect();
        for (number, member) in (0..=u8::MAX).zip(&names) {
            self.check_settled(member)?;
            self.check_awake(member)?;
            let running = self.instances.get(member);
            let running = running.ok_or_else(|| no_instance(member))?;
            let ports = running.memory.ports.iter();
            members.push(Member {
                number,
                control: self.settings.paths.control(member),
                ports: ports.map(|part| part.spec.id).collect(),
                runs: running.process.is_some(),
            });
        }
        self.members.insert(name.to_owned(), count);
        let fronts = self.fronts(name);
        for member in &names {
            self.choose_own_bells(member);
        }
        self.upgrading.extend(names);
        Ok(Scaling {
            switch: Arc::clone(&self.switch),
            fronts,
            members,
        })
    }

    fn fronts(&self, name: &str) -> Vec<Front> {
        let Some(running) = self.instances.get(name) else {
            return Vec::new();
        };
        let front = |part: &nfluid_switch::instance::PortParts| {
            let port = PortRef::instance(name, &part.spec.name);
            let senders = self.senders.get(&port).into_iter().flatten();
            // What an interface receives is counted in the table.
            let senders = senders.filter(|sender| sender.owner().is_some());
            Front {
                port: part.spec.id,
                senders: senders.filter_map(|sender| self.port_id(sender)).collect(),
            }
        };
        running.memory.ports.iter().map(front).collect()
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
            self.choose_own_bells(name);
        }
    }

    /// What the last change of an instance's members has come to, if that was not asked before.
    pub fn take_scaled(&mut self, name: &str) -> Option<ScaleReport> {
        let (of, report) = self.scaled.take()?;
        (of == name).then_some(report)
    }

    /// Whether the switch spreads frames for a port of this instance, or has spread what it gets.
    pub(super) fn is_one_of_several(&self, name: &str) -> bool {
        front_of(name).is_some() || self.members.contains_key(name)
    }

    /// After an earlier daemon: whose the flows are. What was led to members that are not there is the first one's again.
    pub(super) fn adopt_members(&mut self, present: &mut Inventory) {
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
        for front in self.fronts(name) {
            let Some(table) = self.switch.spread(front.port)? else {
                continue;
            };
            let index = self
                .fronts(name)
                .iter()
                .position(|it| it.port == front.port);
            let own = |number: u16| {
                let member = nfluid_control::members::member_name(name, number);
                let parts = &self.instances.get(&member)?.memory.ports;
                Some(parts.get(index?)?.spec.id)
            };
            let ports: Vec<u32> = (0..).map_while(own).collect();
            let count = table.iter().try_fold(0, |most, port| {
                let number = ports.iter().position(|own| own == port)?;
                Some(most.max(number as u16 + 1))
            });
            let agrees = count.is_some() && found.is_none_or(|found| found == count);
            found = Some(count);
            if !agrees {
                for front in self.fronts(name) {
                    self.switch.end_spread(front.port)?;
                }
                anyhow::bail!(
                    "its flows were led to members that are not there any more; the first one has them, without their state"
                );
            }
        }
        Ok(found.flatten().unwrap_or(1))
    }
}

impl Scaling {
    /// Divides the flows among so many members.
    fn divide(&self, members: u8) -> Result<Moved, PlatformError> {
        let before = self.shares().map_err(failed)?;
        let shares = before.among(members);
        let standing = match self.halt(&before, &shares) {
            Ok(standing) => standing,
            Err(why) => {
                self.leave_one(&before, &mut Vec::new());
                return Err(error(why));
            }
        };
        let mut moved = Moved::default();
        let begun = Instant::now();
        if let Err(why) = self.lead(&shares, &mut moved) {
            // Nobody has parted with anything: as before.
            let back = self.lead(&before, &mut moved);
            drop(standing);
            back.map_err(failed)?;
            return Err(failed(why));
        }
        let states = self.drain(&before, &shares, &mut moved);
        self.import(&before, &shares, &states, &mut moved);
        drop(standing);
        moved.report.held_us = begun.elapsed().as_micros() as u64;
        self.part(&before, &shares, &mut moved);
        self.leave_one(&shares, &mut moved.problems);
        Ok(moved)
    }

    /// Takes the tables from ports that need none.
    fn leave_one(&self, shares: &Shares, problems: &mut Vec<String>) {
        if *shares != Shares::ONE {
            return;
        }
        for front in &self.fronts {
            if let Err(why) = self.switch.end_spread(front.port) {
                problems.push(why.to_string());
            }
        }
    }

    /// Whose the flows are; every port has a table afterwards.
    fn shares(&self) -> Result<Shares, SwitchError> {
        let mut members = [0; BUCKETS];
        for (index, front) in self.fronts.iter().enumerate() {
            self.switch.begin_spread(front.port)?;
            let table = self
                .switch
                .spread(front.port)?
                .unwrap_or([front.port; BUCKETS]);
            for (member, port) in members.iter_mut().zip(table) {
                let mut own = self
                    .members
                    .iter()
                    .filter(|it| it.ports.get(index) == Some(&port));
                *member = own.next().map_or(0, |it| it.number);
            }
        }
        Ok(Shares::of(members))
    }

    /// The buckets that a member gets.
    fn gains(&self, member: &Member, before: &Shares, shares: &Shares) -> Buckets {
        shares
            .buckets_of(member.number)
            .without(&before.buckets_of(member.number))
    }

    fn losers<'a>(
        &'a self,
        before: &'a Shares,
        shares: &'a Shares,
    ) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter(|member| {
            let had = before.buckets_of(member.number);
            member.runs && !had.without(&shares.buckets_of(member.number)).is_empty()
        })
    }

    fn gainers<'a>(
        &'a self,
        before: &'a Shares,
        shares: &'a Shares,
    ) -> impl Iterator<Item = &'a Member> {
        let gains = |member: &&Member| !self.gains(member, before, shares).is_empty();
        self.members
            .iter()
            .filter(|member| member.runs)
            .filter(gains)
    }

    /// Has those stand still that get flows, until what is returned is dropped.
    fn halt(&self, before: &Shares, shares: &Shares) -> anyhow::Result<Vec<OwnedFd>> {
        let gainers = self.gainers(before, shares);
        gainers
            .map(|member| {
                member
                    .stand()
                    .with_context(|| format!("member {} does not stand still", member.number))
            })
            .collect()
    }

    /// Leads the flows to those who have them now, and waits until no frame is on its way to who had them.
    fn lead(&self, shares: &Shares, moved: &mut Moved) -> Result<(), SwitchError> {
        for (index, front) in self.fronts.iter().enumerate() {
            let mut table: Members = [front.port; BUCKETS];
            for (port, number) in table.iter_mut().zip(shares.members()) {
                let member = self.members.get(usize::from(*number));
                if let Some(own) = member.and_then(|member| member.ports.get(index)) {
                    *port = *own;
                }
            }
            self.switch.set_spread(front.port, &table)?;
        }
        for front in &self.fronts {
            let is_over = self
                .switch
                .await_spread(front.port, &front.senders, UNDER_WAY)?;
            if !is_over {
                moved.problems.push(format!(
                    "a frame was still on its way after {} s: frames of flows that moved may have changed their order",
                    UNDER_WAY.as_secs()
                ));
            }
        }
        Ok(())
    }

    /// The state of each member that loses flows, when it has handled what came before.
    fn drain(
        &self,
        before: &Shares,
        shares: &Shares,
        moved: &mut Moved,
    ) -> Vec<(u8, OwnedFd, u64)> {
        let mut states = Vec::new();
        for member in self.losers(before, shares) {
            match self.drain_one(member) {
                Ok((file, bytes)) => states.push((member.number, file, bytes)),
                Err(why) => moved.problems.push(format!(
                    "member {} gives up flows without their state: {why:#}",
                    member.number
                )),
            }
        }
        states
    }

    fn drain_one(&self, member: &Member) -> anyhow::Result<(OwnedFd, u64)> {
        let ports = member.ports.iter();
        let until: Vec<u32> = ports.map(|port| self.switch.reserved_to(*port)).collect();
        let file = memory_file("state", &[])?;
        let request = json!({ "op": "drain", "until": until });
        let answer = nf_socket::ask_about(&member.control, &request, Some(file.as_fd()))?;
        let bytes = answer.get("state_bytes").and_then(Value::as_u64);
        Ok((
            file,
            bytes.context("it does not say how long its state is")?,
        ))
    }

    /// Gives each member that gets flows what is known of them. One that is left by all its flows also leaves what it has
    /// counted, to the first of the others.
    fn import(
        &self,
        before: &Shares,
        shares: &Shares,
        states: &[(u8, OwnedFd, u64)],
        moved: &mut Moved,
    ) {
        for (loser, file, bytes) in states {
            let had = before.buckets_of(*loser);
            let mut counts = shares.buckets_of(*loser).is_empty();
            for member in self.gainers(before, shares) {
                let flows = had.within(&shares.buckets_of(member.number));
                if flows.is_empty() && !counts {
                    continue;
                }
                let part = json!({ "flows": flows.0, "counts": std::mem::take(&mut counts) });
                let request = json!({ "op": "import", "bytes": bytes, "part": part });
                match nf_socket::ask_about(&member.control, &request, Some(file.as_fd())) {
                    Ok(answer) => {
                        let number = |key: &str| answer.get(key).and_then(Value::as_u64);
                        moved.report.state_taken += number("taken").unwrap_or(0);
                        moved.report.state_left_out += number("left_out").unwrap_or(0);
                    }
                    Err(why) => moved.problems.push(format!(
                        "member {} gets flows without their state: {why:#}",
                        member.number
                    )),
                }
            }
        }
    }

    /// Those who go on without some of their flows forget them.
    fn part(&self, before: &Shares, shares: &Shares, moved: &mut Moved) {
        for member in self.losers(before, shares) {
            let kept = shares.buckets_of(member.number);
            let request = json!({ "op": "part_with", "kept": kept.0 });
            if let Err(why) = nf_socket::ask(&member.control, &request) {
                moved.problems.push(format!(
                    "member {} remembers flows that are another's: {why:#}",
                    member.number
                ));
            }
        }
    }
}

/// The error of what cannot be done to one of several.
pub fn one_of_several(name: &str, what: &str) -> PlatformError {
    PlatformError::new(
        PlatformErrorKind::Refused,
        format!("instance {name} is one of several that share flows: it cannot be {what}"),
    )
    .with_remedy("'nfluid scale INSTANCE 1' makes it one again")
}
