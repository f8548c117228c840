//! Builds the programs that run in instances, statically linked: their start is most of the cost of creating an instance,
//! and dynamic linking was a large part of it (docs/adr/0029-static-nfluid-nf.md).

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::session::Session;

/// A program that runs in instances, and cargo's name of its package.
pub struct InstanceProgram {
    pub package: &'static str,
    pub name: &'static str,
}

/// The host of network functions. Builds of the workspace exclude the packages of these programs: they would replace the
/// programs by dynamically linked ones.
const HOST: InstanceProgram = InstanceProgram {
    package: "nfluid-nf-host",
    name: "nfluid-nf",
};
/// The monitor of guests.
const MONITOR: InstanceProgram = InstanceProgram {
    package: "nfluid-vmm-monitor",
    name: "nfluid-vmm",
};
pub const PROGRAMS: [InstanceProgram; 2] = [HOST, MONITOR];
/// musl is a C library for static linking.
pub const TARGET: &str = "x86_64-unknown-linux-musl";

/// Cargo's two usual profiles, and the profile of Cargo.toml that builds the demo quickly.
#[derive(Clone, Copy)]
pub enum Profile {
    Debug,
    Release,
    Demo,
}

impl Profile {
    /// Cargo's name of the profile.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "dev",
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }

    /// The profile's folder below the target folder.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }

    /// The programs that run in instances. The demo has no guests, and their image takes as long to build as the rest.
    fn programs(self) -> &'static [InstanceProgram] {
        match self {
            Self::Debug | Self::Release => &PROGRAMS,
            Self::Demo => &PROGRAMS[..1],
        }
    }
}

/// Returns `cargo VERB` of these packages alone, for their target.
pub fn cargo(session: &Session, verb: &str, profile: Profile) -> Command {
    let mut cargo = session.cargo([verb, "--target", TARGET, "--profile", profile.name()]);
    for program in profile.programs() {
        cargo.args(["--package", program.package]);
    }
    cargo
}

/// Builds the programs and copies them to the folder of the other programs, which start them from there. Returns them with
/// their paths.
///
/// # Errors
/// A program does not build, or cannot be copied.
pub fn build(
    session: &Session,
    profile: Profile,
) -> Result<Vec<(&'static InstanceProgram, PathBuf)>> {
    session.run(&mut cargo(session, "build", profile))?;
    let programs = profile.programs().iter();
    programs
        .map(|program| Ok((program, put_in_place(session, profile, program.name)?)))
        .collect()
}

fn put_in_place(session: &Session, profile: Profile, name: &str) -> Result<PathBuf> {
    let built = session.target.join(TARGET).join(profile.folder());
    let folder = session.target.join(profile.folder());
    let place = folder.join(name);
    // Never overwrites the existing file, which may be running, or be a link to cargo's own output.
    let beside = tempfile::NamedTempFile::new_in(&folder)?;
    std::fs::copy(built.join(name), beside.path())
        .and_then(|_| beside.persist(&place).map_err(Into::into))
        .with_context(|| format!("putting {} in its place", place.display()))?;
    Ok(place)
}
