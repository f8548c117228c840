//! `nf: edpi`: deep packet inspection. A fast path, and the process of its slow path, which may end and restart while
//! packets flow.

mod config;
mod figures;
pub mod inspector;
mod process;

use crate::error::broken;
use crate::figures::{Exits, named};
use crate::function::{Changed, Context, Entry, FastFunction};
use crate::placement::ingress_only;
use crate::processes::Processes;
use crate::record::{Record, SlowRecord};
use config::InspectorConfig;
use inspector::Request;
use nfluid_api::types::{EventKind, FastPathStatus};
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_control::fast::Direction;
use nfluid_dpi::inspector::Accounts;
use nfluid_dpi::ledger::Ledger;
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::inspector::{Exit, Inspector};
use nfluid_evnf::load::Counts;
use nfluid_netdev::Place;
use nfluid_sandbox::cgroup::CgroupStats;
use process::InspectorProcess;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The entry of the catalogue.
pub const ENTRY: Entry = Entry {
    name: "edpi",
    has_slow_path: false,
    check_attach: |attach| match attach.direction {
        Direction::Egress => Err(ingress_only("edpi")),
        Direction::Ingress => Ok(()),
    },
    parse: |config| Ok(Box::new(InspectorConfig::read(config)?)),
};

/// A running eDPI.
struct Edpi {
    fast: Inspector,
    /// The counters of the slow path, which exist with or without its process.
    ledger: Ledger,
    config: InspectorConfig,
    slow: InspectorProcess,
}

impl Edpi {
    /// Loads the fast path on the tables in `folder`. The slow path does not run yet.
    ///
    /// # Errors
    /// When the kernel refuses the program, or the tables have another version.
    fn load(config: &InspectorConfig, folder: &Path) -> anyhow::Result<Self> {
        let fast = Inspector::load_kept(config.sizes_of_tables(), folder)?;
        fast.forbid(&config.forbidden())?;
        Ok(Edpi {
            ledger: Ledger::of(fast.tables().ledger()?),
            fast,
            config: config.clone(),
            slow: InspectorProcess::default(),
        })
    }

    /// Returns the packets counted per exit of the fast path.
    fn counted(&self) -> Vec<(Exit, Counts)> {
        self.fast.exits().unwrap_or_default()
    }

    /// Returns the counters, as of the last second.
    fn accounts(&self) -> Accounts {
        Accounts::of(&self.ledger, &self.counted())
    }

    /// Forbids the fast path all actions that no rule of a configuration asks for.
    fn forbid(&self, config: &InspectorConfig) -> Result<(), PlatformError> {
        self.fast.forbid(&config.forbidden()).map_err(broken)
    }

    /// Starts the process of the slow path; does not wait until it is ready.
    fn start(
        &mut self,
        processes: &dyn Processes,
        name: &str,
        record: &mut SlowRecord,
        pins: &Path,
    ) -> anyhow::Result<()> {
        let tables = self.fast.tables().to_be_handed(pins)?;
        self.slow
            .start(processes, name, record, &self.config, tables)
    }

    /// Starts the process of the slow path; after a failure the start is retried later.
    fn start_or_wait(&mut self, context: &mut Context<'_>) {
        let record = context.record.slow.get_or_insert_default();
        if let Err(why) = self.start(context.processes, context.name, record, context.pins) {
            self.slow.failed(format!("{why:#}"));
        }
    }

    /// Puts a configuration in force by a new process, and waits until it is ready.
    fn change_process(
        &mut self,
        new: &InspectorConfig,
        context: &mut Context<'_>,
    ) -> Result<(), PlatformError> {
        let before = std::mem::replace(&mut self.config, new.clone());
        end(context);
        let record = context.record.slow.get_or_insert_default();
        let begun = self
            .start(context.processes, context.name, record, context.pins)
            .and_then(|()| self.slow.await_begun(record));
        begun.map_err(|why| {
            // Back to the former configuration. If its process cannot be started either, the start is retried.
            self.config = before;
            if let Err(why) = self.forbid(&self.config) {
                return why;
            }
            end(context);
            self.start_or_wait(context);
            refused(why)
        })
    }
}

/// Ends the process of a slow path, started by this or an earlier daemon.
fn end(context: &mut Context<'_>) {
    let record = context.record.slow.get_or_insert_default();
    record.end(context.processes, context.name);
}

fn refused(why: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}"))
}

impl FastFunction for Edpi {
    fn member(&mut self, hook: Hook, _: usize, _: bool) -> Result<Member, PlatformError> {
        self.fast.member_at(hook).map_err(broken)
    }

    /// Starts the process of the slow path, and waits until it is ready.
    ///
    /// # Errors
    /// The reason why it is not: nDPI is missing, or of another version, or does not know an application.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), PlatformError> {
        if context.record.slow.is_none() {
            let user = context.processes.take_user();
            let user = user.ok_or_else(|| broken(anyhow::anyhow!("no kernel user is left")))?;
            context.record.slow = Some(SlowRecord {
                user,
                ..SlowRecord::default()
            });
            // A daemon that finds this record frees the user.
            context.save().map_err(broken)?;
        }
        let record = context.record.slow.get_or_insert_default();
        self.start(context.processes, context.name, record, context.pins)
            .map_err(broken)?;
        let begun = self.slow.await_begun(record).map_err(refused);
        context.save().map_err(broken)?;
        begun
    }

    /// Takes over the process of an earlier daemon's slow path, if it runs the program that this daemon would start.
    /// Otherwise the process is replaced. `kept`: the tables are those of the process.
    fn adopt(&mut self, context: &mut Context<'_>, kept: bool) {
        let (processes, name) = (context.processes, context.name);
        let record = context.record.slow.get_or_insert_default();
        let adopted = self.slow.adopt(processes, name, record, kept);
        let changed = adopted.and_then(|()| {
            let order = Request::Change(self.config.text.clone());
            self.slow.request(processes, name, order)
        });
        if let Err(why) = changed {
            tracing::info!(instance = name, "a new process for its slow path: {why:#}");
            end(context);
            self.slow = InspectorProcess::default();
            self.start_or_wait(context);
        }
    }

    fn change(&mut self, config: &Value, context: &mut Context<'_>) -> Changed {
        let new = InspectorConfig::read(config).map_err(crate::config::refused)?;
        let sizes = |config: &InspectorConfig| {
            let sizes = config.sizes_of_tables();
            (sizes.flows, sizes.copies)
        };
        if sizes(&self.config) != sizes(&new) {
            let message = "its tables cannot change their size while they are used";
            return Err(
                PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
                    "leave 'flows' and 'copies' as they were, or delete the instance first",
                ),
            );
        }
        self.forbid(&new)?;
        let of_process = |config: &InspectorConfig| (config.memory, config.library.clone());
        if of_process(&self.config) != of_process(&new) || !self.slow.runs() {
            return self.change_process(&new, context).map(|()| None);
        }
        let order = Request::Change(new.text.clone());
        if let Err(why) = self.slow.request(context.processes, context.name, order) {
            self.forbid(&self.config)?;
            return Err(refused(why));
        }
        self.config = new;
        Ok(None)
    }

    /// Ends the process of the slow path; the next call of `look` starts another.
    fn restart(&mut self, context: &mut Context<'_>) -> Changed {
        end(context);
        self.slow = InspectorProcess::due_now();
        Ok(None)
    }

    fn descriptors(&self) -> Vec<OwnedFd> {
        self.slow.descriptors()
    }

    /// Checks the process of the slow path; a process that has ended is started again.
    fn look(&mut self, context: &mut Context<'_>) {
        let before = context.record.slow.clone();
        let record = context.record.slow.get_or_insert_default();
        let mut events = Vec::new();
        if let Some(how) = self.slow.look(record) {
            events.push((EventKind::Crashed, how));
        }
        if let Some(message) = self.slow.poll_begun(record) {
            events.push((EventKind::Started, message));
        }
        if self.slow.is_due() {
            self.start_or_wait(context);
        }
        if context.record.slow != before {
            context.save_or_warn("writing down its process");
        }
        for (kind, message) in events {
            context.event(kind, message);
        }
        context.note_problem(self.slow.problem());
    }

    fn has_process(&self) -> bool {
        true
    }

    fn usage(&self) -> (CgroupStats, Option<u64>) {
        (self.slow.used(), Some(self.config.memory))
    }

    fn exits(&self) -> Exits {
        named(self.counted(), figures::verdict)
    }

    fn add_status(&self, record: &Record, _: &[Place], status: &mut FastPathStatus) {
        let record = record.slow.as_ref();
        status.inspection = record.map(|record| self.describe(record));
    }

    fn add_metrics(&self, record: &Record, _: &[Place], metrics: &mut BTreeMap<String, f64>) {
        // nDPI's names of applications, as its last process has reported them.
        let record = record.slow.as_ref();
        let names = record.map_or(&[][..], |slow| slow.applications.as_slice());
        self.add_figures(names, metrics);
    }
}
