//! Our own program on DPDK, `peers/memif.c`.

use super::Dpdk;
use crate::peer::Peer;
use crate::traffic::udp_frame;
use nfluid_testbed::scratch::ScratchInstance;
use std::fmt::Write as _;
use std::process::Command;

/// Longest frame that the program sends.
pub const LEN_MAX: usize = 1514;

/// The task of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sends prepared frames.
    Send,
    /// Reads every byte of every frame.
    Receive,
    /// Sends on its first port and receives on its last port.
    Around,
}

/// Parameters of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub work: Work,
    pub core: usize,
    pub batch: usize,
    /// Most frames in flight; 0: no limit.
    pub window: u32,
    /// Yields the core when there is nothing to do.
    pub yields: bool,
}

impl Dpdk {
    /// Starts an endpoint with these devices; does not wait until it is ready.
    pub fn start(&self, endpoint: &Endpoint, devices: &[String]) -> anyhow::Result<Peer> {
        let mut command = self.command(&self.program, endpoint.core, 1, devices);
        Peer::start_program(endpoint.arguments(&mut command))
    }

    /// Starts an endpoint as the program of an instance whose ports are these devices.
    pub fn start_in(
        &self,
        instance: &ScratchInstance,
        endpoint: &Endpoint,
        devices: &[String],
    ) -> anyhow::Result<Peer> {
        let mut command = self.command(&self.program, endpoint.core, 1, devices);
        Peer::start_program_in(instance, endpoint.arguments(&mut command))
    }
}

impl Endpoint {
    fn arguments<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .arg(match self.work {
                Work::Send => "send",
                Work::Receive => "receive",
                Work::Around => "around",
            })
            .arg(self.batch.to_string())
            .arg(self.window.to_string())
            .arg(u8::from(self.yields).to_string())
            .arg(hex(&udp_frame(LEN_MAX, 0)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_digits_for_each_byte() {
        assert_eq!(super::hex(&[0, 10, 255]), "000aff");
    }
}
