//! Huge pages for DPDK, reserved on the host for the run and released afterwards.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const PAGE_MB: usize = 2;

/// Pages reserved for this process's own programs; some may still be free.
static PROMISED: AtomicUsize = AtomicUsize::new(0);

/// Reserved pages; released when dropped.
#[derive(Debug)]
pub struct HugePages {
    taken: usize,
    promised: usize,
}

impl HugePages {
    /// Reserves pages of `megabytes` in total, in addition to the pages of other users; `None` if the host refuses.
    pub fn take(megabytes: usize) -> Option<Self> {
        let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
        // Debian's default size; other sizes would have to be reserved at boot.
        let of_size = field(&meminfo, "Hugepagesize:")? == PAGE_MB << 10;
        let free = field(&meminfo, "HugePages_Free:")?;
        if !of_size {
            return None;
        }
        let before = count()?;
        let pages = megabytes / PAGE_MB;
        // Reserved pages may be in use already: then a few more are reserved than needed.
        let free = free.saturating_sub(PROMISED.fetch_add(pages, Ordering::Relaxed));
        let mut promise = HugePages {
            taken: 0,
            promised: pages,
        };
        let wanted = before + pages.saturating_sub(free);
        if wanted > before {
            fs::write(COUNT, wanted.to_string()).ok()?;
        }
        let got = count()?;
        // If the host gives fewer, dropping releases them.
        promise.taken = got.saturating_sub(before);
        (got >= wanted).then_some(promise)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.promised, Ordering::Relaxed);
        // Pages that other users have reserved meanwhile stay.
        if let Some(now) = count() {
            let _ = fs::write(COUNT, now.saturating_sub(self.taken).to_string());
        }
    }
}

fn count() -> Option<usize> {
    fs::read_to_string(COUNT).ok()?.trim().parse().ok()
}

fn field(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_of_meminfo() {
        let meminfo =
            "HugePages_Total:      12\nHugePages_Free:        7\nHugepagesize:   2048 kB\n";
        assert_eq!(field(meminfo, "HugePages_Free:"), Some(7));
        assert_eq!(field(meminfo, "Hugepagesize:"), Some(2048));
        assert_eq!(field(meminfo, "HugePages_Rsvd:"), None);
    }
}
