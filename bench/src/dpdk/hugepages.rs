//! Huge pages for DPDK, reserved on the host for the run and released afterwards.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const PAGE_MB: usize = 2;

/// Reserved pages; released when dropped.
///
/// Experiments that run at the same time each have their own. A page that is free may be one that another experiment
/// has reserved and does not use yet, so free pages are not taken.
#[derive(Debug)]
pub struct HugePages {
    pages: usize,
    /// The kernel's file with the number of reserved pages.
    count: PathBuf,
}

impl HugePages {
    /// Reserves pages of `megabytes` in total, in addition to the pages of other users; `None` if the host refuses.
    pub fn take(megabytes: usize) -> Option<Self> {
        let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
        // Debian's default size; other sizes would have to be reserved at boot.
        if field(&meminfo, "Hugepagesize:")? != PAGE_MB << 10 {
            return None;
        }
        Self::reserve(megabytes / PAGE_MB, COUNT.into())
    }

    fn reserve(wanted: usize, count: PathBuf) -> Option<Self> {
        let pages = change(&count, |before| before + wanted)?;
        // If the host gives fewer, dropping releases them.
        let reserved = HugePages { pages, count };
        (pages >= wanted).then_some(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Pages that other users have reserved meanwhile stay.
        let _ = change(&self.count, |now| now.saturating_sub(self.pages));
    }
}

/// Changes the number of reserved pages; returns by how many it grew. The kernel can only be told the whole number, so
/// one process at a time reads and writes it.
fn change(count: &Path, number: impl FnOnce(usize) -> usize) -> Option<usize> {
    let turn = File::open(count).ok()?;
    flock(&turn, FlockOperation::LockExclusive).ok()?;
    let read = || fs::read_to_string(count).ok()?.trim().parse::<usize>().ok();
    let before = read()?;
    fs::write(count, number(before).to_string()).ok()?;
    Some(read()?.saturating_sub(before))
}

fn field(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{HugePages, field};
    use std::sync::Barrier;

    #[test]
    fn fields_of_meminfo() {
        let meminfo =
            "HugePages_Total:      12\nHugePages_Free:        7\nHugepagesize:   2048 kB\n";
        assert_eq!(field(meminfo, "HugePages_Free:"), Some(7));
        assert_eq!(field(meminfo, "Hugepagesize:"), Some(2048));
        assert_eq!(field(meminfo, "HugePages_Rsvd:"), None);
    }

    #[test]
    fn who_reserves_at_the_same_time_has_pages_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("nr_hugepages");
        std::fs::write(&count, "7\n").unwrap();
        let all = Barrier::new(4);
        let take = &|wanted| {
            let round = |_| {
                let _reserved = HugePages::reserve(wanted, count.clone());
                all.wait();
                let seen = std::fs::read_to_string(&count).ok();
                all.wait();
                seen.as_deref() == Some("17")
            };
            (0..500).filter(|&number| round(number)).count()
        };
        let right = std::thread::scope(|scope| {
            let takers = [1, 2, 3, 4].map(|wanted| scope.spawn(move || take(wanted)));
            takers.map(|taker| taker.join().unwrap())
        });
        assert_eq!(right, [500; 4]);
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "7");
    }
}
