//! Threads that wait for the kernel: such a thread makes a call that returns after a grace period, and the caller
//! fetches the result later. An idle thread is kept for the next call: starting and ending a thread costs as much as
//! the call itself. A thread has the nice value of the caller that started it, so it makes calls for callers of the
//! same urgency only.

use crate::SwitchError;
use rustix::process::getpriority_process;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Stack of a thread that does nothing but one call at a time.
const STACK: usize = 128 << 10;
/// Threads that are kept: what two changes of all tables at a time need.
const IDLE_MAX: usize = 6;

type Outcome = Result<(), SwitchError>;
/// Progress of a call.
#[derive(Debug)]
enum Progress {
    Begun,
    Over(Outcome),
}
/// A call, and the receiver of its progress.
type Order = (Box<dyn FnOnce() -> Outcome + Send>, Sender<Progress>);

/// A nice value, and the sender to an idle thread of that nice value.
type Kept = (i32, Sender<Order>);

/// The idle threads.
#[derive(Debug, Default)]
struct Idle(Mutex<Vec<Kept>>);

impl Idle {
    fn list(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, nice: i32) -> Option<Sender<Order>> {
        let mut list = self.list();
        let at = list.iter().rposition(|(of, _)| *of == nice)?;
        Some(list.remove(at).1)
    }
}

/// The waiting threads. They end when this value is dropped and their calls are over.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Arc<Idle>);

/// A call that a thread makes.
#[derive(Debug)]
pub(crate) struct Call(Receiver<Progress>);

impl Call {
    /// Waits until the call's thread is about to make the call; called once, before the result is requested. Checking
    /// for the effect of the call earlier would cost more than the call, while the thread waits for a core.
    pub(crate) fn await_begin(&self) {
        // The result reports a thread that has died.
        let _ = self.0.recv();
    }

    /// Returns the result of the call, if the call is over.
    pub(crate) fn result(&self) -> Option<Outcome> {
        match self.0.try_recv() {
            Ok(Progress::Over(outcome)) => Some(outcome),
            Ok(Progress::Begun) | Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(died())),
        }
    }

    /// Waits until it is over.
    pub(crate) fn wait(self) -> Outcome {
        loop {
            match self.0.recv() {
                Ok(Progress::Begun) => {}
                Ok(Progress::Over(outcome)) => return outcome,
                Err(_) => return Err(died()),
            }
        }
    }
}

fn died() -> SwitchError {
    SwitchError::system("changing a table of maps")(io::Error::other("its thread has died"))
}

impl Waiters {
    /// Has a thread make a call.
    ///
    /// # Errors
    /// When no thread is idle and the kernel has none left.
    pub(crate) fn make(&self, call: impl FnOnce() -> Outcome + Send + 'static) -> io::Result<Call> {
        let (report, progress) = channel();
        let mut order: Order = (Box::new(call), report);
        // The calling thread's, which one that it starts inherits.
        let nice = getpriority_process(None)?;
        while let Some(idle) = self.0.take(nice) {
            match idle.send(order) {
                Ok(()) => return Ok(Call(progress)),
                // The kept thread has died.
                Err(unsent) => order = unsent.0,
            }
        }
        let idle = Arc::downgrade(&self.0);
        std::thread::Builder::new()
            .name("grace".to_owned())
            .stack_size(STACK)
            .spawn(move || work(&idle, nice, order))?;
        Ok(Call(progress))
    }
}

fn work(idle: &Weak<Idle>, nice: i32, mut order: Order) {
    loop {
        let (call, report) = order;
        // The caller may have dropped its handle, here and below.
        let _ = report.send(Progress::Begun);
        let outcome = call();
        // Only the list has the sender: the thread ends with the list.
        let (sender, orders) = channel();
        // The thread is kept before its result is reported: a caller that makes one call after the other needs one
        // thread.
        let is_kept = idle.upgrade().is_some_and(|idle| {
            let mut list = idle.list();
            let has_room = list.len() < IDLE_MAX;
            if has_room {
                list.push((nice, sender));
            }
            has_room
        });
        let _ = report.send(Progress::Over(outcome));
        if !is_kept {
            return;
        }
        match orders.recv() {
            Ok(next) => order = next,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MAX, Waiters};
    use crate::SwitchError;
    use rustix::process::{getpriority_process, setpriority_process};
    use std::collections::HashSet;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn calls_one_after_the_other_are_made_by_one_thread() {
        let waiters = Waiters::default();
        let mut threads = HashSet::new();
        for _ in 0..10 {
            let (report, progress) = channel();
            let call = waiters.make(move || {
                report
                    .send(thread::current().id())
                    .expect("it is asked for");
                Ok(())
            });
            call.expect("a thread").wait().expect("nothing fails");
            threads.insert(progress.recv().expect("it was progress"));
        }
        assert_eq!(threads.len(), 1);
    }

    #[test]
    fn callers_of_another_nice_value_have_threads_of_their_own() {
        let waiters = Waiters::default();
        let nice_of_a_call = || {
            let (report, progress) = channel();
            let call = waiters.make(move || {
                let nice = getpriority_process(None).expect("its own");
                report.send(nice).expect("it is asked for");
                Ok(())
            });
            call.expect("a thread").wait().expect("nothing fails");
            progress.recv().expect("it was progress")
        };
        let own = nice_of_a_call();
        let nicer = (own + 1).min(19);
        let of_a_nicer = thread::scope(|scope| {
            let asks = scope.spawn(|| {
                setpriority_process(None, nicer).expect("everybody may be nicer");
                nice_of_a_call()
            });
            asks.join().expect("it asks")
        });
        assert_eq!(of_a_nicer, nicer);
        assert_eq!(nice_of_a_call(), own);
    }

    #[test]
    fn calls_at_the_same_time_wait_for_none_of_the_others_and_few_threads_are_kept() {
        let waiters = Waiters::default();
        let count = 2 * IDLE_MAX;
        let mut going_on = Vec::new();
        let (here, arrived) = channel();
        for _ in 0..count {
            let (go, wait) = channel::<()>();
            let here = here.clone();
            let call = waiters.make(move || {
                here.send(()).expect("it is waited for");
                wait.recv().map_err(|_| SwitchError::Limit("no".to_owned()))
            });
            going_on.push((call.expect("a thread"), go));
        }
        for _ in 0..count {
            arrived.recv().expect("all are under way at once");
        }
        assert!(going_on.iter().all(|(call, _)| call.result().is_none()));
        let (last, told_nothing) = going_on.pop().expect("there are some");
        drop(told_nothing);
        assert!(last.wait().is_err(), "an error is progress");
        for (call, go) in going_on {
            go.send(()).expect("it waits");
            call.wait().expect("nothing fails");
        }
        assert_eq!(waiters.0.list().len(), IDLE_MAX);
    }
}
