//! The built-in network functions.

use nfluid_control::host::{Catalogue, NfConfigError};
use nfluid_control::spec::PortSpec;
use nfluid_nf::{PortInfo, catalogue};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;

/// All of them.
fn entries() -> impl Iterator<Item = &'static catalogue::Entry> {
    catalogue::ENTRIES.iter().chain([&nfluid_slices::ENTRY])
}

/// The catalogue of the built-in network functions.
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        let names = entries().map(|entry| entry.name.to_owned());
        names.collect()
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        entries().find(|it| it.name == nf).map(|entry| entry.ports)
    }

    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError> {
        let infos: Vec<PortInfo> = ports
            .iter()
            .map(|port| PortInfo {
                name: port.name.clone(),
                mac: MacAddr(port.mac.0),
                mtu: port.mtu,
            })
            .collect();
        let entry = entries()
            .find(|it| it.name == nf)
            .expect("an NF that exists");
        match entry.on(config, &infos) {
            Ok(_) => Ok(()),
            Err(error) => Err(NfConfigError {
                path: error.path,
                line: error.line,
                message: error.message,
            }),
        }
    }
}
