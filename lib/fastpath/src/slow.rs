//! A slow path other than the kernel's stack: taps that a program or an uplink has open, and the return path from there
//! (docs/adr/0027-slow-path.md).
//!
//! | below `fast/NAME` of the BPF file system | |
//! |---|---|
//! | `slow_flows`, `slow_exits` | flows in the slow path; packet counters per exit |
//! | `link_tap`, `link_back` | links of the return path's programs on the taps |

use crate::error::failed;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::Slow as Taps;
use nfluid_evnf::firewall::Firewall;
use nfluid_evnf::load::{Counts, LoadError};
use nfluid_evnf::slow::{Direction, SlowExit, SlowPath, SlowTables, number_of};
use nfluid_netdev::{NetdevError as UplinkError, PinnedProgram, Place, Side};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A slow path.
pub struct Slow {
    path: SlowPath,
    entrance: Entrance,
    back: Option<String>,
    pins: PathBuf,
    /// The interfaces at the last check.
    seen: Seen,
    /// Holds on the taps.
    ways: Vec<PinnedProgram>,
    /// The reason why the slow path does not work.
    problem: Option<String>,
    /// Packets handed up, and packets read from the tap, at the time when the tap appeared.
    since: (u64, u64),
}

/// Destination of packets that are handed up. A clone is for code that loads programs without the lock of the fast
/// paths.
#[derive(Clone)]
pub struct Entrance {
    tables: SlowTables,
    /// The fast path's interface.
    place: Place,
    tap: String,
}

/// The interfaces of a slow path, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    interface: Option<u32>,
    tap: Option<u32>,
    back: Option<u32>,
    /// True if a program has the tap open.
    is_read: bool,
}

impl Entrance {
    /// Returns the tables that the fast path's programs share with the slow path.
    pub fn tables(&self) -> &SlowTables {
        &self.tables
    }

    /// Has a firewall hand packets up to the tap, if a program has the tap open. Otherwise packets that are handed up
    /// are dropped and counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lead(&self, firewall: &Firewall) -> Result<(), PlatformError> {
        let door = firewall.entrance().map_err(refused)?;
        let is_read = self.tap().has_carrier();
        let led = self.place.within(|| match number_of(&self.tap) {
            Some(number) if is_read => Ok(door.lead_to(number)),
            _ => Ok(door.close()),
        });
        led.map_err(|error| failed(&error))?.map_err(refused)
    }

    fn tap(&self) -> Place {
        Place {
            interface: self.tap.clone(),
            netns: self.place.netns.clone(),
        }
    }
}

impl Slow {
    /// Makes the tables, or opens those of an earlier daemon. No program is on the taps yet, see [`Slow::update`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn load(taps: &Taps, place: &Place, pins: &Path) -> Result<Self, PlatformError> {
        let path = SlowPath::load(Some(pins)).map_err(refused)?;
        Ok(Slow {
            entrance: Entrance {
                tables: path.tables(),
                place: place.clone(),
                tap: taps.tap.clone(),
            },
            back: taps.back.clone(),
            pins: pins.to_owned(),
            seen: Seen::default(),
            ways: Vec::new(),
            problem: None,
            since: (0, 0),
            path,
        })
    }

    /// Returns the destination of packets that are handed up.
    pub fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// Returns the reason why the slow path does not work. Meanwhile packets that are handed up are dropped.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Describes the slow path for the API: `tap up, back on`.
    pub fn describe(&self) -> String {
        let back = self.back.as_deref();
        let back = back.map_or_else(String::new, |back| format!(", back {back}"));
        format!("tap {}{back}", self.entrance.tap)
    }

    /// Checks the taps, and attaches the programs of the return path to new taps. Returns true if the entrance has
    /// opened or closed.
    pub fn update(&mut self) -> bool {
        let seen = self.look();
        if seen == self.seen && self.problem.is_none() {
            return false;
        }
        let before = std::mem::replace(&mut self.seen, seen);
        if before.tap != seen.tap {
            self.since = (handed(&self.exits()), self.taken());
        }
        self.problem = self.lacks();
        if self.problem.is_none()
            && let Err(error) = self.put_ways()
        {
            self.problem = Some(format!("the way back from the slow path: {error}"));
        }
        (before.tap, before.is_read) != (seen.tap, seen.is_read)
    }

    fn look(&self) -> Seen {
        let (interface, tap) = (&self.entrance.place.interface, &self.entrance.tap);
        let numbers = self.entrance.place.within(|| {
            let back = self.back.as_deref().and_then(number_of);
            Ok((number_of(interface), number_of(tap), back))
        });
        let (interface, tap, back) = numbers.unwrap_or_default();
        Seen {
            interface,
            tap,
            back,
            is_read: tap.is_some() && self.entrance.tap().has_carrier(),
        }
    }

    /// Returns what is missing.
    fn lacks(&self) -> Option<String> {
        let tap = &self.entrance.tap;
        let none = |tap: &str| {
            Some(format!(
                "its slow path: there is no tap '{tap}'; what is handed up is dropped until a program or an uplink makes it"
            ))
        };
        match (self.seen, &self.back) {
            (Seen { tap: None, .. }, _) => none(tap),
            (Seen { back: None, .. }, Some(back)) => none(back),
            (Seen { is_read: false, .. }, _) => Some(format!(
                "its slow path: nobody has the tap '{tap}' open, or it is down; what is handed up is dropped"
            )),
            // A missing interface is reported by its chain.
            _ => None,
        }
    }

    /// Attaches programs to the taps, for packets that are sent into them.
    fn put_ways(&mut self) -> Result<(), PlatformError> {
        let Some(interface) = self.seen.interface else {
            return Ok(());
        };
        let beyond = match self.back {
            Some(_) => Direction::Outward,
            None => Direction::Inward,
        };
        let tap = (self.entrance.tap.clone(), beyond, "link_tap");
        let back = self.back.clone();
        let back = back.map(|back| (back, Direction::Inward, "link_back"));
        let ways = [Some(tap), back].into_iter().flatten();
        let ways = ways.map(|(tap, direction, pin)| {
            let place = Place {
                interface: tap,
                netns: self.entrance.place.netns.clone(),
            };
            silence(&place);
            let way = self.path.back(interface, direction).map_err(refused)?;
            let way = way.descriptor().map_err(refused)?;
            let held = put(&place, way.as_fd(), &self.pins.join(pin));
            held.map_err(|error| failed(&error))?
                .ok_or_else(|| too_old(&place))
        });
        self.ways = ways.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns the packets counted per exit to the slow path and back.
    pub fn exits(&self) -> Vec<(SlowExit, Counts)> {
        self.path.exits().unwrap_or_default()
    }

    /// Returns how many packets were handed up and not read from the tap: they wait, or the tap was full.
    fn not_taken(&self, handed: u64) -> u64 {
        let (handed_before, taken_before) = self.since;
        let handed = handed.saturating_sub(handed_before);
        handed.saturating_sub(self.taken().saturating_sub(taken_before))
    }

    /// Adds the metrics of the slow path.
    pub fn add_metrics(&self, metrics: &mut BTreeMap<String, f64>) {
        let exits = self.exits();
        for (exit, counts) in &exits {
            let (verdict, reason) = match exit {
                SlowExit::Returned => ("pass", "returned"),
                SlowExit::Answered => ("send", "answered"),
                SlowExit::Late => ("drop", "late"),
                // The fast path counts these exits.
                SlowExit::Behind | SlowExit::Absent | SlowExit::Handed => continue,
            };
            let labels = format!("{{verdict=\"{verdict}\",reason=\"{reason}\"}}");
            metrics.insert(format!("xdp_slow_packets{labels}"), counts.packets as f64);
            metrics.insert(format!("xdp_slow_bytes{labels}"), counts.bytes as f64);
        }
        let up = f64::from(self.problem.is_none());
        metrics.insert("xdp_slow_path_up".to_owned(), up);
        let waiting = self.not_taken(handed(&exits)) as f64;
        metrics.insert("xdp_slow_not_taken_packets".to_owned(), waiting);
    }

    fn taken(&self) -> u64 {
        let tap = &self.entrance.tap;
        let read = self.entrance.place.within(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/dev");
            Ok(sent(&table.unwrap_or_default(), tap))
        });
        read.ok().flatten().unwrap_or(0)
    }
}

/// Returns how many packets were handed up.
fn handed(exits: &[(SlowExit, Counts)]) -> u64 {
    let mut exits = exits.iter();
    let found = exits.find(|(exit, _)| *exit == SlowExit::Handed);
    found.map_or(0, |(_, counts)| counts.packets)
}

fn refused(error: LoadError) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, error.to_string())
}

fn too_old(tap: &Place) -> PlatformError {
    let message = format!(
        "this kernel has no links at tc, for the tap '{}'",
        tap.interface
    );
    PlatformError::new(PlatformErrorKind::Unsupported, message)
        .with_remedy("a slow path of its own needs Linux 6.6")
}

/// Attaches a program to a tap, in place of an earlier daemon's. `None`: this kernel has no links at tc.
fn put(
    tap: &Place,
    program: std::os::fd::BorrowedFd<'_>,
    pin: &Path,
) -> Result<Option<PinnedProgram>, UplinkError> {
    if pin.exists() {
        let before = PinnedProgram::open(pin)?;
        if before.is_attached() {
            before.replace(program)?;
            return Ok(Some(before));
        }
        // The link belongs to a tap that is gone.
        before.remove()?;
    }
    PinnedProgram::attach_tc(tap, program, Side::Ingress, pin)
}

/// Keeps the kernel's stack from sending packets of its own into a tap: a reader gets only packets that were handed up.
fn silence(tap: &Place) {
    let file = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", tap.interface);
    // A kernel without IPv6 sends no such packets.
    let _silent = tap.within(|| Ok(std::fs::write(&file, "1").is_ok()));
}

/// Returns how many packets an interface has sent, by `/proc/net/dev`.
fn sent(table: &str, interface: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, figures) = lines.find(|(name, _)| name.trim() == interface)?;
    figures.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::sent;

    #[test]
    fn what_was_read_from_a_tap_is_what_the_kernel_says_it_has_sent() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets ...\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n \
                     tap0:100 20 0 0 0 0 0 0 300 40 0 5 0 0 0 0\n";
        assert_eq!(sent(table, "tap0"), Some(40));
        assert_eq!(sent(table, "tap"), None);
        assert_eq!(sent("", "lo"), None);
    }
}
