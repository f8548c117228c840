//! The switch run by somebody else than the sender: an I/O thread. It is the same code as the hyperio
//! call, on the same state, for a list of ports at once.

use crate::SwitchError;
use crate::abi::SERVE_PORTS;
use crate::program::{Form, SERVE_PIN, Switch};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The right to run the switch over the TX ring of any port: for the platform's own threads alone.
#[derive(Debug)]
pub struct Serve {
    program: OwnedFd,
    form: Form,
}

/// `struct nfl_serve`.
#[repr(C)]
struct Context {
    count: u32,
    port: [u32; SERVE_PORTS],
}

const _: () = assert!(size_of::<Context>() == 256);

/// Whom the switch wakes, where the own bell takes no more: another of those who can ring it has filled it.
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

    /// The same right once more, for another thread.
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
        self.enter(&context)
    }

    /// Has the switch wake who sleeps at `port` by the kernel bell, once per sleep.
    ///
    /// # Errors
    /// As `BPF_PROG_RUN` reports them.
    pub fn ring(&self, port: u32, sleeper: Sleeper) -> io::Result<()> {
        let mut context = Context {
            count: sleeper.number(),
            port: [0; SERVE_PORTS],
        };
        context.port[0] = port;
        self.enter(&context)
    }

    fn enter(&self, context: &Context) -> io::Result<()> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: (&raw const *context).cast(),
            ctx_size_in: size_of::<Context>() as u32,
            ..Default::default()
        };
        // SAFETY: both structures live until the call returns; the kernel reads the context, of the
        // size that is passed, and writes nothing but the options.
        let status = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(-status))
        }
    }
}

impl Switch {
    /// The right to run this switch for all of its ports.
    ///
    /// # Errors
    /// When the process did not load it itself, or has no descriptors left.
    pub fn serve(&self) -> Result<Serve, SwitchError> {
        let program = self.serve.as_ref().ok_or_else(|| {
            SwitchError::Limit("the switch was loaded by another process".to_owned())
        })?;
        let program = program.try_clone();
        let program = program.map_err(SwitchError::system("duplicating a descriptor"))?;
        Ok(Serve::of(program, self.form()))
    }
}
