//! Life of a network function that consists of one folder and one entry of a catalogue, without a daemon.

mod count;
mod namespace;

use crate::catalogue::Catalogue;
use crate::processes::{Processes, Running, Start};
use crate::{FastPaths, Paths};
use anyhow::bail;
use namespace::Namespaces;
use nfluid_api::types::{EventKind, InstanceState, Kind};
use nfluid_control::apply::PlatformErrorKind;
use nfluid_control::events::{Events, Subject};
use nfluid_control::fast::Attach;
use nfluid_control::inventory::Inventory;
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Tier;
use nfluid_protocol::daemon::Asked;
use nfluid_records::Directories as PlatformDirectories;
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::Cgroup;
use serde_json::json;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

const CATALOGUE: Catalogue = Catalogue(&[count::ENTRY]);
const NAME: &str = "it";
const PACKETS: usize = 5;

/// The function of these tests has no process.
struct NoProcesses;

impl Processes for NoProcesses {
    fn take_user(&self) -> Option<u32> {
        None
    }

    fn mark_user(&self, _: u32) {}

    fn free_user(&self, _: u32) {}

    fn start(&self, start: &Start<'_>) -> anyhow::Result<Running> {
        bail!("nothing starts {}", start.role)
    }

    fn take_over(&self, name: &str) -> anyhow::Result<Cgroup> {
        bail!("{name} has none")
    }

    fn ask(&self, name: &str, _: &[u8], _: &[BorrowedFd<'_>]) -> anyhow::Result<Asked> {
        bail!("{name} has none")
    }

    fn end(&self, _: &str, _: Option<&ProcessIdentity>) {}

    fn remove(&self, _: &str) {}
}

/// The kinds of events that were reported.
#[derive(Default)]
struct Reported(Mutex<Vec<EventKind>>);

impl Events for Reported {
    fn record(&self, kind: EventKind, subject: Subject<'_>, _: String) {
        assert_eq!(subject, Some((Kind::Instance, NAME)));
        self.0.lock().expect("whole").push(kind);
    }

    fn note_change_of(&self, _: &str) {}

    fn note_change(&self) {}
}

impl Reported {
    /// Takes the kinds of the events that were reported since the last call, the oldest first.
    fn take(&self) -> Vec<EventKind> {
        std::mem::take(&mut *self.0.lock().expect("whole"))
    }
}

/// Directories of a daemon.
struct Directories {
    run: tempfile::TempDir,
    pin: PathBuf,
    events: Arc<Reported>,
}

impl Directories {
    fn new() -> Self {
        let directories = Directories {
            run: tempfile::tempdir().expect("a directory"),
            pin: PathBuf::from(format!("/sys/fs/bpf/nfluid-count-{}", std::process::id())),
            events: Arc::default(),
        };
        for directory in directories.paths().directories() {
            std::fs::create_dir_all(directory).expect("root may");
        }
        directories
    }

    fn paths(&self) -> Paths {
        Paths::new(PlatformDirectories {
            run: self.run.path().to_owned(),
            pin: self.pin.clone(),
        })
    }

    /// Starts as a daemon does.
    fn begin(&self) -> FastPaths {
        let events = Arc::clone(&self.events);
        FastPaths::new(self.paths(), Arc::new(NoProcesses), events, CATALOGUE)
    }

    /// Returns the number of records and pins.
    fn left(&self) -> usize {
        let entries = self.paths().directories().map(|directory| {
            let entries = std::fs::read_dir(directory).expect("it is there");
            entries.count()
        });
        entries.iter().sum()
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        // The interfaces' removal also removes what a failed test has left.
        let _absent = std::fs::remove_dir_all(&self.pin);
    }
}

/// Prints why the test does not run, as the platform tests do.
fn skip(reason: &str) {
    println!("SKIPPED a_function_is_one_folder_and_one_entry_of_the_catalogue: {reason}");
}

fn counted(paths: &FastPaths) -> f64 {
    let stats = paths.stats();
    let stats = stats.first().expect("there is one");
    stats.metrics["count_total"]
}

#[test]
fn a_function_is_one_folder_and_one_entry_of_the_catalogue() {
    if !rustix::process::geteuid().is_root() {
        return skip("it needs root, for namespaces");
    }
    if !std::fs::exists("/sys/fs/bpf/").unwrap_or_default() {
        return skip("no BPF file system is mounted");
    }
    let namespaces = Namespaces::new("nfluid-count");
    let directories = Directories::new();
    let mut paths = directories.begin();
    let spec = InstanceSpec {
        attach: Some(Attach {
            interfaces: vec!["n0".to_owned()],
            netns: Some(namespaces.own.clone()),
            ..Attach::default()
        }),
        ..InstanceSpec::bare(
            Program::BuiltIn {
                nf: "count".to_owned(),
            },
            Tier::XDP,
        )
    };
    assert_eq!(CATALOGUE.names(), ["count"]);
    let wrong = CATALOGUE.check_config("count", &json!({ "entries": 0 }));
    assert_eq!(wrong.expect_err("it is wrong").path, "entries");

    // Created: packets pass and are counted.
    paths.create(NAME, &spec).expect("it can be");
    assert_eq!(directories.events.take(), [EventKind::Started]);
    let status = paths.statuses().remove(0);
    assert_eq!(
        (status.state, status.nf.as_str()),
        (InstanceState::Running, "count")
    );
    let fast = status.fast.expect("it is a fast path");
    assert!(fast.interfaces[0].mode.is_some(), "{fast:?}");
    assert_eq!(namespaces.send(PACKETS), PACKETS, "all pass");
    let packets = counted(&paths);
    assert!(packets >= PACKETS as f64, "{packets}");

    // Changed: another program on the same tables; a size cannot change.
    let bytes = json!({ "unit": "bytes" });
    paths.reconfigure(NAME, &bytes).expect("it can be");
    assert_eq!(namespaces.send(PACKETS), PACKETS, "all pass");
    let total = counted(&paths);
    assert!(total > 14.0 * (packets + PACKETS as f64), "{total} bytes");
    let larger = paths.reconfigure(NAME, &json!({ "entries": 128 }));
    let refused = larger.expect_err("the table is in use");
    assert_eq!(refused.kind, PlatformErrorKind::Refused);

    // The daemon is killed: its successor takes over while packets flow.
    drop(paths);
    assert_eq!(namespaces.send(PACKETS), PACKETS, "all pass");
    let mut paths = directories.begin();
    let spec = InstanceSpec {
        config: bytes,
        ..spec
    };
    let mut desired = Inventory::default();
    desired.instances.insert(NAME.to_owned(), spec);
    let mut present = Inventory::default();
    paths.adopt(&desired, &mut present);
    assert_eq!(present.instances, desired.instances);
    assert_eq!(directories.events.take(), [EventKind::Adopted]);
    assert!(counted(&paths) > total, "it counts on");

    // Restarted, and removed without a trace.
    paths.restart(NAME).expect("it can be");
    assert_eq!(directories.events.take(), [EventKind::Restarting]);
    paths.remove(NAME).expect("it can be");
    assert_eq!(paths.statuses(), []);
    assert_eq!(directories.left(), 0, "records and pins");
    assert_eq!(namespaces.send(PACKETS), PACKETS, "as before");
}
