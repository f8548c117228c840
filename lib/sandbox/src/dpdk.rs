//! Programs on DPDK: what they see beside libraries, and what this host offers to them, for `doctor`.

use crate::probing::{Feature, Status};
use crate::root::{LIBRARY_DIRECTORIES, Root, Shown, View};
use std::path::{Path, PathBuf};

/// Which CPUs there are, and which memory is near to each. DPDK's environment abstraction layer (EAL) does not start
/// without.
const TOPOLOGY: [&str; 2] = ["/sys/devices/system/cpu", "/sys/devices/system/node"];
/// Modules of the kernel, of which EAL finds none: its drivers for devices of the host have no work here. The instance
/// makes no files there: its system call filter has no call for that.
const MODULES: [&str; 1] = ["/sys/module"];

/// Beside it, directories of an instance with files.
const SCRATCH: [&str; 5] = [MODULES[0], "/dev/shm", "/run", "/tmp", "/var/tmp"];

impl Root {
    /// For a program on DPDK. `files`: it also has these directories, some of its own, and devices; absent: none of them.
    pub fn for_dpdk(files: Option<Vec<View>>) -> Self {
        let (scratch, devices): (&[&str], &[&str]) = match files {
            Some(_) => (&SCRATCH, &Shown::DEVICES),
            None => (&MODULES, &[]),
        };
        let topology = TOPOLOGY.map(|path| View::from(PathBuf::from(path)));
        Self::Libraries(Shown {
            extra: topology
                .into_iter()
                .chain(files.unwrap_or_default())
                .collect(),
            scratch,
            devices,
            ..Shown::default()
        })
    }
}

const NAME: &str = "programs on DPDK";
/// The library of the release that nfluid's driver is for, 22.11.
const EAL: &str = "librte_eal.so.23";
/// nfluid's driver.
const DRIVER: &str = "librte_net_nfluid.so";
/// Where the guide has the driver put.
const DRIVER_FOLDER: &str = "nfluid";
/// Where DPDK of this release looks for drivers by itself.
const DRIVERS: &str = "dpdk/pmds-23.0";

/// Looks for DPDK's libraries and for nfluid's driver, where instances see them.
pub(crate) fn programs_on_dpdk() -> Feature {
    look(&LIBRARY_DIRECTORIES.map(Path::new))
}

fn look(directories: &[&Path]) -> Feature {
    let missing = |what: &str, remedy: &str| Feature::new(NAME, Status::Degraded, what, remedy);
    let folders = directories.iter().flat_map(|path| with_folders(path));
    let folders: Vec<PathBuf> = folders.collect();
    let Some(eal) = find(&folders, Path::new(EAL)) else {
        return missing(
            "no DPDK 22.11",
            "only for 'api: dpdk': apt-get install dpdk-dev libdpdk-dev, and build the driver (docs/guide/dpdk.md)",
        );
    };
    let places = [DRIVER_FOLDER, DRIVERS].map(|folder| Path::new(folder).join(DRIVER));
    match places.iter().find_map(|place| find(&folders, place)) {
        Some(driver) => {
            let both = format!("{}, {}", eal.display(), driver.display());
            Feature::available(NAME, both)
        }
        None => missing(
            "DPDK 22.11 without nfluid's driver",
            "only for 'api: dpdk': make -C lib/dpdk, and put it into /usr/lib/nfluid (docs/guide/dpdk.md)",
        ),
    }
}

/// The directory, and the folders of architectures in it.
fn with_folders(path: &Path) -> Vec<PathBuf> {
    let mut folders = vec![path.to_owned()];
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.path());
    folders.extend(names.filter(|path| path.to_string_lossy().ends_with("-linux-gnu")));
    folders
}

fn find(folders: &[PathBuf], name: &Path) -> Option<PathBuf> {
    let mut paths = folders.iter().map(|folder| folder.join(name));
    paths.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::{DRIVER, DRIVER_FOLDER, DRIVERS, EAL, look};
    use crate::probing::Status;
    use std::fs;

    // promise: 21.2
    #[test]
    fn what_is_missing_is_said_with_the_command() {
        let folder = std::env::temp_dir().join(format!("nfl-dpdk-{}", std::process::id()));
        let libraries = folder.join("x86_64-linux-gnu");
        fs::create_dir_all(libraries.join(DRIVERS)).unwrap();
        fs::create_dir_all(folder.join(DRIVER_FOLDER)).unwrap();
        let found = || look(&[&folder]);
        assert_eq!(found().status, Status::Degraded);
        assert!(
            found()
                .remedy
                .contains("apt-get install dpdk-dev libdpdk-dev")
        );
        fs::write(libraries.join(EAL), "").unwrap();
        assert!(found().remedy.contains("make -C lib/dpdk"), "{:?}", found());
        for place in [folder.join(DRIVER_FOLDER), libraries.join(DRIVERS)] {
            fs::write(place.join(DRIVER), "").unwrap();
            assert_eq!(found().status, Status::Available);
            fs::remove_file(place.join(DRIVER)).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
