//! Makes instances that do nothing.

use super::Shared;
use super::workload::NullWorkload;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stopwatch::Lap;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::runtime::{Adopted, Batch, Outcome, PlannedInstance, Prepared, Runtime};
use nfluid_lifecycle::workload::Workload;

/// Makes instances that do nothing.
pub struct NullRuntime(pub Shared);

impl Runtime for NullRuntime {
    fn plan(&self, _: &[&InstanceSpec]) {}

    fn prepare(&self, coming: Vec<PlannedInstance>) -> Box<dyn Batch> {
        Box::new(NullBatch(NullRuntime(self.0.clone()), coming))
    }

    fn start(&self, coming: PlannedInstance) -> anyhow::Result<Box<dyn Prepared>> {
        self.0.check("make")?;
        Ok(Box::new(NullPrepared(self.0.clone(), coming)))
    }

    fn make_doorbell(&self, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn adopt(&self, name: &str, spec: &InstanceSpec) -> anyhow::Result<Adopted> {
        let left = self.0.seen(name);
        anyhow::ensure!(left.pid.is_some(), "it is gone");
        let mut record = Record::new(spec, 0)?;
        record.paused = left.paused_on_disk;
        let workload = Box::new(NullWorkload::start(&self.0, name, spec, record));
        Ok(Adopted { workload, lost: 0 })
    }
}

struct NullBatch(NullRuntime, Vec<PlannedInstance>);

impl Batch for NullBatch {
    fn complete(self: Box<Self>) -> Vec<Outcome> {
        let coming = self.1.into_iter();
        let started = coming.map(|one| (one.name.clone(), self.0.start(one)));
        started.collect()
    }
}

struct NullPrepared(Shared, PlannedInstance);

impl Prepared for NullPrepared {
    fn take_laps(&mut self) -> Vec<Lap> {
        Vec::new()
    }

    fn core(&self) -> Option<u32> {
        self.1.site.core
    }

    fn keep(self: Box<Self>) -> anyhow::Result<Box<dyn Workload>> {
        let mut record = Record::new(&self.1.spec, 0)?;
        record.doorbells = self.1.peers.clone();
        let (name, spec) = (&self.1.name, &self.1.spec);
        Ok(Box::new(NullWorkload::start(&self.0, name, spec, record)))
    }
}
