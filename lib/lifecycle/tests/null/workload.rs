//! An instance that does nothing.

use super::{Seen, Shared};
use nfluid_api::types::ExitStatus;
use nfluid_control::group::Groups;
use nfluid_control::spec::{InstanceSpec, Resources};
use nfluid_control::supervise::Exit;
use nfluid_control::wake::Wake;
use nfluid_lifecycle::record::Record;
use nfluid_lifecycle::succession::Succession;
use nfluid_lifecycle::workload::{Calls, Exited, InstanceRings, Port, Remains, Usage, Workload};
use nfluid_protocol::answer::HandedOver;
use nfluid_sandbox::ProcessIdentity;
use nfluid_sandbox::cgroup::CpuClock;
use std::io;
use std::path::Path;
use std::time::Duration;

/// An instance that does nothing.
pub struct NullWorkload {
    world: Shared,
    name: String,
    ports: Vec<Port>,
    record: Record,
}

impl NullWorkload {
    /// Starts the instance `name`.
    pub fn start(world: &Shared, name: &str, spec: &InstanceSpec, record: Record) -> Self {
        let ports = (0u32..).zip(&spec.ports).map(|(number, port)| Port {
            number,
            name: port.name.clone(),
            queue: 0,
            queues: 1,
        });
        let mut workload = NullWorkload {
            world: world.clone(),
            name: name.to_owned(),
            ports: ports.collect(),
            record,
        };
        workload.run();
        workload
    }

    fn run(&mut self) {
        let mut world = self.world.lock();
        let pid = world.pid();
        let seen = world.instances.entry(self.name.clone()).or_default();
        seen.pid = Some(pid);
        seen.exit = None;
        seen.is_up = true;
        seen.starts += 1;
    }

    fn seen(&self) -> Seen {
        self.world.seen(&self.name)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.world.lock().instances.get_mut(&self.name) {
            change(seen);
        }
    }
}

impl Workload for NullWorkload {
    fn pid(&self) -> Option<u32> {
        self.seen().pid
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        let seen = self.seen();
        let pid = seen.pid.filter(|_| seen.exit.is_none())?;
        Some(ProcessIdentity {
            pid,
            start_time: 0,
            boot_id: String::new(),
        })
    }

    fn exit(&self) -> Option<Exited> {
        let exit = self.seen().exit?;
        let how = format!("{exit:?}");
        let status = ExitStatus {
            status: Some(i32::from(exit == Exit::Failure)),
            ..ExitStatus::default()
        };
        Some(Exited { how, status })
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        if self.pid().is_some() {
            self.world.check("stop")?;
        }
        self.note_end();
        Ok(())
    }

    fn note_end(&mut self) {
        self.change(|seen| {
            seen.pid = None;
            seen.exit = None;
        });
    }

    fn reclaim(&mut self) -> anyhow::Result<u64> {
        self.world.check("reclaim")?;
        self.change(|seen| {
            seen.is_up = false;
            seen.reclaims += 1;
        });
        Ok(3)
    }

    fn start(&mut self, _: &InstanceSpec, peers: Vec<Option<String>>) -> anyhow::Result<()> {
        self.world.check("start")?;
        assert_eq!(self.pid(), None, "two processes on the ports of one");
        self.record.doorbells = peers;
        self.run();
        Ok(())
    }

    fn begin_freeze(&self) -> anyhow::Result<()> {
        self.world.check("begin_freeze")?;
        self.change(|seen| seen.is_frozen = true);
        Ok(())
    }

    fn await_frozen(&self) -> anyhow::Result<()> {
        self.world.check("await_frozen")
    }

    fn thaw(&self) -> anyhow::Result<()> {
        self.world.check("thaw")?;
        self.change(|seen| seen.is_frozen = false);
        Ok(())
    }

    fn limit(&mut self, _: &Groups, _: &Resources) -> anyhow::Result<()> {
        self.world.check("limit")
    }

    fn lift_cap(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn cap(&self, _: &Groups, _: &Resources) -> anyhow::Result<()> {
        self.world.check("cap")
    }

    fn relocate(&mut self, _: &Groups, _: &Resources) -> anyhow::Result<()> {
        Ok(())
    }

    fn run_on(&mut self, _: &[u32]) -> anyhow::Result<()> {
        Ok(())
    }

    fn busy_time(&self) -> Option<Duration> {
        None
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn cpu_clock(&self) -> Option<CpuClock> {
        None
    }

    fn control(&self) -> &Path {
        Path::new("/nowhere")
    }

    fn ports(&self) -> &[Port] {
        &self.ports
    }

    fn record(&self) -> &Record {
        &self.record
    }

    fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    fn save_record(&self) -> io::Result<()> {
        self.world.check("save_record").map_err(io::Error::other)?;
        self.change(|seen| seen.paused_on_disk = self.record.paused);
        Ok(())
    }

    fn set_wake(&self, _: Option<Wake>) -> anyhow::Result<()> {
        Ok(())
    }

    fn set_ports_up(&self, up: bool) {
        self.change(|seen| seen.is_up = up);
    }

    fn ring(&self) -> bool {
        true
    }

    fn put_frames(&self, _: usize, frames: &[&[u8]]) -> anyhow::Result<usize> {
        Ok(frames.len())
    }

    fn count_left_out(&self, _: usize, _: u64) {}

    fn waiting(&self) -> u64 {
        0
    }

    fn overflowed(&self) -> u64 {
        0
    }

    fn instance_rings(&self) -> anyhow::Result<Box<dyn InstanceRings>> {
        anyhow::bail!("it has no rings")
    }

    fn calls(&mut self, _: bool) -> anyhow::Result<Calls> {
        anyhow::bail!("it makes no calls")
    }

    fn end_calls(&mut self) {}

    fn begin_succession(
        &mut self,
        _: &InstanceSpec,
        peers: Vec<Option<String>>,
    ) -> anyhow::Result<Box<dyn Succession>> {
        self.world.check("begin_succession")?;
        self.change(|seen| seen.has_successor = true);
        Ok(Box::new(Turn {
            world: self.world.clone(),
            doorbells: peers,
        }))
    }

    fn complete_succession(
        &mut self,
        new: &InstanceSpec,
        doorbells: Vec<Option<String>>,
    ) -> anyhow::Result<()> {
        self.record.doorbells = doorbells;
        self.record.spec = serde_json::to_string(new)?;
        self.change(|seen| seen.has_successor = false);
        self.run();
        Ok(())
    }

    fn abandon_succession(&mut self) -> anyhow::Result<()> {
        self.change(|seen| seen.has_successor = false);
        Ok(())
    }

    fn take_out(self: Box<Self>, _: InstanceSpec) -> Box<dyn Remains> {
        assert_eq!(self.pid(), None, "what runs is taken out");
        Box::new(NullRemains {
            world: self.world.clone(),
            name: self.name.clone(),
        })
    }
}

/// The way to a successor.
struct Turn {
    world: Shared,
    doorbells: Vec<Option<String>>,
}

impl Succession for Turn {
    fn hand_over(&self) -> anyhow::Result<HandedOver> {
        self.world.check("hand_over")?;
        Ok(HandedOver::default())
    }

    fn doorbells(&self) -> &[Option<String>] {
        &self.doorbells
    }
}

/// The remains of an instance that was taken out.
struct NullRemains {
    world: Shared,
    name: String,
}

impl Remains for NullRemains {
    fn name(&self) -> &str {
        &self.name
    }

    fn keep_doorbell(&mut self) {}
}

impl Drop for NullRemains {
    fn drop(&mut self) {
        self.world.lock().instances.remove(&self.name);
    }
}
