//! Who makes an instance's calls: itself, or an I/O thread.

use super::Host;
use anyhow::Context;
use nfluid_api::types::{EventKind, Kind};
use nfluid_control::io::IoModel;
use nfluid_instance::doorbell;
use nfluid_instance::launch::peers_by_queue;
use nfluid_instance::paths::Paths;
use nfluid_instance::running::Running;
use nfluid_io::{Idle, Worker};
use nfluid_process::io::{self, CORES_MAX, Entrusted, Order};
use nfluid_switch::Maps;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the process is given of an instance.
struct Portfolio<'a> {
    entrusted: Entrusted,
    io: BorrowedFd<'a>,
    maps: Maps,
    own_bell: OwnedFd,
    peer_bells: Vec<Option<OwnedFd>>,
}

impl<'a> Portfolio<'a> {
    /// Of the instance `name`, which wakes a thread by `io`.
    fn of(
        name: &str,
        running: &'a Running,
        io: BorrowedFd<'a>,
        model: IoModel,
        paths: &Paths,
    ) -> anyhow::Result<Self> {
        let mut peer_bells = Vec::new();
        for peer in peers_by_queue(&running.spec, &running.record.bells) {
            let bell = peer.map(|peer| doorbell::open_ringing(&paths.bell(peer)));
            peer_bells.push(bell.transpose().context("opening a peer's doorbell")?);
        }
        let cores = running.spec.resources.cpus.iter();
        let cores = cores.take_while(|_| running.spec.resources.cpus.len() <= CORES_MAX);
        let parts = running.memory.ports.iter().zip(&peer_bells);
        Ok(Portfolio {
            entrusted: Entrusted {
                instance: name.to_owned(),
                model,
                cores: cores.map(|core| *core as usize).collect(),
                ports: parts
                    .map(|(part, bell)| (part.spec.id, bell.is_some()))
                    .collect(),
            },
            io,
            maps: running.maps(paths, name)?,
            own_bell: doorbell::open_ringing(&paths.bell(name)).context("opening its doorbell")?,
            peer_bells,
        })
    }

    /// In the order in which [`Order::Serve`] wants them.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.io, self.own_bell.as_fd()];
        for (ring, bell) in self.maps.rings.iter().zip(&self.peer_bells) {
            fds.push(ring.as_fd());
            fds.extend(bell.iter().map(AsFd::as_fd));
        }
        fds
    }
}

/// The ports of an instance, every queue of them.
fn port_ids(running: &Running) -> Vec<u32> {
    let parts = running.memory.ports.iter();
    parts.map(|part| part.spec.id).collect()
}

impl Host {
    /// Changes who makes the calls of an instance.
    ///
    /// # Errors
    /// It is as before.
    pub(super) fn set_io_model(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        self.check_settled(name)?;
        let running = self
            .instances
            .get(name)
            .context("there is no such instance")?;
        let before = running.spec.io;
        self.hand_calls_to(name, model)?;
        if let Err(why) = self.note_io_model(name, model) {
            if let Err(again) = self.hand_calls_to(name, before) {
                tracing::warn!(instance = name, "the new I/O model stays: {again:#}");
            }
            return Err(why);
        }
        self.weigh_io();
        Ok(())
    }

    fn hand_calls_to(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        if model.has_threads() {
            self.entrust(name, model)
        } else {
            self.dismiss(name)
        }
    }

    fn note_io_model(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        let path = self.settings.paths.record(name);
        let running = self.instances.get_mut(name);
        let running = running.context("there is no such instance")?;
        let mut record = running.record.clone();
        record.io = model;
        nfluid_records::save(&record, &path).context("writing down the instance")?;
        running.record = record;
        running.spec.io = model;
        if !model.has_threads() {
            running.io_bell = None;
        }
        Ok(())
    }

    /// Has a thread make the calls of an instance; starts the process if it does not run.
    ///
    /// # Errors
    /// The instance makes them itself, or who made them before goes on.
    pub(super) fn entrust(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        if self.io.process.is_none() {
            self.start_io()?;
        }
        self.order_to_serve(name, model)
    }

    fn order_to_serve(&mut self, name: &str, model: IoModel) -> anyhow::Result<()> {
        let running = self.instances.get_mut(name);
        let running = running.context("there is no such instance")?;
        running.take_io_bell()?;
        let running = &*running;
        let io = running.io_bell.as_ref().context("it has no bell")?;
        let paths = &self.settings.paths;
        let portfolio = Portfolio::of(name, running, io.as_fd(), model, paths)?;
        let process = self.io.process.as_ref();
        let process = process.context("the process of the I/O threads does not run")?;
        self.switch.note_served(&port_ids(running), true);
        let answer = process.order(Order::Serve(portfolio.entrusted.clone()), &portfolio.fds());
        drop(portfolio);
        let placed = self.heard(answer)?;
        self.io.threads.extend(placed);
        Ok(())
    }

    /// Has an instance make its calls itself.
    ///
    /// # Errors
    /// What its thread has left in its rings waits until it sends again.
    fn dismiss(&mut self, name: &str) -> anyhow::Result<()> {
        if self.ask_to_leave(name) {
            return Ok(());
        }
        // The process is gone.
        self.give_calls_back(name)
    }

    /// Has an instance make its calls itself whose thread is gone, and does what that has left.
    fn give_calls_back(&self, name: &str) -> anyhow::Result<()> {
        let running = self.instances.get(name);
        let running = running.context("there is no such instance")?;
        // Nobody listens to it.
        let io = doorbell::make_io().context("making a bell")?;
        let paths = &self.settings.paths;
        let portfolio = Portfolio::of(name, running, io.as_fd(), IoModel::Inline, paths)?;
        let fds = portfolio.fds().into_iter();
        let fds: Result<Vec<OwnedFd>, _> = fds.map(|fd| fd.try_clone_to_owned()).collect();
        let mut worker = Worker::new(self.switch.serve()?, Idle::Sleep { looks: 0 }, None)?;
        for duty in io::duties(&portfolio.entrusted, fds?)? {
            let port = duty.port();
            worker.add(duty)?;
            worker.remove(port);
        }
        Ok(())
    }

    /// Whether the process has left an instance's ports. If not, it is not there any more.
    pub(super) fn ask_to_leave(&mut self, name: &str) -> bool {
        let has_left = self.order_to_leave(name);
        if let Some(running) = self.instances.get(name) {
            self.switch.note_served(&port_ids(running), false);
        }
        has_left
    }

    /// Says whose calls threads make, after an adoption: from now on it is known.
    pub(super) fn note_served(&self) {
        let served = self.io.threads.keys();
        let served = served.filter_map(|name| self.instances.get(name));
        let ports: Vec<u32> = served.flat_map(port_ids).collect();
        self.switch.note_served(&ports, true);
    }

    fn order_to_leave(&mut self, name: &str) -> bool {
        self.io.threads.remove(name);
        let Some(process) = &self.io.process else {
            return false;
        };
        let instance = name.to_owned();
        let answer = process.order(Order::Leave { instance }, &[]);
        match self.heard(answer) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(instance = name, "taking it from its I/O thread: {error:#}");
                false
            }
        }
    }

    /// Gives the process every instance that is to have a thread and has none.
    pub(super) fn entrust_all(&mut self) {
        let without = |(name, running): (&String, &Running)| {
            let model = running.spec.io;
            let lacks = model.has_threads() && !self.io.threads.contains_key(name);
            lacks.then(|| (name.clone(), model))
        };
        let waiting: Vec<(String, IoModel)> = self.instances.iter().filter_map(without).collect();
        for (name, model) in waiting {
            if let Err(error) = self.order_to_serve(&name, model) {
                if let Err(error) = self.give_calls_back(&name) {
                    tracing::warn!(instance = name, "its calls are not made: {error:#}");
                }
                let message = format!("no I/O thread makes its calls: {error:#}");
                self.event(EventKind::Warning, Some((Kind::Instance, &name)), message);
            }
        }
        self.weigh_io();
    }
}
