//! Landlock: the access of the instance to files and sockets, even if it finds some.
//!
//! All file access is refused except executing its own program and, for dynamically linked programs, reading
//! libraries and using the device that was asked for; programs of an image have the image, and their own processes in /proc. Since ABI 4 (kernel 6.7) binding and connecting TCP; since ABI 6 (6.12) connecting to abstract UNIX
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
use rustix::fs::FileType;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

/// The places that an instance has something to do with.
#[derive(Default)]
pub(crate) struct Places<'a> {
    /// The directories that its root shows.
    pub shown: &'a [ShownDirectory],
    /// Its `/proc`.
    pub processes: Option<OwnedFd>,
    /// Its standard streams: with a `/proc`, a program opens them again by name (`/dev/stdout`).
    pub streams: Vec<BorrowedFd<'a>>,
}

/// A ruleset for one program, or nothing where the kernel has no Landlock.
pub(crate) fn ruleset(
    program: &Program,
    places: &Places<'_>,
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
    let is_image = places
        .shown
        .iter()
        .any(|one| one.content() == Content::Image);
    for directory in places.shown {
        let access = match directory.content() {
            Content::Host => AccessFs::ReadFile | AccessFs::ReadDir,
            Content::Devices => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            Content::Scratch | Content::Volume => {
                everything & !(AccessFs::Execute | AccessFs::IoctlDev)
            }
            Content::Image => everything & !AccessFs::IoctlDev,
        };
        rules = allow(rules, directory, access)?;
    }
    if let Some(processes) = &places.processes {
        rules = allow(rules, processes, AccessFs::ReadFile | AccessFs::ReadDir)?;
        for stream in &places.streams {
            let is_pipe = rustix::fs::fstat(stream)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
            if is_pipe {
                rules = allow(rules, stream, AccessFs::WriteFile.into())?;
            }
        }
    }
    if let Network::Port(port) = network {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    if let Linkage::Dynamic { interpreter } = program.linkage()
        && !is_image
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
