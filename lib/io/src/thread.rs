//! A worker on a thread of its own.

use crate::duty::Duty;
use crate::placement::{Pin, Placement};
use crate::worker::{Idle, Worker, WorkerStats};
use nfluid_switch::serve::Serve;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::gettid;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// Turns of a polling thread between two looks at what its owner wants.
const TURNS_PER_LOOK: u32 = 256;

/// A thread that serves ports. When it is dropped the thread ends, and the instances make their
/// calls themselves again.
#[derive(Debug)]
pub struct IoThread {
    orders: Option<Sender<Order>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    tid: i32,
}

/// An order of a thread's owner.
enum Order {
    Add(Duty, SyncSender<io::Result<()>>),
    Remove(u32, SyncSender<Option<Duty>>),
    Stats(SyncSender<WorkerStats>),
}

impl IoThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// When it cannot be started, or may not run where it is to run.
    pub fn start(name: &str, serve: Serve, idle: Idle, placement: Placement) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut worker = Worker::new(serve, idle, Some(&wake))?;
        if placement == Placement::WithInstance {
            worker.set_shares_core();
        }
        let (orders, receiver) = channel();
        let (told, outcome) = sync_channel(1);
        let own_wake = Arc::clone(&wake);
        let run = move || match Pin::new(placement) {
            Ok(pin) => {
                let _ = told.send(Ok(gettid().as_raw_nonzero().get()));
                let mut worker = worker;
                let ended = run(&mut worker, pin, &receiver, &own_wake);
                // The ports are removed whatever ended the loop: no other thread makes the calls of these ports.
                worker.remove_all();
                if let Err(error) = ended {
                    tracing::error!(%error, "an I/O thread has ended; its instances make their calls");
                }
            }
            Err(error) => drop(told.send(Err(error))),
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)?;
        let tid = outcome.recv().map_err(io::Error::other)??;
        Ok(IoThread {
            orders: Some(orders),
            wake,
            thread: Some(thread),
            tid,
        })
    }

    /// The kernel's number of the thread, by which its CPU time is found.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Serves one more port.
    ///
    /// # Errors
    /// See [`Worker::add`]; or the thread has ended.
    pub fn add(&self, duty: Duty) -> io::Result<()> {
        self.order(|back| Order::Add(duty, back))?
    }

    /// Serves a port no longer: see [`Worker::remove`].
    ///
    /// # Errors
    /// The thread has ended.
    pub fn remove(&self, port: u32) -> io::Result<Option<Duty>> {
        self.order(|back| Order::Remove(port, back))
    }

    /// Returns the counters of the thread.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn stats(&self) -> io::Result<WorkerStats> {
        self.order(Order::Stats)
    }

    fn order<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order) -> io::Result<T> {
        let ended = || io::Error::new(io::ErrorKind::BrokenPipe, "the I/O thread has ended");
        let (back, answer) = sync_channel(1);
        let orders = self.orders.as_ref().ok_or_else(ended)?;
        orders.send(order(back)).map_err(|_| ended())?;
        self.ring();
        answer.recv().map_err(|_| ended())
    }

    fn ring(&self) {
        // Full after 2^64 rings: it is readable then.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    worker: &mut Worker,
    mut pin: Pin,
    orders: &Receiver<Order>,
    wake: &OwnedFd,
) -> io::Result<()> {
    loop {
        for _ in 0..TURNS_PER_LOOK {
            if worker.turn_or_sleep(&mut pin)? {
                let mut count = [0; 8];
                let _ = rustix::io::read(wake, &mut count);
                break;
            }
        }
        loop {
            match orders.try_recv() {
                Ok(order) => obey(order, worker),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// An owner that does not wait for the answer needs none.
fn obey(order: Order, worker: &mut Worker) {
    match order {
        Order::Add(duty, back) => drop(back.send(worker.add(duty))),
        Order::Remove(port, back) => drop(back.send(worker.remove(port))),
        Order::Stats(back) => drop(back.send(worker.stats())),
    }
}
