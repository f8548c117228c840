//! Divisions of flows without a switch: the tables are in memory, the members answer on sockets.

use super::division::{Front, Scaling};
use super::note::Note;
use super::stand_in::{Log, done, log_of, member};
use super::tables::{FlowTables, Table};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_ring::flow::{BUCKETS, Shares};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Tables in memory.
#[derive(Default)]
struct MemoryTables {
    tables: Mutex<BTreeMap<u32, Table>>,
    /// Changes of tables until one is refused; 0: none is.
    until_refused: AtomicU32,
}

fn refused() -> PlatformError {
    PlatformError::new(PlatformErrorKind::Failed, "no table")
}

impl FlowTables for MemoryTables {
    fn get(&self, port: u32) -> Result<Option<Table>, PlatformError> {
        Ok(self.tables.lock().expect("whole").get(&port).copied())
    }

    fn begin(&self, port: u32) -> Result<(), PlatformError> {
        let mut tables = self.tables.lock().expect("whole");
        tables.entry(port).or_insert([port; BUCKETS]);
        Ok(())
    }

    fn set(&self, port: u32, table: &Table) -> Result<(), PlatformError> {
        let left = self.until_refused.load(Ordering::Relaxed);
        self.until_refused
            .store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 {
            return Err(refused());
        }
        let mut tables = self.tables.lock().expect("whole");
        *tables.get_mut(&port).ok_or_else(refused)? = *table;
        Ok(())
    }

    fn await_change(&self, _: u32, _: &[u32], _: Duration) -> Result<bool, PlatformError> {
        Ok(true)
    }

    fn end(&self, port: u32) -> Result<(), PlatformError> {
        self.tables.lock().expect("whole").remove(&port);
        Ok(())
    }

    fn reserved_to(&self, _: u32) -> u32 {
        0
    }
}

/// The first port of the second direction: a member has the port of its number, and this many after that.
const BACK: u32 = 10;

/// An instance with up to five members, each with two ports.
struct Bed {
    tables: Arc<MemoryTables>,
    log: Log,
    scaling: Scaling,
    folder: TempDir,
}

fn front(port: u32) -> Front {
    Front {
        port,
        senders: Vec::new(),
    }
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (tables, log) = (Arc::new(MemoryTables::default()), Log::default());
        let members = (0..5).map(|number| {
            let mut member = member(folder.path(), number, &log, done);
            member.ports.push(BACK + u32::from(number));
            member
        });
        let scaling = Scaling {
            tables: tables.clone(),
            fronts: [0, BACK].map(front).into(),
            members: members.collect(),
        };
        Bed {
            tables,
            log,
            scaling,
            folder,
        }
    }

    fn note(&self) -> PathBuf {
        self.folder.path().join("note")
    }

    /// The members that get flows. Both directions of a flow are the same member's.
    fn receivers(&self) -> BTreeSet<u32> {
        let table = |port| {
            let table = self.tables.get(port).expect("it is asked");
            table.unwrap_or([port; BUCKETS])
        };
        let (there, back) = (table(0), table(BACK));
        assert_eq!(there.map(|port| port + BACK), back);
        there.into_iter().collect()
    }

    /// Returns the requests to members: the operation, and the member.
    fn asked(&self) -> Vec<(String, u64)> {
        let text = |asked: &Value| asked["op"].as_str().unwrap_or_default().to_owned();
        let asked = log_of(&self.log);
        asked
            .iter()
            .map(|one| (text(one), one["member"].as_u64().expect("who")))
            .collect()
    }
}

// promise: 7.39
#[test]
fn flows_are_led_to_as_many_members_as_asked_whatever_the_number_before() {
    let bed = Bed::new();
    for members in [1, 2, 5, 3, 1, 4, 4, 1] {
        let moved = bed.scaling.divide(members, &bed.note());
        let moved = moved.expect("nothing is wrong");
        assert!(moved.problems.is_empty(), "{members}: {:?}", moved.problems);
        assert_eq!(bed.receivers(), (0..u32::from(members)).collect());
        assert!(!bed.note().exists(), "it is done");
    }
    let left = bed.tables.get(0).expect("it is asked");
    assert_eq!(left, None, "one member needs no table");
}

// promise: 7.39
#[test]
fn a_member_stands_still_before_it_gets_flows_and_the_giver_forgets_them_last() {
    let bed = Bed::new();
    bed.scaling
        .divide(2, &bed.note())
        .expect("nothing is wrong");
    let expected = [("stand", 1), ("drain", 0), ("import", 1), ("part_with", 0)];
    let expected = expected.map(|(op, member)| (op.to_owned(), member));
    assert_eq!(bed.asked(), expected);
}

// promise: 7.39
#[test]
fn flows_go_as_before_if_the_switch_refuses_and_no_member_has_given_anything() {
    let bed = Bed::new();
    bed.scaling
        .divide(3, &bed.note())
        .expect("nothing is wrong");
    let before = bed.tables.get(0).expect("it is asked");
    bed.asked();
    for change in [1, 2] {
        bed.tables.until_refused.store(change, Ordering::Relaxed);
        let why = bed.scaling.divide(5, &bed.note()).expect_err("refused");
        assert_eq!(why.message, "no table");
        assert_eq!(bed.tables.get(0).expect("it is asked"), before);
        assert_eq!(bed.receivers(), (0..3).collect());
        assert!(!bed.note().exists(), "nothing is to be carried on");
        let asked = bed.asked();
        assert!(asked.iter().all(|(op, _)| op == "stand"), "{asked:?}");
    }
}

// promise: 7.39
#[test]
fn a_later_daemon_carries_on_from_wherever_the_earlier_one_was_killed() {
    let before = Shares::ONE.among(2);
    for (is_led, is_given) in [(false, false), (true, false), (true, true)] {
        let bed = Bed::new();
        bed.scaling
            .divide(2, &bed.note())
            .expect("nothing is wrong");
        bed.asked();
        let mut note = Note::new(5, before, before.among(4));
        note.is_given = is_given;
        note.save(&bed.note()).expect("room");
        if is_led {
            let ports = note.after.members().map(u32::from);
            bed.tables.set(0, &ports).expect("there is a table");
            let back = ports.map(|port| port + BACK);
            bed.tables.set(BACK, &back).expect("there is a table");
        }
        let note = Note::load(&bed.note()).expect("it is there");
        let moved = bed.scaling.resume(note, &bed.note());
        let moved = moved.expect("nothing is wrong");
        assert!(moved.problems.is_empty(), "{:?}", moved.problems);
        assert_eq!(bed.receivers(), (0..4).collect());
        assert!(!bed.note().exists(), "it is done");
        let asked = bed.asked();
        let has = |op: &str| asked.iter().any(|(asked, _)| asked == op);
        assert_eq!(has("import"), !is_given, "{asked:?}");
        assert!(has("part_with"), "{asked:?}");
    }
}
