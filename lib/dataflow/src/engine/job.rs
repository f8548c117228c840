//! A graph of one interval, as the core manager and the slice see it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use super::arena::{Arena, Layout, TooLarge};
use super::array::Array;
use super::process::apart::Apart;
use super::work::{Application, External, Record, Spare, Work};
use crate::graph::TaskId;
use crate::manager::SliceId;
use crate::plan::Plan;

/// A graph with the layout of its outputs: made once per configuration of a slice, used in each interval.
#[derive(Clone)]
pub struct Shape {
    /// No other shape has this number.
    pub(super) number: u64,
    pub(super) plan: Arc<Plan>,
    pub(super) layout: Arc<Layout>,
    spare: Spare,
}

impl Shape {
    /// Prepares a plan.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn new(plan: Plan) -> Result<Self, TooLarge> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            layout: Arc::new(Layout::of(plan.tasks())?),
            plan: Arc::new(plan),
            spare: Arc::default(),
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn arena(&self) -> Arena {
        let spare = self.spare.lock();
        let spare = spare.unwrap_or_else(PoisonError::into_inner).pop();
        match spare {
            Some(mut arena) => {
                arena.reset();
                arena
            }
            None => Arena::new(self.layout.clone()),
        }
    }

    /// The work of an interval, for threads.
    pub(super) fn work(
        &self,
        application: Arc<dyn Application>,
        external: Arc<[u8]>,
        measures: bool,
    ) -> Work {
        let gathered = Arc::clone(self.plan.gathered());
        Work {
            arena: Some(self.arena()),
            spare: Some(Arc::clone(&self.spare)),
            records: Array::own(gathered.units()),
            task_times: measures.then(|| Array::own(gathered.tasks().len())),
            failure: OnceLock::new(),
            external: External::Own(external),
            gathered,
            application,
        }
    }
}

/// The run of a unit, as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitRun {
    /// The unit.
    pub unit: u32,
    /// The PE that ran it.
    pub pe: usize,
    /// Begin on the engine's clock, in nanoseconds.
    pub start: u64,
    /// Nanoseconds that it took.
    pub took: u64,
}

/// Where the work of an interval lies.
pub enum Place {
    /// In this process.
    Here(Arc<Work>),
    /// In memory that PEs' processes share.
    Apart(Apart),
}

/// A graph of one interval.
pub struct Job {
    pub(super) slice: SliceId,
    pub(super) ticket: u64,
    pub(super) shape: Shape,
    pub(super) place: Place,
    is_dropped: AtomicBool,
}

impl Job {
    pub(super) fn new(slice: SliceId, ticket: u64, shape: Shape, place: Place) -> Self {
        Self {
            slice,
            ticket,
            shape,
            place,
            is_dropped: AtomicBool::new(false),
        }
    }

    /// The work, if this process can do it.
    pub(super) fn work(&self) -> Option<&Arc<Work>> {
        match &self.place {
            Place::Here(work) => Some(work),
            Place::Apart(_) => None,
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        let failure = match &self.place {
            Place::Here(work) => &work.failure,
            Place::Apart(apart) => &apart.failure,
        };
        failure.get().cloned()
    }

    /// Keeps why the graph failed in a process. The first reason stays.
    pub(super) fn fail(&self, why: String) {
        if let Place::Apart(apart) = &self.place {
            let _first_stays = apart.failure.set(why);
        }
    }

    pub(super) fn drop_outputs(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// The output of a task, or `None` if the graph was dropped: a late graph is never half delivered.
    pub(super) fn output(&self, task: TaskId) -> Option<&[u8]> {
        if self.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        match &self.place {
            Place::Here(work) => work.arena.as_ref()?.output(task),
            Place::Apart(apart) => apart.output(task),
        }
    }

    fn records(&self) -> &[Record] {
        match &self.place {
            Place::Here(work) => &work.records,
            Place::Apart(apart) => &apart.records,
        }
    }

    fn measured(&self) -> Option<&[AtomicU32]> {
        match &self.place {
            Place::Here(work) => work.task_times.as_deref(),
            Place::Apart(apart) => apart.task_times.as_deref(),
        }
    }

    /// All units that have run, by unit.
    pub(super) fn runs(&self) -> impl Iterator<Item = UnitRun> {
        let records = self.records().iter().enumerate();
        records.filter_map(|(unit, record)| {
            let took = record.took.load(Ordering::Relaxed);
            (took > 0).then(|| UnitRun {
                unit: unit as u32,
                pe: record.pe.load(Ordering::Relaxed) as usize,
                start: record.start.load(Ordering::Relaxed),
                took: u64::from(took),
            })
        })
    }

    /// Kind, PE and nanoseconds of each task, if the job has measured them.
    pub(super) fn task_times(&self) -> impl Iterator<Item = (u16, usize, u64)> {
        let gathered = self.shape.plan.gathered();
        self.measured().into_iter().flat_map(move |times| {
            self.runs().flat_map(move |run| {
                gathered.members(run.unit).iter().map(move |&task| {
                    let took = times[task as usize].load(Ordering::Relaxed);
                    (gathered.tasks().task(task).kind, run.pe, u64::from(took))
                })
            })
        })
    }
}
