//! A slice that runs: its input, its graphs under way, what became of them.

use crate::assembly::{Added, Assembly};
use crate::config::SliceConfig;
use crate::counters::Drop;
use crate::message::Message;
use nfluid_dataflow::engine::{Counts, Engine, EngineError, Finished, Shape, UnitRun};
use nfluid_dataflow::manager::{SliceId, SliceRank, Verdict};
use nfluid_dataflow::plan::Plan;
use nfluid_nf::Metric;
use nfluid_wire::build::Frame;
use nfluid_wire::ether::{MacAddr, VlanStack, VlanTag};
use nfluid_wire::{EthernetFrame, PacketMeta};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Nanoseconds that a unit of gathered tasks is to take.
const GRAIN: u64 = 3_000;
/// Intervals after which the graph is composed anew with measured costs: soon, then now and then.
const FIRST_PLAN: u64 = 32;
const PLAN_EVERY: u64 = 1024;
/// Most graphs under way: a slice whose intervals come faster than they are computed drops the newest.
const UNDER_WAY_MAX: usize = 8;
/// Time between two lines about graphs that were dropped.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Intervals whose runs are kept for a trace.
pub const TRACED_MAX: usize = 16;
/// Makespans that are kept for the quantiles that are shown.
const MAKESPANS: usize = 256;

/// Where results go: the headers of the samples' last packet.
#[derive(Clone, Debug)]
pub struct Envelope {
    macs: (MacAddr, MacAddr),
    vlans: Vec<VlanTag>,
    source: SocketAddr,
    destination: SocketAddr,
    traffic_class: u8,
}

impl Envelope {
    /// The headers of a frame that carries UDP; `None` if it has no addresses.
    pub fn of(frame: &[u8], meta: &PacketMeta) -> Option<Self> {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let (source, destination) = meta.addresses()?;
        let stack = VlanStack::peek(frame).ok()?;
        Some(Envelope {
            macs: (ethernet.src(), ethernet.dst()),
            vlans: stack.tags().to_vec(),
            source: SocketAddr::new(source, meta.src_port),
            destination: SocketAddr::new(destination, meta.dst_port),
            traffic_class: meta.traffic_class,
        })
    }

    /// The headers of a frame that goes the same way.
    pub fn frame(&self) -> Frame<'_> {
        let mut frame = Frame::udp(self.source, self.destination)
            .macs(self.macs.0, self.macs.1)
            .vlans(&self.vlans);
        frame.traffic_class = self.traffic_class;
        frame.dont_fragment = true;
        frame
    }
}

/// A graph under way.
struct UnderWay {
    ticket: u64,
    interval: u16,
    envelope: Envelope,
}

/// The runs of an interval.
struct Traced {
    ticket: u64,
    interval: u16,
    taken: u64,
    ended: u64,
    /// Kind of the unit's last task, and the run.
    runs: Vec<(u16, UnitRun)>,
}

/// Cost of a kind of tasks.
#[derive(Serialize)]
struct Cost {
    kind: &'static str,
    /// Number of tasks of the kind in the graph.
    tasks: usize,
    /// Nanoseconds of a task, as the graph says: the mean.
    stated_ns: u64,
    /// Nanoseconds of a task, as measured.
    measured_ns: u64,
    /// Tasks that were measured.
    measured: u64,
}

/// A slice.
pub struct Slice {
    pub config: SliceConfig,
    pub id: SliceId,
    assembly: Assembly,
    shape: Shape,
    under_way: VecDeque<UnderWay>,
    traced: VecDeque<Traced>,
    makespans: VecDeque<u64>,
    /// Sum of the makespans of all graphs that were done, in nanoseconds.
    makespan_sum: u64,
    /// Nanoseconds that units ran on each PE.
    busy: Vec<u64>,
    /// Intervals that were dropped because too many were under way.
    overrun: u64,
    /// An interval was dropped since a health check asked last.
    is_behind: bool,
    /// The last reason why a graph was dropped or refused.
    trouble: Option<String>,
    /// When a line about it was written.
    told: Option<Instant>,
    /// The PEs have been told that an interval's input is nearly whole.
    is_woken: bool,
}

impl Slice {
    /// Adds a slice to an engine.
    pub fn start(config: SliceConfig, engine: &mut Engine) -> anyhow::Result<Self> {
        let rank = SliceRank { rank: config.rank };
        let id = engine.add_slice(&config.name, rank, config.application.clone())?;
        Ok(Slice {
            id,
            assembly: Assembly::new(config.application.input_bytes()),
            shape: Shape::new(Plan::clustered(config.application.graph().clone(), GRAIN)?)?,
            under_way: VecDeque::new(),
            traced: VecDeque::new(),
            makespans: VecDeque::new(),
            makespan_sum: 0,
            busy: vec![0; engine.pes()],
            overrun: 0,
            is_behind: false,
            trouble: None,
            told: None,
            is_woken: false,
            config,
        })
    }

    /// Adds a piece of an interval's input. Once the input is whole, its graph goes to the engine, after `begins` has been called.
    pub fn add(
        &mut self,
        engine: &mut Engine,
        message: &Message<'_>,
        envelope: impl FnOnce() -> Option<Envelope>,
        begins: impl FnOnce(&mut Engine, &SliceConfig),
    ) -> Result<(), Drop> {
        let application = &self.config.application;
        match self
            .assembly
            .add(message.interval, message.at, message.payload)
        {
            Added::Late => Err(Drop::Late),
            Added::OutOfRange => Err(Drop::OutOfRange),
            Added::Twice => Err(Drop::Twice),
            Added::Waits(missing) => {
                // Once per interval: a sleeping PE takes tens of microseconds to wake up.
                let is_near = missing <= application.input_bytes() / 8;
                if is_near && !std::mem::replace(&mut self.is_woken, is_near) {
                    engine.wake(self.id, self.config.interval / 2);
                }
                Ok(())
            }
            Added::Whole(input) => {
                self.is_woken = false;
                if self.under_way.len() >= UNDER_WAY_MAX {
                    self.overrun += 1;
                    self.is_behind = true;
                    return Ok(());
                }
                let envelope = envelope().ok_or(Drop::Malformed)?;
                begins(engine, &self.config);
                let external = application.external(input, message.phase);
                let submitted = engine.submit(self.id, &self.shape, external, self.config.deadline);
                let ticket = match submitted {
                    Ok(ticket) => ticket,
                    Err(why @ EngineError::NoRoom) => {
                        self.overrun += 1;
                        self.dropped(message.interval, why.to_string());
                        return Ok(());
                    }
                    Err(_) => return Err(Drop::NotStarted),
                };
                self.under_way.push_back(UnderWay {
                    ticket,
                    interval: message.interval,
                    envelope,
                });
                Ok(())
            }
        }
    }

    /// Takes the end of a graph. Returns its interval and where its results go.
    pub fn end(&mut self, engine: &Engine, finished: &Finished) -> Option<(u16, Envelope)> {
        let is_it = |under_way: &UnderWay| under_way.ticket == finished.ticket;
        let at = self.under_way.iter().position(is_it)?;
        let ended = self.under_way.remove(at)?;
        self.trace(ended.interval, finished);
        match finished.result {
            Ok(Verdict::Done) => {
                self.makespan_sum = self.makespan_sum.saturating_add(finished.makespan);
                self.makespans.truncate(MAKESPANS - 1);
                self.makespans.push_front(finished.makespan);
            }
            Ok(Verdict::Late) => self.dropped(ended.interval, "it was late".to_owned()),
            Ok(Verdict::Failed { .. }) => {
                let why = finished.failure().unwrap_or_default();
                self.dropped(ended.interval, why);
            }
            Ok(Verdict::Hung { .. }) => {
                let why = finished.failure();
                let why = why.unwrap_or_else(|| "a PE did not come back".to_owned());
                self.dropped(ended.interval, why);
            }
            Err(refusal) => self.dropped(ended.interval, refusal.to_string()),
        }
        let ends = engine.counts(self.id).map_or(0, |counts| counts.done);
        if finished.result == Ok(Verdict::Done)
            && (ends == FIRST_PLAN || ends.is_multiple_of(PLAN_EVERY))
        {
            self.plan(engine);
        }
        Some((ended.interval, ended.envelope))
    }

    /// Returns true if an interval was dropped since this was asked last.
    pub fn was_late(&mut self) -> bool {
        std::mem::take(&mut self.is_behind)
    }

    /// Keeps the reason why an interval was dropped, and writes it to the instance's log now and then.
    fn dropped(&mut self, interval: u16, why: String) {
        self.is_behind = true;
        let is_told = |told: Instant| told.elapsed() < TOLD_EVERY;
        if !self.told.is_some_and(is_told) {
            self.told = Some(Instant::now());
            let name = &self.config.name;
            eprintln!("slice {name}: interval {interval} was dropped: {why}");
        }
        self.trouble = Some(why);
    }

    fn trace(&mut self, interval: u16, finished: &Finished) {
        let Some(plan) = finished.plan() else { return };
        let runs: Vec<(u16, UnitRun)> = finished
            .runs()
            .map(|run| (plan.units().task(run.unit).kind, run))
            .collect();
        for (_, run) in &runs {
            if let Some(busy) = self.busy.get_mut(run.pe) {
                *busy = busy.saturating_add(run.took);
            }
        }
        self.traced.truncate(TRACED_MAX - 1);
        self.traced.push_front(Traced {
            ticket: finished.ticket,
            interval,
            taken: finished.ended.saturating_sub(finished.makespan),
            ended: finished.ended,
            runs,
        });
    }

    /// Composes the graph anew, with the costs that were measured. On an error the plan so far stays.
    fn plan(&mut self, engine: &Engine) {
        let Some(costs) = engine.costs(self.id) else {
            return;
        };
        let graph = self.config.application.graph();
        let measured = graph.with_costs(|_, task| {
            costs
                .of(task.kind)
                .map_or(task.cost, |measured| measured.cost)
        });
        let plan = measured.and_then(|graph| Plan::clustered(graph, GRAIN));
        let shape = plan.map_err(|error| error.to_string());
        let shape = shape.and_then(|plan| Shape::new(plan).map_err(|error| error.to_string()));
        match shape {
            Ok(shape) => self.shape = shape,
            Err(error) => self.trouble = Some(error),
        }
    }

    fn counts(&self, engine: &Engine) -> Counts {
        engine.counts(self.id).unwrap_or_default()
    }

    /// The makespan within which so many of a hundred recent graphs ended, in nanoseconds.
    fn makespan(&self, percent: usize) -> Option<u64> {
        let mut sorted: Vec<u64> = self.makespans.iter().copied().collect();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
            .copied()
    }

    /// Costs of all kinds that have run.
    fn costs(&self, engine: &Engine) -> Vec<Cost> {
        let Some(book) = engine.costs(self.id) else {
            return Vec::new();
        };
        let graph = self.config.application.graph();
        let kinds = self.config.application.kinds();
        let named = book.kinds().into_iter().filter_map(|(kind, measured)| {
            let tasks = graph.tasks().iter().filter(|task| task.kind == kind);
            let stated: Vec<u64> = tasks.map(|task| task.cost).collect();
            Some(Cost {
                kind: kinds.get(usize::from(kind))?,
                tasks: stated.len(),
                stated_ns: stated.iter().sum::<u64>() / stated.len().max(1) as u64,
                measured_ns: measured.cost,
                measured: measured.samples,
            })
        });
        named.collect()
    }

    /// Everything about the slice, for people and programs.
    pub fn describe(&self, engine: &Engine, mode: &str, back_end: &str) -> Value {
        let counts = self.counts(engine);
        let losses = self.assembly.losses;
        let plan = self.shape.plan();
        let us = |duration: Duration| duration.as_micros() as u64;
        json!({
            "name": self.config.name,
            "graph": self.config.graph,
            "id": self.config.id,
            "mode": mode,
            "back_end": back_end,
            "pes": self.config.pes.clone().unwrap_or_else(|| (0..engine.pes()).collect()),
            "window_ns": self.config.window,
            "interval_us": us(self.config.interval),
            "deadline_us": us(self.config.deadline),
            "rank": self.config.rank,
            "input_bytes": self.config.application.input_bytes(),
            "tasks": plan.tasks().len(),
            "units": plan.units().len(),
            "critical_path_ns": plan.critical_path(),
            "work_ns": plan.units().work(),
            "done": counts.done,
            "late": counts.late,
            "failed": counts.failed,
            "hung": counts.hung,
            "refused": counts.refused,
            "overrun": self.overrun,
            "incomplete": losses.incomplete,
            "missing": losses.missing,
            "makespan_p50_ns": self.makespan(50),
            "makespan_p99_ns": self.makespan(99),
            "busy_ns": self.busy,
            "last_trouble": self.trouble,
            "costs": self.costs(engine),
        })
    }

    /// The runs of recent intervals, the oldest first.
    pub fn runs(&self, intervals: usize) -> Value {
        let traced = self.traced.iter().take(intervals).rev();
        let intervals = traced.map(|traced| {
            let runs = traced.runs.iter();
            let runs = runs.map(|(kind, run)| json!([run.unit, kind, run.pe, run.start, run.took]));
            json!({
                "ticket": traced.ticket,
                "interval": traced.interval,
                "taken_ns": traced.taken,
                "ended_ns": traced.ended,
                "runs": runs.collect::<Vec<_>>(),
            })
        });
        json!({
            "kinds": self.config.application.kinds(),
            "intervals": intervals.collect::<Vec<_>>(),
        })
    }

    /// Reports all counters.
    pub fn report(&self, engine: &Engine, sink: &mut dyn FnMut(Metric)) {
        let name = &self.config.name;
        let counts = self.counts(engine);
        let losses = self.assembly.losses;
        let ends = [
            ("done", counts.done),
            ("late", counts.late),
            ("failed", counts.failed),
            ("hung", counts.hung),
            ("refused", counts.refused),
            ("overrun", self.overrun),
            ("incomplete", losses.incomplete),
            ("missing", losses.missing),
        ];
        for (end, count) in ends {
            let metric = Metric::new("slice_intervals_total", count);
            sink(metric.with("slice", name).with("end", end));
        }
        let seconds = |name: &'static str, ns: u64| Metric {
            value: ns as f64 / 1e9,
            ..Metric::new(name, 0)
        };
        sink(seconds("slice_makespan_seconds_total", self.makespan_sum).with("slice", name));
        let busy = self.busy.iter().sum();
        sink(seconds("slice_busy_seconds_total", busy).with("slice", name));
        sink(Metric::new("slice_pes", self.busy.len() as u64).with("slice", name));
        for cost in self.costs(engine) {
            let metric = seconds("slice_task_cost_seconds", cost.measured_ns);
            sink(metric.with("slice", name).with("kind", cost.kind));
        }
    }
}
