//! The program that runs inside an instance of tier `process`, and hosts a network function of the catalogue.

use nfluid_hosting::Functions;
use nfluid_nf::{NetworkFunction, PortInfo, catalogue};
use nfluid_ring::memory::Pool;
use serde_json::Value;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

/// The network function that a waiting process builds in advance to warm up.
const REHEARSED: &str = "bridge";

fn main() -> ExitCode {
    nfluid_hosting::main("nfluid-nf", &mut Catalogue::default())
}

/// The network functions of this process.
#[derive(Default)]
struct Catalogue {
    /// Readable when a network function with threads of its own has something to send.
    bell: Option<OwnedFd>,
}

impl Functions for Catalogue {
    /// Builds a network function similar to any other, and drops it: the code and the heap that it needs are then in memory.
    fn prepare(&mut self, _pool: &Arc<Pool>, ports: &[PortInfo]) -> anyhow::Result<()> {
        // The result does not matter, even if this network function does not fit these ports.
        drop(catalogue::build(REHEARSED, &Value::Null, ports));
        Ok(())
    }

    fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    fn build(
        &mut self,
        name: &str,
        config: &Value,
        ports: &[PortInfo],
        _pool: &Arc<Pool>,
    ) -> anyhow::Result<Box<dyn NetworkFunction>> {
        if name == nfluid_slices::ENTRY.name {
            let (function, bell) = nfluid_slices::started(config, ports)?;
            self.bell = Some(bell);
            return Ok(function);
        }
        Ok(catalogue::build(name, config, ports)?)
    }
}
