//! The host that an instance leaves.

use crate::channel::{Channel, Refused, unexpected};
use crate::frames::{self, forward};
use crate::guarded::Guarded;
use crate::ledger::{Departure, new_id};
use crate::migration::Migration;
use crate::patience::{ANSWER, IMPORT, PREPARE};
use crate::priority::RaisedPriority;
use crate::site::{Instances, Leaving, Site, Stopped};
use crate::wires;
use anyhow::{Context, ensure};
use nfluid_api::types::{EventKind, Kind, MigrateReport, ObjectName, Problem};
use nfluid_control::model::Deployment;
use nfluid_control::stopwatch::Stopwatch;
use nfluid_formats::message::{Hello, Message, PROTOCOL, Taken};
use nfluid_ring::clock::monotonic_ns;
use std::time::{Duration, Instant};

/// Number of quick attempts to ask the target for the outcome of a move.
const ASKED_AT_ONCE: u32 = 3;
/// The time between two of these attempts.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// The time between two later attempts.
const ASKED_LATER: Duration = Duration::from_secs(2);

/// Where a move that has failed has left the instance.
enum Failed {
    /// The instance goes on here.
    Here(anyhow::Error),
    /// The target may have the instance.
    Unknown(anyhow::Error),
}

impl Migration {
    /// Moves an instance to the daemon at `to`.
    ///
    /// # Errors
    /// The instance goes on here, unless the problem says otherwise.
    pub fn migrate(
        &self,
        site: &impl Site,
        name: &str,
        to: &str,
    ) -> Result<MigrateReport, Problem> {
        let mut watch = Stopwatch::start();
        let network = self.connect.as_ref().ok_or_else(|| {
            Problem::conflict("this daemon has no certificate to show to other hosts").with_remedy(
                "start nfluidd with --migrate-cert, --migrate-key and --migrate-ca; docs/guide/migration.md says how to make them",
            )
        })?;
        let instances = site.instances();
        let process = instances.begin_departure(name)?;
        // Changes of the instance are refused from here on, and those that had begun have ended when this is read.
        let deployment = site.settled_deployment();
        let hello = hello(site, &deployment, name).inspect_err(|_| instances.settle(name))?;
        let guarded = Guarded::of(&deployment, name);
        let dropped = instances.frames_dropped(name);
        let departure = Departure {
            id: hello.id.clone(),
            name: name.to_owned(),
            to: to.to_owned(),
            chains: hello.chains.clone(),
            process,
        };
        let source = Source {
            migration: self,
            site,
            departure: &departure,
        };
        watch.lap("check");
        let left = network
            .connect(to)
            .map_err(Failed::Here)
            .and_then(|mut channel| {
                watch.lap("connect");
                let mut report = source.leave(&mut channel, hello, &guarded, &mut watch)?;
                report.frames_dropped = instances.frames_dropped(name).saturating_sub(dropped);
                report.took_us = watch.begun.elapsed().as_micros() as u64;
                Ok((channel, report))
            });
        match left {
            Ok((mut channel, mut report)) => {
                source.remove()?;
                watch.lap("remove");
                report.took = watch.timeline(monotonic_ns());
                // A target that does not hear this remembers the move, which costs a small file.
                let _ = channel.say(&Message::Done, ANSWER);
                Ok(report)
            }
            Err(Failed::Here(why)) => {
                source.keep();
                Err(stays(name, to, &why))
            }
            Err(Failed::Unknown(why)) => source.resolve_at_once(&why),
        }
    }

    /// Lets an instance go on here, whatever the target may say: an operator knows that the instance does not run there.
    ///
    /// # Errors
    /// The instance has no unsettled move.
    pub fn keep_here(&self, site: &impl Site, name: &str) -> Result<MigrateReport, Problem> {
        let departure = self.unsettled().remove(name);
        let departure = departure.ok_or_else(|| {
            Problem::conflict(format!(
                "no move of instance {name} waits for an answer of another host"
            ))
        })?;
        let source = Source {
            migration: self,
            site,
            departure: &departure,
        };
        source.keep();
        Ok(MigrateReport::default())
    }

    /// Asks once what has become of each unsettled move.
    pub(crate) fn resolve_all(&self, site: &impl Site, unsettled: &[Departure]) {
        for departure in unsettled {
            let source = Source {
                migration: self,
                site,
                departure,
            };
            if let Err(why) = source.resolve() {
                tracing::debug!(instance = departure.name, "{why:#}");
            }
        }
    }

    /// Settles moves, those of an earlier daemon too. Never returns.
    pub fn settle_moves(&self, site: &impl Site) -> ! {
        loop {
            self.resolve_all(site, &self.await_unsettled());
            std::thread::sleep(ASKED_LATER);
        }
    }
}

fn hello(site: &impl Site, deployment: &Deployment, name: &str) -> Result<Hello, Problem> {
    let text = serde_json::to_value(deployment).unwrap_or_default();
    let document = site.document_of(&text, name)?;
    let (wires, chains) = wires::of(name, deployment, &text)
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

fn stays(name: &str, to: &str, why: &anyhow::Error) -> Problem {
    let detail = format!("moving instance {name} to {to}: {why:#}; it goes on here");
    match why.downcast_ref::<Refused>() {
        Some(refused) => Problem::conflict(detail).with_remedy(refused.0.remedy.clone()),
        None => Problem::failed(detail),
    }
}

/// A move from this host.
struct Source<'a, S> {
    migration: &'a Migration,
    site: &'a S,
    departure: &'a Departure,
}

impl<S: Site> Source<'_, S> {
    /// Asks the target what has become of the move, and settles the move if the target answers.
    fn resolve_at_once(&self, why: &anyhow::Error) -> Result<MigrateReport, Problem> {
        let Departure { name, to, .. } = self.departure;
        for attempt in 0..ASKED_AT_ONCE {
            if attempt > 0 {
                std::thread::sleep(ASKED_EVERY);
            }
            match self.resolve() {
                Ok(true) => return Ok(MigrateReport::default()),
                Ok(false) => return Err(stays(name, to, why)),
                Err(error) => tracing::debug!(instance = name, "{error:#}"),
            }
        }
        let message = format!(
            "stands still, as it is not known whether it runs at {to}, which does not answer"
        );
        self.event(EventKind::Warning, message);
        // Links around it can be changed meanwhile, which may take long.
        self.site.instances().unsettle(name);
        self.migration.add_unsettled(self.departure.clone());
        Err(Problem::failed(format!(
            "moving instance {name} to {to}: {why:#}; whether it runs there is not known: it stands still here, and {to} is asked until it answers"
        ))
        .with_remedy(format!("see to it that {to} can be reached; if it never will be, 'nfluid migrate {name} --keep' lets the instance go on here")))
    }

    /// Asks once. Returns true if the target has the instance, which was removed here; false if the instance goes on here.
    fn resolve(&self) -> anyhow::Result<bool> {
        let departure = self.departure;
        ensure!(
            !departure.is_damaged(),
            "the record does not name its destination"
        );
        let network = self.migration.connect.as_ref().context("no certificate")?;
        let mut channel = network.connect(&departure.to)?;
        match channel.ask(&Message::Ask(departure.id.clone()), ANSWER)? {
            Message::Verdict(true) => {
                self.remove().map_err(|problem| anyhow::anyhow!(problem))?;
                let _ = channel.say(&Message::Done, ANSWER);
                Ok(true)
            }
            Message::Verdict(false) => {
                self.keep();
                Ok(false)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The instance goes on here.
    fn keep(&self) {
        let (name, instances) = (&self.departure.name, self.site.instances());
        self.migration.unsettled().remove(name);
        // An instance that has never stood still goes on as before. An instance that has ended was started again by its policy
        // and paused (`Migration::recall`), or is started again now.
        if instances.process_of(name).as_ref() != Some(&self.departure.process) {
            instances.unpause(name);
        }
        instances.resume(name);
        instances.settle(name);
        self.migration.ledger.forget_departure(name);
        let message = format!("was not moved to {}, and goes on here", self.departure.to);
        self.event(EventKind::Warning, message);
    }

    /// The target has the instance: removes the instance and its chains here.
    fn remove(&self) -> Result<(), Problem> {
        let (name, instances) = (&self.departure.name, self.site.instances());
        let present = self.site.deployment();
        let chains = self.departure.chains.iter();
        let chains = chains.filter(|chain| present.chains.contains(chain));
        let mut objects: Vec<ObjectName> = chains.map(|it| object(Kind::Chain, it)).collect();
        objects.push(object(Kind::Instance, name));
        let lost = instances.frames_left(name);
        // What is changed here now would be accepted, and lost.
        instances.let_go(name);
        if present.instances.contains(name)
            && let Err(problem) = self.site.delete(objects)
        {
            // The instance must not run in two places, and the move must not be forgotten.
            instances.unsettle(name);
            self.migration.add_unsettled(self.departure.clone());
            return Err(problem);
        }
        instances.settle(name);
        self.migration.unsettled().remove(name);
        self.migration.ledger.forget_departure(name);
        let mut message = format!("moved to {}", self.departure.to);
        if lost > 0 {
            message.push_str(&format!(
                "; {lost} frames for it are lost that came here and were not handed on"
            ));
        }
        self.event(EventKind::Removed, message);
        Ok(())
    }

    fn event(&self, kind: EventKind, message: String) {
        let events = self.site.instances().events();
        events.of_instance(kind, &self.departure.name, message);
    }

    /// Has the target take in the current state of the instance or of a guard and forget the state, while the instance goes on here.
    fn rehearse(&self, channel: &mut Channel, name: &str) -> anyhow::Result<()> {
        let state = self.site.instances().state_now(name)?;
        match channel.ask(&Message::Rehearsal(state), PREPARE)? {
            Message::Rehearsed => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn leave(
        &self,
        channel: &mut Channel,
        hello: Hello,
        guarded: &Guarded,
        watch: &mut Stopwatch,
    ) -> Result<MigrateReport, Failed> {
        self.prepare(channel, hello, guarded, watch)
            .map_err(Failed::Here)?;
        let raised = RaisedPriority::begin();
        let stopped_at = Instant::now();
        let instances = self.site.instances();
        let Leaving {
            mut stopped,
            state,
            addresses,
        } = (instances.stop(&self.departure.name)).map_err(Failed::Here)?;
        watch.lap("stop");
        let mut report = MigrateReport::default();
        hand_over(channel, state, &mut report).map_err(Failed::Here)?;
        // The guards go on: what still comes for the instance passes them before it is forwarded.
        for guard in guarded.guards() {
            let state = instances.state_now(guard).map_err(Failed::Here)?;
            hand_over(channel, state, &mut report).map_err(Failed::Here)?;
        }
        let ready = stopped_at.elapsed();
        watch.lap("import");
        stopped.hold().map_err(Failed::Here)?;

        // From here on only the target knows which host has the instance.
        let started = channel
            .say(&Message::Go(addresses), ANSWER)
            .and_then(|()| channel.hear(ANSWER));
        match started.map_err(Failed::Unknown)? {
            Message::Started => {}
            Message::Refused(refusal) => return Err(Failed::Here(Refused(refusal).into())),
            other => return Err(Failed::Unknown(unexpected(&other))),
        }
        watch.lap("start");
        report.ready_us = ready.as_micros() as u64;
        report.blocked_us = stopped_at.elapsed().as_micros() as u64;
        let forwarded = forward(channel, &mut stopped, watch);
        drop(raised);
        if let Some(first) = watch.until(frames::FIRST) {
            report.blocked_us = first.duration_since(stopped_at).as_micros() as u64;
        }
        // The instance here may have ended: the frames in its rings are lost, and the instance at the target runs.
        if let Err(why) = forwarded {
            let name = &self.departure.name;
            tracing::warn!(instance = name, "handing its frames on: {why:#}");
        }
        self.end(channel, &mut report).map_err(Failed::Unknown)?;
        watch.lap("keep");
        Ok(report)
    }

    /// Prepares the move while the instance runs: the target makes the instance, the departure is recorded, the state is rehearsed.
    fn prepare(
        &self,
        channel: &mut Channel,
        hello: Hello,
        guarded: &Guarded,
        watch: &mut Stopwatch,
    ) -> anyhow::Result<()> {
        let prepared = channel.ask(&Message::Hello(Box::new(hello)), PREPARE)?;
        ensure!(prepared == Message::Prepared, unexpected(&prepared));
        watch.lap("prepare");
        self.migration.ledger.depart(self.departure)?;
        watch.lap("record");
        for name in guarded.all() {
            self.rehearse(channel, name)?;
        }
        watch.lap("rehearse");
        Ok(())
    }

    /// Ends the transfer after the last frame: waits until the target has recorded on the disk that it has the
    /// instance.
    fn end(&self, channel: &mut Channel, report: &mut MigrateReport) -> anyhow::Result<()> {
        match channel.ask(&Message::End, ANSWER)? {
            Message::Kept(frames) => {
                report.frames = frames.taken;
                report.frames_left_out = frames.left_out;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Has the target take in the state of the instance or of a guard.
fn hand_over(
    channel: &mut Channel,
    state: Vec<u8>,
    report: &mut MigrateReport,
) -> anyhow::Result<()> {
    report.state_bytes += state.len() as u64;
    match channel.ask(&Message::State(state), IMPORT)? {
        Message::Ready(Taken { taken, left_out }) => {
            report.state_taken += taken;
            report.state_left_out += left_out;
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

fn object(kind: Kind, name: &str) -> ObjectName {
    ObjectName {
        kind,
        name: name.to_owned(),
    }
}
