//! A sender and a receiver over memif: shared memory, both poll, no switch between them.

use super::endpoint::{Endpoint, Work};
use super::{Dpdk, await_sockets};
use crate::peer::Peer;
use std::path::Path;

/// Owner of the memory, and whether the owner's buffers are in the ring (zero-copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each side copies.
    Copy,
    /// The receiver's own buffers are in the ring: the sender copies, the receiver does not.
    ReceiverZeroCopy,
    /// The sender's own buffers are in the ring: the receiver copies.
    SenderZeroCopy,
}

/// A set-up of memif. The fastest depends on the machine: experiments try several.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mode: Mode,
    /// Slots of a ring, as a power of two.
    pub ring_bits: u32,
}

impl Setup {
    /// Returns a short description.
    pub fn name(self) -> String {
        let mode = match self.mode {
            Mode::Copy => "copies on both sides",
            Mode::ReceiverZeroCopy => "zero-copy receiver",
            Mode::SenderZeroCopy => "zero-copy sender",
        };
        format!("{mode}, {} slots", 1 << self.ring_bits)
    }
}

/// The EAL argument for a port.
pub fn device(
    index: usize,
    socket: &Path,
    client: bool,
    zero_copy: bool,
    ring_bits: u32,
) -> String {
    let role = if client { "client" } else { "server" };
    let zero_copy = if zero_copy { ",zero-copy=yes" } else { "" };
    format!(
        "net_memif{index},role={role},socket={},socket-abstract=no,rsize={ring_bits}{zero_copy}",
        socket.display()
    )
}

impl Dpdk {
    /// Starts a sender and a receiver, each on its core, and waits until they are ready. Returns them in this order. A
    /// side that `yields` yields its core when it has nothing to do.
    ///
    /// # Errors
    /// When a side does not start.
    pub fn memif_pair(
        &mut self,
        setup: Setup,
        batch: usize,
        cores: [usize; 2],
        yields: bool,
    ) -> anyhow::Result<Vec<Peer>> {
        let pair = self.connect(setup, batch, cores, yields);
        pair.map_err(|error| self.explain(error))
    }

    fn connect(
        &mut self,
        setup: Setup,
        batch: usize,
        cores: [usize; 2],
        yields: bool,
    ) -> anyhow::Result<Vec<Peer>> {
        let socket = self.socket();
        let endpoint = |work, core| Endpoint {
            work,
            core,
            batch,
            window: 0,
            yields,
        };
        let ends = [
            endpoint(Work::Send, cores[0]),
            endpoint(Work::Receive, cores[1]),
        ];
        // The client owns the memory. The server must start first.
        let client = usize::from(setup.mode != Mode::SenderZeroCopy);
        let zero_copy = setup.mode != Mode::Copy;
        let start = |end: usize| {
            let is_client = end == client;
            let device = device(
                0,
                &socket,
                is_client,
                is_client && zero_copy,
                setup.ring_bits,
            );
            self.start(&ends[end], &[device])
        };
        let mut first = start(1 - client)?;
        await_sockets(std::slice::from_ref(&socket), || first.is_running())?;
        let mut second = start(client)?;
        first.await_ready()?;
        second.await_ready()?;
        Ok(if client == 1 {
            vec![first, second]
        } else {
            vec![second, first]
        })
    }
}
