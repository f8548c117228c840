//! A division of flows: who has them from now on, and how what is known of them gets there.
//!
//! All that can be done at the same time is: members that lose flows drain side by side, and each that gets flows takes in what
//! the first one has written down while the others are still at it. It goes on when it has all that is for it.

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

/// How long a frame may be under way by a table that has changed. Only a sender that is kept from its core takes long.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// How long a member that was just made may take until it answers.
const STARTING: Duration = Duration::from_secs(15);
/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// One of several instances that are one to those who send to them.
#[derive(Debug)]
pub struct Member {
    pub number: u8,
    pub control: PathBuf,
    /// Its ports, in the order of the first member's.
    pub ports: Vec<u32>,
    /// It has a process, which can be asked.
    pub runs: bool,
}

impl Member {
    /// It stands still until what is returned is dropped. One that has just been made is waited for.
    fn stand(&self) -> anyhow::Result<OwnedFd> {
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

/// A port of the first member, to which frames for all are sent.
pub struct Front {
    pub port: u32,
    /// Ports of instances that send there.
    pub senders: Vec<u32>,
}

/// What is to be changed.
pub struct Scaling {
    pub tables: Arc<dyn FlowTables>,
    pub fronts: Vec<Front>,
    pub members: Vec<Member>,
}

/// What a change has come to.
#[derive(Debug, Default)]
pub struct Moved {
    pub report: ScaleReport,
    /// Members that keep what they know of flows which are another's: it has not arrived there.
    keep: BTreeSet<u8>,
    /// What did not go as it should.
    pub problems: Vec<String>,
}

impl Scaling {
    /// Divides the flows among so many members. What is done lies at `path` until it is done.
    ///
    /// # Errors
    /// They are divided as before.
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

    /// Carries on with what an earlier daemon has not ended.
    ///
    /// # Errors
    /// Flows may be led to who knows nothing of them.
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

    /// Has those who get flows stand still, leads the flows to them, and gives them what is known of these.
    fn give(&self, note: &Note) -> Result<Moved, PlatformError> {
        let takers = self.halt(note).map_err(failed)?;
        let givers = self.members.iter().filter(|member| gives(note, member));
        let mut problems = Vec::new();
        let lead = || {
            let led = self.lead(&note.after, &mut problems);
            led.or_else(|why| {
                // Nobody has parted with anything: as before.
                self.lead(&note.before, &mut problems).and(Err(why))
            })
        };
        let until = |port| self.tables.reserved_to(port);
        let exchanged = exchange(note, givers, takers, &until, lead)?;
        let Exchanged {
            held,
            taken,
            left_out,
            in_vain,
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
            keep: in_vain,
            problems,
        })
    }

    /// What is left when flows and what is known of them have arrived.
    fn end(&self, mut note: Note, path: &Path, mut moved: Moved) -> Moved {
        note.is_given = true;
        if let Err(why) = note.save(path) {
            // Should this daemon be killed in a moment, the next one gives once more what was given: that does no harm.
            tracing::debug!("writing down that flows have moved: {why}");
        }
        self.part(&note, &mut moved);
        self.leave_one(&note.after, &mut moved.problems);
        erase(path);
        moved
    }

    /// Takes the tables from ports that need none.
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

    /// Whose the flows are; every port has a table afterwards.
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

    /// Has those stand still that get flows, until what comes with them is dropped.
    fn halt(&self, note: &Note) -> anyhow::Result<Vec<(&Member, OwnedFd)>> {
        let takers = self.members.iter().filter(|member| gets(note, member));
        takers
            .map(|member| {
                let stands = member
                    .stand()
                    .with_context(|| format!("member {} does not stand still", member.number))?;
                Ok((member, stands))
            })
            .collect()
    }

    /// Leads the flows to those who have them now, and waits until no frame is on its way to who had them.
    fn lead(&self, shares: &Shares, problems: &mut Vec<String>) -> Result<(), PlatformError> {
        for (index, front) in self.fronts.iter().enumerate() {
            let mut table: Table = [front.port; BUCKETS];
            for (port, number) in table.iter_mut().zip(shares.members()) {
                let member = self.members.get(usize::from(*number));
                if let Some(own) = member.and_then(|member| member.ports.get(index)) {
                    *port = *own;
                }
            }
            // Of one that an earlier daemon has changed it is not known whether there is a table still.
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

    /// Those who go on without some of their flows forget them.
    fn part(&self, note: &Note, moved: &mut Moved) {
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

/// It is done, or will not be.
fn erase(path: &Path) {
    if let Err(why) = std::fs::remove_file(path)
        && why.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("removing {}: {why}", path.display());
    }
}
