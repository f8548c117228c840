//! The tiny NF of the literature on massive numbers of NFs: one port, a signature over the first 64 bytes of each
//! frame, and forwarding to the next NF by its hardware address.

use super::work::Waits;
use anyhow::{Context, ensure};
use nfluid_nf::signature::signature;
use nfluid_ring::Batch;
use nfluid_ring::attach::{Attached, inherited};
use nfluid_ring::doorbell::AGEING_IDLE;
use nfluid_ring::engine::Engine;
use nfluid_ring::error::AttachError;
use nfluid_ring::memory::MpscMemory;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::sched_yield;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;

/// The ring to an I/O thread (`nfluid_ring::mpsc`), and the value that this NF writes into it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Descriptor of the ring.
    pub ring: i32,
    /// The NF's port.
    pub port: u32,
}

/// Runs until killed, or until `parent`, the process that started this one, ends.
pub fn run(next: [u8; 6], waits: Waits, parent: u32, listed: Option<Listed>) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("tying itself to its parent")?;
    let lives = getppid().is_some_and(|pid| pid.as_raw_pid() as u32 == parent);
    ensure!(lives, "the experiment has ended");
    let mut attached = Attached::from_env()?;
    let port = attached.ports.first().context("an NF needs a port")?;
    let own = port.entry().mac;
    let ring = listed.map(|listed| {
        let fd = inherited(listed.ring)?;
        Ok::<_, AttachError>((MpscMemory::map(fd.as_fd())?, listed.port))
    });
    let ring = ring.transpose()?;
    let mut engine = Engine::new();
    let mut fold = 0;
    let mut sign = |batch: &mut Batch<'_, '_>| {
        for frame in batch.frames() {
            fold ^= signature(frame.bytes());
            let (to, from) = frame.bytes_mut().split_at_mut(6);
            to.copy_from_slice(&next);
            from[..6].copy_from_slice(&own);
            frame.send(0);
        }
        std::hint::black_box(fold);
    };
    // A polling NF sleeps until its first frame: thousands of them would take the CPU time that others need to start.
    let mut has_begun = false;
    loop {
        if engine.run_once(&mut attached.ports, 0, &mut sign) > 0 {
            has_begun = true;
            if let Some((ring, port)) = &ring {
                // When the ring is full, its consumer polls all ports.
                let _ = ring.ring().push(*port);
            }
        } else {
            match waits {
                Waits::Spinning if has_begun => std::hint::spin_loop(),
                Waits::Yielding if has_begun => sched_yield(),
                // An error shows as missing throughput.
                _ => drop(
                    attached
                        .doorbell
                        .wait(&mut attached.ports, None, AGEING_IDLE),
                ),
            }
        }
    }
}
