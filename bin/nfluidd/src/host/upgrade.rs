//! Upgrades in place: a successor is started on the ports of a running instance, and takes them over with its state.
//!
//! Which of the two has the ports, they settle by themselves (`docs/adr/0013-state-of-nfs.md`): should this daemon die in
//! between, the next one finds exactly one of them.

use super::errors::error;
use super::{Host, Shared, lock};
use crate::facts::ThisHost;
use anyhow::{Context, bail};
use nfluid_api::types::{EventKind, Kind, UpgradeReport};
use nfluid_control::apply::no_instance;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::host::Host as _;
use nfluid_control::plan::is_handed_over;
use nfluid_control::spec::InstanceSpec;
use nfluid_instance::cores::{pin, pinned_to};
use nfluid_instance::launch::{GivenBells, Succession, Target, memory_file};
use nfluid_instance::making;
use nfluid_instance::record::Record;
use nfluid_instance::running::supervisor_time;
use nfluid_protocol::answer::{self, Exported, HandedOver};
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::{Instance, ProcessIdentity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a successor may take until it is ready: it reads its configuration.
const READY: Duration = Duration::from_secs(10);
/// How long a predecessor and its successor may take to settle who has the ports, after their daemon has died.
const SETTLED: Duration = Duration::from_secs(8);
const SETTLED_POLL: Duration = Duration::from_millis(5);

/// A successor that was started and has no ports yet.
struct Successor {
    process: Instance,
    /// Its specification, as it is written down.
    spec: String,
    /// The instances whose bells it was given, by port.
    bells: Vec<Option<String>>,
    io_bell: OwnedFd,
    /// The number under which it has that bell.
    io_bell_number: RawFd,
    /// The predecessor's end of the way between them.
    way: OwnedFd,
}

/// Puts the installed version of an instance's program in its place. The host is not locked while the two settle it.
///
/// # Errors
/// The running one goes on.
pub fn upgrade(host: &Shared, name: &str) -> Result<UpgradeReport, PlatformError> {
    let spec = lock(host).spec_to_upgrade(name)?;
    succeed_instance(host, name, &spec)
}

/// Starts a successor of an instance as `new` says, on its ports, and gives it ports and state. The host is not locked while
/// the two settle it; what else concerns the instance is refused meanwhile.
///
/// # Errors
/// The running one goes on.
pub fn succeed_instance(
    host: &Shared,
    name: &str,
    new: &InstanceSpec,
) -> Result<UpgradeReport, PlatformError> {
    let begun = Instant::now();
    let Some((successor, sites)) = lock(host).begin_succession(name, new)? else {
        return Ok(UpgradeReport::default());
    };
    let answer = successor.take_its_turn(name, &sites);
    let mut host = lock(host);
    host.upgrading.remove(name);
    let report = match answer {
        Ok(answer) => host.install(name, new, successor, &answer, &sites),
        Err(why) => host.give_up(name, &successor, why),
    };
    host.restore_memory_limit(name);
    let mut report = report.map_err(error)?;
    report.took_us = begun.elapsed().as_micros() as u64;
    host.event(
        EventKind::Replaced,
        Some((Kind::Instance, name)),
        format!(
            "upgraded in place; its ports were silent for {} us; {} entries of state taken over, {} left out",
            report.silent_us, report.state_taken, report.state_left_out
        ),
    );
    Ok(report)
}

/// Where those two run of whom one has the ports, and where they listen.
struct Sites {
    /// The CPUs of the instance: who has its ports is there.
    own: Vec<u32>,
    /// Others, where one starts and the other ends without taking time from who has the ports; empty: there are none.
    aside: Vec<u32>,
    control: PathBuf,
    next_control: PathBuf,
}

impl Sites {
    fn put(process: &Instance, cpus: &[u32]) {
        if !cpus.is_empty()
            && let Err(error) = pin(process, cpus)
        {
            tracing::debug!(%error, "one of two in an upgrade stays where it is");
        }
    }
}

impl Successor {
    /// Waits until it is ready, and has the predecessor hand over.
    fn take_its_turn(&self, name: &str, sites: &Sites) -> anyhow::Result<HandedOver> {
        await_ready(&self.way).with_context(|| {
            format!("its successor does not start ('nfluid logs {name}' says why)")
        })?;
        if let Err(why) = rehearse(sites) {
            // It takes longer then.
            tracing::debug!(instance = name, "an upgrade without a rehearsal: {why:#}");
        }
        if !sites.aside.is_empty() {
            Sites::put(&self.process, &sites.own);
        }
        let way = Some(self.way.as_fd());
        match daemon::ask_about(&sites.control, &Request::HandOver, way) {
            Ok(answer) => Ok(answer::read(answer).unwrap_or_default()),
            // The predecessor may have handed over and failed to say so: only the owner of the ports answers.
            Err(why) => match daemon::ask(&sites.next_control, &Request::Metrics) {
                Ok(_) => Ok(HandedOver::default()),
                Err(_) => Err(why),
            },
        }
    }
}

/// Has a successor take in the state that its predecessor has now, and forget it: where it starts, it is in nobody's way. What
/// it needs of memory is there then when its turn comes.
fn rehearse(sites: &Sites) -> anyhow::Result<()> {
    let file = memory_file("state", &[])?;
    let request = Request::Export { state_only: true };
    let answer = daemon::ask_about(&sites.control, &request, Some(file.as_fd()))?;
    let exported = answer::read::<Exported>(answer);
    let exported = exported.context("it does not say how long its state is")?;
    let request = Request::Rehearse {
        bytes: exported.state_bytes,
    };
    daemon::ask_about(&sites.next_control, &request, Some(file.as_fd()))?;
    Ok(())
}

impl Host {
    /// Why nothing may be done to an instance while it is upgraded or moved.
    ///
    /// # Errors
    /// It is.
    pub fn check_settled(&self, name: &str) -> Result<(), PlatformError> {
        if self.moving.contains(name) {
            let message = format!("instance {name} is being moved to or from another host");
            return Err(
                PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
                    "try again in a moment; 'nfluid events' tells of a move that is not settled",
                ),
            );
        }
        if !self.upgrading.contains(name) {
            return Ok(());
        }
        let message = format!("instance {name} is being upgraded");
        Err(PlatformError::new(PlatformErrorKind::Refused, message)
            .with_remedy("try again in a moment"))
    }

    fn spec_to_upgrade(&self, name: &str) -> Result<InstanceSpec, PlatformError> {
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        if !is_handed_over(&running.spec, &running.spec) {
            return Err(PlatformError::new(
                PlatformErrorKind::Unsupported,
                format!(
                    "instance {name} cannot hand its ports over: only built-in NFs with one queue per port and no trust group do"
                ),
            )
            .with_remedy(format!("'nfluid restart {name}' starts the installed version; its state is lost")));
        }
        self.maker.programs.renew().map_err(error)?;
        Ok(running.spec.clone())
    }

    /// Starts a successor that has no ports yet; nothing if nobody has them: then it has them already.
    fn begin_succession(
        &mut self,
        name: &str,
        new: &InstanceSpec,
    ) -> Result<Option<(Successor, Sites)>, PlatformError> {
        self.check_settled(name)?;
        self.check_awake(name)?;
        let running = self.instances.get(name).ok_or_else(|| no_instance(name))?;
        if running.process.is_none() {
            self.change_spec(name, |spec| *spec = new.clone())
                .map_err(error)?;
            self.start_again(name).map_err(error)?;
            return Ok(None);
        }
        let sites = self.sites(name, new).map_err(error)?;
        match self.start_successor(name, new, &sites) {
            Ok(successor) => {
                self.upgrading.insert(name.to_owned());
                Ok(Some((successor, sites)))
            }
            Err(why) => {
                self.restore_memory_limit(name);
                Err(error(why))
            }
        }
    }

    fn sites(&self, name: &str, new: &InstanceSpec) -> anyhow::Result<Sites> {
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let own = pinned_to(new, running.record.core);
        let mut aside = ThisHost.cpus();
        aside.retain(|cpu| !own.contains(cpu));
        Ok(Sites {
            // One that may be anywhere is moved by the kernel, out of the other's way.
            aside: if own.is_empty() { Vec::new() } else { aside },
            own,
            control: self.settings.paths.control(name),
            next_control: self.settings.paths.next_control(name),
        })
    }

    /// Ends a successor that has not got the ports.
    fn give_up(
        &mut self,
        name: &str,
        successor: &Successor,
        why: anyhow::Error,
    ) -> anyhow::Result<UpgradeReport> {
        let _absent = std::fs::remove_file(self.settings.paths.next_control(name));
        making::end(&successor.process)?;
        self.note_successor(name, None)?;
        // Should it have ended meanwhile, that was not told.
        self.note_exits(&[name.to_owned()]);
        Err(why.context("the running one goes on"))
    }

    fn start_successor(
        &mut self,
        name: &str,
        new: &InstanceSpec,
        sites: &Sites,
    ) -> anyhow::Result<Successor> {
        let (way, its_way) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("making the way between the two")?;
        let peers = self.link_peers(name, new);
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let io_bell = running.io_bell_of_successor()?;
        // Both are there for a moment, and their memory with them.
        let most = running.spec.resources.memory.0.max(new.resources.memory.0);
        running.cgroup.set_memory(most.saturating_mul(2))?;
        let given = GivenBells {
            peers: &peers,
            io: &io_bell,
            succession: Some(Succession {
                way: &its_way,
                control: &sites.next_control,
                cpus: &sites.aside,
            }),
        };
        let maps = running.maps(&self.settings.paths, name)?;
        let handover = self.switch.hand_over(&running.memory, maps)?;
        let target = Target {
            name,
            spec: new,
            cgroup: &running.cgroup,
            record: &running.record,
            program: None,
        };
        let ports = (&running.memory, &handover);
        let launched = self.maker.launch(target, ports, &given, None)?;
        drop(its_way);
        let identity = launched.instance.identity().clone();
        let successor = Successor {
            process: launched.instance,
            spec: serde_json::to_string(new)?,
            bells: peers,
            io_bell,
            io_bell_number: launched.io_bell,
            way,
        };
        if let Err(why) = self.note_successor(name, Some(identity)) {
            making::end(&successor.process)?;
            return Err(why);
        }
        self.note_bells(name, &successor.bells);
        Ok(successor)
    }

    fn note_successor(
        &mut self,
        name: &str,
        successor: Option<ProcessIdentity>,
    ) -> anyhow::Result<()> {
        let path = self.settings.paths.record(name);
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        running.record.successor = successor;
        nfluid_records::save(&running.record, &path).context("writing down the instance")
    }

    /// The successor has the ports: what is known of the instance is known of it.
    fn install(
        &mut self,
        name: &str,
        new: &InstanceSpec,
        successor: Successor,
        answer: &HandedOver,
        sites: &Sites,
    ) -> anyhow::Result<UpgradeReport> {
        let time = supervisor_time(self.started);
        // That of a peer which was removed meanwhile leads nowhere.
        let is_there = |peer: &String| {
            let holders = self.bell_holders.get(peer);
            holders.is_some_and(|holders| holders.contains(name))
        };
        let bells = successor.bells.into_iter();
        let bells: Vec<Option<String>> = bells.map(|bell| bell.filter(is_there)).collect();
        let running = self
            .instances
            .get_mut(name)
            .context("there is no such instance")?;
        self.exits.add(name, &successor.process);
        if let Some(predecessor) = running.process.replace(successor.process) {
            self.exits.forget(&predecessor);
            Sites::put(&predecessor, &sites.aside);
            if let Err(why) = making::end(&predecessor) {
                tracing::warn!(
                    instance = name,
                    "its predecessor, which has no ports any more: {why:#}"
                );
            }
        }
        running.spec = new.clone();
        let record = &mut running.record;
        record.process = running.process.as_ref().map(|it| it.identity().clone());
        record.successor = None;
        record.spec = successor.spec;
        record.bells = bells;
        record.io_bell = Some(successor.io_bell_number);
        running.keep_io_bell(successor.io_bell);
        running.since = Instant::now();
        running.pinned = None;
        running.sliced = new.resources.slice;
        running.moved_at = time;
        std::fs::rename(&sites.next_control, &sites.control)
            .context("taking over the control socket")?;
        let record = running.record.clone();
        nfluid_records::save(&record, &self.settings.paths.record(name))
            .context("writing down the instance")?;
        if new.io.has_threads()
            && let Err(why) = self.entrust(name, new.io)
        {
            tracing::warn!(instance = name, "giving it to an I/O thread: {why:#}");
        }
        self.put_in_force(name, &new.resources)?;
        self.choose_doorbells_of_peers(name);
        Ok(UpgradeReport {
            took_us: 0,
            silent_us: answer.silent_us,
            settle_us: answer.settle_us,
            export_us: answer.export_us,
            import_us: answer.import_us,
            state_taken: answer.taken,
            state_left_out: answer.left_out,
        })
    }

    fn restore_memory_limit(&self, name: &str) {
        let Some(running) = self.instances.get(name) else {
            return;
        };
        let limit = running.spec.resources.memory.0;
        if let Err(error) = running.cgroup.set_memory(limit) {
            tracing::warn!(instance = name, %error, "its memory limit stays as it was during the upgrade");
        }
    }
}

/// Whichever of a recorded instance and its successor has the ports, once they have settled it.
///
/// # Errors
/// None of them runs any more, or they do not settle it: then both are ended.
pub fn settled(record: &mut Record) -> anyhow::Result<Instance> {
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
                making::end(&one)?;
                making::end(&other)?;
                bail!("an upgrade of it has not come to an end");
            }
            _ => std::thread::sleep(SETTLED_POLL),
        }
    }
}

/// Waits for the successor's first word, which is the predecessor's to read.
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
