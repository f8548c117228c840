//! The guest of this process.

use anyhow::Context;
use nfluid_hosting::Functions;
use nfluid_nf::{NetworkFunction, PortInfo};
use nfluid_protocol::environment::{self, inherited};
use nfluid_ring::memory::Pool;
use nfluid_vmm::machine::PoolMemory;
use nfluid_vmm::{End, Guest, Hypervisor, Image, watchdog};
use serde_json::Value;
use std::sync::Arc;

/// A guest has so many times the memory of its instance: as in a process, what a network function asks for and never
/// touches costs nothing, and the instance's limit holds for what is touched.
const OVERCOMMIT: u64 = 4;
/// Least memory of a guest in bytes.
const MEMORY_MIN: u64 = 64 << 20;
/// The network function that a waiting guest builds in advance to warm up, and its configuration.
const REHEARSED: &str = "firewall";
const REHEARSED_CONFIG: &str = r#"{"rules": "check-state\nallow ip from any to any keep-state"}"#;

/// Makes the guest of this process.
#[derive(Default)]
pub struct Guests {
    /// A guest that was started before its network function was known.
    waiting: Option<Guest>,
}

impl Functions for Guests {
    /// Starts a guest that builds a network function similar to any other: the code and the heap that it needs are then
    /// in memory.
    fn prepare(&mut self, pool: &Arc<Pool>, ports: &[PortInfo]) -> anyhow::Result<()> {
        let mut guest = start(pool)?;
        let config = serde_json::from_str(REHEARSED_CONFIG).unwrap_or_default();
        guest.rehearse(REHEARSED, &config, ports);
        self.waiting = Some(guest);
        Ok(())
    }

    fn build(
        &mut self,
        name: &str,
        config: &Value,
        ports: &[PortInfo],
        pool: &Arc<Pool>,
    ) -> anyhow::Result<Box<dyn NetworkFunction>> {
        let mut guest = match self.waiting.take() {
            Some(guest) => guest,
            None => start(pool)?,
        };
        guest.build(name, config, ports)?;
        Ok(Box::new(guest))
    }
}

/// Starts a guest with the frame slots in `pool`.
fn start(pool: &Arc<Pool>) -> anyhow::Result<Guest> {
    let kvm = inherited(environment::KVM)?.with_context(|| {
        format!(
            "{} is not set: this program is started by nfluidd",
            environment::KVM
        )
    })?;
    let hypervisor = Hypervisor::of(kvm)?;
    let image = match inherited(environment::GUEST)? {
        Some(file) => Image::from_file(file)?,
        None => Image::functions()?,
    };
    watchdog::start().context("starting the watchdog")?;
    let (memory, bytes) = pool.as_raw_parts();
    let slots = PoolMemory {
        start: memory as u64,
        bytes: bytes as u64,
    };
    // The guest lives until this process ends, and so does the pool.
    std::mem::forget(Arc::clone(pool));
    // SAFETY: the pool is never unmapped, as one of its owners was just forgotten.
    let guest = unsafe { Guest::start(&hypervisor, image, memory_bytes()?, slots, at_end) };
    Ok(guest?)
}

/// Returns the bytes of the guest's memory.
fn memory_bytes() -> anyhow::Result<u64> {
    let name = environment::MEMORY;
    let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    let all: u64 = text
        .parse()
        .with_context(|| format!("{name}: '{text}' is no number"))?;
    Ok(all.saturating_mul(OVERCOMMIT).max(MEMORY_MIN))
}

/// Ends this process: the daemon restarts the instance as its policy says.
fn at_end(end: &End) -> ! {
    eprintln!("nfluid-vmm: {end}");
    std::process::exit(1)
}
