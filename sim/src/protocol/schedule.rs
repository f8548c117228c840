//! Choice of the actor that takes the next step. A step is the work of an actor from one access to shared memory to
//! the next.

use crate::random::Random;
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Ends a step: any actor may run before the next step.
pub fn step() -> Step {
    Step { is_over: false }
}

/// See [`step`].
#[derive(Debug)]
pub struct Step {
    is_over: bool,
}

impl Future for Step {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.is_over = true;
        Poll::Pending
    }
}

/// Runs an actor that has no other actor beside it.
pub fn alone<T>(actor: impl Future<Output = T>) -> T {
    let mut actor = pin!(actor);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = actor.as_mut().poll(&mut context) {
            return value;
        }
    }
}

type Actor = Pin<Box<dyn Future<Output = ()>>>;

/// Requests of actors to the schedule.
#[derive(Default)]
struct Asked {
    begun: Vec<(u32, Actor)>,
    killed: Vec<u32>,
    next: u32,
}

/// By which actors begin and kill others.
#[derive(Clone, Default)]
pub struct Spawner(Rc<RefCell<Asked>>);

impl Spawner {
    /// Begins an actor. Returns its number.
    pub fn spawn(&self, actor: impl Future<Output = ()> + 'static) -> u32 {
        let mut asked = self.0.borrow_mut();
        asked.next += 1;
        let number = asked.next;
        asked.begun.push((number, Box::pin(actor)));
        number
    }

    /// Kills an actor where it is. A call for an actor that has ended does nothing.
    pub fn kill(&self, number: u32) {
        self.0.borrow_mut().killed.push(number);
    }
}

struct Waiting {
    number: u32,
    actor: Actor,
    /// The actor gets no step before this one.
    not_before: u64,
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Steps, all actors together.
    pub steps: u64,
    /// True if every actor has ended. Else the steps were used up, or an actor asked for the end.
    pub is_over: bool,
}

/// An actor in so many that are chosen is then starved.
const STARVED_ONE_IN: u64 = 256;
/// An actor is starved for less than two to the power of this steps.
const STARVED_LOG: u64 = 14;
/// An actor that was chosen takes up to two to the power of this steps, as one that is not preempted.
const BURST_LOG: u64 = 5;

/// Runs the actors until all have ended, `is_enough` says so, or `most` steps were taken.
pub fn run(spawner: &Spawner, random: &mut Random, most: u64, is_enough: impl Fn() -> bool) -> Ran {
    let mut context = Context::from_waker(Waker::noop());
    let mut actors: Vec<Waiting> = Vec::new();
    let mut steps = 0;
    while steps < most && !is_enough() {
        take_in(spawner, &mut actors);
        if actors.is_empty() {
            return Ran {
                steps,
                is_over: true,
            };
        }
        let index = choose(&actors, random, steps);
        if random.below(STARVED_ONE_IN) == 0 {
            actors[index].not_before = steps + below_power(random, STARVED_LOG);
        }
        let burst = 1 + below_power(random, BURST_LOG + 1);
        for _ in 0..burst {
            steps += 1;
            if actors[index].actor.as_mut().poll(&mut context).is_ready() {
                drop(actors.swap_remove(index));
                break;
            }
            if !spawner.0.borrow().killed.is_empty() {
                break;
            }
        }
    }
    Ran {
        steps,
        is_over: false,
    }
}

/// Below two to a power that is below `log`: small numbers are as frequent as large ones.
fn below_power(random: &mut Random, log: u64) -> u64 {
    let power = random.below(log);
    random.below(1 << power)
}

/// Takes the actors that have begun, without the killed ones.
fn take_in(spawner: &Spawner, actors: &mut Vec<Waiting>) {
    let mut asked = spawner.0.borrow_mut();
    let begun = std::mem::take(&mut asked.begun);
    let killed = std::mem::take(&mut asked.killed);
    drop(asked);
    actors.extend(begun.into_iter().map(|(number, actor)| Waiting {
        number,
        actor,
        not_before: 0,
    }));
    if !killed.is_empty() {
        actors.retain(|it| !killed.contains(&it.number));
    }
}

/// Chooses an actor that is not starved, by chance; if all are starved, the actor that is starved for the shortest
/// time.
fn choose(actors: &[Waiting], random: &mut Random, steps: u64) -> usize {
    let first = random.below(actors.len() as u64) as usize;
    let all = (first..actors.len()).chain(0..first);
    let ready = all.clone().find(|index| actors[*index].not_before <= steps);
    ready
        .or_else(|| all.min_by_key(|index| actors[*index].not_before))
        .unwrap_or(first)
}
