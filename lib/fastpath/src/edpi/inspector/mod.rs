//! The process of an eDPI's slow path: `nfluidd inspect NAME`.
//!
//! nDPI is C code that parses packets of untrusted hosts. So nDPI runs in this process: in a sandbox like that of every
//! network function, as its own user, without a network, and with no files but libraries. The standard input of the
//! process is the socket of the daemon's requests; the tables of the fast path come over that socket. The process can
//! request nothing from the kernel but values of these tables. Packets continue to flow without the process
//! (`docs/adr/0020-edpi.md`).

mod talk;

pub use talk::{Hello, PROTOCOL, Request, line_of};

use super::config::InspectorConfig;
use anyhow::{Context, anyhow};
use nfluid_dpi::inspector::{Policy, SlowPath};
use nfluid_dpi::library::Library;
use nfluid_evnf::inspector::Tables;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Poll interval for the daemon's requests while no packet arrives.
const PATIENCE: Duration = Duration::from_millis(100);

/// The argument of `nfluidd` that starts this process.
pub const ROLE: &str = "inspect";

/// A running slow path.
struct Working {
    slow: SlowPath,
    hello: Hello,
}

/// Runs the process of a slow path, until the process is killed.
///
/// # Errors
/// When the process cannot begin, which is reported to the daemon, or the kernel refuses access to the tables.
pub fn run() -> anyhow::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let listener = UnixListener::from(socket.context("duplicating its socket")?);
    listener
        .set_nonblocking(true)
        .context("its standard input is no socket; 'nfluidd inspect' is started by the daemon")?;
    let mut working: Option<Working> = None;
    loop {
        match &mut working {
            Some(working) => working.slow.wait(PATIENCE)?,
            None => {
                // An interrupted poll is no error: the loop checks all sources.
                let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], None);
            }
        }
        while let Ok((stream, _)) = listener.accept() {
            // A connection without a request gets no answer.
            let Ok((request, fds)) = talk::listen(&stream) else {
                continue;
            };
            let answer = serve(&mut working, request, fds);
            talk::answer(&stream, &answer);
            if let (None, Err(why)) = (&working, answer) {
                return Err(anyhow!(why));
            }
        }
    }
}

fn serve(
    working: &mut Option<Working>,
    request: Request,
    fds: Vec<OwnedFd>,
) -> Result<Hello, String> {
    match (request, working) {
        (Request::Work { config, cpus }, working @ None) => {
            let begun = working.insert(begin(&config, cpus, fds)?);
            Ok(begun.hello.clone())
        }
        (Request::Work { .. }, Some(_)) => Err("it works already".to_owned()),
        (Request::Change(config), Some(working)) => {
            working.change(&config)?;
            Ok(working.hello.clone())
        }
        (Request::Hello, Some(working)) => Ok(working.hello.clone()),
        (_, None) => Ok(Hello {
            protocol: PROTOCOL,
            ..Hello::default()
        }),
    }
}

fn read(config: &Value) -> Result<InspectorConfig, String> {
    InspectorConfig::read(config).map_err(|error| format!("{} ({})", error.message, error.path))
}

fn policy(config: &InspectorConfig, library: &Library) -> Result<Policy, String> {
    let rules = config.rules(library)?;
    Ok(Box::new(move |_: &_, flow: &_| rules.decide(flow)))
}

fn begin(config: &Value, cpus: usize, fds: Vec<OwnedFd>) -> Result<Working, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let config = read(config)?;
    let library = Library::open_file(&config.library).map_err(|error| text(&error))?;
    let policy = policy(&config, &library)?;
    let fds = <[OwnedFd; Tables::COUNT]>::try_from(fds);
    let fds = fds.map_err(|fds| format!("{} tables; it takes {}", fds.len(), Tables::COUNT))?;
    let tables = Tables::handed(fds, cpus).map_err(|error| text(&error))?;
    let names = (0..library.protocols()).map(|id| library.name(id).unwrap_or_default());
    let hello = Hello {
        protocol: PROTOCOL,
        works: true,
        library: library.version(),
        applications: names.collect(),
    };
    let slow = SlowPath::new(&tables, library, config.settings(), policy);
    let slow = slow.map_err(|error| text(&error))?;
    Ok(Working { slow, hello })
}

impl Working {
    fn change(&mut self, config: &Value) -> Result<(), String> {
        let config = read(config)?;
        let policy = self.slow.ask(|library| policy(&config, library))?;
        self.slow.change_limits(config.settings());
        let changed = self.slow.change_policy(policy);
        changed.map_err(|error| error.to_string())
    }
}
