//! Memory of processes and of the kernel.

use anyhow::Context;
use std::fs;

/// Kernel stack of a thread on x86-64 and arm64.
const KERNEL_STACK: u64 = 16 << 10;

/// Returns the memory that is available to programs on this host, in bytes.
///
/// # Errors
/// When /proc/meminfo cannot be read.
pub fn available_bytes() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    Ok(field_kib(&text, "MemAvailable:") << 10)
}

/// The kinds of the kernel's own memory: name in figure ids, and name in /proc/meminfo. They do not include BPF maps.
pub const KERNEL_KINDS: [(&str, &str); 4] = [
    ("slab", "Slab:"),
    ("stacks", "KernelStack:"),
    ("page_tables", "PageTables:"),
    ("percpu", "Percpu:"),
];

/// Returns the kernel's own memory in bytes, for each of [`KERNEL_KINDS`].
///
/// # Errors
/// When /proc/meminfo cannot be read.
pub fn kernel_bytes() -> anyhow::Result<[u64; KERNEL_KINDS.len()]> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    Ok(KERNEL_KINDS.map(|(_, name)| field_kib(&text, name) << 10))
}

/// Returns the proportional set size of a process in bytes, without mapped BPF maps.
///
/// # Errors
/// When the process does not exist.
pub fn own_bytes(pid: u32) -> anyhow::Result<u64> {
    Ok(pss_kib(&file(pid, "smaps")?, false) << 10)
}

/// Returns the most memory that a process has had resident at a time, in bytes.
///
/// # Errors
/// When the process does not exist.
pub fn peak_bytes(pid: u32) -> anyhow::Result<u64> {
    Ok(field_kib(&file(pid, "status")?, "VmHWM:") << 10)
}

/// Returns the BPF maps that a process has mapped, in bytes.
///
/// # Errors
/// When the process does not exist.
pub fn map_bytes(pid: u32) -> anyhow::Result<u64> {
    Ok(pss_kib(&file(pid, "smaps")?, true) << 10)
}

/// Returns the memory of a process of one thread in bytes: its proportional set size without mapped BPF maps, its page
/// tables and kernel stack.
///
/// # Errors
/// When the process does not exist.
pub fn process_bytes(pid: u32) -> anyhow::Result<u64> {
    let own = own_bytes(pid)?;
    let tables = field_kib(&file(pid, "status")?, "VmPTE:") << 10;
    Ok(own + tables + KERNEL_STACK)
}

fn file(pid: u32, name: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{name}");
    fs::read_to_string(&path).with_context(|| format!("reading {path}"))
}

/// Returns the proportional set size in KiB of the mappings of BPF maps, or of all others.
fn pss_kib(smaps: &str, of_maps: bool) -> u64 {
    let (mut sum, mut of_map) = (0, false);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if !first.ends_with(':') {
            of_map = line.contains("bpf-map");
        } else if first == "Pss:" && of_map == of_maps {
            sum += field_kib(line, "Pss:");
        }
    }
    sum
}

/// Returns the number in the line that starts with `name`; 0 if there is none.
pub fn field_kib(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{field_kib, pss_kib};

    const SMAPS: &str = "\
5560-5570 r-xp 00000000 08:01 131 /usr/bin/nfluid-nf
Size:                 64 kB
Pss:                  12 kB
Pss_Dirty:             4 kB
7f00-7f10 rw-s 00000000 00:0e 13 anon_inode:bpf-map
Pss:                 256 kB
7ff0-7ff1 rw-p 00000000 00:00 0 [stack]
Pss:                   8 kB
";

    #[test]
    fn maps_are_left_out_of_the_set_size() {
        assert_eq!(pss_kib(SMAPS, false), 20);
        assert_eq!(pss_kib(SMAPS, true), 256);
        assert_eq!(field_kib("VmRSS:\t 9 kB\nVmPTE:\t  44 kB\n", "VmPTE:"), 44);
        assert_eq!(field_kib("", "VmPTE:"), 0);
    }
}
