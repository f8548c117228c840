//! The built-in network functions.

use nfluid_control::host::{Catalogue, NfConfigError};
use nfluid_control::spec::PortSpec;
use nfluid_nf::PortInfo;
use nfluid_slices::built_in;
use nfluid_wire::ether::MacAddr;
use serde_json::Value;

/// The catalogue of the built-in network functions.
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        let names = built_in().map(|entry| entry.name.to_owned());
        names.collect()
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        built_in().find(|it| it.name == nf).map(|entry| entry.ports)
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
        let entry = built_in()
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
