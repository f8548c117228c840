//! The facts about this host and about the catalogue of NFs that validation asks for.

use nfluid_control::fast::Attach;
use nfluid_control::host::{Catalogue, Host, InterfaceFact, NfAttachError, NfConfigError};
use nfluid_control::netns;
use nfluid_control::spec::PortSpec;
use nfluid_fastpath::catalogue::CATALOGUE;
use nfluid_instance::terminator;
use nfluid_lifecycle::machine;
use nfluid_netdev::{NetdevError, Place};
use nfluid_nf::catalogue::{self, Entry};
use nfluid_nf::{ConfigError, NetworkFunction, PortInfo};
use nfluid_slices::{ENTRY, built_in};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;
use std::path::Path;

/// The facts of this host.
#[derive(Clone, Copy, Debug)]
pub struct ThisHost;

impl Host for ThisHost {
    fn cpus(&self) -> Vec<u32> {
        machine::cpus()
    }

    fn memory_bytes(&self) -> u64 {
        machine::memory_bytes()
    }

    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact {
        interface_fact(name, netns)
    }

    fn steering(&self, name: &str, netns: Option<&str>) -> Result<(), String> {
        steering_fact(name, netns)
    }

    fn program(&self, path: &str) -> Result<(), String> {
        nfluid_sandbox::Program::open(Path::new(path))
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    /// Checks the name alone. The import looks for the image: an image that was imported before needs its place no more.
    fn image(&self, name: &str) -> Result<(), String> {
        let parsed = nfluid_image::Reference::parse(name);
        parsed.map(drop).map_err(|error| error.to_string())
    }
}

fn place(interface: &str, netns: Option<&str>) -> Place {
    Place {
        interface: interface.to_owned(),
        netns: netns.map(netns::path),
    }
}

/// Returns the state of an interface, for validation.
pub fn interface_fact(name: &str, netns: Option<&str>) -> InterfaceFact {
    match place(name, netns).look() {
        Ok(()) => InterfaceFact::Present,
        Err(NetdevError::NoNamespace { .. }) => InterfaceFact::NoNamespace,
        Err(NetdevError::NoInterface { names, .. }) => {
            InterfaceFact::Missing(names.split(", ").map(str::to_owned).collect())
        }
        Err(NetdevError::Elsewhere { found, .. }) => InterfaceFact::Elsewhere(found),
        // Validation does not see what is missing here. Carrying out the plan finds the fault and undoes the plan.
        Err(_) => InterfaceFact::Present,
    }
}

/// Checks that an interface's NIC can classify, for validation.
///
/// # Errors
/// Returns the reason why the NIC cannot classify.
pub fn steering_fact(name: &str, netns: Option<&str>) -> Result<(), String> {
    place(name, netns)
        .steering()
        .map(drop)
        .map_err(|error| match error {
            NetdevError::NoSteering { interface, why } => {
                format!("{interface} cannot steer flows to queues: {why}")
            }
            other => other.to_string(),
        })
}

/// The built-in network functions.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        let entries = built_in().map(|entry| entry.name);
        let mut names: Vec<String> = entries
            .chain([terminator::NAME])
            .map(str::to_owned)
            .collect();
        names.sort_unstable();
        names
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        if nf == terminator::NAME {
            return Some((0, 0));
        }
        entry(nf).map(|entry| entry.ports)
    }

    fn has_threads(&self, nf: &str) -> bool {
        nf == ENTRY.name
    }

    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError> {
        if nf == terminator::NAME {
            return terminator::check_config(config);
        }
        build(nf, config, ports)
            .map(|_| ())
            .map_err(|error| NfConfigError {
                path: error.path,
                line: error.line,
                message: error.message,
            })
    }

    fn fast_names(&self) -> Vec<String> {
        CATALOGUE.names()
    }

    fn slow_path_names(&self) -> Vec<String> {
        CATALOGUE.slow_path_names()
    }

    fn validate_fast(&self, nf: &str, config: &Value) -> Result<(), NfConfigError> {
        CATALOGUE.check_config(nf, config)
    }

    fn validate_attach(&self, nf: &str, attach: &Attach) -> Result<(), NfAttachError> {
        CATALOGUE.check_attach(nf, attach)
    }

    fn queues(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), String> {
        let built = build(nf, config, ports).map_err(|error| error.to_string())?;
        built.divides_by_flow().map_err(str::to_owned)
    }
}

fn entry(nf: &str) -> Option<&'static Entry> {
    built_in().find(|entry| entry.name == nf)
}

/// Builds a built-in NF, to see whether that is possible.
fn build(
    nf: &str,
    config: &Value,
    ports: &[PortSpec],
) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    let entry = entry(nf).ok_or_else(|| catalogue::unknown(nf))?;
    entry.on(config, &port_infos(ports))
}

/// Returns what an NF is given as the description of its ports.
fn port_infos(ports: &[PortSpec]) -> Vec<PortInfo> {
    let info = |port: &PortSpec| PortInfo {
        name: port.name.clone(),
        mac: MacAddr(port.mac.0),
        mtu: port.mtu,
    };
    ports.iter().map(info).collect()
}
