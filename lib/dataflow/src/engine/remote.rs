//! A PE on another thread or in another process, as the core manager sees it.

use crate::message::{GraphSlot, Message};
use crate::queue::{Consumer, Lines, Producer, Word};

/// How a PE sleeps.
pub trait Sleeper {
    /// Says that the PE is wanted awake. Returns true if it may sleep.
    fn rouse(&self) -> bool;
    /// Wakes the PE.
    fn wake(&self);
    /// Lets the PE sleep as soon as it has no command left.
    fn let_sleep(&self);
}

/// The manager's ends of the queues of a PE.
pub struct Remote<M, S> {
    commands: Producer<M>,
    reports: Consumer<M>,
    pub sleeper: S,
    /// The graph that the PE knows in each slot, by its ticket.
    known: Vec<u64>,
}

impl<M: Lines, S: Sleeper> Remote<M, S> {
    pub fn new(commands: Producer<M>, reports: Consumer<M>, sleeper: S) -> Self {
        Self {
            commands,
            reports,
            sleeper,
            known: Vec::new(),
        }
    }

    /// The next word that the PE has sent.
    pub fn report(&mut self) -> Option<Word> {
        self.reports.pop()
    }

    /// Has the PE run a unit of the graph `ticket`, which begins at `line`.
    pub fn run(&mut self, slot: GraphSlot, unit: u32, ticket: u64, line: u32) {
        let at = usize::from(slot);
        if self.known.len() <= at {
            self.known.resize(at + 1, 0);
        }
        if self.known[at] != ticket {
            self.known[at] = ticket;
            self.tell(Message::Graph(slot, line));
        }
        self.tell(Message::Run(slot, unit));
    }

    /// Sends a message. The queue has room for all that a PE can have at once; a PE that was given up may not read.
    pub fn tell(&mut self, message: Message) {
        // Before the message: a PE that has read it does not sleep, and forget its graph, until it has read the next.
        let slept = self.sleeper.rouse();
        let _is_sent = self.commands.push(message.encode());
        if slept {
            self.sleeper.wake();
        }
    }

    /// Wakes the PE, which stays awake until [`Self::let_sleep`].
    pub fn wake(&self) {
        if self.sleeper.rouse() {
            self.sleeper.wake();
        }
    }

    /// Lets the PE sleep as soon as it has no command left. A sleeper forgets its graphs.
    pub fn let_sleep(&mut self) {
        self.sleeper.let_sleep();
        self.known.clear();
    }
}
