//! The images of a host: their layers, unpacked once each, and records of the images.
//!
//! ```text
//! lock                 held alone while images are removed, and together while one is looked up
//! importing            held while an image is imported, or images are removed
//! images/ID.json       the record of an image
//! images/ID.lock       held by every process of an instance that runs the image
//! layers/DIGEST/       an unpacked layer, by the digest of its tar file
//! layers/DIGEST.new/   one that is not whole
//! ```
//! Locks are flock(2): the kernel releases them with the last process that has them, so that nothing is left of a crash.

use crate::blobs::Blobs;
use crate::budget::Budget;
use crate::choice::{self, Found, Layer};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::layer::{self, LeftOut};
use crate::reference::Reference;
use crate::settings::Settings;
use crate::tree;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The store's own locks.
const LOCK: &str = "lock";
const IMPORTING: &str = "importing";
/// The ending of a layer that is not whole.
const UNFINISHED: &str = "new";
/// Least digits of an image's number by which it is named.
const DIGITS_MIN: usize = 6;

/// The images of a host.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// What is known about an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    id: Digest,
    /// Where it came from, each as a reference.
    pub names: BTreeSet<String>,
    /// How its program is run.
    pub settings: Settings,
    layers: Vec<Digest>,
    /// Bytes of the files in the layers that were unpacked for it: those that others had are not counted again.
    pub bytes: u64,
    /// When it was imported, in seconds since 1970.
    pub imported: u64,
    /// What was in it and is not here.
    pub left_out: LeftOut,
}

/// An image that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The image.
    pub record: Record,
    /// Layers that were unpacked for it; the others were there.
    pub new_layers: usize,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Images, by number.
    pub images: Vec<String>,
    /// Images that instances run.
    pub kept: Vec<String>,
    /// Bytes that were unpacked for the images that were removed.
    pub bytes: u64,
}

/// An image in use: it stays as long as some process has `held`.
#[derive(Debug)]
pub struct Image {
    /// Its number: the digest of its configuration.
    pub id: String,
    /// How its program is run.
    pub settings: Settings,
    /// The directories of its layers, the lowest first.
    pub layers: Vec<PathBuf>,
    /// To be handed to the processes of an instance.
    pub held: OwnedFd,
}

impl Image {
    /// Reads a file of the image as text, empty if there is none: of the uppermost layer that has something there.
    pub fn read(&self, path: &Path) -> String {
        let layers = self.layers.iter().rev();
        let found = layers
            .map(|layer| tree::read(layer, path))
            .find(|found| *found != Err(Errno::NOENT));
        found.and_then(Result::ok).unwrap_or_default()
    }
}

impl Record {
    /// Returns the number of the image: the digest of its configuration.
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// Returns the digests of its layers, the lowest first.
    pub fn layers(&self) -> impl Iterator<Item = String> + '_ {
        self.layers.iter().map(Digest::to_string)
    }
}

impl Store {
    /// The images in a directory. Nothing is made before the first import.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Store {
            directory: directory.into(),
        }
    }

    /// Imports an image, or what it is now. An image that is here already keeps its layers.
    ///
    /// # Errors
    /// [`ImageError`]; nothing of the image is left then.
    pub fn import(&self, reference: &Reference) -> Result<Imported, ImageError> {
        let _alone = self.lock(IMPORTING, FlockOperation::LockExclusive)?;
        self.import_locked(reference)
    }

    fn import_locked(&self, reference: &Reference) -> Result<Imported, ImageError> {
        let (blobs, found) = choice::find(reference)?;
        self.remove_unfinished();
        let name = reference.to_string();
        let records = self.records()?;
        let had = records.iter().find(|record| record.id == found.id).cloned();
        let mut imported = match had {
            Some(record) => Imported {
                record,
                new_layers: 0,
            },
            None => self.unpack(&blobs, &found)?,
        };
        for mut other in records {
            if other.id != found.id && other.names.remove(&name) {
                self.save(&other)?;
            }
        }
        imported.record.names.insert(name);
        self.save(&imported.record)?;
        Ok(imported)
    }

    fn unpack(&self, blobs: &Blobs, found: &Found) -> Result<Imported, ImageError> {
        let mut budget = Budget::on(&self.directory)?;
        let whole = budget.clone();
        let mut left_out = LeftOut::default();
        let mut new = Vec::new();
        for layer in &found.layers {
            let directory = self.layer(&layer.content);
            if directory.is_dir() {
                continue;
            }
            match self.unpack_layer(blobs, layer, &directory, &mut budget) {
                Ok(of_layer) => {
                    left_out.devices += of_layer.devices;
                    left_out.setuid += of_layer.setuid;
                    new.push(directory);
                }
                Err(why) => {
                    // No record names them.
                    for directory in new {
                        let _ = fs::remove_dir_all(directory);
                    }
                    return Err(why);
                }
            }
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Imported {
            record: Record {
                id: found.id.clone(),
                names: BTreeSet::new(),
                settings: Settings::of(&found.config),
                layers: found
                    .layers
                    .iter()
                    .map(|layer| layer.content.clone())
                    .collect(),
                bytes: whole.bytes - budget.bytes,
                imported: since.map_or(0, |since| since.as_secs()),
                left_out,
            },
            new_layers: new.len(),
        })
    }

    fn unpack_layer(
        &self,
        blobs: &Blobs,
        layer: &Layer,
        directory: &Path,
        budget: &mut Budget,
    ) -> Result<LeftOut, ImageError> {
        let unfinished = directory.with_extension(UNFINISHED);
        let make = || {
            fs::create_dir(&unfinished)
                .map_err(|error| ImageError::io("make", &unfinished, error))?;
            let everyone = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&unfinished, everyone)
                .map_err(|error| ImageError::io("make", &unfinished, error))
        };
        let done = make()
            .and_then(|()| layer::unpack(blobs, layer, &unfinished, budget))
            .and_then(|left_out| {
                let renamed = fs::rename(&unfinished, directory);
                renamed
                    .map(|()| left_out)
                    .map_err(|error| ImageError::io("make", directory, error))
            });
        if done.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        done
    }

    /// Returns all images, those imported last first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self) -> Result<Vec<Record>, ImageError> {
        let _together = self.lock(LOCK, FlockOperation::LockShared)?;
        let mut records = self.records()?;
        records.sort_by_key(|record| (std::cmp::Reverse(record.imported), record.id.clone()));
        Ok(records)
    }

    /// Returns an image, by one of its names or the first digits of its number.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn inspect(&self, name: &str) -> Result<Record, ImageError> {
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        let is_it = |record: &Record| {
            let is_number = digits.len() >= DIGITS_MIN && record.id.hex().starts_with(digits);
            record.names.contains(name) || is_number
        };
        let mut found = self.list()?.into_iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(ImageError::Unknown(name.escape_debug().to_string())),
            (Some(_), Some(_)) => Err(ImageError::bad(
                name,
                "several images begin like this: write more of the number",
            )),
        }
    }

    /// Returns the image of this name, for an instance to run. It is imported if it is not here.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub fn use_image(&self, reference: &Reference) -> Result<Image, ImageError> {
        let here = || {
            let _together = self.lock(LOCK, FlockOperation::LockShared)?;
            let record = self.record_of(reference)?;
            record.map(|record| self.hold(record)).transpose()
        };
        if let Some(image) = here()? {
            return Ok(image);
        }
        let _alone = self.lock(IMPORTING, FlockOperation::LockExclusive)?;
        // Another process may have imported it meanwhile.
        match here()? {
            Some(image) => Ok(image),
            None => self.hold(self.import_locked(reference)?.record),
        }
    }

    /// Returns true if the image of this name is the one with this number now.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn is_current(&self, reference: &Reference, id: &str) -> Result<bool, ImageError> {
        let _together = self.lock(LOCK, FlockOperation::LockShared)?;
        let record = self.record_of(reference)?;
        Ok(record.is_some_and(|record| record.id() == id))
    }

    /// Returns the image of this name that is here. The caller has the store's lock.
    fn record_of(&self, reference: &Reference) -> Result<Option<Record>, ImageError> {
        let name = reference.to_string();
        let mut records = self.records()?.into_iter();
        Ok(records.find(|record| record.names.contains(&name)))
    }

    fn hold(&self, record: Record) -> Result<Image, ImageError> {
        let held = self.image_lock(&record.id, FlockOperation::LockShared);
        Ok(Image {
            id: record.id(),
            held: held.map_err(|errno| ImageError::io("lock", &self.directory, errno))?,
            layers: record
                .layers
                .iter()
                .map(|layer| self.layer(layer))
                .collect(),
            settings: record.settings,
        })
    }

    /// Removes the images that no instance runs, and their layers.
    ///
    /// # Errors
    /// The store cannot be read, or a file not removed.
    pub fn prune(&self) -> Result<Pruned, ImageError> {
        let _no_import = self.lock(IMPORTING, FlockOperation::LockExclusive)?;
        let _alone = self.lock(LOCK, FlockOperation::LockExclusive)?;
        self.remove_unfinished();
        let mut pruned = Pruned::default();
        let mut needed = BTreeSet::new();
        for record in self.records()? {
            match self.image_lock(&record.id, FlockOperation::NonBlockingLockExclusive) {
                Ok(_) => {
                    let file = self.record_file(&record.id);
                    fs::remove_file(&file)
                        .map_err(|error| ImageError::io("remove", &file, error))?;
                    let _ = fs::remove_file(self.lock_file(&record.id));
                    pruned.bytes += record.bytes;
                    pruned.images.push(record.id());
                }
                Err(Errno::AGAIN) => {
                    pruned.kept.push(record.id());
                    needed.extend(record.layers);
                }
                Err(errno) => {
                    return Err(ImageError::io("lock", &self.lock_file(&record.id), errno));
                }
            }
        }
        let layers = self.directory.join("layers");
        let entries =
            fs::read_dir(&layers).map_err(|error| ImageError::io("read", &layers, error))?;
        for entry in entries.flatten() {
            let digest = entry.file_name().to_str().and_then(Digest::parse);
            if digest.is_none_or(|digest| !needed.contains(&digest)) {
                let path = entry.path();
                fs::remove_dir_all(&path)
                    .map_err(|error| ImageError::io("remove", &path, error))?;
            }
        }
        Ok(pruned)
    }

    /// Layers that an import has left which was killed. The caller alone is importing.
    fn remove_unfinished(&self) {
        let entries = fs::read_dir(self.directory.join("layers"));
        for path in entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                let _ = fs::remove_dir_all(path);
            }
        }
        nfluid_records::remove_unfinished(&self.directory.join("images"));
    }

    fn records(&self) -> Result<Vec<Record>, ImageError> {
        let images = self.directory.join("images");
        let names = nfluid_records::names(&images).into_iter();
        names
            .map(|name| {
                let file = images.join(format!("{name}.json"));
                nfluid_records::load(&file).map_err(|error| ImageError::io("read", &file, error))
            })
            .collect()
    }

    fn save(&self, record: &Record) -> Result<(), ImageError> {
        let file = self.record_file(&record.id);
        nfluid_records::save(record, &file).map_err(|error| ImageError::io("write", &file, error))
    }

    fn layer(&self, digest: &Digest) -> PathBuf {
        self.directory.join("layers").join(digest.hex())
    }

    fn record_file(&self, id: &Digest) -> PathBuf {
        self.directory
            .join("images")
            .join(format!("{}.json", id.hex()))
    }

    fn lock_file(&self, id: &Digest) -> PathBuf {
        self.directory
            .join("images")
            .join(format!("{}.lock", id.hex()))
    }

    /// Locks the store until the returned descriptor is closed, and makes its directories. They are for root alone: layers
    /// hold programs of others.
    fn lock(&self, name: &str, how: FlockOperation) -> Result<OwnedFd, ImageError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for directory in ["layers", "images"].map(|name| self.directory.join(name)) {
            builder
                .create(&directory)
                .map_err(|error| ImageError::io("make", &directory, error))?;
        }
        let file = self.directory.join(name);
        lock(&file, how).map_err(|errno| ImageError::io("lock", &file, errno))
    }

    fn image_lock(&self, id: &Digest, how: FlockOperation) -> Result<OwnedFd, Errno> {
        lock(&self.lock_file(id), how)
    }
}

fn lock(file: &Path, how: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::flock(&lock, how)?;
    Ok(lock)
}
