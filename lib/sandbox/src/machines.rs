//! The host's KVM, for `doctor`: tier `microvm` needs it, and nothing else does.

use crate::error::Errno;
use crate::probing::{Feature, Status};
use crate::sys;
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;

const DEVICE: &str = "/dev/kvm";
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
        Err((detail, remedy)) => Feature::new(NAME, Status::Degraded, detail, remedy),
    }
}

/// Where Debian has the emulator of tier `linux`.
pub const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";

/// Looks for the emulator of machines with a kernel of their own.
pub(crate) fn emulator() -> Feature {
    const NAME: &str = "Linux machines (QEMU)";
    match std::fs::metadata(EMULATOR) {
        Ok(_) => Feature::available(NAME, format!("{EMULATOR}, without KVM")),
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
                "only for tier microvm: run nfluidd as a user that may open it"
            }
            _ => {
                "only for tier microvm: load kvm_intel or kvm_amd; turn virtualization on in the firmware; on a virtual machine, allow nested virtualization"
            }
        };
        (format!("{DEVICE}: {errno}"), remedy)
    })?;
    let newer = "only for tier microvm: use a newer kernel";
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
