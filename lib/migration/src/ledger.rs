//! Records of moves, on the disk of the desired state, so that a crash forgets no move.
//!
//! A **departure** is written before the source's instance stops, and removed when the owner of the instance is
//! settled. An **arrival** is written before the target makes anything, and removed when the source says that the
//! move is done; until then the target can answer what has become of the instance. From the moment on that the target
//! owns the instance an empty **mark** lies beside the arrival. The mark is made within the silence of a move, so no
//! process waits until the mark is on the disk: a power cut leaves the mark or not, but never half of it, and never
//! half of a record.

use anyhow::Context;
use nfluid_sandbox::ProcessIdentity;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most arrivals that are remembered although the source has not said that they are done: the newest.
const ARRIVALS_MAX: usize = 1024;

/// An instance that leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// The id of the move.
    pub id: String,
    /// The instance.
    pub name: String,
    /// `HOST:PORT` of the daemon that it goes to.
    pub to: String,
    /// The chains of the instance, which go with it.
    pub chains: Vec<String>,
    /// The process of the instance: another instance of this name has not stood still for the move.
    pub process: ProcessIdentity,
}

/// An instance that arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The id of the move.
    pub id: String,
    /// The instance.
    pub name: String,
    /// Objects that were made with the instance: chains, and flavors that this host had not.
    pub chains: Vec<String>,
    /// As for `chains`.
    pub flavors: Vec<String>,
    /// True if the instance is this host's; before that, the instance never was here. Read from the mark beside the
    /// record.
    #[serde(skip)]
    pub taken: bool,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// This value.
    Whole(T),
    /// No value: the record was damaged after it was written.
    Damaged,
    /// No record exists.
    Nothing,
}

impl Departure {
    /// Returns the known fields of a departure whose record is damaged.
    fn damaged(name: &str) -> Self {
        Departure {
            id: String::new(),
            name: name.to_owned(),
            to: String::new(),
            chains: Vec::new(),
            process: ProcessIdentity {
                pid: 0,
                start_time: 0,
                boot_id: String::new(),
            },
        }
    }

    /// Returns true if the record was damaged.
    pub fn is_damaged(&self) -> bool {
        self.id.is_empty()
    }
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
}

/// The name of a move, which nothing else has.
///
/// # Errors
/// The kernel has no random numbers.
pub fn new_id() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    let mut source = File::open("/dev/urandom").context("opening /dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("reading /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns true if a peer's id may be part of a file's name.
pub fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Ledger {
    /// The ledger in a folder, which is made.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(Ledger { folder })
    }

    fn departure_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("departure-{name}.json"))
    }

    fn arrival_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("arrival-{id}.json"))
    }

    fn mark_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("arrival-{id}.taken"))
    }

    /// Writes a departure down; on the disk when it returns.
    ///
    /// # Errors
    /// The record is not written.
    pub fn depart(&self, departure: &Departure) -> anyhow::Result<()> {
        self.write(&self.departure_path(&departure.name), departure)
            .context("writing down the move")
    }

    /// Forgets a departure.
    pub fn forget_departure(&self, name: &str) {
        remove(&self.departure_path(name));
    }

    /// Writes an arrival down, of an instance that is the source's still; on the disk when it returns.
    ///
    /// # Errors
    /// The record is not written.
    pub fn arrive(&self, arrival: &Arrival) -> anyhow::Result<()> {
        self.write(&self.arrival_path(&arrival.id), arrival)
            .context("writing down the move")
    }

    /// Marks an arrival as this host's. A power cut may lose the mark until [`Ledger::keep`] returns.
    ///
    /// # Errors
    /// The arrival is not marked.
    pub fn take(&self, id: &str) -> anyhow::Result<()> {
        File::create(self.mark_path(id))
            .map(drop)
            .context("writing down the move")
    }

    /// Sees to it that the mark of an arrival is on the disk.
    ///
    /// # Errors
    /// The mark is not on the disk.
    pub fn keep(&self, id: &str) -> anyhow::Result<()> {
        File::open(self.mark_path(id))
            .and_then(|file| file.sync_all())
            .and_then(|()| self.sync_folder())
            .context("writing the move to the disk")
    }

    /// Forgets an arrival.
    pub fn forget_arrival(&self, id: &str) {
        remove(&self.arrival_path(id));
        let mark = self.mark_path(id);
        // A record without its mark would have the instance withdrawn: the mark goes when the record is gone for good.
        if mark.exists() && self.sync_folder().is_ok() {
            remove(&mark);
        }
    }

    /// An arrival that is remembered.
    pub fn arrival(&self, id: &str) -> Found<Arrival> {
        match read(&self.arrival_path(id)) {
            Found::Whole(arrival) => Found::Whole(self.with_mark(arrival)),
            other => other,
        }
    }

    fn with_mark(&self, mut arrival: Arrival) -> Arrival {
        arrival.taken |= self.mark_path(&arrival.id).exists();
        arrival
    }

    /// Returns all departures that are not settled. Of a damaged record only the instance is known: no target has its
    /// id, and no process is the one that left.
    pub fn departures(&self) -> Vec<Departure> {
        let paths = self.paths("departure-");
        let found = paths.iter().filter_map(|path| match read(path) {
            Found::Whole(departure) => Some(departure),
            Found::Damaged => {
                let name = path.file_stem()?.to_str()?.strip_prefix("departure-")?;
                tracing::error!(path = %path.display(), instance = name, "the record of its move is damaged");
                Some(Departure::damaged(name))
            }
            Found::Nothing => None,
        });
        found.collect()
    }

    /// All arrivals that are remembered, but for damaged ones. The oldest that do not wait to be withdrawn are forgotten when
    /// there are too many.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let mut paths = self.paths("arrival-");
        paths.sort_by_cached_key(|path| fs::metadata(path).and_then(|it| it.modified()).ok());
        let too_many = paths.len().saturating_sub(ARRIVALS_MAX);
        let mut all = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            match read::<Arrival>(path) {
                Found::Whole(arrival) => {
                    let arrival = self.with_mark(arrival);
                    if at < too_many && arrival.taken {
                        self.forget_arrival(&arrival.id);
                    } else {
                        all.push(arrival);
                    }
                }
                Found::Damaged if at < too_many => remove(path),
                Found::Damaged => {
                    tracing::error!(path = %path.display(), "the record of a move to this host is damaged");
                }
                Found::Nothing => {}
            }
        }
        all
    }

    fn paths(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_one = |name: &str| name.starts_with(prefix) && name.ends_with(".json");
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
            .map(|entry| entry.path())
            .collect()
    }

    /// A reader sees nothing or all of it, also after a power cut.
    fn write<T: Serialize>(&self, path: &Path, what: &T) -> anyhow::Result<()> {
        let fresh = path.with_extension("new");
        let written = (|| {
            let mut file = File::create(&fresh)?;
            file.write_all(&serde_json::to_vec(what)?)?;
            file.sync_all()?;
            fs::rename(&fresh, path)?;
            self.sync_folder()?;
            Ok(())
        })();
        if written.is_err() {
            remove(&fresh);
        }
        written
    }

    fn sync_folder(&self) -> std::io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Found<T> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_or(Found::Damaged, Found::Whole),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Found::Nothing,
        Err(_) => Found::Damaged,
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "forgetting a move");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(id: &str, taken: bool) -> Arrival {
        Arrival {
            id: id.to_owned(),
            name: "fw".to_owned(),
            chains: vec!["web".to_owned()],
            flavors: Vec::new(),
            taken,
        }
    }

    // promise: 5.36
    #[test]
    fn what_is_written_down_is_found_again_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().join("moves")).unwrap();
        ledger.arrive(&arrival("a1", false)).unwrap();
        assert_eq!(ledger.arrivals(), [arrival("a1", false)]);
        ledger.take("a1").unwrap();
        ledger.keep("a1").unwrap();
        assert_eq!(ledger.arrival("a1"), Found::Whole(arrival("a1", true)));
        let departure = Departure {
            id: "b2".to_owned(),
            name: "fw".to_owned(),
            to: "edge2:7443".to_owned(),
            chains: Vec::new(),
            process: ProcessIdentity::of(std::process::id()).unwrap(),
        };
        ledger.depart(&departure).unwrap();
        assert_eq!(ledger.departures(), [departure]);
        ledger.forget_arrival("a1");
        ledger.forget_departure("fw");
        assert_eq!(ledger.arrival("a1"), Found::Nothing);
        assert_eq!(ledger.arrivals(), []);
        assert_eq!(ledger.departures(), []);
        let left = fs::read_dir(folder.path().join("moves")).unwrap();
        assert_eq!(left.count(), 0, "no mark either");
    }

    // promise: 5.36
    #[test]
    fn a_power_cut_takes_the_mark_of_an_arrival_or_leaves_it_but_never_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().to_owned()).unwrap();
        ledger.arrive(&arrival("a1", false)).unwrap();
        let record = folder.path().join("arrival-a1.json");
        let before = fs::read(&record).unwrap();
        ledger.take("a1").unwrap();
        assert_eq!(fs::read(&record).unwrap(), before, "on the disk since");
        assert_eq!(ledger.arrivals(), [arrival("a1", true)]);
        // No call has waited for the mark.
        let mark = folder.path().join("arrival-a1.taken");
        assert_eq!(fs::metadata(&mark).unwrap().len(), 0, "no half of it");
        fs::remove_file(&mark).unwrap();
        assert_eq!(ledger.arrivals(), [arrival("a1", false)]);
        ledger.keep("a1").expect_err("it is not this host's");
    }

    // promise: 5.36
    #[test]
    fn a_damaged_record_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().to_owned()).unwrap();
        fs::write(folder.path().join("arrival-c3.json"), b"{\"id\":").unwrap();
        fs::write(folder.path().join("departure-x.json"), b"").unwrap();
        assert_eq!(ledger.arrivals(), []);
        assert_eq!(ledger.arrival("c3"), Found::Damaged);
        assert_eq!(ledger.departures(), [Departure::damaged("x")]);
        assert!(ledger.departures()[0].is_damaged());
    }

    // promise: 5.38
    #[test]
    fn no_id_of_a_peer_names_another_file() {
        for id in ["", "..", "a/b", "a.json", "a\0", &"a".repeat(65)] {
            assert!(!is_id(id), "{id}");
        }
        let (one, other) = (new_id().unwrap(), new_id().unwrap());
        assert!(is_id(&one) && one.len() == 32);
        assert_ne!(one, other);
    }
}
