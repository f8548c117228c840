//! The host that an instance leaves.

use super::Migration;
use super::handing::{self, hand_on};
use crate::host::moving;
use crate::server::{Daemon, problem, timeline};
use anyhow::{Context, ensure};
use nfluid_api::server::Server as _;
use nfluid_api::types::{
    DeleteRequest, EventKind, Kind, MigrateReport, ObjectName, PausedTraffic, Problem,
};
use nfluid_control::stopwatch::Stopwatch;
use nfluid_formats::message::{Hello, Message, PROTOCOL};
use nfluid_migration::channel::{Channel, Patience, Refused, unexpected};
use nfluid_migration::ledger::{Departure, new_id};
use nfluid_migration::priority::RaisedPriority;
use nfluid_migration::wires;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other host may take to make the instance.
const PREPARE: Patience = Patience {
    idle: Duration::from_secs(60),
    whole: Duration::from_secs(60),
};
/// How long it may take to read a state and take it in: nobody serves the ports meanwhile.
const IMPORT: Patience = Patience {
    idle: Duration::from_secs(5),
    whole: Duration::from_secs(12),
};
/// How long any other answer may take.
const ANSWER: Patience = Patience {
    idle: Duration::from_secs(5),
    whole: Duration::from_secs(10),
};
/// How often the other host is asked at once what has become of a move, and how long between.
const ASKED_AT_ONCE: u32 = 3;
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// How long between two attempts later.
const ASKED_LATER: Duration = Duration::from_secs(2);

/// How a move that has failed has left the instance.
enum Failed {
    /// It goes on here.
    Here(anyhow::Error),
    /// The other host may have it.
    Unknown(anyhow::Error),
}

impl Daemon {
    /// Moves an instance to another host.
    ///
    /// # Errors
    /// It goes on here, unless the problem says otherwise.
    pub fn migrate_to(&self, name: &str, to: &str) -> Result<MigrateReport, Problem> {
        let mut watch = Stopwatch::start();
        let tls = self.migration.tls.as_ref().ok_or_else(|| {
            Problem::conflict("this daemon has no certificate to show to other hosts").with_remedy(
                "start nfluidd with --migrate-cert, --migrate-key and --migrate-ca; docs/guide/migration.md says how to make them",
            )
        })?;
        let hello = self.hello(name)?;
        let process = moving::begin_departure(&self.host, name);
        let overflowed = moving::overflowed(&self.host, name);
        let departure = Departure {
            id: hello.id.clone(),
            name: name.to_owned(),
            to: to.to_owned(),
            chains: hello.chains.clone(),
            process: process.map_err(|error| problem(name, error))?,
        };
        let leaving = Leaving {
            daemon: self,
            departure: &departure,
        };
        watch.lap("check");
        let left = tls
            .connect(to)
            .map_err(Failed::Here)
            .and_then(|mut channel| {
                watch.lap("connect");
                let mut report = leaving.leave(&mut channel, hello, &mut watch)?;
                report.frames_dropped =
                    moving::overflowed(&self.host, name).saturating_sub(overflowed);
                report.took_us = watch.begun.elapsed().as_micros() as u64;
                Ok((channel, report))
            });
        match left {
            Ok((mut channel, mut report)) => {
                self.remove_moved(&departure)?;
                watch.lap("remove");
                report.took = timeline(&watch);
                // If it is not heard, the other host remembers the move, which costs a small file.
                let _ = channel.say(&Message::Done, ANSWER);
                Ok(report)
            }
            Err(Failed::Here(why)) => {
                self.stay(&departure);
                Err(stays(name, to, &why))
            }
            Err(Failed::Unknown(why)) => self.resolve_at_once(departure, &why),
        }
    }

    /// Lets an instance go on here, whatever the other host may say: an operator knows that it does not run there.
    ///
    /// # Errors
    /// It is settled who has it.
    pub fn keep_here(&self, name: &str) -> Result<MigrateReport, Problem> {
        let doubt = self.migration.doubts().remove(name);
        let doubt = doubt.ok_or_else(|| {
            Problem::conflict(format!(
                "no move of instance {name} waits for an answer of another host"
            ))
        })?;
        self.stay(&doubt);
        Ok(MigrateReport::default())
    }

    fn hello(&self, name: &str) -> Result<Hello, Problem> {
        let document = self.document_of(name)?;
        let (wires, chains) = wires::of(name, &self.model(), &self.deployment())
            .map_err(|why| Problem::conflict(why).with_remedy("take it out of the chain first"))?;
        Ok(Hello {
            protocol: PROTOCOL,
            id: new_id().map_err(|why| Problem::failed(format!("{why:#}")))?,
            name: name.to_owned(),
            document,
            wires,
            chains,
        })
    }

    /// Asks the other host what has become of a move, and goes by what it says.
    fn resolve_at_once(
        &self,
        departure: Departure,
        why: &anyhow::Error,
    ) -> Result<MigrateReport, Problem> {
        let (name, to) = (departure.name.clone(), departure.to.clone());
        for attempt in 0..ASKED_AT_ONCE {
            if attempt > 0 {
                std::thread::sleep(ASKED_EVERY);
            }
            match self.resolve(&departure) {
                Ok(true) => return Ok(MigrateReport::default()),
                Ok(false) => return Err(stays(&name, &to, why)),
                Err(error) => tracing::debug!(instance = name, "{error:#}"),
            }
        }
        self.doubted(&departure);
        self.migration.doubt(departure);
        Err(Problem::failed(format!(
            "moving instance {name} to {to}: {why:#}; whether it runs there is not known: it stands still here, and {to} is asked until it answers"
        ))
        .with_remedy(format!("see to it that {to} can be reached; if it never will be, 'nfluid migrate {name} --keep' lets the instance go on here")))
    }

    fn doubted(&self, departure: &Departure) {
        let message = format!(
            "stands still, as it is not known whether it runs at {}, which does not answer",
            departure.to
        );
        self.tell(EventKind::Warning, &departure.name, message);
    }

    /// Asks once. True: the other host has it, and it was removed here; false: it goes on here.
    fn resolve(&self, departure: &Departure) -> anyhow::Result<bool> {
        ensure!(!departure.is_damaged(), "nobody knows where it was to go");
        let tls = self.migration.tls.as_ref().context("no certificate")?;
        let mut channel = tls.connect(&departure.to)?;
        match channel.ask(&Message::Ask(departure.id.clone()), ANSWER)? {
            Message::Verdict(true) => {
                let removed = self.remove_moved(departure);
                removed.map_err(|problem| anyhow::anyhow!(problem))?;
                let _ = channel.say(&Message::Done, ANSWER);
                Ok(true)
            }
            Message::Verdict(false) => {
                self.stay(departure);
                Ok(false)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// It goes on here.
    fn stay(&self, departure: &Departure) {
        let name = &departure.name;
        self.migration.doubts().remove(name);
        // One that has never stood still goes on as it does; one that has ended is started again by its policy, or was, and is
        // paused: see `Migration::recall`.
        if moving::process_of(&self.host, name).as_ref() != Some(&departure.process) {
            let _ = nfluid_lifecycle::pausing::go_on(&mut *crate::host::lock(&self.host), name);
        }
        let _ = moving::resume(&self.host, name);
        moving::settle(&self.host, name);
        self.migration.ledger.forget_departure(name);
        let message = format!("was not moved to {}, and goes on here", departure.to);
        self.tell(EventKind::Warning, name, message);
    }

    /// It is the other host's: nothing of it is left here.
    fn remove_moved(&self, departure: &Departure) -> Result<(), Problem> {
        let name = &departure.name;
        let present = self.model();
        let chains = departure.chains.iter();
        let mut objects: Vec<ObjectName> = chains
            .filter(|chain| present.chains.contains(chain))
            .map(|chain| ObjectName {
                kind: Kind::Chain,
                name: chain.clone(),
            })
            .collect();
        objects.push(ObjectName {
            kind: Kind::Instance,
            name: name.clone(),
        });
        let lost = moving::frames_left(&self.host, name);
        moving::settle(&self.host, name);
        if present.instances.contains(name) {
            let removed = self.delete(DeleteRequest {
                objects,
                with_links: true,
                ..DeleteRequest::default()
            });
            if let Err(problem) = removed {
                // It must not run in two places, and must not be forgotten.
                moving::unsettle(&self.host, name);
                self.migration.doubt(departure.clone());
                return Err(problem);
            }
        }
        self.migration.doubts().remove(name);
        self.migration.ledger.forget_departure(name);
        let mut message = format!("moved to {}", departure.to);
        if lost > 0 {
            message.push_str(&format!(
                "; {lost} frames for it are lost that came here and were not handed on"
            ));
        }
        self.tell(EventKind::Removed, name, message);
        Ok(())
    }

    pub(super) fn tell(&self, kind: EventKind, name: &str, message: String) {
        crate::host::lock(&self.host).event(kind, Some((Kind::Instance, name)), message);
    }
}

fn stays(name: &str, to: &str, why: &anyhow::Error) -> Problem {
    let detail = format!("moving instance {name} to {to}: {why:#}; it goes on here");
    match why.downcast_ref::<Refused>() {
        Some(refused) => Problem::conflict(detail).with_remedy(refused.0.remedy.clone()),
        None => Problem::failed(detail),
    }
}

/// A move under way.
struct Leaving<'a> {
    daemon: &'a Daemon,
    departure: &'a Departure,
}

impl Leaving<'_> {
    /// Has the other host take in the state that there is now, and forget it, while the instance goes on here.
    fn rehearse(&self, channel: &mut Channel) -> anyhow::Result<()> {
        let state = crate::host::state_now(&self.daemon.host, &self.departure.name)?;
        match channel.ask(&Message::Rehearsal(state), PREPARE)? {
            Message::Rehearsed => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn leave(
        &self,
        channel: &mut Channel,
        hello: Hello,
        watch: &mut Stopwatch,
    ) -> Result<MigrateReport, Failed> {
        let name = &self.departure.name;
        let hello = Message::Hello(Box::new(hello));
        let prepared = channel.ask(&hello, PREPARE).map_err(Failed::Here)?;
        if prepared != Message::Prepared {
            return Err(Failed::Here(unexpected(&prepared)));
        }
        drop(hello);
        watch.lap("prepare");
        let ledger = &self.daemon.migration.ledger;
        ledger.depart(self.departure).map_err(Failed::Here)?;
        watch.lap("record");

        self.rehearse(channel).map_err(Failed::Here)?;
        watch.lap("rehearse");
        let raised = RaisedPriority::begin();
        let stopped = Instant::now();
        let (mut way, state, addresses) =
            moving::stop(&self.daemon.host, name).map_err(Failed::Here)?;
        let state_bytes = state.len() as u64;
        watch.lap("stop");
        let taken = match channel.ask(&Message::State(state), IMPORT) {
            Ok(Message::Ready(taken)) => taken,
            Ok(other) => return Err(Failed::Here(unexpected(&other))),
            Err(why) => return Err(Failed::Here(why)),
        };
        let ready = stopped.elapsed();
        watch.lap("import");
        way.hold().map_err(Failed::Here)?;

        // From here on only the other host knows.
        let started = channel
            .say(&Message::Go(addresses), ANSWER)
            .and_then(|()| channel.hear(ANSWER));
        match started.map_err(Failed::Unknown)? {
            Message::Started => {}
            Message::Refused(refusal) => return Err(Failed::Here(Refused(refusal).into())),
            other => return Err(Failed::Unknown(unexpected(&other))),
        }
        watch.lap("start");
        let mut report = MigrateReport {
            state_bytes,
            state_taken: taken.taken,
            state_left_out: taken.left_out,
            ready_us: ready.as_micros() as u64,
            blocked_us: stopped.elapsed().as_micros() as u64,
            ..MigrateReport::default()
        };
        let handed_on = hand_on(channel, &mut way, watch);
        drop(raised);
        if let Some(first) = watch.until(handing::FIRST) {
            report.blocked_us = first.duration_since(stopped).as_micros() as u64;
        }
        // The instance may have ended: what its rings held is lost, and the other one runs.
        if let Err(why) = handed_on {
            tracing::warn!(instance = name, "handing its frames on: {why:#}");
        }
        match channel
            .ask(&Message::End, ANSWER)
            .map_err(Failed::Unknown)?
        {
            Message::Kept(frames) => {
                report.frames = frames.taken;
                report.frames_left_out = frames.left_out;
                watch.lap("keep");
                Ok(report)
            }
            other => Err(Failed::Unknown(unexpected(&other))),
        }
    }
}

/// Takes up the moves that an earlier daemon has not settled, and settles them; it never returns.
pub fn settle_moves(daemon: &Arc<Daemon>) -> ! {
    loop {
        for departure in daemon.migration.await_doubts() {
            if let Err(why) = daemon.resolve(&departure) {
                tracing::debug!(instance = departure.name, "{why:#}");
            }
        }
        std::thread::sleep(ASKED_LATER);
    }
}

impl Migration {
    /// Tells the host which instances an earlier daemon may have moved away, before it makes any.
    pub fn warn(&self, host: &crate::host::Shared) {
        let departures = self.ledger.departures().into_iter();
        moving::suspect(host, departures.map(|departure| departure.name));
    }

    /// Recalls the moves that an earlier daemon has not settled. An instance that has stood still for its move does so still; one
    /// that was made since, as it or the host had ended, is another: it gets no frames before it is known that it is the only one.
    pub fn recall(&self, host: &crate::host::Shared) {
        for departure in self.ledger.departures() {
            let name = &departure.name;
            let process = moving::process_of(host, name);
            if process.is_some_and(|process| process != departure.process) {
                let host = &mut *crate::host::lock(host);
                let paused = nfluid_lifecycle::pausing::pause(host, name, PausedTraffic::Drop);
                if let Err(why) = paused {
                    tracing::warn!(instance = name, %why, "pausing it until its move is settled");
                }
            }
            moving::unsettle(host, name);
            self.doubt(departure);
        }
        for arrival in self.ledger.arrivals() {
            moving::reopen(host, &arrival.name);
        }
    }
}
