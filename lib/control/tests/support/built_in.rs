//! The built-in network functions.

use nfluid_control::host::{Catalogue, NfConfigError};
use nfluid_control::spec::PortSpec;
use nfluid_nf::{PortInfo, catalogue};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;

/// The catalogue of the built-in network functions.
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        let names = catalogue::ENTRIES.iter().map(|entry| entry.name.to_owned());
        names.collect()
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        catalogue::find(nf).map(|entry| entry.ports)
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
        match catalogue::build(nf, config, &infos) {
            Ok(_) => Ok(()),
            Err(error) => Err(NfConfigError {
                path: error.path,
                line: error.line,
                message: error.message,
            }),
        }
    }
}
