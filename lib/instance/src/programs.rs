//! The programs of instances, open, and their system call filters.

use crate::netmap::NetmapLibrary;
use crate::terminator;
use anyhow::{Context, bail};
use nfluid_control::spec::InstanceSpec;
use nfluid_control::tier::Isolation;
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{Accelerator, EMULATOR, FileVersion, Linkage, Program, file_version};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The level of TCP's socket options, of which a connector sets one.
const TCP_OPTIONS: u32 = 6;

/// The monitor of guests, as part of its file name.
const MONITOR: &str = "vmm";
/// Longest image of a guest.
const IMAGE_BYTES_MAX: u64 = 64 << 20;
/// Most images of guests that are kept for the next guest.
const IMAGES_MAX: usize = 16;

/// A program that is open, and its system call filter.
pub type OpenProgram = Arc<(Program, Filter)>;

/// The host of built-in NFs, opened once for each version of it.
pub struct Programs {
    path: PathBuf,
    built_in: Mutex<Arc<(Program, Filter)>>,
    /// Version of the file that `built_in` is a copy of.
    copied: Mutex<Option<FileVersion>>,
    terminator: Kept<TerminatorProgram>,
    monitor: Kept<(Program, Filter)>,
    /// The same program with the usual filter: it serves ports, and runs no virtual machine itself.
    companions_monitor: Kept<(Program, Filter)>,
    emulator: Mutex<BTreeMap<Accelerator, (FileVersion, OpenProgram)>>,
    images_filter: Mutex<Option<Filter>>,
    /// Images of guests, by their paths.
    images: Mutex<BTreeMap<PathBuf, (FileVersion, OwnedFd)>>,
}

/// What was made of a file, and the version of that file.
type Kept<T> = Mutex<Option<(FileVersion, Arc<T>)>>;

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
            monitor: Mutex::new(None),
            companions_monitor: Mutex::new(None),
            emulator: Mutex::default(),
            images_filter: Mutex::default(),
            images: Mutex::new(BTreeMap::new()),
        })
    }

    /// Opens a program of the user's.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub fn open(&self, path: &str) -> anyhow::Result<OpenProgram> {
        opened(Path::new(path), |policy| policy)
    }

    /// Opens a program of the user's that is on DPDK.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn on_dpdk(&self, path: &str, has_files: bool) -> anyhow::Result<OpenProgram> {
        opened(Path::new(path), |policy| match has_files {
            true => policy.with_dpdk().with_own_network(),
            false => policy.with_dpdk(),
        })
    }

    /// Opens a program of the user's that is on netmap.
    ///
    /// # Errors
    /// When it is missing, cannot be run in an instance, or takes no library by `LD_PRELOAD`.
    pub(crate) fn on_netmap(&self, path: &str) -> anyhow::Result<OpenProgram> {
        let open = self.open(path)?;
        if matches!(open.0.linkage(), Linkage::Static) {
            bail!(
                "{path} is linked statically: nfluid's library cannot stand before its C library; link it dynamically"
            );
        }
        Ok(open)
    }

    /// Finds the library for programs on netmap.
    ///
    /// # Errors
    /// The library is not installed.
    pub(crate) fn netmap(&self) -> anyhow::Result<NetmapLibrary> {
        NetmapLibrary::beside(&self.path)
    }

    /// Takes a program of an image, whose every program has the same filter.
    ///
    /// # Errors
    /// The filter cannot be made.
    pub(crate) fn of_image(&self, program: Program) -> anyhow::Result<OpenProgram> {
        let mut kept = self
            .images_filter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let filter = match &*kept {
            Some(filter) => filter.clone(),
            None => {
                let policy = Policy::new(program.linkage(), SOL_NFLUID as u32);
                let filter = policy.with_own_network().with_programs().compile()?;
                kept.insert(filter).clone()
            }
        };
        Ok(Arc::new((program, filter)))
    }

    /// Opens a program of the host that runs on a network stack of its own.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn server(&self, path: &str) -> anyhow::Result<OpenProgram> {
        opened(Path::new(path), Policy::with_own_network)
    }

    /// The program of terminators, beside that of built-in NFs, in the version that is installed now.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn terminator(&self) -> anyhow::Result<Arc<TerminatorProgram>> {
        self.beside(&self.terminator, terminator::NAME, |program| {
            let policy = Policy::new(program.linkage(), TCP_OPTIONS).with_connections();
            Ok(TerminatorProgram {
                connecting: policy.compile()?,
                program: Arc::new(with_filter(program)?),
            })
        })
    }

    /// The program that hosts the NF of an instance, in the version that is installed now.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn host_of(&self, spec: &InstanceSpec) -> anyhow::Result<OpenProgram> {
        let tier = spec.tier;
        if spec.makes_processes() {
            let (program, _) = &*self.built_in();
            let policy = Policy::new(program.linkage(), SOL_NFLUID as u32).with_components();
            let program = program.try_clone().context("sharing the program of NFs")?;
            return Ok(Arc::new((program, policy.compile()?)));
        }
        if [Isolation::LINUX, Isolation::STACK].contains(&tier.isolation()) {
            return self.beside(&self.companions_monitor, MONITOR, with_filter);
        }
        if tier.isolation() != Isolation::MICROVM {
            return Ok(self.built_in());
        }
        self.beside(&self.monitor, MONITOR, |program| {
            let policy = Policy::new(program.linkage(), SOL_NFLUID as u32).with_virtual_machines();
            let filter = policy.compile()?;
            Ok((program, filter))
        })
    }

    /// The emulator of machines with a kernel of their own, in the version that is installed now.
    ///
    /// # Errors
    /// When it is missing or cannot be run in an instance.
    pub(crate) fn emulator(&self, accelerator: Accelerator) -> anyhow::Result<OpenProgram> {
        let path = Path::new(EMULATOR);
        let found = file_version(path).with_context(|| {
            format!("tier linux needs {EMULATOR}: apt-get install --no-install-recommends qemu-system-x86")
        })?;
        let mut kept = self.emulator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((opened, made)) = kept.get(&accelerator)
            && *opened == found
        {
            return Ok(Arc::clone(made));
        }
        let made = opened(path, |policy| policy.with_emulator(accelerator))?;
        kept.insert(accelerator, (found, Arc::clone(&made)));
        Ok(made)
    }

    /// Returns what `make` makes of the program `nfluid-NAME`, which is installed beside that of built-in NFs.
    fn beside<T>(
        &self,
        kept: &Kept<T>,
        name: &str,
        make: impl FnOnce(Program) -> anyhow::Result<T>,
    ) -> anyhow::Result<Arc<T>> {
        let path = self.path.with_file_name(format!("nfluid-{name}"));
        let found = file_version(&path)
            .with_context(|| format!("{} is not there: install it", path.display()))?;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((copied, made)) = &*kept
            && *copied == found
        {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(make(Program::open(&path)?.sealed_copy()?)?);
        *kept = Some((found, Arc::clone(&made)));
        Ok(made)
    }

    /// Returns a copy of a guest's image that nobody can change, which all guests of that image share.
    ///
    /// # Errors
    /// The file is missing, too long, or cannot be read.
    pub(crate) fn guest_image(&self, path: &Path) -> anyhow::Result<OwnedFd> {
        let reading = || format!("reading the guest image {}", path.display());
        let found =
            file_version(path).with_context(|| format!("{} is not there", path.display()))?;
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((copied, image)) = images.get(path)
            && *copied == found
        {
            return image.try_clone().with_context(reading);
        }
        let bytes = std::fs::metadata(path).with_context(reading)?.len();
        if bytes > IMAGE_BYTES_MAX {
            let most = IMAGE_BYTES_MAX >> 20;
            bail!(
                "{} has {bytes} bytes, and a guest image has at most {most} MiB",
                path.display()
            );
        }
        let copy = Program::open(path)?.sealed_copy()?;
        let image = copy.as_fd().try_clone_to_owned().with_context(reading)?;
        if images.len() >= IMAGES_MAX {
            // Guests keep what they have; the next guest of that image copies it again.
            images.pop_first();
        }
        images.insert(
            path.to_owned(),
            (found, image.try_clone().with_context(reading)?),
        );
        Ok(image)
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

/// Opens a program of the host, whose filter is that of every instance and what `allow` adds.
fn opened(path: &Path, allow: impl FnOnce(Policy) -> Policy) -> anyhow::Result<OpenProgram> {
    let program = Program::open(path)?.unchangeable()?;
    let policy = Policy::new(program.linkage(), SOL_NFLUID as u32);
    let filter = allow(policy).compile()?;
    Ok(Arc::new((program, filter)))
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
