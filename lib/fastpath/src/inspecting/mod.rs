//! An eDPI at work: its fast path, and the process of its slow path, which may come and go while packets go on.

mod figures;
mod slow;

pub use slow::Slow;

use super::inspector_process::{InspectorConfig, Request};
use super::processes::Processes;
use super::record::SlowRecord;
use super::{FastPath, FastPaths, Work, broken};
use nfluid_api::types::EventKind;
use nfluid_control::apply::{PlatformError, PlatformErrorKind};
use nfluid_dpi::inspector::Accounts;
use nfluid_dpi::ledger::{Entry, Ledger};
use nfluid_evnf::chain::Member;
use nfluid_evnf::hook::Hook;
use nfluid_evnf::inspector::{Exit, Inspector};
use nfluid_evnf::load::Counts;
use std::os::fd::OwnedFd;
use std::path::Path;

/// An eDPI.
pub struct Inspecting {
    fast: Inspector,
    /// What its slow path counts in: it is there whether or not that runs.
    ledger: Ledger,
    config: InspectorConfig,
    slow: Slow,
}

impl Inspecting {
    /// Loads its fast path on the tables in `folder`. Its slow path does not run yet.
    ///
    /// # Errors
    /// When the kernel refuses it, or the tables there are others.
    pub fn load(config: &InspectorConfig, folder: &Path) -> anyhow::Result<Self> {
        let fast = Inspector::load_kept(config.sizes(), folder)?;
        fast.forbid(&config.forbidden())?;
        Ok(Inspecting {
            ledger: Ledger::of(fast.tables().ledger()?),
            fast,
            config: config.clone(),
            slow: Slow::default(),
        })
    }

    /// Its program as a part of a row, at a hook.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn member(&self, hook: Hook) -> anyhow::Result<Member> {
        Ok(self.fast.member_at(hook)?)
    }

    /// What it was told last.
    pub fn config(&self) -> &InspectorConfig {
        &self.config
    }

    /// The process of its slow path.
    pub fn slow(&self) -> &Slow {
        &self.slow
    }

    /// How packets have left its fast path.
    pub fn exits(&self) -> Vec<(Exit, Counts)> {
        self.fast.exits().unwrap_or_default()
    }

    /// What has been counted, as of the last second.
    pub fn accounts(&self) -> Accounts {
        Accounts::of(&self.ledger, &self.exits())
    }

    /// A number of the ledger.
    pub fn number(&self, entry: Entry) -> u64 {
        self.ledger.get(entry)
    }

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
}

impl FastPath {
    fn inspecting(&mut self) -> Option<(&mut Inspecting, &mut SlowRecord)> {
        let Work::Inspector(inspecting) = &mut self.work else {
            return None;
        };
        Some((inspecting, self.record.slow.get_or_insert_default()))
    }

    /// Starts the process of an eDPI's slow path, and waits until it works.
    ///
    /// # Errors
    /// Why it does not: nDPI is missing, or of another version, or knows no application that is named.
    pub(super) fn begin_slow(
        &mut self,
        processes: &dyn Processes,
        name: &str,
        file: &Path,
    ) -> Result<(), PlatformError> {
        if !matches!(self.work, Work::Inspector(_)) {
            return Ok(());
        }
        if self.record.slow.is_none() {
            let user = processes.take_user();
            let user = user.ok_or_else(|| broken(anyhow::anyhow!("no kernel user is left")))?;
            self.record.slow = Some(SlowRecord {
                user,
                ..SlowRecord::default()
            });
            // From here on it is found, and given back.
            nfluid_records::save(&self.record, file).map_err(broken)?;
        }
        let pins = self.pins.clone();
        let Some((inspecting, record)) = self.inspecting() else {
            return Ok(());
        };
        inspecting
            .start(processes, name, record, &pins)
            .map_err(broken)?;
        let begun = inspecting.slow.await_begun(record).map_err(refused);
        nfluid_records::save(&self.record, file).map_err(broken)?;
        begun
    }

    /// Takes over the process of an earlier daemon's slow path, if it runs what this daemon would start. Else it is ended, and
    /// started anew when fast paths are looked at next. `kept`: the tables are those that it has.
    pub(super) fn adopt_slow(&mut self, processes: &dyn Processes, name: &str, kept: bool) {
        let pins = self.pins.clone();
        let Some((inspecting, record)) = self.inspecting() else {
            return;
        };
        let adopted = inspecting.slow.adopt(processes, name, record, kept);
        let changed = adopted.and_then(|()| {
            inspecting.slow.tell(
                processes,
                name,
                Request::Change(inspecting.config.text.clone()),
            )
        });
        if let Err(why) = changed {
            tracing::info!(instance = name, "a new process for its slow path: {why:#}");
            slow::end(processes, name, record);
            inspecting.slow = Slow::default();
            if let Err(why) = inspecting.start(processes, name, record, &pins) {
                inspecting.slow.failed(format!("{why:#}"));
            }
        }
    }

    /// Another configuration, in force at once.
    pub(super) fn change_inspector(
        &mut self,
        processes: &dyn Processes,
        name: &str,
        new: &InspectorConfig,
    ) -> Result<(), PlatformError> {
        let pins = self.pins.clone();
        let Some((inspecting, record)) = self.inspecting() else {
            return Ok(());
        };
        let sizes = |config: &InspectorConfig| (config.sizes().flows, config.sizes().copies);
        if sizes(&inspecting.config) != sizes(new) {
            let message = "its tables cannot change their size while they are used";
            return Err(
                PlatformError::new(PlatformErrorKind::Refused, message).with_remedy(
                    "leave 'flows' and 'copies' as they were, or delete the instance first",
                ),
            );
        }
        let forbid = |inspecting: &Inspecting, config: &InspectorConfig| {
            inspecting.fast.forbid(&config.forbidden()).map_err(broken)
        };
        forbid(inspecting, new)?;
        let of_process = |config: &InspectorConfig| (config.memory, config.library.clone());
        if of_process(&inspecting.config) == of_process(new) && inspecting.slow.runs() {
            let order = Request::Change(new.text.clone());
            if let Err(why) = inspecting.slow.tell(processes, name, order) {
                forbid(inspecting, &inspecting.config)?;
                return Err(refused(why));
            }
            inspecting.config = new.clone();
            return Ok(());
        }
        let before = std::mem::replace(&mut inspecting.config, new.clone());
        slow::end(processes, name, record);
        let begun = inspecting
            .start(processes, name, record, &pins)
            .and_then(|()| inspecting.slow.await_begun(record));
        begun.map_err(|why| {
            // The former one again; when it cannot either, it is tried again and again.
            inspecting.config = before;
            if let Err(why) = forbid(inspecting, &inspecting.config) {
                return why;
            }
            slow::end(processes, name, record);
            if let Err(why) = inspecting.start(processes, name, record, &pins) {
                inspecting.slow.failed(format!("{why:#}"));
            }
            refused(why)
        })
    }

    /// Ends the process of a slow path; the next look starts another.
    pub(super) fn restart_slow(&mut self, processes: &dyn Processes, name: &str) {
        if let Some((inspecting, record)) = self.inspecting() {
            slow::end(processes, name, record);
            inspecting.slow = Slow::due_now();
        }
    }
}

fn refused(why: anyhow::Error) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Refused, format!("{why:#}"))
}

impl FastPaths {
    /// Whether an instance is a fast path whose slow path is a process.
    pub fn has_slow_path(&self, name: &str) -> bool {
        let fast = self.instances.get(name);
        fast.is_some_and(|fast| matches!(fast.work, Work::Inspector(_)))
    }

    /// Descriptors that become readable when the process of a slow path ends or says something.
    pub(super) fn slow_descriptors(&self) -> Vec<OwnedFd> {
        let inspecting = self.instances.values().filter_map(|fast| match &fast.work {
            Work::Inspector(inspecting) => Some(inspecting),
            _ => None,
        });
        inspecting
            .flat_map(|inspecting| inspecting.slow.descriptors())
            .collect()
    }

    /// Looks at the processes of slow paths: those that have ended are started again.
    pub(super) fn look_at_slow_paths(&mut self) {
        let names: Vec<String> = self.instances.keys().cloned().collect();
        for name in names {
            self.look_at_slow_path(&name);
        }
    }

    fn look_at_slow_path(&mut self, name: &str) {
        let (processes, file) = (
            std::sync::Arc::clone(&self.processes),
            self.paths.record(name),
        );
        let Some(fast) = self.instances.get_mut(name) else {
            return;
        };
        let pins = fast.pins.clone();
        let before = fast.record.slow.clone();
        let Some((inspecting, record)) = fast.inspecting() else {
            return;
        };
        let mut told = Vec::new();
        if let Some(how) = inspecting.slow.look(record) {
            told.push((EventKind::Crashed, how));
        }
        if let Some(said) = inspecting.slow.heard(record) {
            told.push((EventKind::Started, said));
        }
        if inspecting.slow.is_due()
            && let Err(why) = inspecting.start(&*processes, name, record, &pins)
        {
            inspecting.slow.failed(format!("{why:#}"));
        }
        let problem = inspecting.slow.problem();
        if fast.record.slow != before
            && let Err(error) = nfluid_records::save(&fast.record, &file)
        {
            tracing::warn!(instance = name, %error, "writing down its process");
        }
        for (kind, message) in told {
            self.event(kind, name, message);
        }
        self.note_problem(name, problem);
    }

    /// Ends the process of a slow path by its record, and takes away what it had.
    pub(super) fn clear_slow(&self, name: &str) {
        let file = self.paths.record(name);
        let recorded = nfluid_records::load::<super::Record>(&file);
        let Some(mut slow) = recorded.ok().and_then(|record| record.slow) else {
            return;
        };
        slow::end(&*self.processes, name, &mut slow);
        self.processes.remove(name);
        self.processes.free_user(slow.user);
    }
}
