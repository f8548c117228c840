//! A chain of fast paths on one interface, for one direction: which fast paths, their programs, and the record.
//!
//! | below `rows/KEY` of the BPF file system | |
//! |---|---|
//! | `link` | the link that holds the first program on the interface |
//! | `first` | instead of `link`, in libxdp's dispatcher: the map with the program that the dispatcher's component calls |
//! | `next0`, `next1`, ... | the maps with each member's successor: the kernel empties such a map when nothing refers to it |

use super::error::{broken, failed};
use super::hold::{Held, Hold, LINK};
use super::paths::Paths;
use super::{hold, pins};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::{Direction, PRIORITY};
use nfluid_evnf::chain::{Chain, Member};
use nfluid_evnf::hook::Hook;
use nfluid_netdev::{ChangedFeatures, FilterSeat, Mode, Place, Side};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// All chains, by [`InterfaceChain::key`].
pub type InterfaceChains = BTreeMap<String, InterfaceChain>;

/// The record of a chain for a later daemon, written before the interface is changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChainRecord {
    /// The interface.
    pub interface: String,
    /// Path of its namespace; absent: the daemon's own namespace.
    pub netns: Option<PathBuf>,
    /// True if the chain processes outgoing packets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// The filter at tc that holds the first program, or will hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterSeat>,
    /// Number of the interface, if libxdp's dispatcher calls the chain, or will call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<u32>,
    /// The fast paths, in packet order.
    #[serde(rename = "seats")]
    pub attached: Vec<Attached>,
    /// The mode of attachment, and the reason if it is not native XDP.
    pub mode: (String, String),
    /// Features of the interface that were changed, to be restored.
    pub features: ChangedFeatures,
    /// True if the features were changed for programs that change packets.
    pub rewrites: bool,
    /// True if the interface had no carrier when the features were changed: the other end may have missed the change.
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

/// The position of a fast path in a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its order among the fast paths of the chain.
    pub order: Option<u16>,
    /// The instance.
    pub name: String,
    /// The position is reserved for a fast path that will be made. No fast path behind it gets packets until then.
    #[serde(default, rename = "vacant")]
    pub reserved: bool,
}

/// A chain of fast paths on one interface, for one direction.
pub struct InterfaceChain {
    place: Place,
    record: ChainRecord,
    file: PathBuf,
    pins: PathBuf,
    /// The hold; absent: the interface does not exist, or has no program of the chain.
    hold: Option<Hold>,
    /// The programs that this daemon has installed. Absent: none yet, the programs of an earlier daemon keep running.
    programs: Option<Chain>,
    /// The names of the fast paths of these programs.
    installed: Vec<String>,
    /// The reason why no program is attached.
    problem: Option<String>,
}

/// The programs to be installed on an interface, and how.
pub struct Wanted {
    /// Programs with the names of their fast paths.
    pub members: Vec<(String, Member)>,
    /// The hook.
    pub hook: Hook,
    /// The XDP mode, if the hook is XDP.
    pub mode: Mode,
    /// True if one of the programs changes packets.
    pub rewrites: bool,
    /// True if the deployment does not specify the hook, and all functions have a form for tc.
    pub may_be_at_tc: bool,
    /// The priority in libxdp's dispatcher; absent: not in the dispatcher.
    pub priority: Option<u32>,
    /// The filter that holds the chain of the other direction.
    pub beside: Option<FilterSeat>,
}

impl InterfaceChain {
    /// Returns the name of the files of the chain of an interface and a direction.
    pub fn key_of(place: &Place, direction: Direction) -> String {
        let mut name = format!("{:?} {}", place.netns, place.interface);
        if direction == Direction::Egress {
            name += " egress";
        }
        format!("{:016x}", xxh3_64(name.as_bytes()))
    }

    /// Returns the name of the files of this chain.
    pub fn key(&self) -> String {
        Self::key_of(&self.place, self.record.direction())
    }

    /// Makes a chain without fast paths.
    pub fn new(place: &Place, direction: Direction, paths: &Paths) -> Self {
        let record = ChainRecord {
            interface: place.interface.clone(),
            netns: place.netns.clone(),
            leaves: direction == Direction::Egress,
            ..ChainRecord::default()
        };
        Self::of(record, paths)
    }

    /// Returns the chain that an earlier daemon has left, by its record.
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

    /// Returns the interface.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the fast paths in the chain, those with a reserved position included.
    pub fn attached(&self) -> &[Attached] {
        &self.record.attached
    }

    /// The mode of attachment, and the reason if it is not native XDP.
    pub fn mode(&self) -> &(String, String) {
        &self.record.mode
    }

    /// Returns the hook for the next program: the hook of the program that it replaces, or `wanted` if there is none.
    pub fn hook(&self, wanted: Hook) -> Hook {
        match self.record.mode.0.as_str() {
            _ if !self.is_attached() => wanted,
            hold::AT_TC if self.record.leaves => Hook::Egress,
            hold::AT_TC => Hook::Tc,
            _ if self.record.component.is_some() => Hook::Component,
            _ => Hook::Xdp,
        }
    }

    /// The reason why no program is attached.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Notes the reason why no program is attached.
    pub fn note_problem(&mut self, why: Option<String>) {
        self.problem = why;
    }

    /// Returns true if a program of the chain is on the interface.
    pub fn is_attached(&self) -> bool {
        let hold = self.hold.as_ref();
        hold.is_some_and(Hold::is_attached)
    }

    /// Returns true if the interface is gone with its program, or now has another name or namespace.
    pub fn is_gone(&self) -> bool {
        let Some(hold) = &self.hold else {
            return false;
        };
        let Some(number) = hold.interface() else {
            return true;
        };
        // An error leaves the chain as it is.
        let there = self.place.number();
        there.is_ok_and(|there| there != Some(number))
    }

    /// Returns the filter that holds the chain, if a filter does.
    pub fn filter_seat(&self) -> Option<&FilterSeat> {
        self.record.filter.as_ref()
    }

    /// Returns true if programs of an earlier daemon are still running although no fast path is missing.
    pub fn is_left(&self) -> bool {
        let is_whole = self.record.attached.iter().all(|one| !one.reserved);
        self.programs.is_none() && is_whole && self.is_attached()
    }

    /// Returns the fast paths whose programs are to be installed: those before the first reserved position. A fast path
    /// behind a missing one would get packets that the missing one would drop.
    pub fn members(&self) -> Vec<String> {
        let there = self.record.attached.iter().take_while(|one| !one.reserved);
        there.map(|one| one.name.clone()).collect()
    }

    /// Returns the position of a fast path among the installed programs.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.programs.as_ref()?;
        self.installed.iter().position(|other| other == name)
    }

    /// Sets the fast paths of the chain, given in any order, and writes the record.
    ///
    /// # Errors
    /// When the record cannot be written. Then the chain is unchanged.
    pub fn set_attached(&mut self, mut attached: Vec<Attached>) -> Result<(), PlatformError> {
        attached.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let before = std::mem::replace(&mut self.record.attached, attached);
        self.save().inspect_err(|_| self.record.attached = before)
    }

    fn save(&self) -> Result<(), PlatformError> {
        nfluid_records::save(&self.record, &self.file).map_err(broken)
    }

    /// Installs programs on the interface in place of the present programs, between two packets. Without members the
    /// interface is released.
    ///
    /// # Errors
    /// When the interface or the kernel refuses. Then the former programs are in place.
    pub fn install(&mut self, wanted: Wanted) -> Result<(), PlatformError> {
        if wanted.members.is_empty() {
            return self.release();
        }
        if self.is_gone() {
            self.forget()?;
        }
        // At tc packets need no preparation of the interface.
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
        // Read before the change: a carrier that comes up meanwhile is noticed later.
        let is_unsettled = rewrites && !self.place.has_carrier();
        let changed = self.place.prepare(rewrites);
        let changed = changed.map_err(|error| failed(&error))?;
        self.record.features.merge(changed);
        self.record.rewrites |= rewrites;
        self.record.is_unsettled |= is_unsettled;
        self.save()
    }

    /// Notifies the other end of a veth, once it is up, that frames are redirected to it.
    ///
    /// # Errors
    /// When the kernel refuses, or the record cannot be written.
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

    /// Adds a hint to the mode: tc is better than XDP here.
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
                // Recorded before the component exists, so that a later daemon finds it.
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
        // Recorded before the filter exists, so that a later daemon finds it.
        self.record.filter = Some(seat.clone());
        self.save()?;
        hold::by_filter(&self.place, seat, head)
    }

    /// Replaces the program of one member, between two packets.
    ///
    /// # Errors
    /// When the kernel refuses. Then the former program is in place.
    pub fn replace(&mut self, at: usize, member: Member) -> Result<(), PlatformError> {
        let (Some(hold), Some(chain)) = (&self.hold, &mut self.programs) else {
            return Ok(());
        };
        let replaced = chain.replace_under(at, member, |first| hold.put(first));
        replaced.map_err(broken)
    }

    /// Removes all programs from the interface: the kernel gets all packets. The chain keeps its fast paths.
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

    /// Forgets an interface that is gone: a new interface of the same name is another interface. An interface that has
    /// only been renamed gets its features back.
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

    /// Removes the chain with its pins and its record; the interface is restored.
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

/// The remedy if the interface has a foreign program at XDP.
const BESIDE_OTHERS: &str =
    "or write 'mode: tc' on all interfaces of the row, which is beside what others have at XDP";

/// The hint for an end of a veth at XDP.
const BETTER_AT_TC: &str = "XDP has a veth's packets copied: 'mode: tc' on all interfaces of the row takes them as they are";

/// Returns the records of chains that an earlier daemon has left.
pub fn recorded(paths: &Paths) -> impl Iterator<Item = (PathBuf, std::io::Result<ChainRecord>)> {
    let files = std::fs::read_dir(paths.chain_records());
    let files = files.into_iter().flatten().flatten();
    files.map(|file| (file.path(), nfluid_records::load(Path::new(&file.path()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_records::Directories;

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
        let paths = Paths::new(Directories {
            run: folder.join("run"),
            pin: folder.join("pins"),
        });
        std::fs::create_dir_all(paths.chain_records()).expect("the directory is ours");
        InterfaceChain::new(&place, Direction::Ingress, &paths)
    }

    // promise: 15.16
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

    // promise: 15.17
    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let mut chain = chain();
        chain.file = chain.file.join("nowhere");
        assert!(chain.set_attached(vec![attached("a", 1)]).is_err());
        assert!(chain.members().is_empty());
    }
}
