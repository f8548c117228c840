//! What validation asks of this host and of the catalogue of NFs.

use nfluid_control::host::{Catalogue, Host, InterfaceFact, NfConfigError};
use nfluid_control::spec::PortSpec;
use nfluid_nf::{PortInfo, catalogue};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// This host.
#[derive(Clone, Copy, Debug)]
pub struct ThisHost;

impl Host for ThisHost {
    fn cpus(&self) -> Vec<u32> {
        let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let range = |part: &str| -> Vec<u32> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) => (first..=last).collect(),
                _ => Vec::new(),
            }
        };
        text.trim().split(',').flat_map(range).collect()
    }

    fn memory_bytes(&self) -> u64 {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: u64 = total
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        kib * 1024
    }

    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact {
        crate::host::interface_fact(name, netns)
    }

    fn program(&self, path: &str) -> Result<(), String> {
        nfluid_sandbox::Program::open(Path::new(path))
            .map(|_| ())
            .map_err(|error| error.to_string())
    }
}

/// The built-in network functions.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        catalogue::ENTRIES
            .iter()
            .map(|entry| entry.name.to_owned())
            .collect()
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        catalogue::find(nf).map(|entry| entry.ports)
    }

    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError> {
        catalogue::build(nf, config, &port_infos(ports))
            .map(|_| ())
            .map_err(|error| NfConfigError {
                path: error.path,
                line: error.line,
                message: error.message,
            })
    }

    fn queues(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), String> {
        let built = catalogue::build(nf, config, &port_infos(ports));
        let built = built.map_err(|error| error.to_string())?;
        built.divides_by_flow().map_err(str::to_owned)
    }
}

/// What an NF is told about its ports.
fn port_infos(ports: &[PortSpec]) -> Vec<PortInfo> {
    let info = |port: &PortSpec| PortInfo {
        name: port.name.clone(),
        mac: MacAddr(port.mac.0),
        mtu: port.mtu,
    };
    ports.iter().map(info).collect()
}
