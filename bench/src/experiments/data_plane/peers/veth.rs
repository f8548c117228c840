//! The ends of the kernel's set-ups, each in its own namespace and joined to the forwarder by a veth pair. The source
//! sends by XDP live frames, faster than a socket can; the sink counts the frames that arrive, and the kernel drops
//! them, because no socket there receives them.

use super::resources::Resources;
use crate::host::compile;
use crate::peer::Peer;
use crate::roles::work::Outcome;
use crate::roles::{Role, Task};
use anyhow::Context;
use nfluid_testbed::program::need;
use nfluid_testbed::{namespace::Namespace, unique_number};
use std::path::{Path, PathBuf};

/// The core of the source.
pub const GENERATOR_CORE: usize = 1;
/// The sink's interface.
pub const SINK: &str = "sink";
/// The source's interface.
pub const SOURCE: &str = "source";

/// A source and a sink. A process is declared before its namespace, so that it ends first.
pub struct Ends {
    generators: Vec<(usize, Peer)>,
    /// The process that sends single frames, started on demand, and their length.
    alone: Option<(usize, Peer)>,
    source: Namespace,
    sink: Namespace,
}

impl Ends {
    /// Joins the ends to the named interfaces, which are created.
    ///
    /// # Errors
    /// `CannotRun` when a program is missing; otherwise the error of `ip` or the kernel.
    pub fn join(
        resources: &Resources,
        entry: (&Namespace, &str),
        exit: (&Namespace, &str),
    ) -> anyhow::Result<Self> {
        need(&[
            ("ip", "iproute2"),
            ("ethtool", "ethtool"),
            ("sysctl", "procps"),
        ])?;
        let (source, sink) = (Namespace::new()?, Namespace::new()?);
        Namespace::join((&source, SOURCE), entry)?;
        Namespace::join(exit, (&sink, SINK))?;
        let object = programs(resources)?;
        let generators = resources.sizes.iter().map(|len| {
            let task = Task::Generate {
                object: object.clone(),
                interface: SOURCE.to_owned(),
                len: *len,
                to: None,
            };
            let core = GENERATOR_CORE;
            anyhow::Ok((*len, Peer::start_within(&source, &Role { core, task })?))
        });
        Ok(Ends {
            generators: generators.collect::<anyhow::Result<_>>()?,
            alone: None,
            source,
            sink,
        })
    }

    /// Returns the source's namespace.
    pub fn source(&self) -> &Namespace {
        &self.source
    }

    /// Returns the sink's namespace.
    pub fn sink(&self) -> &Namespace {
        &self.sink
    }

    /// Returns the mean time in microseconds of a single frame of `len` bytes, sent and received by packet sockets of
    /// one process; `None` if no frame arrived.
    ///
    /// # Errors
    /// When the process cannot be started or has ended.
    pub fn alone_us(&mut self, len: usize, seconds: f64) -> anyhow::Result<Option<f64>> {
        if self.alone.as_ref().is_none_or(|(of, _)| *of != len) {
            let task = Task::Alone {
                from: SOURCE.to_owned(),
                to: SINK.to_owned(),
                there: Path::new("/run/netns").join(self.sink.name()),
                len,
            };
            let core = GENERATOR_CORE;
            let peer = Peer::start_within(&self.source, &Role { core, task })?;
            self.alone = Some((len, peer));
        }
        let (_, peer) = self.alone.as_mut().context("it was just started")?;
        peer.start_run(seconds, None)?;
        let outcome = peer.outcome()?;
        let came = outcome.frames > 0;
        Ok(came.then(|| outcome.seconds / outcome.frames as f64 * 1e6))
    }

    /// Sends frames of `len` bytes for `seconds`; returns the number of frames that arrived, and the source's outcome.
    ///
    /// # Errors
    /// When the source has ended, or was not prepared for the length.
    pub fn send(&mut self, len: usize, seconds: f64) -> anyhow::Result<(u64, Outcome)> {
        let before = self.sink.received(SINK)?;
        let generator = self.generators.iter_mut().find(|(of, _)| *of == len);
        let (_, generator) = generator.context("a length that was not prepared")?;
        generator.start_run(seconds, None)?;
        let outcome = generator.outcome()?;
        Ok((self.sink.received(SINK)? - before, outcome))
    }
}

/// Compiles the XDP programs; returns the object file.
///
/// # Errors
/// `CannotRun` without a compiler.
pub fn programs(resources: &Resources) -> anyhow::Result<PathBuf> {
    let object = resources.directory.path("xdp.bpf.o");
    if !object.exists() {
        let source = include_str!("../../../../peers/xdp.bpf.c");
        compile::bpf(&resources.directory, "xdp", source)?;
    }
    Ok(object)
}

/// Attaches a program; `to` is the interface to which it redirects.
///
/// # Errors
/// When the kernel refuses.
pub fn attach(
    namespace: &Namespace,
    object: &Path,
    program: &str,
    interface: &str,
    to: Option<&str>,
) -> anyhow::Result<Peer> {
    let task = Task::Attach {
        object: PathBuf::from(object),
        program: program.to_owned(),
        interface: interface.to_owned(),
        to: to.map(str::to_owned),
    };
    let core = GENERATOR_CORE;
    Peer::start_within(namespace, &Role { core, task })
}

/// Makes a veth accept XDP frames for the kernel's own forwarding. A veth does so when its end polls (NAPI); an
/// attached program enables that, and also GRO, which has nothing to merge here and costs 5 %.
///
/// # Errors
/// When the kernel refuses.
pub fn take_xdp_frames(
    namespace: &Namespace,
    object: &Path,
    interface: &str,
) -> anyhow::Result<Peer> {
    let program = attach(namespace, object, "pass", interface, None)?;
    namespace.run(&format!("ethtool -K {interface} gro off"))?;
    Ok(program)
}

/// Returns an interface name that is unique among processes of this program.
pub fn name() -> String {
    let unique = std::process::id()
        .wrapping_mul(31)
        .wrapping_add(unique_number());
    format!("nfl{:05x}", unique & 0xf_ffff)
}
