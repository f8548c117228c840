//! nfluid's driver for DPDK, built as the guide says, for tests of programs on it.
#![allow(dead_code, reason = "each test program uses its own part")]

#[path = "../c_fixture/mod.rs"]
mod c_fixture;

use c_fixture::library_folder;
use nfluid_testbed::dpdk;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::{is_root, skip};
use nfluid_tests::harness::two_hosts::two_hosts;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian's test program of DPDK.
pub const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// The driver, in a folder that every instance sees; removed when dropped.
pub struct Driver(pub PathBuf);

impl Drop for Driver {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

impl Driver {
    /// Builds it; reports the reason and returns `None` where it cannot be built.
    pub fn build(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        if !Path::new(TESTPMD).is_file() {
            skip(test, "it needs dpdk-dev");
            return None;
        }
        let folder = PathBuf::from(format!("/usr/lib/nfl-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let driver = Driver(folder);
        let library = library_folder().join("libnfluid.a");
        let built = dpdk::driver(&driver.0, &library);
        was_built(test, built).map(|_path| driver)
    }

    /// Builds an example of DPDK's source, and returns its path.
    pub fn example(&self, test: &str, name: &str) -> Option<PathBuf> {
        was_built(test, dpdk::example(&self.0, name))
    }

    /// The words of EAL, with these devices.
    pub fn eal(&self, devices: &[&str]) -> Vec<String> {
        let mut words = "--no-huge --no-shconf --no-pci --no-telemetry -m 64 -d"
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let path = self.0.join("librte_net_nfluid.so");
        words.push(path.display().to_string());
        for device in devices {
            words.extend(["--vdev".to_owned(), (*device).to_owned()]);
        }
        words
    }
}

/// Returns what was built. An archive without the source of DPDK is no failure of ours; the compiler's errors are.
fn was_built(test: &str, built: Result<PathBuf, impl Display>) -> Option<PathBuf> {
    match built {
        Ok(path) => Some(path),
        Err(why) if format!("{why:#}").contains("cannot be had") => {
            skip(test, &format!("{why:#}"));
            None
        }
        Err(why) => panic!("{why:#}"),
    }
}

/// The driver, and a platform between two hosts; `None`: the test is skipped.
pub fn driver_and_hosts(test: &str) -> Option<(Driver, Platform)> {
    Some((Driver::build(test)?, two_hosts(test)?))
}
