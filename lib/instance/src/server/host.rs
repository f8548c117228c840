//! A program of the host, and its surroundings: the host's libraries and directories of its own.

use super::{Command, etc, variables};
use crate::access::{directory, strings};
use crate::maker::Maker;
use nfluid_control::access::{Access, SCRATCH};
use nfluid_control::spec::PortSpec;
use nfluid_sandbox::{Root, Shown};
use std::path::Path;

/// Variables of every program of the host.
const VARIABLES: [&str; 3] = ["PATH=/usr/sbin:/usr/bin", "HOME=/tmp", "LANG=C.UTF-8"];

/// Returns the files of a program of the host.
pub(super) fn root(name: &str, ports: &[PortSpec], access: &Access, shown: Shown) -> Root {
    Root::Libraries(Shown {
        scratch: &SCRATCH,
        etc: match has_etc(access) {
            true => Vec::new(),
            false => etc::of_host(name, ports),
        },
        ..shown
    })
}

/// Opens a program of the host.
///
/// # Errors
/// It is missing, or cannot be run in an instance.
pub(super) fn command(
    maker: &Maker,
    (program, args): (&str, &[String]),
    access: &Access,
) -> anyhow::Result<Command> {
    let words = [program.to_owned()].into_iter().chain(args.iter().cloned());
    let own = VARIABLES.map(str::to_owned).to_vec();
    Ok(Command {
        program: maker.programs.server(program)?,
        arguments: strings(words, "an argument")?,
        environment: strings(variables(own, &access.environment), "a variable")?,
        directory: directory(access.directory.as_deref().unwrap_or("/"))?,
    })
}

/// Returns true if the instance has an `/etc` of the host.
fn has_etc(access: &Access) -> bool {
    let mut volumes = access.volumes.iter();
    volumes.any(|volume| Path::new(volume.place()) == Path::new("/etc"))
}
