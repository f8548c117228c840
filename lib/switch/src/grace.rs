//! Threads that wait for the kernel: a call that returns after a grace period is made by one of them, and whoever needs its
//! result asks for it later. One that has nothing to do is kept for the next call: starting and ending a thread costs as
//! much as what the call itself does. It makes calls for those who are as urgent as who started it, as it has that one's
//! nice value.

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
/// What is told of a call.
#[derive(Debug)]
enum Told {
    Begun,
    Over(Outcome),
}
/// A call, and who asks for its result.
type Order = (Box<dyn FnOnce() -> Outcome + Send>, Sender<Told>);

/// A nice value, and the way to a thread of this one that has nothing to do.
type Kept = (i32, Sender<Order>);

/// The threads that have nothing to do.
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

/// The threads. They end when this is dropped and their calls are over.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Arc<Idle>);

/// A call that a thread makes.
#[derive(Debug)]
pub(crate) struct Call(Receiver<Told>);

impl Call {
    /// Waits until its thread is about to make it; called once, before it is asked for its result. Looking whether it has had
    /// its effect before would cost more than the call, while the thread waits for a core.
    pub(crate) fn await_begin(&self) {
        // If the thread has died, its result says so.
        let _ = self.0.recv();
    }

    /// Its result, if it is over.
    pub(crate) fn result(&self) -> Option<Outcome> {
        match self.0.try_recv() {
            Ok(Told::Over(outcome)) => Some(outcome),
            Ok(Told::Begun) | Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(died())),
        }
    }

    /// Waits until it is over.
    pub(crate) fn wait(self) -> Outcome {
        loop {
            match self.0.recv() {
                Ok(Told::Begun) => {}
                Ok(Told::Over(outcome)) => return outcome,
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
    /// When none has nothing to do and the kernel has none left.
    pub(crate) fn make(&self, call: impl FnOnce() -> Outcome + Send + 'static) -> io::Result<Call> {
        let (tell, told) = channel();
        let mut order: Order = (Box::new(call), tell);
        // The calling thread's, which one that it starts inherits.
        let nice = getpriority_process(None)?;
        while let Some(idle) = self.0.take(nice) {
            match idle.send(order) {
                Ok(()) => return Ok(Call(told)),
                // One that has died.
                Err(unsent) => order = unsent.0,
            }
        }
        let idle = Arc::downgrade(&self.0);
        std::thread::Builder::new()
            .name("grace".to_owned())
            .stack_size(STACK)
            .spawn(move || work(&idle, nice, order))?;
        Ok(Call(told))
    }
}

fn work(idle: &Weak<Idle>, nice: i32, mut order: Order) {
    loop {
        let (call, tell) = order;
        // Nobody may want to know, here and below.
        let _ = tell.send(Told::Begun);
        let outcome = call();
        // Only the list has the way to it: with the list, it ends.
        let (way, orders) = channel();
        // Before its result is told: who makes one call after the other needs one thread.
        let is_kept = idle.upgrade().is_some_and(|idle| {
            let mut list = idle.list();
            let has_room = list.len() < IDLE_MAX;
            if has_room {
                list.push((nice, way));
            }
            has_room
        });
        let _ = tell.send(Told::Over(outcome));
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
            let (tell, told) = channel();
            let call = waiters.make(move || {
                tell.send(thread::current().id()).expect("it is asked for");
                Ok(())
            });
            call.expect("a thread").wait().expect("nothing fails");
            threads.insert(told.recv().expect("it was told"));
        }
        assert_eq!(threads.len(), 1);
    }

    #[test]
    fn who_is_in_no_hurry_has_threads_of_its_own() {
        let waiters = Waiters::default();
        let nice_of_a_call = || {
            let (tell, told) = channel();
            let call = waiters.make(move || {
                let nice = getpriority_process(None).expect("its own");
                tell.send(nice).expect("it is asked for");
                Ok(())
            });
            call.expect("a thread").wait().expect("nothing fails");
            told.recv().expect("it was told")
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
        assert!(last.wait().is_err(), "an error is told");
        for (call, go) in going_on {
            go.send(()).expect("it waits");
            call.wait().expect("nothing fails");
        }
        assert_eq!(waiters.0.list().len(), IDLE_MAX);
    }
}
