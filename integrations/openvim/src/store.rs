//! The database: a file with a table for each kind of object. Whatever is written is on the disk when the request is answered.

use crate::fault::Fault;
use crate::objects::{Flavor, Host, Image, Network, Object, Port, Server, Tenant};
use redb::{
    Database, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _, TableDefinition,
};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Most bytes of all objects: a list reads all of a kind.
const BYTES_MAX: u64 = 32 << 20;
/// Bytes of all objects, under the key 0.
const BYTES: TableDefinition<'static, u128, u64> = TableDefinition::new("bytes");

/// A table: objects as JSON by their ids.
type Definition = TableDefinition<'static, u128, &'static [u8]>;

/// The states of images that were made of servers, by the images' ids: what a daemon has saved.
const STATES: Definition = TableDefinition::new("states");
/// Most of them. Each has 62 MB at most.
const STATES_MAX: u64 = 256;

/// The database.
pub struct Store {
    database: Database,
    path: PathBuf,
}

/// The state at one time.
pub struct Reading<'a> {
    transaction: redb::ReadTransaction,
    path: &'a Path,
}

/// A change, of which all is made or nothing. It sees what it has changed.
pub struct Writing<'a> {
    transaction: redb::WriteTransaction,
    path: &'a Path,
}

/// Questions to the state at one time, or within a change.
pub trait View {
    /// Returns an object.
    ///
    /// # Errors
    /// The database fails.
    fn find<T: Object>(&self, id: Uuid) -> Result<Option<T>, Fault>;

    /// Returns all objects of a kind, by id.
    ///
    /// # Errors
    /// The database fails.
    fn all<T: Object>(&self) -> Result<Vec<T>, Fault>;

    /// Returns an object that has to be there.
    ///
    /// # Errors
    /// The object is missing, or the database fails.
    fn get<T: Object>(&self, id: Uuid) -> Result<T, Fault> {
        self.find(id)?.ok_or_else(|| Fault::unknown(T::WORD, id))
    }
}

const fn table<T: Object>() -> Definition {
    TableDefinition::new(T::PLURAL)
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Fault {
    Fault::internal(format!("the database {}: {error}", path.display()))
}

fn decoded<T: Object>(bytes: &[u8], path: &Path) -> Result<T, Fault> {
    let word = T::WORD;
    serde_json::from_slice(bytes).map_err(|error| failed(path, format_args!("a {word}: {error}")))
}

fn found<T: Object>(
    table: &impl ReadableTable<u128, &'static [u8]>,
    id: Uuid,
    path: &Path,
) -> Result<Option<T>, Fault> {
    let value = table.get(id.as_u128()).map_err(|it| failed(path, it))?;
    value.map(|it| decoded(it.value(), path)).transpose()
}

fn listed<T: Object>(
    table: &impl ReadableTable<u128, &'static [u8]>,
    path: &Path,
) -> Result<Vec<T>, Fault> {
    let rows = table.iter().map_err(|it| failed(path, it))?;
    rows.map(|row| {
        let (_, value) = row.map_err(|it| failed(path, it))?;
        decoded(value.value(), path)
    })
    .collect()
}

impl Store {
    /// Opens a database; makes it if there is none. Nobody but its owner reads it: configurations of functions are in it.
    ///
    /// # Errors
    /// The file cannot be made, is no database, or belongs to another server that runs.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|it| failed(path, it))?;
        let database = Database::builder().create_file(file);
        let database = database.map_err(|it| failed(path, it))?;
        let store = Store {
            database,
            path: path.to_owned(),
        };
        store.write(|all| {
            all.make::<Tenant>()?;
            all.make::<Flavor>()?;
            all.make::<Image>()?;
            all.make::<Host>()?;
            all.make::<Network>()?;
            all.make::<Port>()?;
            all.make::<Server>()?;
            all.states().map(drop)
        })?;
        Ok(store)
    }

    /// Reads.
    ///
    /// # Errors
    /// The database fails.
    pub fn read(&self) -> Result<Reading<'_>, Fault> {
        let path = self.path.as_path();
        let transaction = self.database.begin_read().map_err(|it| failed(path, it))?;
        Ok(Reading { transaction, path })
    }

    /// Makes a change. If it fails, nothing has changed. Changes are made one after the other.
    ///
    /// # Errors
    /// Those of the change, or the database fails.
    pub fn write<R>(
        &self,
        change: impl FnOnce(&Writing<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        tokio::task::block_in_place(|| {
            let path = self.path.as_path();
            let transaction = self.database.begin_write().map_err(|it| failed(path, it))?;
            let writing = Writing { transaction, path };
            let result = change(&writing)?;
            let written = writing.transaction.commit();
            written.map_err(|it| failed(path, it))?;
            Ok(result)
        })
    }
}

impl View for Reading<'_> {
    fn find<T: Object>(&self, id: Uuid) -> Result<Option<T>, Fault> {
        let table = self.transaction.open_table(table::<T>());
        found(&table.map_err(|it| failed(self.path, it))?, id, self.path)
    }

    fn all<T: Object>(&self) -> Result<Vec<T>, Fault> {
        let table = self.transaction.open_table(table::<T>());
        listed(&table.map_err(|it| failed(self.path, it))?, self.path)
    }
}

impl Reading<'_> {
    /// Returns the state of an image, as the daemon that saved it has written it.
    ///
    /// # Errors
    /// The image has no state, or the database fails.
    pub fn state(&self, image: Uuid) -> Result<String, Fault> {
        let table = self.transaction.open_table(STATES);
        let table = table.map_err(|it| failed(self.path, it))?;
        let state = table.get(image.as_u128());
        let state = state.map_err(|it| failed(self.path, it))?;
        let text = state.and_then(|it| String::from_utf8(it.value().to_vec()).ok());
        text.ok_or_else(|| Fault::internal(format!("image {image} has no state")))
    }
}

impl View for Writing<'_> {
    fn find<T: Object>(&self, id: Uuid) -> Result<Option<T>, Fault> {
        found(&self.table::<T>()?, id, self.path)
    }

    fn all<T: Object>(&self) -> Result<Vec<T>, Fault> {
        listed(&self.table::<T>()?, self.path)
    }
}

impl Writing<'_> {
    fn table<T: Object>(&self) -> Result<redb::Table<'_, u128, &'static [u8]>, Fault> {
        let table = self.transaction.open_table(table::<T>());
        table.map_err(|it| failed(self.path, it))
    }

    fn states(&self) -> Result<redb::Table<'_, u128, &'static [u8]>, Fault> {
        let table = self.transaction.open_table(STATES);
        table.map_err(|it| failed(self.path, it))
    }

    /// Writes the state of an image.
    ///
    /// # Errors
    /// There are too many, or the database fails.
    pub fn put_state(&self, image: Uuid, state: &str) -> Result<(), Fault> {
        let mut table = self.states()?;
        if table.len().map_err(|it| failed(self.path, it))? >= STATES_MAX {
            return Err(Fault::conflict(format!(
                "there are {STATES_MAX} images of servers, the most"
            )));
        }
        let old = table.insert(image.as_u128(), state.as_bytes());
        old.map(drop).map_err(|it| failed(self.path, it))
    }

    /// Removes the state of an image, if it has one.
    ///
    /// # Errors
    /// The database fails.
    pub fn remove_state(&self, image: Uuid) -> Result<(), Fault> {
        let mut table = self.states()?;
        let old = table.remove(image.as_u128());
        old.map(drop).map_err(|it| failed(self.path, it))
    }

    fn make<T: Object>(&self) -> Result<(), Fault> {
        self.table::<T>().map(drop)
    }

    /// Writes an object that is not there yet.
    ///
    /// # Errors
    /// An object has this id, there is no room, or the database fails.
    pub fn add<T: Object>(&self, object: &T) -> Result<(), Fault> {
        if self.find::<T>(object.id())?.is_some() {
            let (word, id) = (T::WORD, object.id());
            return Err(Fault::conflict(format!("{word} {id} exists")));
        }
        self.put(object)
    }

    /// Writes an object.
    ///
    /// # Errors
    /// There is no room, or the database fails.
    pub fn put<T: Object>(&self, object: &T) -> Result<(), Fault> {
        let text = serde_json::to_vec(object).map_err(|it| failed(self.path, it))?;
        let mut table = self.table::<T>()?;
        let old = table.insert(object.id().as_u128(), text.as_slice());
        let old = old.map_err(|it| failed(self.path, it))?;
        let old = old.map_or(0, |old| old.value().len());
        self.count(old, text.len())
    }

    /// Counts the bytes of an object that takes the place of another.
    fn count(&self, old: usize, new: usize) -> Result<(), Fault> {
        let table = self.transaction.open_table(BYTES);
        let mut table = table.map_err(|it| failed(self.path, it))?;
        let before = table.get(0).map_err(|it| failed(self.path, it))?;
        let before = before.map_or(0, |before| before.value());
        let after = before.saturating_sub(old as u64) + new as u64;
        if after > BYTES_MAX && new > old {
            return Err(Fault::conflict(format!(
                "the database is full: its objects have {BYTES_MAX} bytes, the most"
            )));
        }
        let written = table.insert(0, after);
        written.map(drop).map_err(|it| failed(self.path, it))
    }

    /// Changes an object that has to be there, and returns it.
    ///
    /// # Errors
    /// The object is missing, or the database fails.
    pub fn change<T: Object>(&self, id: Uuid, change: impl FnOnce(&mut T)) -> Result<T, Fault> {
        let mut object: T = self.get(id)?;
        change(&mut object);
        self.put(&object)?;
        Ok(object)
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// The database fails.
    pub fn remove<T: Object>(&self, id: Uuid) -> Result<(), Fault> {
        let mut table = self.table::<T>()?;
        let old = table.remove(id.as_u128());
        let old = old.map_err(|it| failed(self.path, it))?;
        self.count(old.map_or(0, |old| old.value().len()), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::made;
    use serde_json::json;

    fn tenant(bytes: usize) -> Tenant {
        // More than a client can say: only the sum counts here.
        let mut tenant: Tenant = made(json!({ "tenant": { "name": "t" } })).expect("valid");
        tenant.description = Some("x".repeat(bytes));
        tenant
    }

    // promise: 32.14
    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_database_takes_no_more_until_something_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("openvim.redb");
        let open = || {
            Store::open(&path)
                .map_err(|fault| fault.text)
                .expect("it opens")
        };
        let store = open();
        let size = 4 << 20;
        let first = tenant(size);
        store.write(|all| all.add(&first)).expect("room");
        let mut count = 1;
        while store.write(|all| all.add(&tenant(size))).is_ok() {
            count += 1;
        }
        assert_eq!(count, 7, "each has a little more than its text");
        drop(store);
        let store = open();
        store
            .write(|all| all.add(&tenant(size)))
            .expect_err("it is still full");
        let smaller = Tenant {
            description: None,
            ..first.clone()
        };
        store
            .write(|all| all.put(&smaller))
            .expect("less is possible");
        store
            .write(|all| all.put(&first))
            .expect("and as much as before");
        store
            .write(|all| all.remove::<Tenant>(first.id))
            .expect("it goes");
        store
            .write(|all| all.add(&tenant(size)))
            .expect("room again");
        let mode = std::fs::metadata(&path).expect("a file").permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
            0o600
        );
    }

    // promise: 32.14
    #[test]
    fn what_is_no_database_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "my notes").expect("ours");
        let fault = Store::open(&path).err().expect("no database");
        assert!(fault.text.contains("notes.txt"), "{}", fault.text);
        assert_eq!(std::fs::read(&path).expect("ours"), b"my notes");
        let missing = folder.path().join("none/openvim.redb");
        assert!(Store::open(&missing).is_err());
    }
}
