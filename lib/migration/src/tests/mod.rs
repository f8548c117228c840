//! Whole moves between two hosts in memory, with connections that are cut anywhere.

mod memory;
mod network;

use crate::channel::Channel;
use crate::migration::{Connect, Migration};
use crate::patience::STEP;
use memory::{MemorySite, OWN, RECENT, World};
use network::{Cut, Network};
use nfluid_api::types::{MigrateReport, Problem};
use nfluid_control::guards::{OUTSIDE, guard_of};
use nfluid_formats::message::{Hello, Message, PROTOCOL};
use serde_json::{Map, json};
use std::sync::Arc;
use tempfile::TempDir;

/// The messages of a move, in their order.
const MESSAGES: [&str; 13] = [
    "hello",
    "prepared",
    "rehearsal",
    "rehearsed",
    "state",
    "ready",
    "go",
    "started",
    "frames",
    "announce",
    "end",
    "kept",
    "done",
];
/// Place of `go`: as long as this message is not delivered, the source has the instance.
const GO: usize = 6;
const STATE: &[u8] = b"three flows";

/// Two hosts. The instance `fw` runs at the source.
struct Hosts {
    world: Arc<World>,
    source: MemorySite,
    target: MemorySite,
    network: Arc<Network>,
    migration: Migration,
    target_migration: Arc<Migration>,
    folders: [TempDir; 2],
}

/// A frame of 60 bytes for an address behind port 0.
fn frame(last: u8) -> Vec<u8> {
    [&[0, 60, 0, 2, 0, 0, 0, 0, last][..], &[7; 54]].concat()
}

fn frames() -> Vec<u8> {
    [frame(2), frame(3)].concat()
}

impl Hosts {
    fn new(limit: Option<(usize, Cut)>) -> Self {
        let world = Arc::<World>::default();
        let (source, target) = (
            MemorySite::new("source", &world),
            MemorySite::new("target", &world),
        );
        source.start("fw", STATE, &frames());
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let migration = |at: usize, connect| {
            let folder = folders[at].path().to_owned();
            Migration::new(folder, connect).expect("a folder")
        };
        let target_migration = Arc::new(migration(1, None));
        let network = Network::new(&target, &target_migration, limit);
        let connect: Box<dyn Connect> = Box::new(Arc::clone(&network));
        Hosts {
            migration: migration(0, Some(connect)),
            world,
            source,
            target,
            network,
            target_migration,
            folders,
        }
    }

    /// Moves `fw` to the target, and waits until the target has answered all calls.
    fn migrate(&self) -> Result<MigrateReport, Problem> {
        let report = self.migration.migrate(&self.source, "fw", "target:7443");
        self.network.settle();
        report
    }

    fn connect(&self) -> Channel {
        self.network.connect("target:7443").expect("is up")
    }

    /// Returns the host that has `fw`, after a check that this host alone has the instance, and has all of it.
    fn owner(&self) -> &'static str {
        assert!(self.world.violations().is_empty(), "never at two hosts");
        let hosts = self.world.hosts_of("fw");
        assert_eq!(hosts.len(), 1, "serves at {hosts:?}");
        let (here, elsewhere) = match hosts[0] {
            "source" => (&self.source, &self.target),
            _ => (&self.target, &self.source),
        };
        let instance = here.instance("fw").expect("serves");
        assert_eq!(instance.state, STATE);
        assert!(!instance.is_unsettled);
        assert!(elsewhere.instance("fw").is_none(), "removed elsewhere");
        let document = elsewhere.document();
        assert!(document.get("links").is_none(), "{document}");
        if hosts[0] == "source" {
            let flavors = document["flavors"].as_object();
            assert!(flavors.is_none_or(Map::is_empty), "{document}");
        }
        assert!(self.migration.unsettled().is_empty());
        assert!(self.target_migration.arriving().is_empty());
        assert_eq!(self.migration.ledger.departures(), []);
        hosts[0]
    }
}

#[test]
fn an_instance_moves_with_state_frames_and_wires_and_the_network_learns_its_place() {
    let hosts = Hosts::new(None);
    let report = hosts.migrate().expect("a move");
    assert_eq!(hosts.network.delivered(), MESSAGES);
    assert_eq!(hosts.owner(), "target");
    assert_eq!(report.state_bytes, STATE.len() as u64);
    assert_eq!((report.frames, report.frames_left_out), (2, 0));
    let instance = hosts.target.instance("fw").expect("has moved");
    assert_eq!(instance.frames, frames(), "in their order");
    let mut announced = instance.announced;
    announced.sort_unstable();
    let of_frames = [2, 3].map(|last| (0, [2, 0, 0, 0, 0, last]));
    assert_eq!(announced, [OWN, of_frames[0], of_frames[1], RECENT]);
    for folder in &hosts.folders {
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0, "both have forgotten the move");
    }
}

// Catches: a guard's state is left behind; the instance says where it is, which its guard would not let pass.
// promise: 33.6
#[test]
fn a_guard_gets_the_state_of_the_one_at_the_source_and_tells_the_network() {
    let hosts = Hosts::new(None);
    hosts.source.guard("fw", b"a connection");
    let report = hosts.migrate().expect("a move");
    let mut expected = MESSAGES.to_vec();
    // Once more for the guard.
    expected.splice(4..4, ["rehearsal", "rehearsed"]);
    expected.splice(8..8, ["state", "ready"]);
    assert_eq!(hosts.network.delivered(), expected);
    assert_eq!(hosts.owner(), "target");
    let bytes = STATE.len() + b"a connection".len();
    assert_eq!(
        (report.state_bytes, report.state_taken),
        (bytes as u64, bytes as u64)
    );
    let guard = guard_of("fw", "in");
    assert!(hosts.source.instance(&guard).is_none(), "is gone with it");
    let guard = hosts.target.instance(&guard).expect("has come with it");
    assert_eq!(guard.state, b"a connection");
    assert!(guard.announced.contains(&(OUTSIDE, OWN.1)));
    let instance = hosts.target.instance("fw").expect("has moved");
    assert_eq!(instance.announced, []);
}

// promise: 5.36
#[test]
fn a_move_that_is_cut_anywhere_leaves_the_instance_at_one_host() {
    for (cut, first) in [(Cut::Closed, 1), (Cut::Lost, 0)] {
        for delivered in first..MESSAGES.len() {
            let hosts = Hosts::new(Some((delivered, cut)));
            let report = hosts.migrate();
            let case = format!("{cut:?} after {:?}", hosts.network.delivered());
            assert_eq!(hosts.network.delivered(), MESSAGES[..delivered], "{case}");
            let owner = hosts.owner();
            assert_eq!(report.is_ok(), owner == "target", "{case}: {report:?}");
            // The source may ask before the target has read `go`: then the answer is no, and the move is not completed.
            if delivered <= GO {
                assert_eq!(owner, "source", "{case}");
            } else if delivered > GO + 1 {
                assert_eq!(owner, "target", "{case}");
            }
        }
    }
}

// promise: 5.36
#[test]
fn an_instance_stands_still_until_the_target_answers_or_an_operator_decides() {
    for (delivered, owner) in [(GO, "source"), (GO + 2, "target")] {
        let hosts = Hosts::new(Some((delivered, Cut::Lost)));
        hosts.network.set_down(true);
        hosts.migrate().expect_err("nobody answers");
        let here = hosts.source.instance("fw").expect("is not forgotten");
        assert!(here.is_unsettled);
        assert!(!hosts.world.hosts_of("fw").contains(&"source"));
        assert_eq!(hosts.migration.problems().len(), 1);
        let unsettled = hosts.migration.await_unsettled();
        hosts.migration.resolve_all(&hosts.source, &unsettled);
        assert_eq!(hosts.migration.problems().len(), 1, "still down");
        if owner == "source" {
            let kept = hosts.migration.keep_here(&hosts.source, "fw");
            kept.expect("is not settled");
        } else {
            hosts.network.set_down(false);
            hosts.migration.resolve_all(&hosts.source, &unsettled);
            hosts.network.settle();
        }
        assert_eq!(hosts.owner(), owner);
        assert!(hosts.migration.problems().is_empty());
    }
}

// promise: 5.36
#[test]
fn a_move_of_which_the_target_has_said_no_is_not_completed() {
    let hosts = Hosts::new(None);
    let mut channel = hosts.connect();
    let hello = Hello {
        protocol: PROTOCOL,
        id: "7f".to_owned(),
        name: "other".to_owned(),
        document: json!({ "version": 1, "instances": { "other": { "nf": "firewall" } } }),
        wires: json!({ "version": 1, "links": [["wan", "other.in"]] }),
        chains: Vec::new(),
    };
    let steps = [
        Message::Hello(Box::new(hello)),
        Message::Rehearsal(STATE.to_vec()),
        Message::State(STATE.to_vec()),
    ];
    for step in &steps {
        channel.ask(step, STEP).expect("goes on");
    }
    let ask = Message::Ask("7f".to_owned());
    let verdict = hosts.connect().ask(&ask, STEP).expect("an answer");
    assert_eq!(verdict, Message::Verdict(false));
    let go = Message::Go(Vec::new());
    channel.ask(&go, STEP).expect_err("the answer was no");
    drop(channel);
    hosts.network.settle();
    assert!(hosts.world.hosts_of("other").is_empty());
    assert!(hosts.target.instance("other").is_none());
    let again = hosts.connect().ask(&ask, STEP).expect("an answer");
    assert_eq!(again, Message::Verdict(false));
    hosts.network.settle();
}

#[test]
fn an_instance_stays_where_it_is_if_the_target_has_one_of_its_name() {
    let hosts = Hosts::new(None);
    hosts.target.make_unwired("fw");
    let refused = hosts.migrate().expect_err("a conflict");
    assert!(refused.detail.contains("already"), "{}", refused.detail);
    assert_eq!(hosts.world.hosts_of("fw"), ["source"]);
    assert!(hosts.target.instance("fw").is_some(), "is not touched");
}
