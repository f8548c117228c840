//! The life of an NF: build it, attach its ports, then batch after batch.

use crate::Functions;
use crate::departure::{self, Surroundings};
use crate::recent::Recent;
use crate::scaling::{self, Standing};
use crate::succession::Meanwhile;
use crate::ticks::Ticks;
use crate::waiting_frames::{HEAD, WaitingFrames};
use crate::{inheritance, metrics, packets, queues, state_file, succession, wake};
use anyhow::{Context, bail};
use nfluid_nf::attached::port_info;
use nfluid_nf::stateful::{self, StateError};
use nfluid_nf::{Nanos, NetworkFunction, PortInfo};
use nfluid_protocol::answer::{Departed, Drained, Exported, HandedOver, Imported, LATE};
use nfluid_protocol::instance::{Control, Received};
use nfluid_protocol::request::Part;
use nfluid_protocol::{Answer, Request};
use nfluid_ring::assignment;
use nfluid_ring::attach::{Attached, Prepared};
use nfluid_ring::clock::monotonic_ns;
use nfluid_ring::doorbell::Doorbell;
use nfluid_ring::engine::{Engine, flush_all};
use nfluid_ring::flow::Buckets;
use nfluid_ring::layout::{FRAME_MAX, RING_MAX};
use nfluid_ring::port::{Port, PortsOutbox};
use nfluid_ring::slice;
use nfluid_ring::{Batch, Offload, Outbox};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Rounds over all ports between two checks of the clock and the control socket.
const ROUNDS_PER_LOOK: u32 = 16;

/// Hosts the NF until the process is killed: one NF and one thread per queue of its ports.
pub fn run(program: &'static str, functions: &mut dyn Functions) -> anyhow::Result<()> {
    if let Some(socket) = inheritance::assignment_socket()? {
        return wait_for_assignment(program, functions, &socket);
    }
    let prepared = Prepared::from_env()?;
    let (name, config) = (inheritance::nf_name()?, inheritance::config()?);
    if let Some(socket) = inheritance::predecessor()? {
        return succeed(functions, prepared, name, &config, &socket);
    }
    let (queues, doorbell) = queues::divide(prepared.attach())?;
    let controls = Control::start(inheritance::control_socket()?, queues.len())?;
    let mut hosts = build(functions, &name, &config, queues)?;
    watch(functions, &mut hosts, &controls)?;
    serve(program, hosts, doorbell, controls)
}

/// Has the host of the only queue woken when its NF has something to do by itself.
fn watch(
    functions: &dyn Functions,
    hosts: &mut [Host],
    controls: &[Control],
) -> anyhow::Result<()> {
    if let (Some(watched), [host], [control]) = (functions.watched(), hosts, controls) {
        host.wake = Some(wake::any_of(&[control.wake().as_fd(), watched])?);
    }
    Ok(())
}

/// Runs a process that was started before its NF was known. The process ends if the daemon ends first.
fn wait_for_assignment(
    program: &'static str,
    functions: &mut dyn Functions,
    socket: &OwnedFd,
) -> anyhow::Result<()> {
    let prepared = Prepared::from_env()?;
    let controls = Control::start(inheritance::control_socket()?, 1)?;
    functions.prepare(prepared.pool(), &infos_of(&prepared))?;
    // The heap that an NF needs is then in memory.
    drop(Engine::new());
    drop(serde_json::from_str::<Value>("{\"rules\": []}"));
    // The daemon waits for this process and for its first answers.
    slice::set_light(true);
    let Some(told) = assignment::receive(socket)? else {
        return Ok(());
    };
    let config = inheritance::assigned_config(told.config)?;
    let (queues, doorbell) = queues::divide(prepared.assign(&told.table)?.attach())?;
    let mut hosts = build(functions, &told.nf, &config, queues)?;
    watch(functions, &mut hosts, &controls)?;
    serve(program, hosts, doorbell, controls)
}

/// Builds an NF for each queue.
fn build(
    functions: &mut dyn Functions,
    name: &str,
    config: &Value,
    queues: Vec<Attached>,
) -> anyhow::Result<Vec<Host>> {
    let divided = queues.len() > 1;
    let mut hosts = Vec::with_capacity(queues.len());
    for attached in queues {
        let infos: Vec<_> = attached
            .ports
            .iter()
            .map(|it| port_info(it.entry()))
            .collect();
        let nf = functions.build(name, config, &infos, &attached.pool)?;
        if divided && let Err(why) = nf.divides_by_flow() {
            bail!("the NF '{name}' cannot have several queues: {why}");
        }
        hosts.push(Host::new(name.to_owned(), divided, nf, attached, infos));
    }
    Ok(hosts)
}

/// Runs the hosts of all queues.
fn serve(
    program: &'static str,
    hosts: Vec<Host>,
    doorbell: Option<Doorbell>,
    controls: Vec<Control>,
) -> anyhow::Result<()> {
    if let Some(host) = hosts.first() {
        let (ports, queues) = (host.infos.len(), hosts.len());
        // In one piece: each write wakes the reader of the log.
        let line = format!("{program}: running on {ports} ports, {queues} queues each\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    queues::run(hosts, controls, doorbell)
}

fn infos_of(prepared: &Prepared) -> Vec<PortInfo> {
    prepared.entries().map(port_info).collect()
}

/// Prepares everything, takes over state and ports from the instance that has them, and goes on in its place.
fn succeed(
    functions: &mut dyn Functions,
    prepared: Prepared,
    name: String,
    config: &Value,
    predecessor: &OwnedFd,
) -> anyhow::Result<()> {
    let infos = infos_of(&prepared);
    if prepared.entries().any(|entry| entry.queues > 1) {
        bail!("ports with several queues are not handed over");
    }
    let mut nf = functions.build(&name, config, &infos, prepared.pool())?;
    let mut controls = Control::start(inheritance::control_socket()?, 1)?;
    let mut control = controls.pop().context("it has no control socket")?;
    let mut rehearsing = Rehearsing {
        control: &mut control,
        name: &name,
        nf: nf.as_mut(),
        image: Vec::new(),
    };
    succession::await_turn(predecessor, &mut rehearsing)?;
    let image = rehearsing.image;
    let import = |image: &[u8]| succession::import(&name, nf.as_mut(), monotonic(), image);
    succession::take_over(predecessor, image, import)?;
    let mut hosts = vec![Host::new(name, false, nf, prepared.attach(), infos)];
    let controls = vec![control];
    watch(functions, &mut hosts, &controls)?;
    queues::run(hosts, controls, None)
}

/// A successor that waits for the handover.
struct Rehearsing<'a> {
    control: &'a mut Control,
    name: &'a str,
    nf: &'a mut dyn NetworkFunction,
    image: Vec<u8>,
}

impl Meanwhile for Rehearsing<'_> {
    fn wake(&self) -> &OwnedFd {
        self.control.wake()
    }

    fn act(&mut self) -> bool {
        let (name, nf, image) = (self.name, &mut *self.nf, &mut self.image);
        self.control
            .answer_early(|received| match received.request {
                Request::Rehearse { bytes } => {
                    let rehearsed = rehearse_import(name, nf, image, bytes, received.fd.take());
                    Some(answer(rehearsed))
                }
                _ => None,
            })
    }
}

/// Imports the state in a file, and forgets it. The bytes stay in `image`, as memory that has been touched.
fn rehearse_import(
    name: &str,
    nf: &mut dyn NetworkFunction,
    image: &mut Vec<u8>,
    bytes: u64,
    file: Option<OwnedFd>,
) -> anyhow::Result<Value> {
    let file = file.context("there is no file to read from")?;
    *image = state_file::read(std::mem::take(image), file, bytes)?;
    nfluid_nf::stateful::rehearse(name, nf, monotonic(), image)?;
    Ok(Value::Null)
}

/// An NF on one queue of its ports.
pub struct Host {
    name: String,
    /// True if other queues have hosts of their own.
    divided: bool,
    nf: Box<dyn NetworkFunction>,
    attached: Attached,
    infos: Vec<PortInfo>,
    engine: Engine,
    ticks: Ticks,
    recent: Recent,
    /// Memory in which the state was exported recently, for the next export.
    image: Vec<u8>,
    /// True if this NF has imported another one's state.
    has_imported: bool,
    /// True if another process has the ports.
    has_left: bool,
    /// Set when the instance is about to depart: the socket to the daemon, the exported state, and the frames that
    /// were taken.
    departure: Option<(OwnedFd, Vec<u8>, WaitingFrames)>,
    /// Set while the instance handles no frames.
    standing: Option<Standing>,
    /// Set if the NF has something to do by itself: readable when that is so, or when the control socket is.
    wake: Option<OwnedFd>,
}

impl Host {
    /// Creates a host that has its ports. `divided`: other queues have hosts of their own.
    fn new(
        name: String,
        divided: bool,
        nf: Box<dyn NetworkFunction>,
        attached: Attached,
        infos: Vec<PortInfo>,
    ) -> Self {
        Host {
            name,
            divided,
            nf,
            recent: Recent::of(infos.len()),
            attached,
            infos,
            engine: Engine::new(),
            ticks: Ticks::default(),
            image: Vec::new(),
            has_imported: false,
            has_left: false,
            departure: None,
            standing: None,
            wake: None,
        }
    }

    /// Works while frames wait, then blocks until one comes.
    pub fn round(&mut self, control: &mut Control) -> anyhow::Result<()> {
        if let Some(standing) = &self.standing {
            if !standing.wait(control.wake())? {
                self.standing = None;
            }
            control.answer(|received| self.handle(monotonic(), received));
            return Ok(());
        }
        let mut now = monotonic();
        for _ in 0..ROUNDS_PER_LOOK {
            if self.pass(now) == 0 {
                let received = self.engine.stats().received;
                self.attached.doorbell.wait(
                    &mut self.attached.ports,
                    Some(self.wake.as_ref().unwrap_or(control.wake())),
                    self.ticks.until_next(self.nf.as_ref(), received, now),
                )?;
                now = monotonic();
                break;
            }
        }
        self.tick(now);
        control.answer(|received| self.handle(monotonic(), received));
        if self.has_left {
            succession::leave();
        }
        if let Some((way, image, waiting_frames)) = self.departure.take() {
            // The thread only moves frames out of its rings, and handles none.
            slice::set_light(true);
            let waiting_frames =
                departure::depart(way, &image, waiting_frames, &mut Leaving(self, control))?;
            slice::set_light(false);
            self.handle_waiting(waiting_frames);
        }
        Ok(())
    }

    /// Handles one batch from each port. Returns the number of frames.
    fn pass(&mut self, now: Nanos) -> usize {
        let ports = &mut self.attached.ports;
        let mut taken = 0;
        for port in 0..ports.len() {
            let (nf, recent) = (&mut self.nf, &mut self.recent);
            let mut decide = |batch: &mut Batch<'_, '_>| {
                if let Some(first) = batch.frames().first() {
                    recent.note(now, port, first.bytes());
                }
                nf.process(now, batch);
            };
            taken += self.engine.run_once(ports, port as u8, &mut decide);
        }
        taken
    }

    /// Handles the frames that were taken out of the rings, before those that are in the rings.
    fn handle_waiting(&mut self, mut waiting_frames: WaitingFrames) {
        let ports = &mut self.attached.ports;
        while let Some((port, frame)) = waiting_frames.pop() {
            let (nf, recent, now) = (&mut self.nf, &mut self.recent, monotonic());
            recent.note(now, usize::from(port), &frame);
            let mut decide = |batch: &mut Batch<'_, '_>| nf.process(now, batch);
            let complete = (&frame[..], Offload::NONE);
            self.engine.run_copy(ports, port, complete, &mut decide);
        }
        flush_all(ports);
    }

    fn tick(&mut self, now: Nanos) {
        if !self.ticks.is_due(self.engine.stats().received, now) && self.wake.is_none() {
            return;
        }
        let ports = &mut self.attached.ports;
        self.nf.tick(now, &mut PortsOutbox(ports));
        flush_all(ports);
    }

    fn handle(&mut self, now: Nanos, received: Received) -> Answer {
        if self.has_left {
            return Answer::Error("its successor has its ports".to_owned());
        }
        match received.request {
            Request::Beat if self.nf.was_late() => Answer::Ok(LATE.into()),
            Request::Beat => Answer::Ok(Value::Null),
            Request::Metrics => {
                Answer::Ok(metrics::of(self.nf.as_ref(), &self.engine, &self.attached))
            }
            Request::Command { name, args } => match self.nf.command(now, &name, &args) {
                Ok(value) => Answer::Ok(value),
                Err(error) => Answer::Error(error.to_string()),
            },
            Request::Reconfigure { config } => match self.reconfigure(&config) {
                Ok(()) => Answer::Ok(Value::Null),
                Err(error) => Answer::Error(error.to_string()),
            },
            Request::Export { state_only } => answer(self.export(now, state_only, received.fd)),
            Request::Import { bytes, part } => answer(self.import(now, bytes, part, received.fd)),
            Request::Stand => answer(self.stand(received.fd)),
            Request::Drain { until } => answer(self.drain(&until, received.fd)),
            Request::PartWith { kept } => Answer::Ok(json!(self.part_with(kept))),
            Request::Rehearse { bytes } => answer(self.rehearse(bytes, received.fd)),
            Request::HandOver => answer(self.hand_over(now, received.fd)),
            Request::Depart { room } => answer(self.depart(now, room, received.fd)),
            // The instance has not departed.
            Request::Resume => Answer::Ok(Value::Null),
            Request::Announce { addresses } => Answer::Ok(json!(self.announce(&addresses))),
        }
    }

    fn export(
        &mut self,
        now: Nanos,
        state_only: bool,
        file: Option<OwnedFd>,
    ) -> anyhow::Result<Exported> {
        let file = file.context("there is no file to write to")?;
        let image = self.state(now)?;
        if !state_only {
            let written = state_file::write(file, &image, &self.attached.ports)?;
            return Ok(Exported {
                addresses: self.recent.all(now),
                ..written
            });
        }
        let written = state_file::write(file, &image, &[]);
        self.image = image;
        written
    }

    /// Exports the NF's state.
    fn state(&mut self, now: Nanos) -> Result<Vec<u8>, StateError> {
        let buffer = std::mem::take(&mut self.image);
        nfluid_nf::stateful::export_into(buffer, &self.name, self.nf.as_mut(), now)
    }

    fn import(
        &mut self,
        now: Nanos,
        bytes: u64,
        part: Option<Part>,
        file: Option<OwnedFd>,
    ) -> anyhow::Result<Imported> {
        let file = file.context("there is no file to read from")?;
        let begun = Instant::now();
        self.has_imported = true;
        let image = state_file::read(std::mem::take(&mut self.image), file, bytes)?;
        let (name, nf) = (&self.name, self.nf.as_mut());
        let imported = match part {
            None => nfluid_nf::stateful::import(name, nf, now, &image)?,
            Some(part) => {
                let part = stateful::Part {
                    flows: Buckets(part.flows),
                    counts: part.counts,
                };
                stateful::import_part(name, nf, now, &image, &part)?
            }
        };
        Ok(Imported {
            taken: imported.taken,
            left_out: imported.left_out,
            took_us: us(begun.elapsed()),
        })
    }

    fn rehearse(&mut self, bytes: u64, file: Option<OwnedFd>) -> anyhow::Result<Value> {
        if self.has_imported || self.engine.stats().received > 0 {
            bail!("it may have a state already");
        }
        let (name, nf) = (&self.name, self.nf.as_mut());
        rehearse_import(name, nf, &mut self.image, bytes, file)
    }

    fn stand(&mut self, way: Option<OwnedFd>) -> anyhow::Result<()> {
        self.standing = Some(Standing::on(way.context("there is no way to the daemon")?));
        Ok(())
    }

    fn drain(&mut self, until: &[u32], file: Option<OwnedFd>) -> anyhow::Result<Drained> {
        let file = file.context("there is no file to write to")?;
        let begun = Instant::now();
        while let Some(behind) = scaling::behind(until, |port| self.taken(port)) {
            scaling::check_patience(begun, behind)?;
            if self.pass(monotonic()) == 0 {
                std::thread::yield_now();
            }
        }
        let ports = &mut self.attached.ports;
        succession::settle(|| self.engine.settle(ports))?;
        let drained = begun.elapsed();
        let image = self.state(monotonic())?;
        let exported = begun.elapsed();
        state_file::write(file, &image, &[])?;
        let bytes = image.len();
        self.image = image;
        Ok(Drained {
            state_bytes: bytes as u64,
            drain_us: us(drained),
            export_us: us(exported - drained),
        })
    }

    /// Returns the position up to which a port's ring is read.
    fn taken(&self, port: usize) -> Option<u32> {
        self.attached.ports.get(port).map(Port::taken)
    }

    fn part_with(&mut self, kept: [u64; 4]) -> u64 {
        let stateful = self.nf.stateful();
        stateful.map_or(0, |stateful| stateful.part_with(&Buckets(kept)))
    }

    /// Gives ports and state away, or keeps them and goes on.
    fn hand_over(&mut self, now: Nanos, socket: Option<OwnedFd>) -> anyhow::Result<HandedOver> {
        let socket = socket.context("there is no way to a successor")?;
        let (begun, begun_at) = (Instant::now(), monotonic());
        let ports = &mut self.attached.ports;
        succession::settle(|| self.engine.settle(ports))?;
        let settled = begun.elapsed();
        let image = self.state(now)?;
        let exported = begun.elapsed();
        let taken = succession::hand_over(&socket, &image)?;
        self.has_left = true;
        // On one core with a busy successor, this process is scheduled late.
        let silent = taken
            .at
            .map(|at| Duration::from_nanos(at.since(begun_at).0));
        let silent = silent
            .unwrap_or_else(|| begun.elapsed())
            .min(begun.elapsed());
        Ok(HandedOver {
            taken: taken.imported.taken,
            left_out: taken.imported.left_out,
            state_bytes: image.len() as u64,
            settle_us: us(settled),
            export_us: us(exported - settled),
            import_us: us(taken.took),
            silent_us: us(silent),
        })
    }

    /// Stops and exports the state. The departure begins after the answer.
    fn depart(
        &mut self,
        now: Nanos,
        room: Option<u64>,
        way: Option<OwnedFd>,
    ) -> anyhow::Result<Departed> {
        let way = way.context("there is no way to the daemon")?;
        let begun = Instant::now();
        let ports = &mut self.attached.ports;
        succession::settle(|| self.engine.settle(ports))?;
        let settled = begun.elapsed();
        let image = nfluid_nf::stateful::export(&self.name, self.nf.as_mut(), now)?;
        let answer = Departed {
            state_bytes: image.len() as u64,
            settle_us: us(settled),
            export_us: us(begun.elapsed() - settled),
            addresses: self.recent.all(now),
        };
        self.departure = Some((way, image, WaitingFrames::of(room)));
        Ok(answer)
    }

    /// Announces addresses. Returns the number of announcements that had room in the rings.
    fn announce(&mut self, addresses: &[(u8, [u8; 6])]) -> usize {
        let ports = &mut self.attached.ports;
        let mut announced = 0;
        for (port, mac) in addresses {
            let frame = departure::announcement(*mac);
            announced += usize::from(PortsOutbox(ports).emit(*port, &frame));
        }
        flush_all(ports);
        announced
    }

    fn reconfigure(&mut self, config: &Value) -> anyhow::Result<()> {
        if self.divided {
            let new = nfluid_nf::catalogue::build(&self.name, config, &self.infos)?;
            if let Err(why) = new.divides_by_flow() {
                bail!("it has several queues, and cannot have that configuration: {why}");
            }
        }
        Ok(self.nf.reconfigure(config, &self.infos)?)
    }
}

/// A departing instance and its control socket.
struct Leaving<'a>(&'a mut Host, &'a mut Control);

impl Surroundings for Leaving<'_> {
    fn answer(&mut self, waiting: u64) -> bool {
        let mut goes_on = false;
        let host = &*self.0;
        self.1.answer(|received| match received.request {
            Request::Beat => Answer::Ok(Value::Null),
            Request::Metrics => {
                let mut metrics = metrics::of(host.nf.as_ref(), &host.engine, &host.attached);
                metrics["departing"] = json!({ "waiting": waiting });
                Answer::Ok(metrics)
            }
            Request::Resume => {
                goes_on = true;
                Answer::Ok(Value::Null)
            }
            _ => Answer::Error("it is being moved to another host".to_owned()),
        });
        goes_on
    }

    fn take(&mut self, most: usize, see: &mut dyn FnMut(u8, &[u8])) -> bool {
        let ports = &mut self.0.attached.ports;
        let each = most / ports.len().max(1);
        let mut is_all = true;
        for (number, port) in (0..=u8::MAX).zip(ports) {
            let (mut left, mut frames) = (each, 0..RING_MAX);
            is_all &= loop {
                if left < FRAME_MAX + HEAD || frames.next().is_none() {
                    break false;
                }
                let taken = port.receive_offload(1, |frame, offload| {
                    packets::for_each(frame, offload, &mut |packet| {
                        left = left.saturating_sub(HEAD + packet.len());
                        see(number, packet);
                    });
                });
                if taken == 0 {
                    break true;
                }
            };
        }
        is_all
    }

    fn wake(&self) -> &OwnedFd {
        self.1.wake()
    }
}

fn answer<T: Serialize>(done: anyhow::Result<T>) -> Answer {
    match done {
        Ok(value) => Answer::of(&value),
        Err(error) => Answer::Error(format!("{error:#}")),
    }
}

fn monotonic() -> Nanos {
    Nanos(monotonic_ns())
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}
