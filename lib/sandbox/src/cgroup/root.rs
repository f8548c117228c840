//! The platform's own directory in the cgroup file systems.

use super::group::Cgroup;
use super::stats::{self, CgroupStats};
use super::{CgroupError, Controller, Hierarchy, Share, check_name, control_file, processes};
use crate::error::{Errno, OsError};
use rustix::fs::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The directories of a cgroup in all hierarchies that nfluid uses: the same relative path below each mount point.
#[derive(Debug, Clone)]
pub(super) struct Directories {
    /// In the unified hierarchy.
    pub v2: Option<PathBuf>,
    /// The controllers that the unified hierarchy serves in this directory.
    pub v2_controllers: BTreeSet<Controller>,
    /// In the v1 hierarchy of a controller; two controllers may share one.
    pub v1: BTreeMap<Controller, PathBuf>,
}

/// The directory of a controller's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    pub path: PathBuf,
    pub v2: bool,
}

impl Directories {
    fn below(hierarchy: &Hierarchy, relative: &Path) -> Self {
        let join = |mount: &PathBuf| mount.join(relative);
        Self {
            v2: hierarchy.v2.as_ref().map(join),
            v2_controllers: BTreeSet::new(),
            v1: hierarchy
                .v1
                .iter()
                .filter(|(controller, mount)| hierarchy.is_needed(**controller, mount))
                .map(|(controller, mount)| (*controller, join(mount)))
                .collect(),
        }
    }

    pub fn child(&self, name: &str) -> Self {
        Self {
            v2: self.v2.as_ref().map(|path| path.join(name)),
            v2_controllers: self.v2_controllers.clone(),
            v1: self
                .v1
                .iter()
                .map(|(controller, path)| (*controller, path.join(name)))
                .collect(),
        }
    }

    /// Each directory once.
    pub fn all(&self) -> BTreeSet<&Path> {
        let v1 = self.v1.values();
        v1.chain(&self.v2).map(PathBuf::as_path).collect()
    }

    pub fn seat(&self, controller: Controller) -> Option<Seat> {
        let v2 = self
            .v2
            .iter()
            .filter(|_| self.v2_controllers.contains(&controller))
            .map(|path| Seat {
                path: path.clone(),
                v2: true,
            });
        let v1 = self.v1.get(&controller).map(|path| Seat {
            path: path.clone(),
            v2: false,
        });
        v2.chain(v1).next()
    }

    pub fn needed(&self, controller: Controller) -> Result<Seat, CgroupError> {
        self.seat(controller)
            .ok_or_else(|| CgroupError::MissingController {
                controller,
                where_: match &self.v2 {
                    Some(path) => path.display().to_string(),
                    None => "this host".to_owned(),
                },
            })
    }

    /// The weight among the brothers of this directory.
    pub fn set_weight(&self, share: Share) -> Result<(), CgroupError> {
        let seat = self.needed(Controller::Cpu)?;
        if seat.v2 {
            let value = share.weight_v2().to_string();
            control_file::write(&seat.path.join("cpu.weight"), &value)
        } else {
            let value = share.weight_v1().to_string();
            control_file::write(&seat.path.join("cpu.shares"), &value)
        }
    }

    /// The most memory, without swap.
    pub fn set_memory(&self, bytes: u64) -> Result<(), CgroupError> {
        let seat = self.needed(Controller::Memory)?;
        let bytes = bytes.to_string();
        if seat.v2 {
            control_file::write(&seat.path.join("memory.max"), &bytes)?;
            return control_file::write_if_present(&seat.path.join("memory.swap.max"), "0");
        }
        // v1 wants memory <= memory+swap at every moment: where the part would be more, the sum is lifted first.
        let part = seat.path.join("memory.limit_in_bytes");
        let sum = seat.path.join("memory.memsw.limit_in_bytes");
        match control_file::write(&part, &bytes) {
            Err(CgroupError::Os(error)) if error.errno == Errno::INVAL => {
                control_file::write_if_present(&sum, "-1")?;
                control_file::write(&part, &bytes)?;
            }
            other => other?,
        }
        control_file::write_if_present(&sum, &bytes)?;
        control_file::write_if_present(&seat.path.join("memory.swappiness"), "0")
    }

    /// The most processes and threads.
    pub fn set_pids(&self, count_max: u32) -> Result<(), CgroupError> {
        let seat = self.needed(Controller::Pids)?;
        control_file::write(&seat.path.join("pids.max"), &count_max.to_string())
    }

    /// The most CPU time; `None` lifts it.
    pub fn set_cap(&self, cap: Option<Share>) -> Result<(), CgroupError> {
        let seat = self.needed(Controller::Cpu)?;
        if seat.v2 {
            let value = match cap.map(Share::quota_and_period_us) {
                Some((quota, period)) => format!("{quota} {period}"),
                None => "max".to_owned(),
            };
            return control_file::write(&seat.path.join("cpu.max"), &value);
        }
        // v1 checks quota against period at each write: lift the quota first, so that no order of values is refused.
        control_file::write(&seat.path.join("cpu.cfs_quota_us"), "-1")?;
        if let Some((quota, period)) = cap.map(Share::quota_and_period_us) {
            control_file::write(&seat.path.join("cpu.cfs_period_us"), &period.to_string())?;
            control_file::write(&seat.path.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
        Ok(())
    }
}

/// The platform's directory, below which each instance has one.
///
/// The directory is not removed on drop: network functions outlive the daemon. [`CgroupRoot::remove`] removes it.
#[derive(Debug, Clone)]
pub struct CgroupRoot {
    directories: Directories,
}

impl CgroupRoot {
    /// Makes (or finds again) the directory `name` at the top of every hierarchy of this host.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`], [`CgroupError::BadName`], or the kernel's refusal to make a directory or to hand
    /// controllers to it. A controller that the host lacks is no error here: the operation that needs it names it.
    pub fn new(name: &str) -> Result<Self, CgroupError> {
        check_name(name)?;
        Self::at(&Hierarchy::detect()?, Path::new(name))
    }

    /// As [`CgroupRoot::new`], at a path relative to the mount points, for a service manager that delegates a subtree:
    /// `system.slice/nfluidd.service/instances`. On v2 every directory on the way is asked to hand the controllers down,
    /// which the kernel refuses (EBUSY) where a directory has processes of its own.
    ///
    /// # Errors
    /// As [`CgroupRoot::new`].
    pub fn at(hierarchy: &Hierarchy, relative: &Path) -> Result<Self, CgroupError> {
        let normal = |part| matches!(part, std::path::Component::Normal(_));
        if relative.as_os_str().is_empty() || !relative.components().all(normal) {
            return Err(CgroupError::BadName {
                name: relative.display().to_string(),
            });
        }
        let mut directories = Directories::below(hierarchy, relative);
        for directory in directories.all() {
            std::fs::create_dir_all(directory)
                .map_err(|error| control_file::failed("create cgroup", directory, &error))?;
        }
        if let (Some(mount), Some(own)) = (&hierarchy.v2, &directories.v2) {
            let on_the_way = own.ancestors().take_while(|path| path.starts_with(mount));
            let mut top_down: Vec<&Path> = on_the_way.collect();
            top_down.reverse();
            for directory in top_down {
                hand_down_controllers(directory)?;
            }
            directories.v2_controllers = handed_down(own)?;
        }
        Ok(Self { directories })
    }

    /// Makes (or finds again) a directory within this directory, for instances that share its limits. The new
    /// directory is not removed on drop.
    ///
    /// # Errors
    /// As [`CgroupRoot::new`].
    pub fn within(&self, name: &str) -> Result<Self, CgroupError> {
        check_name(name)?;
        let mut directories = self.directories.child(name);
        for directory in directories.all() {
            std::fs::create_dir_all(directory)
                .map_err(|error| control_file::failed("create cgroup", directory, &error))?;
        }
        if let Some(own) = &directories.v2 {
            hand_down_controllers(own)?;
            directories.v2_controllers = handed_down(own)?;
        }
        Ok(Self { directories })
    }

    /// Removes the directory if nothing is inside, neither a process nor a directory.
    ///
    /// # Errors
    /// EBUSY if something is.
    pub fn remove_empty(self) -> Result<(), CgroupError> {
        for directory in self.directories.all() {
            match std::fs::remove_dir(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(control_file::failed("remove cgroup", directory, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the CPU time and memory of all groups inside.
    ///
    /// # Errors
    /// The kernel's refusal to read; a quantity that the host does not count is `None`.
    pub fn stats(&self) -> Result<CgroupStats, CgroupError> {
        stats::read(&self.directories)
    }

    /// The most CPU time that all inside get together, also on an idle host. `None` lifts it. On v1 no directory inside may
    /// have a higher one.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `cpu` controller; EINVAL on v1, see above.
    pub fn set_cap(&self, cap: Option<Share>) -> Result<(), CgroupError> {
        self.directories.set_cap(cap)
    }

    /// The most memory that all inside have together, without swap. When they reach it, the kernel ends one of them.
    ///
    /// # Errors
    /// As for [`Cgroup::set_memory`].
    pub fn set_memory(&self, bytes: u64) -> Result<(), CgroupError> {
        self.directories.set_memory(bytes)
    }

    /// The most processes and threads that all inside have together.
    ///
    /// # Errors
    /// As for [`Cgroup::set_pids`].
    pub fn set_pids(&self, count_max: u32) -> Result<(), CgroupError> {
        self.directories.set_pids(count_max)
    }

    /// Makes a cgroup for an instance. The cgroup must not exist yet.
    ///
    /// # Errors
    /// [`CgroupError::BadName`]; EEXIST if there is one by that name: see [`CgroupRoot::open`].
    pub fn create(&self, name: &str) -> Result<Cgroup, CgroupError> {
        check_name(name)?;
        let directories = self.directories.child(name);
        let mut made: Vec<&Path> = Vec::new();
        for directory in directories.all() {
            if let Err(error) = std::fs::create_dir(directory) {
                for half_made in made {
                    processes::remove(half_made)?;
                }
                return Err(control_file::failed("create cgroup", directory, &error));
            }
            made.push(directory);
        }
        Ok(Cgroup::new(name.to_owned(), directories))
    }

    /// Finds the cgroup of an instance that a former daemon made.
    ///
    /// # Errors
    /// [`CgroupError::BadName`]; ENOENT if any of its directories is missing.
    pub fn open(&self, name: &str) -> Result<Cgroup, CgroupError> {
        check_name(name)?;
        let directories = self.directories.child(name);
        for directory in directories.all() {
            if !directory.is_dir() {
                let subject = directory.display();
                return Err(OsError::new("open cgroup", subject, Errno::NOENT).into());
            }
        }
        Ok(Cgroup::new(name.to_owned(), directories))
    }

    /// Kills the processes inside the cgroup of an instance and removes its directories, however many there are: a
    /// daemon that was killed while it made or removed the cgroup has left directories in some of the hierarchies
    /// only.
    ///
    /// # Errors
    /// [`CgroupError::BadName`]; [`CgroupError::NotEmpty`] if processes survive being killed.
    pub fn remove_leftover(&self, name: &str) -> Result<(), CgroupError> {
        check_name(name)?;
        let directories = self.directories.child(name);
        directories
            .all()
            .into_iter()
            .try_for_each(processes::remove)
    }

    /// The names of all instances' cgroups, in no order. Reads directories: for a daemon's start, not for its work.
    ///
    /// # Errors
    /// The kernel's refusal to list.
    pub fn names(&self) -> Result<BTreeSet<String>, CgroupError> {
        let mut names = BTreeSet::new();
        for directory in self.directories.all() {
            for child in processes::children(directory)? {
                let name = child
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                names.extend(name);
            }
        }
        Ok(names)
    }

    /// The weight of all inside among the cgroups beside this one: for the whole platform, the sum of the shares that it
    /// promised is a good choice.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`] without the `cpu` controller.
    pub fn set_weight(&self, share: Share) -> Result<(), CgroupError> {
        self.directories.set_weight(share)
    }

    /// Returns the directory in the unified hierarchy, where network programs attach; `None` on a pure v1 host.
    pub fn v2_directory(&self) -> Option<&Path> {
        self.directories.v2.as_deref()
    }

    /// The limiting controllers that instances of this platform do not have.
    pub fn missing(&self) -> Vec<Controller> {
        let absent = |controller: &Controller| self.directories.seat(*controller).is_none();
        Controller::LIMITS.into_iter().filter(absent).collect()
    }

    /// Returns true if instances can be limited: every limiting controller is there, and the directories can be
    /// written.
    ///
    /// # Errors
    /// [`CgroupError::MissingController`], or that a hierarchy is mounted read-only.
    pub fn check_limits(&self) -> Result<(), CgroupError> {
        for controller in Controller::LIMITS {
            self.directories.needed(controller)?;
        }
        for directory in self.directories.all() {
            rustix::fs::access(directory, Access::WRITE_OK).map_err(|errno| {
                control_file::failed("write to cgroup", directory, &errno.into())
            })?;
        }
        Ok(())
    }

    /// Kills the processes inside and removes the platform's directory with everything below.
    ///
    /// # Errors
    /// [`CgroupError::NotEmpty`] if processes survive being killed.
    pub fn remove(self) -> Result<(), CgroupError> {
        let directories = self.directories.all();
        directories.into_iter().try_for_each(processes::remove)
    }

    /// Removes, with everything inside, all top-level cgroups whose name starts with `prefix`: leftovers of a crashed
    /// test or of a platform of another name. Returns their names.
    ///
    /// # Errors
    /// [`CgroupError::BadName`] for a prefix of less than four characters, which could match the host's own groups.
    pub fn remove_leftovers(prefix: &str) -> Result<BTreeSet<String>, CgroupError> {
        check_name(prefix)?;
        if prefix.len() < 4 {
            return Err(CgroupError::BadName {
                name: prefix.to_owned(),
            });
        }
        let hierarchy = Hierarchy::detect()?;
        let mounts: BTreeSet<&PathBuf> = hierarchy.v1.values().chain(&hierarchy.v2).collect();
        let mut removed = BTreeSet::new();
        for mount in mounts {
            for child in processes::children(mount)? {
                let name = child
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                if let Some(name) = name.filter(|name| name.starts_with(prefix)) {
                    processes::remove(&child)?;
                    removed.insert(name);
                }
            }
        }
        Ok(removed)
    }
}

/// Hands all limiting controllers that `directory` has to its children (cgroup.subtree_control).
fn hand_down_controllers(directory: &Path) -> Result<(), CgroupError> {
    let offered = control_file::read(&directory.join("cgroup.controllers"))?;
    let handed = handed_down(directory)?;
    for controller in Controller::LIMITS {
        let is_offered = offered
            .split_whitespace()
            .any(|name| name == controller.name());
        if is_offered && !handed.contains(&controller) {
            let switch = directory.join("cgroup.subtree_control");
            control_file::write(&switch, &format!("+{controller}"))?;
        }
    }
    Ok(())
}

fn handed_down(directory: &Path) -> Result<BTreeSet<Controller>, CgroupError> {
    let text = control_file::read(&directory.join("cgroup.subtree_control"))?;
    let named = |controller: &Controller| {
        let mut names = text.split_whitespace();
        names.any(|name| name == controller.name())
    };
    Ok(Controller::LIMITS.into_iter().filter(named).collect())
}
