//! Datagrams from a namespace, as fast as a thread can send them, as load for a test or an experiment.

use crate::namespace::within;
use anyhow::Context;
use rustix::net::sockopt::set_ip_tos;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Bytes of a datagram.
const PAYLOAD: [u8; 200] = [7; 200];

/// How a flood is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// The core of the sending thread; `None`: any core.
    pub core: Option<usize>,
    /// Type of service of the datagrams.
    pub tos: u8,
}

/// A flood; ended when dropped.
#[derive(Debug)]
pub struct Flood {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Sends from the namespace at the path `from` to `to` (address and port).
    ///
    /// # Errors
    /// When there is no such namespace or address, or no thread can be started.
    pub fn start(from: &Path, to: &str, sending: Sending) -> anyhow::Result<Self> {
        let socket = within(from, || UdpSocket::bind("0.0.0.0:0"))?.context("a socket")?;
        set_ip_tos(&socket, sending.tos).context("setting the type of service")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (to, ends) = (to.to_owned(), Arc::clone(&is_over));
        let send = move || {
            if let Some(core) = sending.core {
                let mut cores = CpuSet::new();
                cores.set(core);
                // If the core is not available, the thread floods from another core.
                let _ = sched_setaffinity(None, &cores);
            }
            while !ends.load(Ordering::Relaxed) {
                // The sender's host drops frames for which it has no buffer.
                let _ = socket.send_to(&PAYLOAD, &to);
            }
        };
        let thread = thread::Builder::new().name("flood".to_owned()).spawn(send);
        Ok(Flood {
            is_over,
            thread: Some(thread.context("starting a flood")?),
        })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
