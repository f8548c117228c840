//! Datagrams from a namespace, as fast as a thread on a core of its own can send them.

use super::namespace::Namespace;
use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Bytes of a datagram.
const PAYLOAD: [u8; 200] = [7; 200];

/// A flood; it ends when dropped.
#[derive(Debug)]
pub struct Flood {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// From a namespace to `to` (address and port), by a thread on `core`.
    ///
    /// # Errors
    /// When there is no such socket or no thread.
    pub fn start(from: &Namespace, to: &str, core: usize) -> anyhow::Result<Self> {
        let socket = from.udp_socket("0.0.0.0:0")?;
        socket.connect(to).context("choosing where to send to")?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let send = move || {
            let mut cores = CpuSet::new();
            cores.set(core);
            // On another core it floods as well.
            let _ = sched_setaffinity(None, &cores);
            while !told.load(Ordering::Relaxed) {
                // What its own host has no room for is not sent.
                let _ = socket.send(&PAYLOAD);
            }
        };
        let thread = thread::Builder::new().name("flood".to_owned()).spawn(send);
        Ok(Flood {
            ends,
            thread: Some(thread.context("starting a flood")?),
        })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
