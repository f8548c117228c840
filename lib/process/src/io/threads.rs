//! Which thread makes which instance's calls.

use super::protocol::{Entrusted, IoStatus, Setup, ThreadRef};
use anyhow::{Context, ensure};
use nfluid_control::io::{IoIdle, IoModel};
use nfluid_io::{Doorbells, Duty, Idle, IoThread, Placement};
use nfluid_ring::memory::RingMemory;
use nfluid_switch::serve::Serve;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Looks around of a thread with a core of its own, before it sleeps.
const LOOKS_SPLIT: u32 = 2048;
/// Looks of a thread that may be on the instance's core: the instance may wait for the end of the looks.
const LOOKS_MIX: u32 = 64;
/// Longest name of a thread in bytes (the kernel's TASK_COMM_LEN without its final zero).
const NAME_MAX: usize = 15;

/// All threads.
#[derive(Debug)]
pub struct Threads {
    serve: Serve,
    setup: Setup,
    workers: BTreeMap<u32, Worker>,
    instances: BTreeMap<String, Served>,
}

/// The worker of a core.
#[derive(Debug)]
struct Worker {
    thread: Named,
    instances: usize,
}

#[derive(Debug)]
struct Named {
    thread: IoThread,
    name: String,
}

/// An instance and the thread that makes its calls.
#[derive(Debug)]
struct Served {
    model: IoModel,
    ports: Vec<u32>,
    seat: Seat,
}

#[derive(Debug)]
enum Seat {
    /// The thread serves other instances too, as the worker of this core.
    Worker(u32),
    /// Alone.
    Own(Named),
}

impl Threads {
    /// None yet.
    pub fn new(serve: Serve, setup: Setup) -> Self {
        Threads {
            serve,
            setup,
            workers: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }

    /// Returns the instances of each thread.
    pub fn status(&self) -> IoStatus {
        let all = self.instances.iter();
        all.filter_map(|(name, served)| Some((name.clone(), self.thread_of(served)?)))
            .collect()
    }

    fn thread_of(&self, served: &Served) -> Option<ThreadRef> {
        let named = self.named(&served.seat)?;
        Some(ThreadRef {
            model: served.model,
            name: named.name.clone(),
            tid: named.thread.tid(),
        })
    }

    fn named<'a>(&'a self, seat: &'a Seat) -> Option<&'a Named> {
        match seat {
            Seat::Worker(core) => self.workers.get(core).map(|worker| &worker.thread),
            Seat::Own(named) => Some(named),
        }
    }

    /// Makes an instance's calls from now on.
    ///
    /// # Errors
    /// The thread cannot be started, or the rings cannot be mapped. The previous party continues to make the calls or,
    /// if another thread had already stopped making them, the instance does.
    pub fn serve(&mut self, entrusted: Entrusted, fds: Vec<OwnedFd>) -> anyhow::Result<IoStatus> {
        let name = entrusted.instance.clone();
        let duties = duties(&entrusted, fds)?;
        let seat = self.seat(&name, entrusted.model)?;
        self.take_leave(&name);
        let served = self.install(entrusted.model, seat, duties)?;
        let thread = self.thread_of(&served);
        self.instances.insert(name.clone(), served);
        Ok(thread.map(|thread| (name, thread)).into_iter().collect())
    }

    /// Stops making an instance's calls. An instance whose calls the process does not make is no error.
    ///
    /// # Errors
    /// None.
    pub fn leave(&mut self, instance: &str) -> anyhow::Result<IoStatus> {
        self.take_leave(instance);
        Ok(IoStatus::new())
    }

    /// Changes the settings of the threads: each thread is replaced by another, one instance after the other.
    ///
    /// # Errors
    /// A thread cannot be started. All are as before, but for instances that could not be given to
    /// their former threads again: those make their calls themselves.
    pub fn set(&mut self, setup: Setup) -> anyhow::Result<IoStatus> {
        if setup == self.setup {
            return Ok(self.status());
        }
        let former = std::mem::replace(&mut self.setup, setup);
        let mut replaced = self.replace_all();
        if replaced.is_err() {
            self.setup = former;
            if let Err(error) = self.replace_all() {
                replaced = replaced.map_err(|why| why.context(format!("and then: {error:#}")));
            }
        }
        replaced.map(|()| self.status())
    }

    fn replace_all(&mut self) -> anyhow::Result<()> {
        let former = std::mem::take(&mut self.workers);
        let names: Vec<String> = self.instances.keys().cloned().collect();
        let mut outcome = Ok(());
        for name in names {
            let Some(served) = self.instances.remove(&name) else {
                continue;
            };
            let thread = match &served.seat {
                Seat::Worker(core) => former.get(core).map(|worker| &worker.thread),
                Seat::Own(named) => Some(named),
            };
            let duties = thread.map_or_else(Vec::new, |named| take_duties(named, &served.ports));
            let seat = self.seat(&name, served.model);
            let replaced = seat.and_then(|seat| self.install(served.model, seat, duties));
            match replaced {
                Ok(served) => drop(self.instances.insert(name, served)),
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }

    /// A thread for an instance: a new one, or the worker that has least to do.
    fn seat(&mut self, instance: &str, model: IoModel) -> anyhow::Result<Seat> {
        let (placement, looks) = match model {
            IoModel::Split => return self.worker().map(Seat::Worker),
            // No frame comes while the thread looks: the thread has the instance's core.
            IoModel::Merge => (Placement::WithInstance, 0),
            IoModel::Mix => (Placement::Anywhere, LOOKS_MIX),
            IoModel::Inline => anyhow::bail!("'inline' has no I/O thread"),
        };
        let name = format!("{model} {instance}");
        self.start(&name, looks, placement).map(Seat::Own)
    }

    fn worker(&mut self) -> anyhow::Result<u32> {
        let load = |core: &u32| self.workers.get(core).map_or(0, |worker| worker.instances);
        let core = self.setup.cores.iter().copied().min_by_key(load);
        let core = core.context("there is no core for a worker")?;
        if !self.workers.contains_key(&core) {
            let place = Placement::Core(core as usize);
            let thread = self.start(&format!("split {core}"), LOOKS_SPLIT, place)?;
            let instances = 0;
            self.workers.insert(core, Worker { thread, instances });
        }
        if let Some(worker) = self.workers.get_mut(&core) {
            worker.instances += 1;
        }
        Ok(core)
    }

    fn start(&self, name: &str, looks: u32, placement: Placement) -> anyhow::Result<Named> {
        let idle = match self.setup.idle {
            IoIdle::Poll => Idle::Poll,
            IoIdle::Sleep => Idle::Sleep { looks },
        };
        let end = (0..=name.len().min(NAME_MAX))
            .rev()
            .find(|at| name.is_char_boundary(*at));
        let name = name.get(..end.unwrap_or(0)).unwrap_or_default();
        let serve = self.serve.try_clone().context("duplicating a descriptor")?;
        let thread = IoThread::start(name, serve, idle, placement)
            .with_context(|| format!("starting the I/O thread '{name}'"))?;
        Ok(Named {
            thread,
            name: name.to_owned(),
        })
    }

    /// Gives ports to the thread of a seat: all, or none; then the seat is free again.
    fn install(&mut self, model: IoModel, seat: Seat, duties: Vec<Duty>) -> anyhow::Result<Served> {
        let named = self.named(&seat).context("the worker is gone");
        match named.and_then(|named| give_duties(named, duties)) {
            Ok(ports) => Ok(Served { model, ports, seat }),
            Err(error) => {
                self.free(seat);
                Err(error)
            }
        }
    }

    /// Takes an instance from the thread that makes its calls; a thread without instances ends.
    fn take_leave(&mut self, instance: &str) {
        let Some(served) = self.instances.remove(instance) else {
            return;
        };
        if let Some(named) = self.named(&served.seat) {
            take_duties(named, &served.ports);
        }
        self.free(served.seat);
    }

    fn free(&mut self, seat: Seat) {
        if let Seat::Worker(core) = seat
            && let Some(worker) = self.workers.get_mut(&core)
        {
            worker.instances = worker.instances.saturating_sub(1);
            if worker.instances == 0 {
                self.workers.remove(&core);
            }
        }
    }
}

/// Gives all of these ports to a thread, or none. Returns the numbers of the ports.
fn give_duties(named: &Named, duties: Vec<Duty>) -> anyhow::Result<Vec<u32>> {
    let mut ports = Vec::with_capacity(duties.len());
    for duty in duties {
        let port = duty.port();
        if let Err(error) = named.thread.add(duty) {
            take_duties(named, &ports);
            return Err(error).with_context(|| format!("giving port {port} to '{}'", named.name));
        }
        ports.push(port);
    }
    Ok(ports)
}

/// Takes ports back from a thread.
fn take_duties(named: &Named, ports: &[u32]) -> Vec<Duty> {
    let taken = ports
        .iter()
        .filter_map(|port| match named.thread.remove(*port) {
            Ok(duty) => duty,
            Err(error) => {
                tracing::error!(thread = named.name, port, %error, "taking a port back");
                None
            }
        });
    taken.collect()
}

/// The ports of an instance, from the descriptors that come with [`super::Order::Serve`].
///
/// # Errors
/// When descriptors are missing or left over, or rings cannot be mapped.
pub fn duties(entrusted: &Entrusted, fds: Vec<OwnedFd>) -> anyhow::Result<Vec<Duty>> {
    let ports = &entrusted.ports;
    let mut fds = fds.into_iter();
    let mut next = || fds.next().context("a descriptor is missing");
    let doorbells = Arc::new(Doorbells {
        io: next()?,
        instance: Some(next()?),
        cores: entrusted.cores.clone(),
    });
    let mut duties = Vec::with_capacity(ports.len());
    for (port, has_peer) in ports {
        let ring = RingMemory::map(next()?.as_fd())
            .with_context(|| format!("mapping the rings of port {port}"))?;
        let peer = if *has_peer { Some(next()?) } else { None };
        duties.push(Duty::new(*port, ring, Arc::clone(&doorbells), peer));
    }
    ensure!(fds.next().is_none(), "there is a descriptor too many");
    Ok(duties)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        let memory = || {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&fd, size_of::<nfluid_ring::layout::Ring>() as u64).unwrap();
            fd
        };
        (0..count).map(|_| memory()).collect()
    }

    #[test]
    fn each_port_takes_the_descriptors_that_are_its_own() {
        // Two doorbells; rings and a peer's doorbell; rings.
        let entrusted = Entrusted {
            instance: "fw".to_owned(),
            model: IoModel::Merge,
            cores: Vec::new(),
            ports: vec![(7, true), (8, false)],
        };
        let found = duties(&entrusted, descriptors(5)).unwrap();
        let numbers: Vec<u32> = found.iter().map(Duty::port).collect();
        assert_eq!(numbers, [7, 8]);
        for wrong in [0, 1, 4, 6] {
            assert!(duties(&entrusted, descriptors(wrong)).is_err(), "{wrong}");
        }
    }
}
