//! The programs of instances, open, and their system call filters.

use crate::terminator;
use anyhow::Context;
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{FileVersion, Program, file_version};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The level of TCP's socket options, of which a connector sets one.
const TCP_OPTIONS: u32 = 6;

/// A program that is open, and its system call filter.
pub type OpenProgram = Arc<(Program, Filter)>;

/// The host of built-in NFs, opened once for each version of it.
pub struct Programs {
    path: PathBuf,
    built_in: Mutex<Arc<(Program, Filter)>>,
    /// Version of the file that `built_in` is a copy of.
    copied: Mutex<Option<FileVersion>>,
    terminator: Mutex<Option<(FileVersion, Arc<TerminatorProgram>)>>,
}

/// The program of terminators, which is their connectors' too.
pub struct TerminatorProgram {
    pub(crate) program: Arc<(Program, Filter)>,
    /// Connectors may make TCP connections.
    pub(crate) connecting: Filter,
}

impl Programs {
    /// Opens the program that hosts built-in NFs.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn new(nf_program: &Path) -> anyhow::Result<Self> {
        Ok(Programs {
            path: nf_program.to_owned(),
            copied: Mutex::new(file_version(nf_program)),
            built_in: Mutex::new(Arc::new(built_in(nf_program)?)),
            terminator: Mutex::new(None),
        })
    }

    /// Opens a program of the user's.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn open(&self, path: &str) -> anyhow::Result<OpenProgram> {
        let program = Program::open(Path::new(path))?.unchangeable()?;
        Ok(Arc::new(with_filter(program)?))
    }

    /// The program of terminators, beside that of built-in NFs, in the version that is installed now.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn terminator(&self) -> anyhow::Result<Arc<TerminatorProgram>> {
        let path = self
            .path
            .with_file_name(format!("nfluid-{}", terminator::NAME));
        let found = file_version(&path)
            .with_context(|| format!("{} is not there: install it", path.display()))?;
        let kept = self.terminator.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        if let Some((copied, program)) = &*kept
            && *copied == found
        {
            return Ok(Arc::clone(program));
        }
        let program = Program::open(&path)?.sealed_copy()?;
        let policy = Policy::new(program.linkage(), TCP_OPTIONS).with_connections();
        let made = Arc::new(TerminatorProgram {
            connecting: policy.compile()?,
            program: Arc::new(with_filter(program)?),
        });
        *kept = Some((found, Arc::clone(&made)));
        Ok(made)
    }

    pub(crate) fn built_in(&self) -> Arc<(Program, Filter)> {
        let program = self.built_in.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&program)
    }

    /// Opens the version that is installed now, if it is another; all that start later run it.
    ///
    /// # Errors
    /// As for [`Programs::new`]; the version so far stays.
    pub fn renew(&self) -> anyhow::Result<()> {
        let found = file_version(&self.path);
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_some() && *copied == found {
            return Ok(());
        }
        let new = Arc::new(built_in(&self.path)?);
        *self.built_in.lock().unwrap_or_else(PoisonError::into_inner) = new;
        *copied = found;
        Ok(())
    }
}

fn built_in(path: &Path) -> anyhow::Result<(Program, Filter)> {
    let program = Program::open(path)
        .and_then(|program| program.sealed_copy())
        .context("the program that hosts built-in NFs (--nf-program)")?;
    with_filter(program)
}

fn with_filter(program: Program) -> anyhow::Result<(Program, Filter)> {
    let filter = filter(&program)?;
    Ok((program, filter))
}

fn filter(program: &Program) -> anyhow::Result<Filter> {
    Ok(Policy::new(program.linkage(), SOL_NFLUID as u32).compile()?)
}
