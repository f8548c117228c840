//! The host's KVM, and its emulator, for `doctor`: tier `microvm` needs KVM, tier `linux` is slow without, and no other tier
//! uses it.

use crate::error::Errno;
use crate::probing::{Feature, Status};
use crate::sys;
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;

pub(crate) const DEVICE: &str = "/dev/kvm";
/// The version of KVM's interface since Linux 2.6.22.
const VERSION: i32 = 12;
/// Least number of memory slots of a machine.
const SLOTS_MIN: i32 = 16;
/// KVM_CAP_NR_MEMSLOTS (linux/kvm.h).
const MEMORY_SLOTS: u64 = 10;
/// Numbers of capabilities (linux/kvm.h), and what they are for.
const NEEDED: [(u64, &str); 3] = [
    (3, "memory of processes (KVM_CAP_USER_MEMORY)"),
    (81, "read-only memory (KVM_CAP_READONLY_MEM)"),
    (136, "exits at once (KVM_CAP_IMMEDIATE_EXIT)"),
];

/// Looks at the host's KVM.
pub(crate) fn virtual_machines() -> Feature {
    match look() {
        Ok(detail) => Feature::available(NAME, detail),
        Err((detail, remedy)) => {
            let remedy = format!("only for tier microvm: {remedy}");
            Feature::new(NAME, Status::Degraded, detail, remedy)
        }
    }
}

/// Where Debian has the emulator of tier `linux`.
pub const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";

/// Checks that KVM can be used on this host.
///
/// # Errors
/// The reason why it cannot, and the remedy.
pub fn has_kvm() -> Result<(), String> {
    let usable = look().map(|_| ());
    usable.map_err(|(detail, remedy)| format!("{detail} ({remedy})"))
}

/// Checks that KVM runs a kernel on this host at the speed of the processor.
///
/// # Errors
/// The reason why it does not.
pub fn runs_kernels() -> Result<(), String> {
    has_kvm()?;
    let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if has_extensions(&facts) {
        return Ok(());
    }
    Err(format!(
        "{DEVICE} would emulate a kernel: the processor has neither vmx nor svm; on a virtual machine, allow nested virtualization"
    ))
}

/// Returns true if the first processor of these that `/proc/cpuinfo` lists has Intel's or AMD's extensions for machines.
fn has_extensions(facts: &str) -> bool {
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags"));
    let mut flags = flags.unwrap_or_default().split_ascii_whitespace();
    flags.any(|flag| flag == "vmx" || flag == "svm")
}

/// Looks for the emulator of machines with a kernel of their own.
pub(crate) fn emulator() -> Feature {
    const NAME: &str = "Linux machines (QEMU)";
    match std::fs::metadata(EMULATOR) {
        Ok(_) => match runs_kernels() {
            Ok(()) => Feature::available(NAME, format!("{EMULATOR}, with KVM")),
            Err(why) => Feature::available(NAME, format!("{EMULATOR}, emulated: {why}")),
        },
        Err(why) => Feature::new(
            NAME,
            Status::Degraded,
            format!("{EMULATOR}: {why}"),
            "only for tier linux: apt-get install --no-install-recommends qemu-system-x86",
        ),
    }
}

const NAME: &str = "virtual machines (KVM)";

/// What was found; or the reason why there are no virtual machines, and the remedy.
fn look() -> Result<String, (String, &'static str)> {
    let device = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device: OwnedFd = device.map_err(|errno| {
        let remedy = match errno {
            Errno::ACCESS | Errno::PERM => {
                "run nfluidd as a user that may open it"
            }
            _ => {
                "load kvm_intel or kvm_amd; turn virtualization on in the firmware; on a virtual machine, allow nested virtualization"
            }
        };
        (format!("{DEVICE}: {errno}"), remedy)
    })?;
    let newer = "use a newer kernel";
    match sys::kvm_version(&device) {
        Ok(VERSION) => {}
        Ok(version) => return Err((format!("version {version}, not {VERSION}"), newer)),
        Err(errno) => return Err((format!("{DEVICE} is not KVM: {errno}"), newer)),
    }
    for (capability, name) in NEEDED {
        if sys::kvm_extension(&device, capability).unwrap_or(0) <= 0 {
            return Err((format!("no {name}"), newer));
        }
    }
    let slots = sys::kvm_extension(&device, MEMORY_SLOTS).unwrap_or(0);
    if slots < SLOTS_MIN {
        return Err((
            format!("{slots} memory slots, {SLOTS_MIN} are needed"),
            newer,
        ));
    }
    let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_nested = facts.contains(" hypervisor");
    let place = if is_nested {
        "nested: this host is a virtual machine, and an exit of a guest costs many times as much"
    } else {
        "on hardware"
    };
    Ok(format!("version {VERSION}, {slots} memory slots, {place}"))
}

#[cfg(test)]
mod tests {
    use super::has_extensions;

    // promise: 18.13
    #[test]
    fn the_processor_says_whether_it_runs_machines() {
        let of = |flags: &str| {
            has_extensions(&format!(
                "model name\t: vmx\nflags\t\t: fpu {flags} sse\nflags\t\t: svm\n"
            ))
        };
        assert!(of("vmx") && of("svm"));
        assert!(!of("svm_lock vmx1") && !has_extensions(""));
    }
}
