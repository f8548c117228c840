//! netmap's own programs, built from its source, as the programs of instances.

use crate::host::forwards::Forwards;
use anyhow::Context;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::netmap::Source;
use nfluid_testbed::process::Service;
use nfluid_testbed::scratch::ScratchInstance;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nfluid's library, which is built beside this program.
const LIBRARY: &str = "libnfluid_netmap.so";

/// The programs, built.
#[derive(Debug)]
pub struct Netmap {
    directory: ScratchDirectory,
    library: PathBuf,
    source: Source,
}

impl Netmap {
    /// Finds netmap's source and nfluid's library.
    ///
    /// # Errors
    /// [`CannotRun`] if one of them is missing.
    pub fn find() -> anyhow::Result<Self> {
        let source = Source::find()?;
        let own = std::env::current_exe().context("finding this program")?;
        let library = own.with_file_name(LIBRARY);
        if !library.exists() {
            let why = format!("{} is not there: cargo build --release", library.display());
            return Err(CannotRun(why).into());
        }
        Ok(Netmap {
            directory: ScratchDirectory::new()?,
            library,
            source,
        })
    }

    /// Builds one of netmap's programs.
    ///
    /// # Errors
    /// The compiler's.
    pub fn build(&self, name: &str) -> anyhow::Result<PathBuf> {
        let program = self.directory.path(name);
        self.source.build(name, &program)?;
        Ok(program)
    }

    /// Starts a program, on this core, as that of an instance. One that is `first` runs as soon as it has something to do,
    /// whoever else is on its core.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(
        &self,
        instance: &ScratchInstance,
        (program, arguments): (&Path, &str),
        core: usize,
        first: bool,
    ) -> anyhow::Result<Service> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "nice", "-n"]);
        command.arg(if first { "-20" } else { "0" }).arg(program);
        command.args(arguments.split_whitespace());
        command.env("LD_PRELOAD", &self.library);
        let log = self.directory.path(&format!("{name}.log"));
        let service = Service::start_by(&name, &mut command, log, |command| {
            Ok(instance.spawn(command)?)
        })?;
        Ok(service)
    }
}

/// Lets programs run for as long as this lives; they are stopped otherwise, for they poll.
pub struct Turn<'a>(&'a [Service]);

impl<'a> Turn<'a> {
    /// # Errors
    /// A program has ended.
    pub fn of(services: &'a [Service]) -> anyhow::Result<Self> {
        let turn = Turn(services);
        services.iter().try_for_each(|service| service.runs(true))?;
        Ok(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for service in self.0 {
            let _ended = service.runs(false);
        }
    }
}
