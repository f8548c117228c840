//! The host that an instance arrives at.

use super::handing;
use crate::host::landing::{Addresses, ArrivalRings};
use crate::host::{self, Moved, moving};
use crate::server::{Daemon, wait_for};
use anyhow::{Context, bail};
use nfluid_api::server::Server as _;
use nfluid_api::types::{ApplyRequest, DeleteRequest, EventKind, Kind, ObjectName, Problem};
use nfluid_formats::message::{Hello, Message, PROTOCOL, Refusal, Taken};
use nfluid_migration::callers::{self, Counted};
use nfluid_migration::channel::{Channel, Patience, unexpected};
use nfluid_migration::ledger::{Arrival, Found, is_id};
use nfluid_migration::priority::RaisedPriority;
use nfluid_migration::wires;
use nfluid_sandbox::ProcessIdentity;
use serde_json::{Map, Value};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most callers with a certificate at a time: each may send a specification.
const KNOWN_MAX: usize = 8;
/// Of more than these, so many that they are told so.
const ANSWERED_MAX: usize = 64;
/// Instances that arrive at a time: each may bring `SAVED_BYTES_MAX` bytes of state.
const ARRIVALS_MAX: usize = 4;
/// How long a caller may take to say what it wants.
const FIRST: Patience = Patience {
    idle: Duration::from_secs(5),
    whole: Duration::from_secs(20),
};
/// How long a source may take until its instance's state is here.
const STATE: Patience = Patience {
    idle: Duration::from_secs(10),
    whole: Duration::from_secs(60),
};
/// How long it may take for any other step.
pub(super) const STEP: Patience = Patience {
    idle: Duration::from_secs(10),
    whole: Duration::from_secs(20),
};

/// A move to this host before the instance is its own.
#[derive(Clone, Debug)]
pub struct Arriving {
    /// The instance.
    name: String,
    /// The source was told that this move is not going to be completed.
    is_cancelled: bool,
}

/// Answers daemons that call. It returns only if this host has no certificate.
pub fn listen(daemon: &Arc<Daemon>, listener: &TcpListener) {
    let Some(tls) = &daemon.migration.tls else {
        return;
    };
    let daemon = Arc::clone(daemon);
    callers::listen(listener, tls, move |channel| answer(&daemon, channel));
}

fn answer(daemon: &Daemon, mut channel: Channel) {
    let known = &daemon.migration.conversing;
    let _one = Counted::new(known);
    if known.load(Ordering::Relaxed) > ANSWERED_MAX {
        return;
    }
    let answered = if known.load(Ordering::Relaxed) > KNOWN_MAX {
        let why = format!("{KNOWN_MAX} daemons have something to say already");
        Err(Problem::unavailable(why)
            .with_remedy("try again in a moment")
            .into())
    } else {
        converse(daemon, &mut channel)
    };
    if let Err(why) = answered {
        tracing::warn!(peer = channel.peer(), "a move to this host: {why:#}");
        let refusal = match why.downcast_ref::<Problem>() {
            Some(problem) => Refusal {
                why: problem_in_words(problem),
                remedy: problem.remedy.clone(),
            },
            None => Refusal {
                why: format!("{why:#}"),
                remedy: String::new(),
            },
        };
        // Who has gone needs no reason.
        let _ = channel.say(&Message::Refused(refusal), STEP);
    }
}

fn problem_in_words(problem: &Problem) -> String {
    let errors = problem
        .errors
        .iter()
        .map(|error| format!("; {}", error.message));
    format!("{}{}", problem.detail, errors.collect::<String>())
}

fn converse(daemon: &Daemon, channel: &mut Channel) -> anyhow::Result<()> {
    match channel.hear(FIRST)? {
        Message::Ask(id) => {
            let is_done = daemon.has_taken(&id)?;
            channel.say(&Message::Verdict(is_done), STEP)?;
            if is_done && channel.hear(STEP)? == Message::Done {
                daemon.migration.ledger.forget_arrival(&id);
            }
            Ok(())
        }
        Message::Hello(hello) => receive(daemon, channel, *hello),
        other => Err(unexpected(&other)),
    }
}

/// Takes an instance in.
fn receive(daemon: &Daemon, channel: &mut Channel, hello: Hello) -> anyhow::Result<()> {
    // Frames come at full rate to an instance that has never run: it needs the cores.
    let _held = host::lock(&daemon.host).pool().hold();
    let mut guest = Guest::prepare(daemon, hello)?;
    let name = guest.arrival.name.clone();
    // What takes time is done before the instance stops there.
    let process = guest.process.as_ref().context("it was not made")?;
    let landing = ArrivalRings::of(&daemon.host, &name, process)?;
    channel.say(&Message::Prepared, STEP)?;
    match channel.hear(STATE)? {
        Message::Rehearsal(state) => {
            if let Err(why) = host::rehearse(&daemon.host, &name, &state) {
                // It takes longer then.
                tracing::debug!(instance = name, "a move without a rehearsal: {why:#}");
            }
        }
        other => return Err(unexpected(&other)),
    }
    channel.say(&Message::Rehearsed, STEP)?;
    let raised = RaisedPriority::begin();
    let state = match channel.hear(STATE)? {
        Message::State(state) => state,
        other => return Err(unexpected(&other)),
    };
    let moved = Moved {
        state,
        frames: Vec::new(),
    };
    let given = host::give(&daemon.host, &name, &moved, false)?;
    drop(moved);
    let taken = Taken {
        taken: given.taken,
        left_out: given.left_out,
    };
    channel.say(&Message::Ready(taken), STEP)?;
    let recent = match channel.hear(STEP)? {
        Message::Go(addresses) => {
            guest.take()?;
            addresses
        }
        other => return Err(unexpected(&other)),
    };
    // It is here, whatever becomes of the conversation.
    let said = channel.say(&Message::Started, STEP);
    let mut addresses = Addresses::default();
    let mut behind = addresses.of_ports(&daemon.host, &name);
    behind.extend(addresses.add(recent.into_iter()));
    daemon.tell(
        EventKind::Started,
        &name,
        format!(
            "has come from {}; {} entries of state taken over, {} left out",
            channel.peer(),
            given.taken,
            given.left_out
        ),
    );
    let frames = handing::take(daemon, &name, (addresses, behind), |told| {
        said?;
        handing::take_frames(daemon, channel, &landing, told)
    })?;
    drop(raised);
    daemon.migration.ledger.keep(&guest.arrival.id)?;
    channel.say(&Message::Kept(frames), STEP)?;
    if channel.hear(STEP)? == Message::Done {
        daemon.migration.ledger.forget_arrival(&guest.arrival.id);
    }
    Ok(())
}

/// An instance that arrives. Dropped before it is taken, nothing of it is left.
struct Guest<'a> {
    daemon: &'a Daemon,
    arrival: Arrival,
    /// There is something of it: what another has made under its name is not touched.
    is_made: bool,
    /// What its state was given to, once its ports were shut.
    process: Option<ProcessIdentity>,
}

impl<'a> Guest<'a> {
    /// Makes an instance and all that leads to it, its ports shut.
    fn prepare(daemon: &'a Daemon, hello: Hello) -> anyhow::Result<Self> {
        if hello.protocol != PROTOCOL {
            bail!(
                "this daemon speaks version {PROTOCOL} of the protocol of moves, not version {}",
                hello.protocol
            );
        }
        if !is_id(&hello.id) {
            bail!("'{}' is no name of a move", hello.id.escape_debug());
        }
        wires::check(&hello)?;
        daemon.check_free(&hello)?;
        let mut guest = Guest {
            daemon,
            arrival: daemon.enter(&hello)?,
            is_made: false,
            process: None,
        };
        guest.make(hello)?;
        Ok(guest)
    }

    fn make(&mut self, hello: Hello) -> anyhow::Result<()> {
        let (daemon, name) = (self.daemon, &hello.name);
        let mut document = hello.document.clone();
        let mut wires = hello.wires;
        if wires::detach(&mut document) {
            wires["instances"] = hello.document["instances"].clone();
        }
        let made = daemon.make_from(name, &mut document)?;
        self.is_made = true;
        if let Some(made) = made {
            wait_for(made.durable)?;
        }
        self.process = Some(moving::shut(&daemon.host, name)?);
        if wires.as_object().is_some_and(|wires| wires.len() > 1) {
            daemon.apply_moved(&wires)?;
        }
        Ok(())
    }

    /// It is this host's.
    fn take(&mut self) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("it was not made")?;
        let migration = &self.daemon.migration;
        // While this is held, nobody is told that the move will not be completed.
        let mut arriving = migration.arriving();
        if arriving
            .get(&self.arrival.id)
            .is_none_or(|it| it.is_cancelled)
        {
            bail!("the source was told that it keeps the instance");
        }
        let (name, id) = (&self.arrival.name, &self.arrival.id);
        moving::open(&self.daemon.host, name, process, || {
            migration.ledger.take(id)
        })?;
        arriving.remove(id);
        self.arrival.taken = true;
        Ok(())
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if self.arrival.taken {
            return;
        }
        if self.is_made {
            moving::settle(&self.daemon.host, &self.arrival.name);
            self.daemon.unmake_arrival(&self.arrival);
        }
        self.daemon
            .migration
            .ledger
            .forget_arrival(&self.arrival.id);
        self.daemon.migration.arriving().remove(&self.arrival.id);
    }
}

impl Daemon {
    /// Whether a move to this host is completed. If it is not, it never will be.
    fn has_taken(&self, id: &str) -> anyhow::Result<bool> {
        let mut arriving = self.migration.arriving();
        if let Some(it) = arriving.get_mut(id) {
            it.is_cancelled = true;
            return Ok(false);
        }
        if !is_id(id) {
            return Ok(false);
        }
        let ledger = &self.migration.ledger;
        match ledger.arrival(id) {
            Found::Whole(arrival) if arrival.taken => {
                // The source removes it when it hears so.
                ledger.keep(id)?;
                Ok(true)
            }
            Found::Whole(_) | Found::Nothing => Ok(false),
            // It may run here, or may not: no answer is better than a wrong one.
            Found::Damaged => {
                bail!("the record of this move is damaged; whether it was completed is not known")
            }
        }
    }

    fn check_free(&self, hello: &Hello) -> anyhow::Result<()> {
        let model = self.model();
        if model.instances.contains(&hello.name) {
            bail!(
                Problem::conflict(format!("there is an instance '{}' already", hello.name))
                    .with_remedy("remove or rename it there first")
            );
        }
        if let Some(chain) = hello
            .chains
            .iter()
            .find(|chain| model.chains.contains(chain))
        {
            bail!(
                Problem::conflict(format!("there is a chain '{chain}' already"))
                    .with_remedy("remove or rename it there first")
            );
        }
        Ok(())
    }

    /// Writes down that an instance arrives, if there is room for one more.
    fn enter(&self, hello: &Hello) -> anyhow::Result<Arrival> {
        let present = self.deployment();
        let is_new = |flavor: &String| {
            let all = present.get("flavors");
            all.is_none_or(|all| all.get(flavor).is_none())
        };
        let flavors = hello.document.get("flavors").and_then(Value::as_object);
        let flavors = flavors.into_iter().flat_map(Map::keys);
        let arrival = Arrival {
            id: hello.id.clone(),
            name: hello.name.clone(),
            chains: hello.chains.clone(),
            flavors: flavors.filter(|flavor| is_new(flavor)).cloned().collect(),
            taken: false,
        };
        let mut arriving = self.migration.arriving();
        if arriving.len() >= ARRIVALS_MAX {
            bail!(
                Problem::unavailable(format!("{ARRIVALS_MAX} instances are arriving already"))
                    .with_remedy("try again in a moment")
            );
        }
        if arriving.values().any(|it| it.name == arrival.name) {
            bail!(
                Problem::conflict(format!(
                    "an instance '{}' is arriving already",
                    arrival.name
                ))
                .with_remedy("try again in a moment")
            );
        }
        if self.migration.ledger.arrival(&arrival.id) != Found::Nothing {
            bail!("this move was asked for before");
        }
        // The oldest that nobody has settled are forgotten.
        self.migration.ledger.arrivals();
        self.migration.ledger.arrive(&arrival)?;
        let it = Arriving {
            name: arrival.name.clone(),
            is_cancelled: false,
        };
        arriving.insert(arrival.id.clone(), it);
        Ok(arrival)
    }

    fn apply_moved(&self, document: &Value) -> Result<(), Problem> {
        let request = ApplyRequest {
            text: document.to_string(),
            file: Some("what leads to the instance".to_owned()),
            merge: true,
            ..ApplyRequest::default()
        };
        self.apply(request).map(drop)
    }

    /// Removes what there is of an arrival. Flavors that others have taken meanwhile stay.
    fn unmake_arrival(&self, arrival: &Arrival) {
        let present = self.model();
        let mut objects = Vec::new();
        let mut add = |kind, name: &String| {
            objects.push(ObjectName {
                kind,
                name: name.clone(),
            });
        };
        for chain in arrival
            .chains
            .iter()
            .filter(|it| present.chains.contains(it))
        {
            add(Kind::Chain, chain);
        }
        if present.instances.contains(&arrival.name) {
            add(Kind::Instance, &arrival.name);
        }
        let others = |flavor: &&String| {
            let mut instances = present.instances.iter();
            present.flavors.contains(flavor)
                && !instances.any(|(name, it)| name != arrival.name && it.flavor == **flavor)
        };
        for flavor in arrival.flavors.iter().filter(others) {
            add(Kind::Flavor, flavor);
        }
        if objects.is_empty() {
            return;
        }
        let request = DeleteRequest {
            objects,
            with_links: true,
            ..DeleteRequest::default()
        };
        if let Err(problem) = self.delete(request) {
            tracing::warn!(instance = arrival.name, %problem, "removing what has not arrived whole");
        }
    }
}
