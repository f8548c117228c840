//! An interface with fast paths on it, one behind the other: which they are, their program, what is kept of it.
//!
//! | below `rows/KEY` of the BPF file system | |
//! |---|---|
//! | `link` | the hold on the interface |
//! | `first` | instead of it, in libxdp's dispatcher: who is entered from there |
//! | `next0`, `next1`, ... | who comes behind a member: without a holder the kernel would forget that |

use super::error::{broken, failed};
use super::hold::{Held, Hold, LINK};
use super::paths::Paths;
use super::{hold, pins};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::{Direction, PRIORITY};
use nfluid_evnf::chain::{Chain, Member};
use nfluid_evnf::hook::Hook;
use nfluid_switch::uplink::{ChangedFeatures, FilterSeat, Mode, Place, Side};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// All interfaces with fast paths, each way, by [`InterfaceChain::key`].
pub type InterfaceChains = BTreeMap<String, InterfaceChain>;

/// What is kept of it beside its pins, for a later daemon. Written before the interface is changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChainRecord {
    /// The interface.
    pub interface: String,
    /// Path of its namespace; absent: the daemon's own.
    pub netns: Option<PathBuf>,
    /// They see what goes out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// A filter at tc is the hold on it, or is about to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterSeat>,
    /// Number of the interface, if libxdp's dispatcher calls them there, or is about to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<u32>,
    /// Who is there, in the order in which packets meet them.
    #[serde(rename = "seats")]
    pub attached: Vec<Attached>,
    /// In which mode, and why not natively.
    pub mode: (String, String),
    /// Features that were switched, to be put back.
    pub features: ChangedFeatures,
    /// Whether they were for programs that change packets.
    pub rewrites: bool,
    /// Frames could not go out of the interface when they were switched: what the other end has to take note of it may have missed.
    #[serde(default)]
    pub is_unsettled: bool,
}

impl ChainRecord {
    fn direction(&self) -> Direction {
        if self.leaves {
            Direction::Egress
        } else {
            Direction::Ingress
        }
    }
}

/// A member's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its place among the others.
    pub order: Option<u16>,
    /// The instance.
    pub name: String,
    /// It is about to be made: nobody behind it gets what it would have had a say in.
    #[serde(default, rename = "vacant")]
    pub reserved: bool,
}

/// An interface with fast paths.
pub struct InterfaceChain {
    place: Place,
    record: ChainRecord,
    file: PathBuf,
    pins: PathBuf,
    /// Absent: the interface is not there, or nobody is on it.
    hold: Option<Hold>,
    /// What this daemon has put there. Absent: nothing yet, an earlier one's goes on.
    programs: Option<Chain>,
    /// The names of its members.
    installed: Vec<String>,
    /// Why nothing is there.
    problem: Option<String>,
}

/// What is to be on an interface.
pub struct Wanted {
    /// Members with their names.
    pub members: Vec<(String, Member)>,
    /// Where.
    pub hook: Hook,
    /// How, at XDP.
    pub mode: Mode,
    /// One of them changes packets.
    pub rewrites: bool,
    /// It was not said how, and all of them have a form for tc.
    pub may_be_at_tc: bool,
    /// Their place in libxdp's dispatcher, if they are to be there.
    pub priority: Option<u32>,
    /// Where the filter is that holds those of the other way.
    pub beside: Option<FilterSeat>,
}

impl InterfaceChain {
    /// The name of an interface's files, those for what goes this way.
    pub fn key_of(place: &Place, direction: Direction) -> String {
        let mut name = format!("{:?} {}", place.netns, place.interface);
        if direction == Direction::Egress {
            name += " egress";
        }
        format!("{:016x}", xxh3_64(name.as_bytes()))
    }

    /// The name of its files.
    pub fn key(&self) -> String {
        Self::key_of(&self.place, self.record.direction())
    }

    /// With nobody on it.
    pub fn new(place: &Place, direction: Direction, paths: &Paths) -> Self {
        let record = ChainRecord {
            interface: place.interface.clone(),
            netns: place.netns.clone(),
            leaves: direction == Direction::Egress,
            ..ChainRecord::default()
        };
        Self::of(record, paths)
    }

    /// As a record says that it was left.
    pub fn of(record: ChainRecord, paths: &Paths) -> Self {
        let place = Place {
            interface: record.interface.clone(),
            netns: record.netns.clone(),
        };
        let key = Self::key_of(&place, record.direction());
        let pins = paths.chain_pins(&key);
        InterfaceChain {
            hold: Hold::left(&place, &pins, record.filter.as_ref(), record.component),
            place,
            record,
            file: paths.chain_record(&key),
            pins,
            programs: None,
            installed: Vec::new(),
            problem: None,
        }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Who is there, or is to be.
    pub fn attached(&self) -> &[Attached] {
        &self.record.attached
    }

    /// In which mode, and why not natively.
    pub fn mode(&self) -> &(String, String) {
        &self.record.mode
    }

    /// Where the next program is to be: where one is that it takes the place of, else where it is `wanted`.
    pub fn hook(&self, wanted: Hook) -> Hook {
        match self.record.mode.0.as_str() {
            _ if !self.is_attached() => wanted,
            hold::AT_TC if self.record.leaves => Hook::Egress,
            hold::AT_TC => Hook::Tc,
            _ if self.record.component.is_some() => Hook::Component,
            _ => Hook::Xdp,
        }
    }

    /// Why nothing is there.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Notes why nothing is there.
    pub fn note_problem(&mut self, why: Option<String>) {
        self.problem = why;
    }

    /// Whether a program is on the interface.
    pub fn is_attached(&self) -> bool {
        let hold = self.hold.as_ref();
        hold.is_some_and(Hold::is_attached)
    }

    /// Whether the interface is gone with what was on it, or what was on it is on an interface of another name or namespace by now.
    pub fn is_gone(&self) -> bool {
        let Some(hold) = &self.hold else {
            return false;
        };
        let Some(number) = hold.interface() else {
            return true;
        };
        // Who cannot be told stays.
        let there = self.place.number();
        there.is_ok_and(|there| there != Some(number))
    }

    /// Where the filter is that holds it, if one does.
    pub fn filter_seat(&self) -> Option<&FilterSeat> {
        self.record.filter.as_ref()
    }

    /// Whether what an earlier daemon has put there goes on, although nobody is missing.
    pub fn is_left(&self) -> bool {
        let is_whole = self.record.attached.iter().all(|one| !one.reserved);
        self.programs.is_none() && is_whole && self.is_attached()
    }

    /// Those of whom a program is to be there: whoever is behind one that is missing would get what that one would stop.
    pub fn members(&self) -> Vec<String> {
        let there = self.record.attached.iter().take_while(|one| !one.reserved);
        there.map(|one| one.name.clone()).collect()
    }

    /// Which member of what is there has this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.programs.as_ref()?;
        self.installed.iter().position(|other| other == name)
    }

    /// Says who is there, in any order, and writes it down.
    ///
    /// # Errors
    /// When it cannot be written; then it is as before.
    pub fn set_attached(&mut self, mut attached: Vec<Attached>) -> Result<(), PlatformError> {
        attached.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let before = std::mem::replace(&mut self.record.attached, attached);
        self.save().inspect_err(|_| self.record.attached = before)
    }

    fn save(&self) -> Result<(), PlatformError> {
        nfluid_records::save(&self.record, &self.file).map_err(broken)
    }

    /// Puts members on the interface, in the place of those that are there, between two packets. Nobody: it is left alone.
    ///
    /// # Errors
    /// When the interface or the kernel refuses; what was there is there still.
    pub fn install(&mut self, wanted: Wanted) -> Result<(), PlatformError> {
        if wanted.members.is_empty() {
            return self.release();
        }
        if self.is_gone() {
            self.forget()?;
        }
        // At tc packets may be as they are.
        let at_xdp = wanted.hook.is_xdp();
        if at_xdp && (self.hold.is_none() || wanted.rewrites && !self.record.rewrites) {
            self.prepare(wanted.rewrites)?;
        }
        let (names, members): (Vec<String>, Vec<Member>) = wanted.members.into_iter().unzip();
        match (&self.hold, &mut self.programs) {
            (Some(hold), Some(chain)) => {
                let replaced = chain.replace_all_under(members, |first| hold.put(first));
                replaced.map_err(broken)?;
            }
            (Some(hold), none) => {
                let chain = Chain::kept(members, &self.pins).map_err(broken)?;
                let head = chain.head().map_err(broken)?;
                hold.replace(head.as_fd()).map_err(|error| failed(&error))?;
                chain.take_over();
                *none = Some(chain);
            }
            (None, _) => {
                let at = (wanted.hook, wanted.mode, wanted.priority);
                let attached = self.attach(members, at, wanted.beside.as_ref());
                attached.map_err(|why| match why.kind {
                    PlatformErrorKind::Busy if wanted.may_be_at_tc && why.remedy.is_empty() => {
                        why.with_remedy(BESIDE_OTHERS)
                    }
                    _ => why,
                })?;
                if at_xdp && wanted.may_be_at_tc && self.place.is_veth() {
                    self.note_better_hook();
                }
            }
        }
        self.installed = names;
        self.problem = None;
        Ok(())
    }

    fn prepare(&mut self, rewrites: bool) -> Result<(), PlatformError> {
        // Before: what changes meanwhile is looked at again.
        let is_unsettled = rewrites && !self.place.has_carrier();
        let changed = self.place.prepare(rewrites);
        let changed = changed.map_err(|error| failed(&error))?;
        self.record.features.merge(changed);
        self.record.rewrites |= rewrites;
        self.record.is_unsettled |= is_unsettled;
        self.save()
    }

    /// Has the other end of a veth take note that frames are redirected there, when it has come up.
    ///
    /// # Errors
    /// When the kernel refuses, or that cannot be written down.
    pub fn notify_peer(&mut self) -> Result<(), PlatformError> {
        if !self.record.is_unsettled || !self.is_attached() || !self.place.has_carrier() {
            return Ok(());
        }
        self.place.renew_peer().map_err(|error| failed(&error))?;
        self.record.is_unsettled = false;
        self.save()
    }

    fn attach(
        &mut self,
        members: Vec<Member>,
        at: (Hook, Mode, Option<u32>),
        beside: Option<&FilterSeat>,
    ) -> Result<(), PlatformError> {
        match std::fs::create_dir(&self.pins) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(broken(error));
            }
            _ => {}
        }
        let chain = Chain::kept(members, &self.pins).map_err(broken)?;
        chain.take_over();
        let head = chain.head().map_err(broken)?;
        self.record.component = None;
        let (hold, mode) = self.hold_on_to(head.as_fd(), at, beside)?;
        self.hold = Some(hold);
        self.programs = Some(chain);
        self.record.mode = mode;
        if let Err(error) = self.save() {
            tracing::warn!(interface = self.place.interface, %error, "writing down the mode");
        }
        Ok(())
    }

    /// Says what would be better than being at XDP.
    fn note_better_hook(&mut self) {
        let why = &mut self.record.mode.1;
        if !why.is_empty() {
            why.push_str("; ");
        }
        why.push_str(BETTER_AT_TC);
        if let Err(error) = self.save() {
            tracing::warn!(interface = self.place.interface, %error, "writing down the mode");
        }
    }

    fn hold_on_to(
        &mut self,
        head: BorrowedFd<'_>,
        (hook, mode, priority): (Hook, Mode, Option<u32>),
        beside: Option<&FilterSeat>,
    ) -> Result<Held, PlatformError> {
        let pin = self.pins.join(LINK);
        let side = match hook {
            Hook::Xdp => return hold::at_xdp(&self.place, head, mode, &pin),
            Hook::Component => {
                // Before it is there: by this it is found.
                self.record.component = self.place.number().map_err(|error| failed(&error))?;
                self.save()?;
                let priority = priority.unwrap_or(PRIORITY);
                return hold::in_dispatcher(&self.place, head, mode, priority, &self.pins);
            }
            Hook::Tc => Side::Ingress,
            Hook::Egress => Side::Egress,
        };
        if let Some(held) = hold::at_tc(&self.place, head, side, &pin)? {
            return Ok(held);
        }
        let seat = FilterSeat::prepare(&self.place, side, beside);
        let seat = seat.map_err(|error| failed(&error))?;
        // Before it is there: by this it is found.
        self.record.filter = Some(seat.clone());
        self.save()?;
        hold::by_filter(&self.place, seat, head)
    }

    /// Puts another program in the place of a member, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses; what was there is there still.
    pub fn replace(&mut self, at: usize, member: Member) -> Result<(), PlatformError> {
        let (Some(hold), Some(chain)) = (&self.hold, &mut self.programs) else {
            return Ok(());
        };
        let replaced = chain.replace_under(at, member, |first| hold.put(first));
        replaced.map_err(broken)
    }

    /// Takes everything off the interface: packets are the kernel's. Who has a seat keeps it.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn release(&mut self) -> Result<(), PlatformError> {
        if let Some(hold) = self.hold.take() {
            hold.remove().map_err(|error| failed(&error))?;
        }
        self.record.filter = None;
        self.record.component = None;
        self.programs = None;
        self.installed.clear();
        pins::remove_pins(&self.pins).map_err(broken)
    }

    /// Forgets the interface, which is gone: one that comes in its place is another. If it is only called otherwise, it is as before.
    ///
    /// # Errors
    /// As [`InterfaceChain::release`].
    pub fn forget(&mut self) -> Result<(), PlatformError> {
        let number = self.hold.as_ref().and_then(Hold::interface);
        let called = number.and_then(|number| self.place.name_of(number).ok().flatten());
        if let Some(interface) = called {
            let netns = self.place.netns.clone();
            let renamed = Place { interface, netns };
            if let Err(error) = renamed.restore(&self.record.features) {
                tracing::debug!(interface = renamed.interface, %error, "features stay");
            }
        }
        self.record.features = ChangedFeatures::default();
        self.record.rewrites = false;
        self.record.is_unsettled = false;
        self.problem = None;
        self.release()
    }

    /// Leaves the interface as it was, and no trace.
    ///
    /// # Errors
    /// When a pin or the record cannot be removed.
    pub fn remove(&mut self) -> Result<(), PlatformError> {
        self.release()?;
        if let Err(error) = self.place.restore(&self.record.features) {
            tracing::debug!(interface = self.place.interface, %error, "features stay");
        }
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(broken(error)),
            _ => Ok(()),
        }
    }
}

/// Where another's program is at XDP.
const BESIDE_OTHERS: &str =
    "or write 'mode: tc' on all interfaces of the row, which is beside what others have at XDP";

/// For an end of a veth, at XDP.
const BETTER_AT_TC: &str = "XDP has a veth's packets copied: 'mode: tc' on all interfaces of the row takes them as they are";

/// The records of an earlier daemon.
pub fn recorded(paths: &Paths) -> impl Iterator<Item = (PathBuf, std::io::Result<ChainRecord>)> {
    let files = std::fs::read_dir(paths.chain_records());
    let files = files.into_iter().flatten().flatten();
    files.map(|file| (file.path(), nfluid_records::load(Path::new(&file.path()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(name: &str, order: u16) -> Attached {
        Attached {
            order: Some(order),
            name: name.to_owned(),
            reserved: false,
        }
    }

    fn chain() -> InterfaceChain {
        let place = Place {
            interface: "eth1".to_owned(),
            netns: None,
        };
        let folder = std::env::temp_dir().join(format!("nfluid-row-{}", std::process::id()));
        let paths = Paths::new(folder.join("run"), folder.join("pins"));
        std::fs::create_dir_all(paths.chain_records()).expect("the directory is ours");
        InterfaceChain::new(&place, Direction::Ingress, &paths)
    }

    #[test]
    fn nobody_gets_what_a_missing_member_before_it_would_have_had_a_say_in() {
        let mut chain = chain();
        chain
            .set_attached(vec![
                attached("c", 30),
                attached("a", 20),
                attached("b", 10),
            ])
            .expect("it is written down");
        assert_eq!(chain.members(), ["b", "a", "c"]);
        let missing = Attached {
            reserved: true,
            ..attached("a", 20)
        };
        chain
            .set_attached(vec![attached("c", 30), missing, attached("b", 10)])
            .expect("it is written down");
        assert_eq!(chain.members(), ["b"], "what it lets pass is the kernel's");
        chain.remove().expect("its record is ours");
    }

    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let mut chain = chain();
        chain.file = chain.file.join("nowhere");
        assert!(chain.set_attached(vec![attached("a", 1)]).is_err());
        assert!(chain.members().is_empty());
    }
}
