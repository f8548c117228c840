//! The party that makes an instance's system calls: the instance itself, or an I/O thread.

use super::{CORES_MAX, Entrusted, IoThreads, Order, duties};
use anyhow::Context;
use nfluid_api::types::EventKind;
use nfluid_control::io::IoModel;
use nfluid_io::{Idle, Worker};
use nfluid_lifecycle::running::Running;
use nfluid_lifecycle::table::Instances;
use nfluid_lifecycle::workload::Calls;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The resources of an instance that the process gets.
struct Portfolio {
    entrusted: Entrusted,
    calls: Calls,
}

impl Portfolio {
    /// Returns the resources for the calls of the instance `name`. `heard` is false if no thread will read the thread's
    /// doorbell.
    fn of(name: &str, running: &mut Running, model: IoModel, heard: bool) -> anyhow::Result<Self> {
        let calls = running.workload.calls(heard)?;
        let cores = running.spec.resources.cpus.iter();
        let cores = cores.take_while(|_| running.spec.resources.cpus.len() <= CORES_MAX);
        let ports = running.workload.ports().iter().zip(&calls.rings);
        Ok(Portfolio {
            entrusted: Entrusted {
                instance: name.to_owned(),
                model,
                cores: cores.map(|core| *core as usize).collect(),
                ports: ports
                    .map(|(port, (_, bell))| (port.number, bell.is_some()))
                    .collect(),
            },
            calls,
        })
    }

    /// In the order in which [`Order::Serve`] wants them.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.calls.io.as_fd(), self.calls.own.as_fd()];
        for (ring, bell) in &self.calls.rings {
            fds.push(ring.as_fd());
            fds.extend(bell.iter().map(AsFd::as_fd));
        }
        fds
    }
}

impl IoThreads {
    /// Has a thread make the calls of an instance; starts the process if it does not run.
    ///
    /// # Errors
    /// The instance makes the calls itself, or the previous party continues.
    pub fn entrust(
        &mut self,
        instances: &mut Instances,
        name: &str,
        model: IoModel,
    ) -> anyhow::Result<()> {
        if self.process.is_none() {
            self.start(instances)?;
        }
        self.order_to_serve(instances, name, model)
    }

    /// Has an instance make its calls itself.
    ///
    /// # Errors
    /// Frames that the thread has left in the instance's rings wait until the instance sends again.
    pub fn dismiss(&mut self, instances: &mut Instances, name: &str) -> anyhow::Result<()> {
        if self.release(instances, name) {
            return Ok(());
        }
        // The process is gone.
        self.give_calls_back(instances, name)
    }

    /// Takes an instance from its thread. Returns false if the process is not there any more.
    pub fn release(&mut self, instances: &Instances, name: &str) -> bool {
        let has_left = self.order_to_leave(name);
        if let Some(running) = instances.get(name) {
            let ports: Vec<u32> = running.port_numbers().collect();
            self.means.switch.note_served(&ports, false);
        }
        has_left
    }

    fn order_to_serve(
        &mut self,
        instances: &mut Instances,
        name: &str,
        model: IoModel,
    ) -> anyhow::Result<()> {
        let running = instances.find_mut(name)?;
        let portfolio = Portfolio::of(name, running, model, true)?;
        let process = self.process.as_ref();
        let process = process.context("the process of the I/O threads does not run")?;
        let ports: Vec<u32> = running.port_numbers().collect();
        self.means.switch.note_served(&ports, true);
        let answer = process.order(Order::Serve(portfolio.entrusted.clone()), &portfolio.fds());
        let placed = self.take_answer(answer)?;
        self.threads.extend(placed);
        Ok(())
    }

    /// Returns the calls to an instance whose thread has ended, and handles the frames that the thread has left.
    fn give_calls_back(&self, instances: &mut Instances, name: &str) -> anyhow::Result<()> {
        let running = instances.find_mut(name)?;
        let portfolio = Portfolio::of(name, running, IoModel::Inline, false)?;
        let fds = portfolio.fds().into_iter();
        let fds: Result<Vec<OwnedFd>, _> = fds.map(|fd| fd.try_clone_to_owned()).collect();
        let mut worker = Worker::new(self.means.switch.serve()?, Idle::Sleep { looks: 0 }, None)?;
        for duty in duties(&portfolio.entrusted, fds?)? {
            let port = duty.port();
            worker.add(duty)?;
            worker.remove(port);
        }
        Ok(())
    }

    /// Records, after an adoption, the ports whose calls threads make. Until then these ports are unknown.
    pub(super) fn note_served(&self, instances: &Instances) {
        let served = self.threads.keys();
        let served = served.filter_map(|name| instances.get(name));
        let ports: Vec<u32> = served.flat_map(Running::port_numbers).collect();
        self.means.switch.note_served(&ports, true);
    }

    fn order_to_leave(&mut self, name: &str) -> bool {
        self.threads.remove(name);
        let Some(process) = &self.process else {
            return false;
        };
        let instance = name.to_owned();
        let answer = process.order(Order::Leave { instance }, &[]);
        match self.take_answer(answer) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(instance = name, "taking it from its I/O thread: {error:#}");
                false
            }
        }
    }

    /// Gives the process every instance that is to have a thread and has none.
    pub(super) fn entrust_all(&mut self, instances: &mut Instances) {
        let without = |(name, running): (&String, &Running)| {
            let model = running.spec.io;
            let lacks = model.has_threads() && !self.threads.contains_key(name);
            lacks.then(|| (name.clone(), model))
        };
        let waiting: Vec<(String, IoModel)> = instances.iter().filter_map(without).collect();
        for (name, model) in waiting {
            if let Err(error) = self.order_to_serve(instances, &name, model) {
                if let Err(error) = self.give_calls_back(instances, &name) {
                    tracing::warn!(instance = name, "its calls are not made: {error:#}");
                }
                let message = format!("no I/O thread makes its calls: {error:#}");
                let events = &self.means.events;
                events.of_instance(EventKind::Warning, &name, message);
            }
        }
    }

    /// Changes the party that makes the calls of an instance.
    ///
    /// # Errors
    /// The party is unchanged.
    pub fn change_model(
        &mut self,
        instances: &mut Instances,
        name: &str,
        model: IoModel,
    ) -> anyhow::Result<()> {
        instances.check_settled(name)?;
        let before = instances.find(name)?.spec.io;
        self.hand_calls_to(instances, name, model)?;
        if let Err(why) = note_model(instances, name, model) {
            if let Err(again) = self.hand_calls_to(instances, name, before) {
                tracing::warn!(instance = name, "the new I/O model stays: {again:#}");
            }
            return Err(why);
        }
        Ok(())
    }

    fn hand_calls_to(
        &mut self,
        instances: &mut Instances,
        name: &str,
        model: IoModel,
    ) -> anyhow::Result<()> {
        if model.has_threads() {
            self.entrust(instances, name, model)
        } else {
            self.dismiss(instances, name)
        }
    }
}

fn note_model(instances: &mut Instances, name: &str, model: IoModel) -> anyhow::Result<()> {
    let running = instances.find_mut(name)?;
    running
        .change_record(|record| record.io = model)
        .context("writing down the instance")?;
    running.spec.io = model;
    if !model.has_threads() {
        running.workload.end_calls();
    }
    Ok(())
}
