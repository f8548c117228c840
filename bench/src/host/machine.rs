//! Virtual machines of this process.

use nfluid_ring::memory::Pool;
use nfluid_vmm::machine::PoolMemory;
use nfluid_vmm::{End, Guest, Hypervisor, Image, Machine};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Memory of a guest in bytes: that of the flavor `small`.
pub const MEMORY: u64 = 16 << 20;
/// Memory of a guest that carries load.
const MEMORY_LOADED: u64 = 64 << 20;

/// Starts a guest with the frame slots in `pool`.
///
/// # Errors
/// This host has no KVM, or the image is none.
pub fn start(image: Image, pool: Option<&Arc<Pool>>) -> anyhow::Result<Guest> {
    let slots = pool.map_or_else(PoolMemory::default, |pool| {
        let (start, bytes) = pool.as_raw_parts();
        // The pool stays mapped for as long as this process lives.
        std::mem::forget(Arc::clone(pool));
        PoolMemory {
            start: start as u64,
            bytes: bytes as u64,
        }
    });
    // SAFETY: one owner of the pool was forgotten above, so it is never unmapped.
    let guest = unsafe { Guest::start(&Hypervisor::open()?, image, MEMORY_LOADED, slots, at_end) };
    Ok(guest?)
}

/// Makes a machine without ports.
///
/// # Errors
/// This host has no KVM.
pub fn bare(hypervisor: &Hypervisor, image: Image) -> anyhow::Result<Machine> {
    // SAFETY: there is no pool.
    Ok(unsafe { Machine::new(hypervisor, image, MEMORY, PoolMemory::default()) }?)
}

/// Returns the image that does nothing.
///
/// # Errors
/// The build of this program has left none.
pub fn noop() -> anyhow::Result<Image> {
    let file = std::fs::File::open(Path::new(env!("NFLUID_NOOP_IMAGE")))?;
    Ok(Image::from_file(OwnedFd::from(file))?)
}

fn at_end(end: &End) -> ! {
    eprintln!("{end}");
    std::process::exit(1)
}
