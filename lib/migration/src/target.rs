//! The host that an instance arrives at.

use crate::addresses::Addresses;
use crate::arrival::Guest;
use crate::callers::{self, Counted};
use crate::channel::{Channel, unexpected};
use crate::frames;
use crate::guarded::Guarded;
use crate::ledger::{Found, is_id};
use crate::migration::Migration;
use crate::patience::{FIRST, STATE, STEP};
use crate::priority::RaisedPriority;
use crate::site::{Instances, Site};
use crate::tls::Tls;
use anyhow::bail;
use nfluid_api::types::{EventKind, Problem};
use nfluid_formats::message::{Hello, Message, Refusal, Taken};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most conversations with daemons that have shown a certificate: each may send a specification.
const SERVED_MAX: usize = 8;
/// Most daemons that are told that there are too many.
const ANSWERED_MAX: usize = 64;

/// Answers daemons that call. Never returns.
pub fn listen<S: Site + Send + 'static>(
    migration: &Arc<Migration>,
    site: &Arc<S>,
    tls: &Tls,
    listener: &TcpListener,
) -> ! {
    let (migration, site) = (Arc::clone(migration), Arc::clone(site));
    callers::listen(listener, tls, move |channel| {
        migration.answer(&*site, channel);
    })
}

impl Migration {
    /// Answers one daemon that has called and shown a certificate.
    pub(crate) fn answer(&self, site: &impl Site, mut channel: Channel) {
        let _one = Counted::new(&self.conversations);
        let conversations = self.conversations.load(Ordering::Relaxed);
        if conversations > ANSWERED_MAX {
            return;
        }
        let answered = if conversations > SERVED_MAX {
            let why = format!("{SERVED_MAX} daemons have something to say already");
            Err(Problem::unavailable(why)
                .with_remedy("try again in a moment")
                .into())
        } else {
            self.converse(site, &mut channel)
        };
        if let Err(why) = answered {
            tracing::warn!(peer = channel.peer(), "a move to this host: {why:#}");
            // A caller that has gone needs no reason.
            let _ = channel.say(&Message::Refused(refusal(&why)), STEP);
        }
    }

    fn converse(&self, site: &impl Site, channel: &mut Channel) -> anyhow::Result<()> {
        match channel.hear(FIRST)? {
            Message::Ask(id) => {
                let is_taken = self.has_taken(&id)?;
                channel.say(&Message::Verdict(is_taken), STEP)?;
                if is_taken && channel.hear(STEP)? == Message::Done {
                    self.ledger.forget_arrival(&id);
                }
                Ok(())
            }
            Message::Hello(hello) => self.receive(site, channel, *hello),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns true if a move to this host is completed. A move of which this was false is never completed.
    fn has_taken(&self, id: &str) -> anyhow::Result<bool> {
        let mut arriving = self.arriving();
        if let Some(it) = arriving.get_mut(id) {
            it.is_cancelled = true;
            return Ok(false);
        }
        if !is_id(id) {
            return Ok(false);
        }
        match self.ledger.arrival(id) {
            Found::Whole(arrival) if arrival.taken => {
                // The source removes the instance when the source hears this.
                self.ledger.keep(id)?;
                Ok(true)
            }
            Found::Whole(_) | Found::Nothing => Ok(false),
            // The instance may run here, or may not: no answer is better than a wrong one.
            Found::Damaged => {
                bail!("the record of this move is damaged; whether it was completed is not known")
            }
        }
    }

    /// Takes an instance in.
    fn receive(&self, site: &impl Site, channel: &mut Channel, hello: Hello) -> anyhow::Result<()> {
        let instances = site.instances();
        // Frames come at full rate to an instance that has never run: the instance needs the cores.
        let _paused = instances.pause_pool();
        let mut guest = Guest::prepare(self, site, hello)?;
        let name = guest.name().to_owned();
        // Steps that take time are done before the instance stops at the source.
        let rings = instances.rings(&name, guest.process()?)?;
        channel.say(&Message::Prepared, STEP)?;
        let guarded = Guarded::of(&site.deployment(), &name);
        for member in guarded.all() {
            rehearse(instances, member, channel)?;
        }
        let raised = RaisedPriority::begin();
        let mut taken = Taken::default();
        for member in guarded.all() {
            taken += take_in(instances, member, channel)?;
        }
        let recent = match channel.hear(STEP)? {
            Message::Go(addresses) => addresses,
            other => return Err(unexpected(&other)),
        };
        guest.take()?;
        // The instance is here from now on, whatever becomes of the conversation.
        let said = channel.say(&Message::Started, STEP);
        report_arrival(instances, &name, channel.peer(), taken);
        let addresses = Addresses::of(instances, &name, recent);
        let frames = frames::while_announcing(instances, &guarded, addresses, |announcer| {
            said?;
            frames::take(channel, &rings, announcer)
        })?;
        drop(raised);
        self.ledger.keep(guest.id())?;
        channel.say(&Message::Kept(frames), STEP)?;
        if channel.hear(STEP)? == Message::Done {
            self.ledger.forget_arrival(guest.id());
        }
        Ok(())
    }
}

/// Takes in the state of the instance or of a guard.
fn take_in(instances: &impl Instances, name: &str, channel: &mut Channel) -> anyhow::Result<Taken> {
    let state = match channel.hear(STATE)? {
        Message::State(state) => state,
        other => return Err(unexpected(&other)),
    };
    let taken = instances.take_in(name, state)?;
    channel.say(&Message::Ready(taken), STEP)?;
    Ok(taken)
}

/// Takes in the state that the instance, or a guard, has while it still runs at the source. A move without that takes longer.
fn rehearse(instances: &impl Instances, name: &str, channel: &mut Channel) -> anyhow::Result<()> {
    match channel.hear(STATE)? {
        Message::Rehearsal(state) => {
            if let Err(why) = instances.rehearse(name, &state) {
                tracing::debug!(instance = name, "a move without a rehearsal: {why:#}");
            }
        }
        other => return Err(unexpected(&other)),
    }
    channel.say(&Message::Rehearsed, STEP)
}

fn report_arrival(instances: &impl Instances, name: &str, peer: &str, taken: Taken) {
    let Taken { taken, left_out } = taken;
    let message =
        format!("has come from {peer}; {taken} entries of state taken over, {left_out} left out");
    let events = instances.events();
    events.of_instance(EventKind::Started, name, message);
}

fn refusal(why: &anyhow::Error) -> Refusal {
    match why.downcast_ref::<Problem>() {
        Some(problem) => Refusal {
            why: in_words(problem),
            remedy: problem.remedy.clone(),
        },
        None => Refusal {
            why: format!("{why:#}"),
            remedy: String::new(),
        },
    }
}

fn in_words(problem: &Problem) -> String {
    let errors = problem
        .errors
        .iter()
        .map(|error| format!("; {}", error.message));
    format!("{}{}", problem.detail, errors.collect::<String>())
}
