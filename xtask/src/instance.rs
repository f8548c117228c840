//! Builds the program that runs in instances, statically linked: its start is most of the cost of creating an instance,
//! and dynamic linking was a large part of it (docs/adr/0029-static-nfluid-nf.md).

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::session::Session;

/// Cargo's name of the package. Builds of the workspace exclude the package: they would replace the program by a
/// dynamically linked one.
pub const PACKAGE: &str = "nfluid-nf-host";
/// musl is a C library for static linking.
pub const TARGET: &str = "x86_64-unknown-linux-musl";
pub const PROGRAM: &str = "nfluid-nf";

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
}

/// Returns `cargo VERB` of this package alone, for its target.
pub fn cargo(session: &Session, verb: &str, profile: Profile) -> Command {
    let mut cargo = session.cargo([verb, "--package", PACKAGE, "--target", TARGET]);
    cargo.args(["--profile", profile.name()]);
    cargo
}

/// Builds the program and copies it to the folder of the other programs, which start it from there. Returns its path.
///
/// # Errors
/// The program does not build, or cannot be copied.
pub fn build(session: &Session, profile: Profile) -> Result<PathBuf> {
    session.run(&mut cargo(session, "build", profile))?;
    let built = session.target.join(TARGET).join(profile.folder());
    let folder = session.target.join(profile.folder());
    let place = folder.join(PROGRAM);
    // Never overwrites the existing file, which may be running, or be a link to cargo's own output.
    let beside = tempfile::NamedTempFile::new_in(&folder)?;
    std::fs::copy(built.join(PROGRAM), beside.path())
        .and_then(|_| beside.persist(&place).map_err(Into::into))
        .with_context(|| format!("putting {} in its place", place.display()))?;
    Ok(place)
}
