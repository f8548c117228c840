//! Loading and attaching the switch.

use crate::SwitchError;
use crate::abi::SpreadState;
use crate::grace::Waiters;
use crate::maps::{Placeholders, open_pinned};
use crate::object::{PINNED, find_program, load_form};
use crate::quiet::Left;
use crate::states::{Mapped, States};
use libbpf_rs::{Link, MapCore, MapHandle, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, RwLock};

/// Name under which the program for I/O threads is pinned.
pub(crate) const SERVE_PIN: &str = "serve";

/// The form of the program's loops; both forms are the same code and behave alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// `may_goto`, Linux 6.9 and newer.
    Goto,
    /// `bpf_loop`, Linux 5.17 and newer: slower by a call per turn.
    Call,
}

impl Form {
    pub(crate) const ALL: [Form; 2] = [Form::Goto, Form::Call];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Form::Goto => "goto",
            Form::Call => "call",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Goto => "may_goto (Linux >= 6.9)",
            Form::Call => "bpf_loop (Linux >= 5.17; slower)",
        })
    }
}

/// Options for loading the switch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the cgroup (v2) under which port sockets are made. The calling process must be
    /// in it, or in one below it, when it makes ports.
    pub cgroup: PathBuf,
    /// Directory on a BPF file system where maps and the attachment are kept, so that they outlive this process;
    /// existing pins there are taken over. `None`: everything ends with the process.
    pub pin: Option<PathBuf>,
    /// Use this form instead of the first that the kernel takes.
    pub form: Option<Form>,
    /// For comparison: enter maps of ports one at a time, and wait for the kernel's grace period after each.
    pub one_by_one: bool,
}

/// The loaded, attached switch.
pub struct Switch {
    /// Every map of the switch, by name.
    maps: BTreeMap<String, MapHandle>,
    /// Keeps the attachment, where this process made or renewed it.
    _link: Option<Link>,
    /// Programs that this process runs itself. `None` if another process loaded the switch.
    pub(crate) programs: Option<Programs>,
    form: Form,
    verified_steps: u32,
    pub(crate) pin: Option<PathBuf>,
    pub(crate) states: States,
    pub(crate) identity: MapHandle,
    pub(crate) rings: MapHandle,
    pub(crate) pools: MapHandle,
    pub(crate) owners: MapHandle,
    pub(crate) doorbells: MapHandle,
    pub(crate) switches: MapHandle,
    pub(crate) fdb: MapHandle,
    pub(crate) placeholders: OnceLock<Placeholders>,
    pub(crate) spreads: OnceLock<Mapped<SpreadState>>,
    /// Ports whose calls I/O threads may make; `None`: not declared yet.
    pub(crate) served: Mutex<Option<BTreeSet<u32>>>,
    pub(crate) left: Mutex<Left>,
    /// Held by a thread that puts frames into rings, against the thread that makes holes of unpublished positions.
    pub(crate) depositing: RwLock<()>,
    /// Numbers may be in service that ought to be free: removing them has failed.
    pub(crate) unclean: AtomicBool,
    /// As [`Options::one_by_one`].
    pub(crate) one_by_one: bool,
    /// Threads that wait for the kernel when tables of maps change.
    pub(crate) waiters: Waiters,
}

/// Programs that the platform's own threads run.
pub(crate) struct Programs {
    /// The switch for I/O threads; loaded when the first one needs it.
    pub serve: Mutex<Option<OwnedFd>>,
    pub ring: OwnedFd,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch")
            .field("form", &self.form)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

impl Switch {
    /// Loads the switch, in the first loop form that the kernel takes, and attaches it.
    ///
    /// # Errors
    /// [`SwitchError::Load`] when the kernel takes neither form; others say what failed.
    pub fn load(options: &Options) -> Result<Self, SwitchError> {
        allow_locked_memory();
        if let Some(pin) = &options.pin {
            fs::create_dir_all(pin)
                .map_err(SwitchError::system(format!("creating {}", pin.display())))?;
        }
        let forms = options.form.map_or(Form::ALL.to_vec(), |form| vec![form]);
        let mut errors = Vec::new();
        for form in forms {
            match load_form(form, options.pin.as_deref()) {
                Ok(object) => return Self::attach(object, form, options),
                Err(error) => errors.push((form, error.to_string())),
            }
        }
        let error_of = |form| {
            let found = errors.iter().find(|(f, _)| *f == form);
            found.map_or("not tried".to_owned(), |(_, error)| error.clone())
        };
        Err(SwitchError::Load {
            goto: error_of(Form::Goto),
            call: error_of(Form::Call),
        })
    }

    fn attach(object: Object, form: Form, options: &Options) -> Result<Self, SwitchError> {
        let link = attach_hyperio(&object, form, options)?;
        let ring = find_program(&object, "ring")?.as_fd().try_clone_to_owned();
        let ring = ring.map_err(SwitchError::system("keeping the program that rings"))?;
        let steps = verified_steps(&object, &format!("hyperio_{}", form.suffix()))?;
        tracing::info!(form = %form, steps, "switch program loaded");
        let mut maps = BTreeMap::new();
        for map in object.maps() {
            let name = map.name().to_string_lossy().into_owned();
            let handle = MapHandle::try_from(&map)
                .map_err(SwitchError::bpf(format!("opening map {name}")))?;
            maps.insert(name, handle);
        }
        let states = States::map(find(&maps, "nfl_ports")?.as_fd())?;
        let mut switch = Self::of(maps, states, form, options.pin.clone(), Some(link))?;
        let serve = Mutex::default();
        switch.programs = Some(Programs { serve, ring });
        switch.verified_steps = steps;
        switch.one_by_one = options.one_by_one;
        Ok(switch)
    }

    /// Opens a switch that another process has loaded and pinned in `pin`, in loop form `form`, for
    /// the sake of its port `port` alone: nothing is loaded, and the state of no other port may be
    /// asked for.
    ///
    /// # Errors
    /// When there is no such switch.
    pub fn open(pin: &Path, form: Form, port: u32) -> Result<Self, SwitchError> {
        allow_locked_memory();
        let reading = || SwitchError::system(format!("reading {}", pin.display()));
        let mut maps = BTreeMap::new();
        for entry in fs::read_dir(pin).map_err(reading())? {
            let entry = entry.map_err(reading())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PINNED) {
                maps.insert(name, open_pinned(&entry.path())?);
            }
        }
        let states = States::map_port(find(&maps, "nfl_ports")?.as_fd(), port)?;
        Self::of(maps, states, form, Some(pin.to_owned()), None)
    }

    fn of(
        maps: BTreeMap<String, MapHandle>,
        states: States,
        form: Form,
        pin: Option<PathBuf>,
        link: Option<Link>,
    ) -> Result<Self, SwitchError> {
        Ok(Switch {
            _link: link,
            programs: None,
            form,
            verified_steps: 0,
            states,
            identity: copy(&maps, "nfl_identity")?,
            rings: copy(&maps, "nfl_rings")?,
            pools: copy(&maps, "nfl_pools")?,
            owners: copy(&maps, "nfl_owners")?,
            doorbells: copy(&maps, "nfl_bells")?,
            switches: copy(&maps, "nfl_switches")?,
            fdb: copy(&maps, "nfl_fdb")?,
            placeholders: OnceLock::new(),
            spreads: OnceLock::new(),
            served: Mutex::new(None),
            left: Mutex::new(Left::before(pin.is_some())),
            depositing: RwLock::new(()),
            unclean: AtomicBool::new(false),
            one_by_one: false,
            waiters: Waiters::default(),
            pin,
            maps,
        })
    }

    /// The map of this name.
    pub(crate) fn map(&self, name: &str) -> Result<&MapHandle, SwitchError> {
        find(&self.maps, name)
    }

    /// The map of this name, if the switch has one.
    pub(crate) fn find_map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.get(name)
    }

    /// The loop form in use.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Steps that the kernel took to verify the senders' program, of the million that it takes at most
    /// (`BPF_COMPLEXITY_LIMIT_INSNS`); 0 if another process has loaded it, or before Linux 5.16.
    pub fn verified_steps(&self) -> u32 {
        self.verified_steps
    }

    /// Removes everything pinned: the end of a platform, not of a daemon.
    ///
    /// # Errors
    /// When a pinned file cannot be removed.
    pub fn remove_pins(pin: &Path) -> Result<(), SwitchError> {
        match fs::remove_dir_all(pin) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SwitchError::system(
                format!("removing {}", pin.display()),
            )(error)),
            _ => Ok(()),
        }
    }
}

/// Kernels before 5.11 charge maps to this limit; newer ones do not mind.
fn allow_locked_memory() {
    let unlimited = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited) {
        tracing::debug!(%error, "could not lift the limit of locked memory");
    }
}

fn attach_hyperio(object: &Object, form: Form, options: &Options) -> Result<Link, SwitchError> {
    let pinned = options.pin.as_ref().map(|pin| pin.join("hyperio"));
    let program = find_program(object, &format!("hyperio_{}", form.suffix()))?;
    if let Some(path) = pinned.as_ref().filter(|path| path.exists()) {
        let mut link = Link::open(path).map_err(SwitchError::bpf(format!(
            "opening the pinned attachment {}",
            path.display()
        )))?;
        link.update_prog(&program)
            .map_err(SwitchError::bpf("replacing the running switch program"))?;
        return Ok(link);
    }
    let cgroup = File::open(&options.cgroup).map_err(SwitchError::system(format!(
        "opening the cgroup {}",
        options.cgroup.display()
    )))?;
    let mut link = program
        .attach_cgroup(cgroup.as_fd().as_raw_fd())
        .map_err(SwitchError::bpf(format!(
            "attaching the switch to {}",
            options.cgroup.display()
        )))?;
    if let Some(path) = pinned {
        link.pin(&path).map_err(SwitchError::bpf(format!(
            "pinning the attachment at {}",
            path.display()
        )))?;
    }
    Ok(link)
}

fn verified_steps(object: &Object, name: &str) -> Result<u32, SwitchError> {
    let program = find_program(object, name)?;
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    let info = fs::read_to_string(&path).map_err(SwitchError::system(format!("reading {path}")))?;
    let steps = info
        .lines()
        .find_map(|line| line.strip_prefix("verified_insns:"));
    Ok(steps
        .and_then(|steps| steps.trim().parse().ok())
        .unwrap_or(0))
}

fn find<'a>(
    maps: &'a BTreeMap<String, MapHandle>,
    name: &str,
) -> Result<&'a MapHandle, SwitchError> {
    maps.get(name)
        .ok_or_else(|| SwitchError::Limit(format!("the switch has no map {name}")))
}

fn copy(maps: &BTreeMap<String, MapHandle>, name: &str) -> Result<MapHandle, SwitchError> {
    MapHandle::try_from(find(maps, name)?).map_err(SwitchError::bpf(format!("opening map {name}")))
}
