//! Upgrades in place: a successor is started on the ports of a running process, and takes over the ports and the
//! state.

use super::Process;
use crate::exits;
use crate::launch::{GivenDoorbells, Predecessor, Target};
use crate::limits::pin;
use anyhow::{Context, bail};
use nfluid_control::spec::InstanceSpec;
use nfluid_lifecycle::cores::pinned_to;
use nfluid_lifecycle::machine;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::succession::Succession;
use nfluid_lifecycle::workload::Workload as _;
use nfluid_protocol::answer::{self, Exported, HandedOver};
use nfluid_protocol::daemon::memory_file;
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::{Instance, ProcessIdentity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time in which a successor has to be ready; it reads its configuration meanwhile.
const READY: Duration = Duration::from_secs(10);
/// Time in which a predecessor and its successor have to settle the owner of the ports after their daemon has died.
const SETTLED: Duration = Duration::from_secs(10);
/// Interval at which this is checked.
const SETTLED_POLL: Duration = Duration::from_millis(10);

/// A process that is taking over from another one.
pub(super) struct Successor {
    process: Instance,
    /// The specification from which it was made, as it is recorded.
    spec: String,
    io_doorbell: OwnedFd,
    io_doorbell_number: RawFd,
    next_control: PathBuf,
    aside: Vec<u32>,
}

/// The inputs of a handover of the ports.
struct Turn {
    /// Name of the instance.
    name: String,
    /// The successor, to be put on its CPUs.
    process: Instance,
    doorbells: Vec<Option<String>>,
    /// The daemon's copy of the successor's end of the socket between the two.
    way: OwnedFd,
    /// The CPUs of the instance: the owner of the ports runs there.
    own: Vec<u32>,
    /// CPUs where the successor starts and the predecessor ends without taking time from the owner of the ports.
    /// Empty: there are none.
    aside: Vec<u32>,
    control: PathBuf,
    next_control: PathBuf,
}

fn does_not_start(name: &str) -> String {
    format!("its successor does not start ('nfluid logs {name}' says why)")
}

fn put_on(process: &Instance, cpus: &[u32]) {
    if !cpus.is_empty()
        && let Err(error) = pin(process, cpus)
    {
        tracing::debug!(%error, "one of two in an upgrade stays where it is");
    }
}

impl Succession for Turn {
    fn hand_over(&self) -> anyhow::Result<HandedOver> {
        await_ready(&self.way).with_context(|| does_not_start(&self.name))?;
        if let Err(why) = self.rehearse() {
            // Without a rehearsal the handover takes longer.
            tracing::debug!("an upgrade without a rehearsal: {why:#}");
        }
        if !self.aside.is_empty() {
            put_on(&self.process, &self.own);
        }
        let way = Some(self.way.as_fd());
        match daemon::ask_about(&self.control, &Request::HandOver, way) {
            Ok(answer) => Ok(answer::read(answer).unwrap_or_default()),
            // The predecessor may have handed over and failed to report it: only the owner of the ports answers.
            Err(why) => match daemon::ask(&self.next_control, &Request::Metrics) {
                Ok(_) => Ok(HandedOver::default()),
                Err(_) => Err(why),
            },
        }
    }

    fn doorbells(&self) -> &[Option<String>] {
        &self.doorbells
    }
}

impl Turn {
    /// Makes the successor import the predecessor's present state and forget it. The successor starts on other CPUs,
    /// where this disturbs no traffic. The memory for the state is then allocated when the handover comes.
    fn rehearse(&self) -> anyhow::Result<()> {
        let file = memory_file("state", &[])?;
        let request = Request::Export { state_only: true };
        let answer = daemon::ask_about(&self.control, &request, Some(file.as_fd()))?;
        let exported = answer::read::<Exported>(answer);
        let exported = exported.context("it does not say how long its state is")?;
        let request = Request::Rehearse {
            bytes: exported.state_bytes,
        };
        daemon::ask_about(&self.next_control, &request, Some(file.as_fd()))?;
        Ok(())
    }
}

impl Process {
    /// Starts a successor without ports.
    pub(super) fn start_successor(
        &mut self,
        new: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Box<dyn Succession>> {
        let begun = self.begin_turn(new, peers);
        if begun.is_err() {
            self.restore_memory_limit();
        }
        Ok(Box::new(begun?))
    }

    fn begin_turn(
        &mut self,
        new: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Turn> {
        let (way, its_way) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("making the way between the two")?;
        let own = pinned_to(new, self.record.core);
        let mut aside = machine::cpus();
        aside.retain(|cpu| !own.contains(cpu));
        if own.is_empty() {
            // An unpinned successor is moved by the kernel, away from the predecessor.
            aside.clear();
        }
        let paths = &self.maker.paths;
        let next_control = paths.next_control(&self.name);
        let io_doorbell = self.io_doorbell_of_successor()?;
        // Both processes exist for a moment, and so does the memory of both.
        let most = self.memory_limit.max(new.resources.memory.0);
        self.cgroup.set_memory(most.saturating_mul(2))?;
        let given = GivenDoorbells {
            peers: &peers,
            io: &io_doorbell,
            succession: Some(Predecessor {
                way: &its_way,
                control: &next_control,
                cpus: &aside,
            }),
        };
        let handover = self.maker.switch.hand_over(&self.memory, self.maps()?)?;
        let target = Target {
            name: &self.name,
            spec: new,
            cgroup: &self.cgroup,
            record: &self.record,
            program: None,
        };
        let ports = (&self.memory, &handover);
        let launched = self.maker.launch(target, ports, &given, None)?;
        drop(its_way);
        let process = launched.instance;
        let noted = Instance::adopt(process.identity())
            .with_context(|| does_not_start(&self.name))
            .and_then(|copy| {
                self.note_successor(Some(process.identity().clone()))?;
                Ok(copy)
            });
        let copy = match noted {
            Ok(copy) => copy,
            Err(why) => {
                exits::end(&process)?;
                return Err(why);
            }
        };
        self.successor = Some(Successor {
            process,
            spec: serde_json::to_string(new)?,
            io_doorbell,
            io_doorbell_number: launched.io_doorbell,
            next_control: next_control.clone(),
            aside: aside.clone(),
        });
        Ok(Turn {
            name: self.name.clone(),
            process: copy,
            doorbells: peers,
            way,
            own,
            aside,
            control: self.control.clone(),
            next_control,
        })
    }

    fn restore_memory_limit(&self) {
        if let Err(error) = self.cgroup.set_memory(self.memory_limit) {
            tracing::warn!(instance = self.name, %error, "its memory limit stays as it was during the upgrade");
        }
    }

    fn note_successor(&mut self, successor: Option<ProcessIdentity>) -> anyhow::Result<()> {
        self.record.successor = successor;
        self.save_record().context("writing down the instance")
    }

    /// Ends a successor that does not have the ports.
    pub(super) fn end_successor(&mut self) -> anyhow::Result<()> {
        let Some(successor) = self.successor.take() else {
            return Ok(());
        };
        let _absent = std::fs::remove_file(&successor.next_control);
        let ended = exits::end(&successor.process);
        self.restore_memory_limit();
        ended?;
        self.note_successor(None)
    }

    /// The successor has the ports: makes it the process of the instance.
    pub(super) fn install_successor(
        &mut self,
        new: &InstanceSpec,
        doorbells: Vec<Option<String>>,
    ) -> anyhow::Result<()> {
        let successor = self.successor.take().context("there is no successor")?;
        self.maker.exits.add(&self.name, &successor.process);
        let identity = successor.process.identity().clone();
        if let Some(predecessor) = self.process.replace(successor.process) {
            self.maker.exits.forget(&predecessor);
            put_on(&predecessor, &successor.aside);
            if let Err(why) = exits::end(&predecessor) {
                tracing::warn!(
                    instance = self.name,
                    "its predecessor, which has no ports any more: {why:#}"
                );
            }
        }
        let record = &mut self.record;
        record.process = Some(identity);
        record.successor = None;
        record.spec = successor.spec;
        record.doorbells = doorbells;
        record.io_doorbell = Some(successor.io_doorbell_number);
        self.io_doorbell = new.io.has_threads().then_some(successor.io_doorbell);
        self.pinned = None;
        self.slice = new.resources.slice;
        self.memory_limit = new.resources.memory.0;
        self.restore_memory_limit();
        std::fs::rename(&successor.next_control, &self.control)
            .context("taking over the control socket")?;
        self.save_record().context("writing down the instance")
    }
}

/// Returns the process that has the ports, of a recorded instance and its successor, once the two have settled the
/// owner.
///
/// # Errors
/// Neither runs any more, or they do not settle the owner: then both are ended.
pub(super) fn settled(record: &mut Record) -> anyhow::Result<Instance> {
    let identity = record.process.as_ref().context("it had no process")?;
    let Some(successor) = record.successor.take() else {
        return Ok(Instance::adopt(identity)?);
    };
    let deadline = Instant::now() + SETTLED;
    loop {
        match (Instance::adopt(identity), Instance::adopt(&successor)) {
            (Ok(instance), Err(_)) => return Ok(instance),
            (Err(_), Ok(instance)) => {
                record.process = Some(successor);
                return Ok(instance);
            }
            (Err(why), Err(_)) => return Err(why.into()),
            (Ok(one), Ok(other)) if Instant::now() > deadline => {
                exits::end(&one)?;
                exits::end(&other)?;
                bail!("an upgrade of it has not come to an end");
            }
            _ => std::thread::sleep(SETTLED_POLL),
        }
    }
}

/// Waits for the successor's first byte without consuming it: the predecessor reads the byte.
fn await_ready(way: &OwnedFd) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(READY).unwrap_or_default();
    let mut fds = [PollFd::new(way, PollFlags::IN)];
    if poll(&mut fds, Some(&timeout))? == 0 {
        bail!("it is not ready after {} s", READY.as_secs());
    }
    let mut word = [0];
    let (read, _) = recv(way, &mut word, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    if read == 0 {
        bail!("it has ended");
    }
    Ok(())
}
