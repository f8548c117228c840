//! Landlock: the access of the instance to files and sockets, even if it finds some.
//!
//! All file access is refused except executing its own program and, for dynamically linked programs, reading
//! libraries and using the device that was asked for; since ABI 4 (kernel 6.7) binding and connecting TCP; since ABI 6 (6.12) connecting to abstract UNIX
//! sockets and signalling processes outside. An older kernel gets the rules that it knows.

use crate::elf::Linkage;
use crate::error::Errno;
use crate::launch::Network;
use crate::program::Program;
use crate::regular;
use crate::root::{Content, ShownDirectory};
use crate::sys;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use std::os::fd::{AsFd, OwnedFd};

/// The newest ABI that was tested.
const ABI_TESTED: ABI = ABI::V6;

/// The Landlock features of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandlockSupport {
    /// Compiled out.
    NotBuilt,
    /// Compiled in, switched off at boot.
    NotEnabled,
    /// In force, at this ABI.
    Abi(u32),
}

/// Asks the kernel.
pub fn landlock_support() -> LandlockSupport {
    match sys::landlock_abi() {
        Ok(abi) => LandlockSupport::Abi(abi),
        Err(Errno::OPNOTSUPP) => LandlockSupport::NotEnabled,
        Err(_) => LandlockSupport::NotBuilt,
    }
}

/// A ruleset for one program, or nothing where the kernel has no Landlock.
pub(crate) fn ruleset(
    program: &Program,
    shown: &[ShownDirectory],
    network: Network,
) -> Result<Option<OwnedFd>, RulesetError> {
    let everything = AccessFs::from_all(ABI_TESTED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .scope(Scope::from_all(ABI_TESTED))?;
    if network != Network::Own {
        rules = rules.handle_access(AccessNet::from_all(ABI_TESTED))?;
    }
    let mut rules = rules.create()?;
    let execute = AccessFs::Execute | AccessFs::ReadFile;
    if !program.is_sealed() {
        // A sealed copy has no path that a rule could name, and needs none.
        rules = allow(rules, program, execute)?;
    }
    for directory in shown {
        let access = match directory.content() {
            Content::Host => AccessFs::ReadFile | AccessFs::ReadDir,
            Content::Devices => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            Content::Scratch => everything & !(AccessFs::Execute | AccessFs::IoctlDev),
        };
        rules = allow(rules, directory, access)?;
    }
    if let Network::Port(port) = network {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    if let Linkage::Dynamic { interpreter } = program.linkage()
        && let Ok(Some(loader)) = regular::look_at(interpreter)
        && regular::is_roots(loader.as_fd()) == Ok(true)
    {
        rules = allow(rules, loader, execute)?;
    }
    Ok(rules.into())
}

fn allow(
    rules: RulesetCreated,
    what: impl std::os::fd::AsFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    rules.add_rule(PathBeneath::new(what, access))
}
