//! What the monitor of a virtual machine is given beside what every program is given: KVM, the image of the guest, and
//! how much memory there is.

use crate::programs::Programs;
use anyhow::Context;
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Isolation;
use nfluid_protocol::environment;
use std::fs::OpenOptions;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

/// The device of KVM.
const KVM: &str = "/dev/kvm";

/// Returns true if the instance is a virtual machine: a monitor runs, and the program of the instance is a guest.
pub(crate) fn is_one(spec: &InstanceSpec) -> bool {
    spec.tier.isolation() == Isolation::MICROVM
}

/// Returns the environment variables of the monitor; `give` hands a descriptor over and returns its number.
///
/// # Errors
/// The host has no KVM, or the image of the guest cannot be read.
pub(crate) fn equip(
    programs: &Programs,
    spec: &InstanceSpec,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let kvm = OpenOptions::new().read(true).write(true).open(KVM);
    let kvm = kvm.with_context(|| {
        format!(
            "opening {KVM}: tier microvm needs KVM; load kvm_intel or kvm_amd, allow nested virtualization if this host is a virtual machine, or write 'tier: process' ('nfluid doctor' says more)"
        )
    })?;
    let mut variables = vec![
        (environment::KVM, give(kvm.into()).to_string()),
        (environment::MEMORY, spec.resources.memory.0.to_string()),
    ];
    if let Program::Path { program, .. } = &spec.program {
        let image = programs.guest_image(Path::new(program))?;
        variables.push((environment::GUEST, give(image).to_string()));
        variables.push((environment::NF, spec.program.name().to_owned()));
    }
    Ok(variables)
}
