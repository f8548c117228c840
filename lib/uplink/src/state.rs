//! The record of an uplink's changes on the host: written before a change takes effect, removed when the change is
//! undone, read by the daemon that comes after a crash.

use crate::error::UplinkError;
use crate::receive::{TcSeat, detach_leftover};
use crate::spec::Levels;
use crate::steering::{self, Taken};
use nfluid_netdev::offload::{self, ChangedFeatures};
use nfluid_netdev::{Link, NetNs, NetdevError, Netlink, Nic, Place, tap, tunnel};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const SUFFIX: &str = "json";
/// Longer than any record; a longer file is none of ours.
const BYTES_MAX: u64 = 64 * 1024;

/// Changes that an uplink has made on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Name of the uplink.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Path of its namespace; absent: the daemon's own.
    pub netns: Option<PathBuf>,
    /// Index of the interface: distinguishes the interface from a later one of the same name.
    pub index: u32,
    /// The kernel's number of the program at XDP, while it is there.
    pub program: Option<u32>,
    /// The program at tc, with its number, while it is there.
    #[serde(default)]
    pub tc: Option<(u32, TcSeat)>,
    /// The levels of the uplink.
    #[serde(default)]
    pub levels: Levels,
    /// Features switched off or on.
    pub offloads: ChangedFeatures,
    /// Address before.
    pub mac_before: Option<[u8; 6]>,
    /// The interface was down.
    pub was_down: bool,
    /// The tap was made for the uplink.
    pub made_tap: bool,
    /// The interface is a tunnel that was made for the uplink.
    #[serde(default)]
    pub made_tunnel: bool,
    /// The changes by which the NIC steers flows.
    #[serde(default)]
    pub steering: Option<Taken>,
}

/// Returns the path of the record of `name`.
fn path_of(dir: &Path, name: &str) -> PathBuf {
    // Names come from the deployment: a slash would lead elsewhere.
    dir.join(name.replace(['/', '\0'], "_"))
        .with_extension(SUFFIX)
}

impl Record {
    /// Keeps the record in `dir`, made if need be; an earlier one of the same name is replaced,
    /// atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, dir: &Path) -> Result<(), UplinkError> {
        let path = path_of(dir, &self.name);
        let write = || -> io::Result<()> {
            fs::create_dir_all(dir)?;
            let temporary = path.with_extension("new");
            let mut file = fs::File::create(&temporary)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(UplinkError::system(format!("writing {}", path.display())))
    }

    /// Removes, in the calling thread's namespace, the changes by which the interface steers. Changes that cannot be
    /// removed are logged, stay in the record, and do no harm: no queue belongs to a single port then, so that all
    /// frames are classified.
    pub fn stop_steering(&mut self) {
        let Some(taken) = self.steering.take() else {
            return;
        };
        if let Err(error) = stop_steering(&self.interface, &taken) {
            tracing::warn!(uplink = self.name, %error, "flow rules stay on the interface");
            self.steering = Some(taken);
        }
    }

    /// The place of the interface.
    pub fn place(&self) -> Place {
        Place {
            interface: self.interface.clone(),
            netns: self.netns.clone(),
        }
    }

    /// Removes the record.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn forget(&self, dir: &Path) -> Result<(), UplinkError> {
        let path = path_of(dir, &self.name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(UplinkError::system(
                format!("removing {}", path.display()),
            )(error)),
            _ => Ok(()),
        }
    }

    /// The record of `name`, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn find(dir: &Path, name: &str) -> Result<Option<Record>, UplinkError> {
        let path = path_of(dir, name);
        if path.exists() {
            read(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Undoes the changes of the record, as far as the interface is still there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn undo(&self) -> Result<(), UplinkError> {
        match NetNs::open(self.netns.as_deref()) {
            Ok(netns) => netns.within(|| Ok(self.undo_here()))?,
            // The namespace is gone, and the interface with it.
            Err(NetdevError::NoNamespace { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Undoes the changes in the calling thread's namespace.
    ///
    /// # Errors
    /// As for [`Record::undo`].
    pub fn undo_here(&self) -> Result<(), UplinkError> {
        let netlink = Netlink::open()?;
        let Some(link) = netlink.link(&self.interface)? else {
            return Ok(());
        };
        if link.index != self.index {
            return Ok(());
        }
        self.undo_on(&netlink, &link)?;
        if self.was_down && !self.made_tap && !self.made_tunnel {
            netlink.set_up(link.index, false)?;
        }
        Ok(())
    }

    /// Undoes the changes on the interface if it has another name by now, in the calling thread's namespace, which has not changed
    /// since. Whoever has renamed it decides whether it is up. Returns false if it has its name, or is not there.
    ///
    /// # Errors
    /// As for [`Record::undo`].
    pub fn undo_renamed(&self, netlink: &Netlink) -> Result<bool, UplinkError> {
        let found = netlink.link_by_index(self.index)?;
        let Some(link) = found.filter(|link| link.name != self.interface) else {
            return Ok(false);
        };
        self.undo_on(netlink, &link)?;
        Ok(true)
    }

    fn undo_on(&self, netlink: &Netlink, link: &Link) -> Result<(), UplinkError> {
        if self.made_tunnel {
            return Ok(tunnel::remove(netlink, &link.name, &self.name)?);
        }
        if let Some(program) = self.program {
            detach_leftover(netlink, link, program)?;
        }
        if let Some((_, seat)) = &self.tc {
            seat.remove(&self.place())?;
        }
        if let Some(taken) = &self.steering {
            stop_steering(&link.name, taken)?;
        }
        if self.made_tap {
            return Ok(tap::remove(&link.name)?);
        }
        offload::restore(netlink, link, &self.offloads)?;
        if let Some(mac) = self.mac_before {
            netlink.set_mac(link.index, mac)?;
        }
        Ok(())
    }
}

/// Undoes the changes by which an interface of the calling thread's namespace steers.
///
/// # Errors
/// When the driver refuses.
pub fn stop_steering(interface: &str, taken: &Taken) -> Result<(), UplinkError> {
    let given_back = steering::give_back(&Nic::open(interface)?, taken);
    given_back
        .map_err(io::Error::other)
        .map_err(UplinkError::system(format!(
            "taking flow rules off {interface}"
        )))
}

/// The number of the program of uplink `name`, by its record in `state_dir`; nothing for a tap, or while its interface is
/// away.
///
/// # Errors
/// When the record cannot be read.
pub fn program_of(state_dir: &Path, name: &str) -> Result<Option<u32>, UplinkError> {
    let Some(record) = Record::find(state_dir, name)? else {
        return Ok(None);
    };
    let at_tc = record.tc.map(|(program, _)| program);
    Ok(record.program.or(at_tc))
}

fn read(path: &Path) -> Result<Record, UplinkError> {
    let failed = || UplinkError::system(format!("reading {}", path.display()));
    let bad = |why: String| UplinkError::BadState {
        path: path.to_owned(),
        why,
    };
    if fs::metadata(path).map_err(failed())?.len() > BYTES_MAX {
        return Err(bad("it is too long".to_owned()));
    }
    let bytes = fs::read(path).map_err(failed())?;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

/// All records in `dir`; damaged ones come as errors.
pub fn all(dir: &Path) -> Vec<Result<Record, UplinkError>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == SUFFIX)
        })
        .collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}
