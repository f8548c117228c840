//! The switch run by an I/O thread instead of the sender. The code is that of the hyperio call, on the same state,
//! for a list of ports at once.

use crate::SwitchError;
use crate::abi::SERVE_PORTS;
use crate::object::find_program;
use crate::program::{Form, Programs, SERVE_PIN, Switch};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// The right to run the switch over the TX ring of any port: for the platform's own threads alone.
#[derive(Debug)]
pub struct Serve {
    program: OwnedFd,
    form: Form,
}

/// `NFL_SERVE_PREPARE_TIMER`.
const PREPARE_TIMER: u32 = 0x102;
/// The kernel may have no memory for a timer at one moment, and have some at the next.
const TIMER_TRIES: u32 = 100;
const TIMER_PAUSE: Duration = Duration::from_millis(1);

/// `struct nfl_serve`.
#[repr(C)]
struct Context {
    count: u32,
    port: [u32; SERVE_PORTS],
}

const _: () = assert!(size_of::<Context>() == 256);

/// The sleeper that the switch wakes, because the pipe of the sleeper takes no more: another process that can ring
/// the pipe has filled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// The peer at the other end of a port's link, which waits for frames.
    Peer,
    /// The port's owner, which waits for frames, or until an I/O thread has consumed its own.
    Owner,
}

impl Sleeper {
    /// `enum nfl_serve_ring`.
    fn number(self) -> u32 {
        match self {
            Sleeper::Peer => 0x100,
            Sleeper::Owner => 0x101,
        }
    }
}

impl Serve {
    /// Opens the program of a switch that another process has loaded and pinned in `pin`, in loop
    /// form `form`.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(pin: &Path, form: Form) -> Result<Self, SwitchError> {
        let path = pin.join(SERVE_PIN);
        let opening = || format!("opening {}", path.display());
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|nul| SwitchError::system(opening())(io::Error::other(nul)))?;
        // SAFETY: the path is a live C string, which the call only reads.
        let fd = unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) };
        if fd < 0 {
            return Err(SwitchError::system(opening())(
                io::Error::from_raw_os_error(-fd),
            ));
        }
        // SAFETY: the call has just made the descriptor, for us.
        let program = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Serve::of(program, form))
    }

    /// The program as another process has handed it over, for loop form `form`.
    pub fn of(program: OwnedFd, form: Form) -> Self {
        Serve { program, form }
    }

    /// The loop form of the program.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Ports per run.
    fn ports_max(&self) -> usize {
        match self.form {
            Form::Goto => SERVE_PORTS,
            // No stack is left for more: see `bpf/switch/switch.bpf.c`.
            Form::Call => 1,
        }
    }

    /// The program, to be handed over.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Duplicates the right, for another thread.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Serve {
            program: self.program.try_clone()?,
            form: self.form,
        })
    }

    /// Runs the switch over the TX rings of `ports`, at most [`crate::abi::CALL_FRAMES`] frames of
    /// each. A port that is down, or in a call of its own instance, is left out.
    ///
    /// # Errors
    /// As `BPF_PROG_RUN` reports them.
    pub fn run(&self, ports: &[u32]) -> io::Result<()> {
        ports
            .chunks(self.ports_max())
            .try_for_each(|ports| self.run_once(ports))
    }

    fn run_once(&self, ports: &[u32]) -> io::Result<()> {
        let mut context = Context {
            count: ports.len() as u32,
            port: [0; SERVE_PORTS],
        };
        context.port[..ports.len()].copy_from_slice(ports);
        context.enter(&self.program).map(drop)
    }

    /// Makes the switch wake the thread that sleeps at `port` by the kernel doorbell, once per sleep.
    ///
    /// # Errors
    /// As `BPF_PROG_RUN` reports them.
    pub fn ring(&self, port: u32, sleeper: Sleeper) -> io::Result<()> {
        Context::ring(port, sleeper).enter(&self.program).map(drop)
    }
}

/// The right to wake the receiver or owner that sleeps at any port of the platform.
#[derive(Debug)]
pub struct Ringer(OwnedFd);

impl Ringer {
    /// Makes the switch wake the thread that sleeps at `port` by the kernel doorbell, once per sleep.
    ///
    /// # Errors
    /// As `BPF_PROG_RUN` reports them.
    pub fn ring(&self, port: u32, sleeper: Sleeper) -> io::Result<()> {
        Context::ring(port, sleeper).enter(&self.0).map(drop)
    }
}

impl Context {
    fn ring(port: u32, sleeper: Sleeper) -> Self {
        Self::about(port, sleeper.number())
    }

    /// `what` is one of `enum nfl_serve_ring`.
    fn about(port: u32, what: u32) -> Self {
        let mut context = Context {
            count: what,
            port: [0; SERVE_PORTS],
        };
        context.port[0] = port;
        context
    }

    /// Runs a program on it; returns the program's result.
    fn enter(&self, program: &OwnedFd) -> io::Result<u32> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: (&raw const *self).cast(),
            ctx_size_in: size_of::<Context>() as u32,
            ..Default::default()
        };
        // SAFETY: both structures live until the call returns; the kernel reads the context, of the
        // size that is passed, and writes nothing but the options.
        let status =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if status == 0 {
            Ok(options.retval)
        } else {
            Err(io::Error::from_raw_os_error(-status))
        }
    }
}

impl Switch {
    /// The right to run this switch for all of its ports. The first call loads the program, because the kernel takes as
    /// long to verify it as the senders' program, and pins it beside the maps, where the process of the I/O threads opens
    /// it. A process that runs keeps the version that it has opened.
    ///
    /// # Errors
    /// When the process did not load the switch itself, has no descriptors left, or the kernel refuses the program.
    pub fn serve(&self) -> Result<Serve, SwitchError> {
        let serve = &self.programs()?.serve;
        let mut serve = serve.lock().unwrap_or_else(PoisonError::into_inner);
        let program = match &*serve {
            Some(program) => program,
            None => serve.insert(load_serve(self)?),
        };
        let program = program.try_clone();
        let program = program.map_err(SwitchError::system("duplicating a descriptor"))?;
        Ok(Serve::of(program, self.form()))
    }

    /// The right to wake receivers and owners that sleep at the ports of this switch.
    ///
    /// # Errors
    /// As [`Switch::serve`].
    pub fn ringer(&self) -> Result<Ringer, SwitchError> {
        let program = self.programs()?.ring.try_clone();
        program
            .map(Ringer)
            .map_err(SwitchError::system("duplicating a descriptor"))
    }

    /// Makes the timer of a port whose receiver waits for several frames. Without it the first such frame makes the timer;
    /// if the kernel has no memory for it then, the receiver is woken at once.
    pub(crate) fn prepare_timer(&self, port: u32) {
        let Ok(programs) = self.programs() else {
            return;
        };
        let context = Context::about(port, PREPARE_TIMER);
        let mut failed = None;
        for _ in 0..TIMER_TRIES {
            match context.enter(&programs.ring) {
                Ok(0) => return,
                Ok(error) => failed = Some(io::Error::from_raw_os_error(-(error as i32))),
                Err(error) => failed = Some(error),
            }
            std::thread::sleep(TIMER_PAUSE);
        }
        if let Some(error) = failed {
            tracing::warn!(port, %error, "the kernel makes no timer for the port: its receiver is woken for each frame");
        }
    }

    fn programs(&self) -> Result<&Programs, SwitchError> {
        self.programs.as_ref().ok_or_else(|| {
            SwitchError::Limit("the switch was loaded by another process".to_owned())
        })
    }
}

/// Loads the program for I/O threads on the switch's maps.
fn load_serve(switch: &Switch) -> Result<OwnedFd, SwitchError> {
    let name = format!("serve_{}", switch.form().suffix());
    let object = switch.load_sharing_maps(&name, |_, _| Ok(false))?;
    let mut program = find_program(&object, &name)?;
    if let Some(path) = switch.pin.as_ref().map(|pin| pin.join(SERVE_PIN)) {
        let pinning = || format!("pinning {}", path.display());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SwitchError::system(pinning())(error));
            }
            _ => program.pin(&path).map_err(SwitchError::bpf(pinning()))?,
        }
    }
    let fd = program.as_fd().try_clone_to_owned();
    fd.map_err(SwitchError::system("keeping the program of I/O threads"))
}
