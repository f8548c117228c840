//! The program that runs in instances, linked statically: its start is most of what creating an instance costs, and
//! much of that was the dynamic linking (docs/adr/0029-static-nfluid-nf.md).

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::session::Session;

/// Cargo's name of the package. Builds of the workspace leave it out: what they would put in its place is linked
/// dynamically.
pub const PACKAGE: &str = "nfluid-nf-host";
/// musl is the C library that is made for being linked statically.
pub const TARGET: &str = "x86_64-unknown-linux-musl";
pub const PROGRAM: &str = "nfluid-nf";

/// Cargo's two usual profiles, and the one of Cargo.toml that builds the demo soon.
#[derive(Clone, Copy)]
pub enum Profile {
    Debug,
    Release,
    Demo,
}

impl Profile {
    /// Cargo's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "dev",
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }

    /// Its folder below the target folder.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
            Self::Demo => "demo",
        }
    }
}

/// `cargo VERB` of this package alone, for the target that it is linked for.
pub fn cargo(session: &Session, verb: &str, profile: Profile) -> Command {
    let mut cargo = session.cargo([verb, "--package", PACKAGE, "--target", TARGET]);
    cargo.args(["--profile", profile.name()]);
    cargo
}

/// Builds it and puts it beside the other programs, which start it from there. Returns where it is.
///
/// # Errors
/// It does not build, or cannot be put there.
pub fn build(session: &Session, profile: Profile) -> Result<PathBuf> {
    session.run(&mut cargo(session, "build", profile))?;
    let built = session.target.join(TARGET).join(profile.folder());
    let folder = session.target.join(profile.folder());
    let place = folder.join(PROGRAM);
    // Never into the file that is there: it may run, or be a link to what cargo has built.
    let beside = tempfile::NamedTempFile::new_in(&folder)?;
    std::fs::copy(built.join(PROGRAM), beside.path())
        .and_then(|_| beside.persist(&place).map_err(Into::into))
        .with_context(|| format!("putting {} in its place", place.display()))?;
    Ok(place)
}
