//! A division of flows: the members that own the flows from now on, and the transfer of the flows' state to them.
//!
//! Independent steps run at the same time: members that lose flows drain side by side, and each member that gains
//! flows imports the exports that are finished while the other members still work. A member goes on when it has the
//! whole state of its flows.

use super::exchange::{Exchanged, exchange};
use super::note::Note;
use super::tables::{FlowTables, Table};
use crate::errors::failed;
use anyhow::Context;
use nfluid_api::types::ScaleReport;
use nfluid_control::apply::PlatformError;
use nfluid_protocol::{Request, daemon};
use nfluid_ring::flow::{BUCKETS, Shares};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a frame may be under way by a table that has changed. Only a sender that does not get its core
/// takes this long.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Time in which a member that was just created has to answer.
const STARTING: Duration = Duration::from_secs(15);
/// Interval at which a new member is asked whether it answers.
const LOOK: Duration = Duration::from_millis(5);

/// A member: one of several instances that are one instance to their senders.
#[derive(Debug)]
pub struct Member {
    pub number: u8,
    pub control: PathBuf,
    /// Its ports, in the order of the first member's ports.
    pub ports: Vec<u32>,
    /// True if the member has a process that can be asked.
    pub runs: bool,
}

impl Member {
    /// Makes the member stand still until the returned descriptor is closed. Waits for a member that has just been
    /// created.
    fn stand_still(&self) -> anyhow::Result<OwnedFd> {
        let begun = Instant::now();
        loop {
            let kind = (AddressFamily::UNIX, SocketType::STREAM);
            let (way, its_end) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)
                .context("making the way to it")?;
            match daemon::ask_about(&self.control, &Request::Stand, Some(its_end.as_fd())) {
                Ok(_) => return Ok(way),
                Err(why) if begun.elapsed() > STARTING => return Err(why),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}

/// A port of the first member, to which frames for all members are sent.
pub struct Front {
    pub port: u32,
    /// Ports of instances that send to this port.
    pub senders: Vec<u32>,
}

/// The members and ports of a division.
pub struct Scaling {
    pub tables: Arc<dyn FlowTables>,
    pub fronts: Vec<Front>,
    pub members: Vec<Member>,
}

/// The result of a division.
#[derive(Debug, Default)]
pub struct Moved {
    pub report: ScaleReport,
    /// Members that keep the state of flows which another member owns now: the state has not arrived there.
    keep: BTreeSet<u8>,
    /// The problems that occurred.
    pub problems: Vec<String>,
}

impl Scaling {
    /// Divides the flows among `members` members. `path` records the division until it is done.
    ///
    /// # Errors
    /// The flows are divided as before.
    pub fn divide(&self, members: u8, path: &Path) -> Result<Moved, PlatformError> {
        let before = self.shares()?;
        let note = Note::new(self.members.len() as u16, before, before.among(members));
        let written = note.save(path).context("writing down what is to be done");
        let given = written.map_err(failed).and_then(|()| self.give(&note));
        match given {
            Ok(moved) => Ok(self.end(note, path, moved)),
            Err(why) => {
                self.leave_one(&before, &mut Vec::new());
                erase(path);
                Err(why)
            }
        }
    }

    /// Continues a division that an earlier daemon has not finished.
    ///
    /// # Errors
    /// Flows may be led to a member without their state.
    pub fn resume(&self, note: Note, path: &Path) -> Result<Moved, PlatformError> {
        let given = if note.is_given {
            Ok(Moved::default())
        } else {
            self.give(&note)
        };
        let ended = given.map(|moved| self.end(note, path, moved));
        erase(path);
        ended
    }

    /// Makes the gaining members stand still, leads the flows to them, and gives them the state of the flows.
    fn give(&self, note: &Note) -> Result<Moved, PlatformError> {
        let takers = self.stop_takers(note).map_err(failed)?;
        let givers = self.members.iter().filter(|member| gives(note, member));
        let mut problems = Vec::new();
        let lead = || {
            let led = self.lead(&note.after, &mut problems);
            led.or_else(|why| {
                // No member has given state away: the flows are divided as before.
                self.lead(&note.before, &mut problems).and(Err(why))
            })
        };
        let until = |port| self.tables.reserved_to(port);
        let exchanged = exchange(note, givers, takers, &until, lead)?;
        let Exchanged {
            held,
            taken,
            left_out,
            failed_givers,
            problems: others,
        } = exchanged;
        problems.extend(others);
        Ok(Moved {
            report: ScaleReport {
                held_us: held.as_micros() as u64,
                state_taken: taken,
                state_left_out: left_out,
                ..ScaleReport::default()
            },
            keep: failed_givers,
            problems,
        })
    }

    /// Finishes the division, after flows and state have arrived.
    fn end(&self, mut note: Note, path: &Path, mut moved: Moved) -> Moved {
        note.is_given = true;
        if let Err(why) = note.save(path) {
            // If this daemon is killed in a moment, the next one transfers the same state again, which does no harm.
            tracing::debug!("writing down that flows have moved: {why}");
        }
        self.forget_moved(&note, &mut moved);
        self.leave_one(&note.after, &mut moved.problems);
        erase(path);
        moved
    }

    /// Removes the tables of ports that need none.
    fn leave_one(&self, shares: &Shares, problems: &mut Vec<String>) {
        if *shares != Shares::ONE {
            return;
        }
        for front in &self.fronts {
            if let Err(why) = self.tables.end(front.port) {
                problems.push(why.message);
            }
        }
    }

    /// Returns the owners of the flows. Every port has a table afterwards.
    fn shares(&self) -> Result<Shares, PlatformError> {
        let mut members = [0; BUCKETS];
        for (index, front) in self.fronts.iter().enumerate() {
            self.tables.begin(front.port)?;
            let table = self
                .tables
                .get(front.port)?
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

    /// Makes the gaining members stand still, until the returned descriptors are closed.
    fn stop_takers(&self, note: &Note) -> anyhow::Result<Vec<(&Member, OwnedFd)>> {
        let takers = self.members.iter().filter(|member| gets(note, member));
        takers
            .map(|member| {
                let stands = member
                    .stand_still()
                    .with_context(|| format!("member {} does not stand still", member.number))?;
                Ok((member, stands))
            })
            .collect()
    }

    /// Leads the flows to their new owners, and waits until no frame is on its way to a former owner.
    fn lead(&self, shares: &Shares, problems: &mut Vec<String>) -> Result<(), PlatformError> {
        for (index, front) in self.fronts.iter().enumerate() {
            let mut table: Table = [front.port; BUCKETS];
            for (port, number) in table.iter_mut().zip(shares.members()) {
                let member = self.members.get(usize::from(*number));
                if let Some(own) = member.and_then(|member| member.ports.get(index)) {
                    *port = *own;
                }
            }
            // A table that an earlier daemon has changed may have been removed.
            self.tables.begin(front.port)?;
            self.tables.set(front.port, &table)?;
        }
        for front in &self.fronts {
            let is_over = self
                .tables
                .await_change(front.port, &front.senders, UNDER_WAY)?;
            if !is_over {
                problems.push(format!(
                    "a frame was still on its way after {} s: frames of flows that moved may have changed their order",
                    UNDER_WAY.as_secs()
                ));
            }
        }
        Ok(())
    }

    /// Makes the members that lose flows forget the state of these flows.
    fn forget_moved(&self, note: &Note, moved: &mut Moved) {
        let parting = self.members.iter().filter(|member| gives(note, member));
        for member in parting.filter(|member| !moved.keep.contains(&member.number)) {
            let kept = note.after.buckets_of(member.number);
            let request = Request::PartWith { kept: kept.0 };
            if let Err(why) = daemon::ask(&member.control, &request) {
                moved.problems.push(format!(
                    "member {} remembers flows that are another's: {why:#}",
                    member.number
                ));
            }
        }
    }
}

fn gets(note: &Note, member: &Member) -> bool {
    member.runs && !note.gains(member.number).is_empty()
}

fn gives(note: &Note, member: &Member) -> bool {
    member.runs && !note.losses(member.number).is_empty()
}

/// Removes the record of a division that is finished or given up.
fn erase(path: &Path) {
    if let Err(why) = std::fs::remove_file(path)
        && why.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("removing {}: {why}", path.display());
    }
}
