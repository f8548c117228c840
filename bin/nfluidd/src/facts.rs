//! What validation asks of this host and of the catalogue of NFs.

use crate::host::TERMINATOR;
use nfluid_control::fast::Attach;
use nfluid_control::host::{Catalogue, Host, InterfaceFact, NfAttachError, NfConfigError};
use nfluid_control::spec::PortSpec;
use nfluid_fastpath::catalogue::CATALOGUE;
use nfluid_nf::{PortInfo, catalogue};
use nfluid_wire::ether::MacAddr;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was read of the host holds for so long: CPUs and memory come and go seldom, and are asked for several times for
/// each instance that is made.
const HOLDS: Duration = Duration::from_millis(500);

/// Something that was read of the host, and when.
type Read<T> = Mutex<Option<(Instant, T)>>;

static CPUS: Read<Vec<u32>> = Mutex::new(None);
static MEMORY_BYTES: Read<u64> = Mutex::new(None);

/// What was read lately, or what `read` reads now.
fn lately<T: Clone>(kept: &Read<T>, read: impl FnOnce() -> T) -> T {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    match &*kept {
        Some((when, value)) if when.elapsed() < HOLDS => value.clone(),
        _ => kept.insert((Instant::now(), read())).1.clone(),
    }
}

fn read_cpus() -> Vec<u32> {
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

/// As `MemTotal` of /proc/meminfo, for which the kernel counts much else.
fn read_memory_bytes() -> u64 {
    let all = rustix::system::sysinfo();
    all.totalram * u64::from(all.mem_unit)
}

/// This host.
#[derive(Clone, Copy, Debug)]
pub struct ThisHost;

impl Host for ThisHost {
    fn cpus(&self) -> Vec<u32> {
        lately(&CPUS, read_cpus)
    }

    fn memory_bytes(&self) -> u64 {
        lately(&MEMORY_BYTES, read_memory_bytes)
    }

    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact {
        crate::host::interface_fact(name, netns)
    }

    fn steering(&self, name: &str, netns: Option<&str>) -> Result<(), String> {
        crate::host::steering_fact(name, netns)
    }

    fn program(&self, path: &str) -> Result<(), String> {
        nfluid_sandbox::Program::open(Path::new(path))
            .map(|_| ())
            .map_err(|error| error.to_string())
    }
}

/// Bytes of memory that programs can still get without others losing theirs; unknown on a strange kernel.
pub fn memory_available() -> Option<u64> {
    memory("MemAvailable:")
}

/// A line of /proc/meminfo, in bytes.
fn memory(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The built-in network functions.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn;

impl Catalogue for BuiltIn {
    fn names(&self) -> Vec<String> {
        let entries = catalogue::ENTRIES.iter().map(|entry| entry.name);
        let mut names: Vec<String> = entries.chain([TERMINATOR]).map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        if nf == TERMINATOR {
            return Some((0, 0));
        }
        catalogue::find(nf).map(|entry| entry.ports)
    }

    fn validate(&self, nf: &str, config: &Value, ports: &[PortSpec]) -> Result<(), NfConfigError> {
        if nf == TERMINATOR {
            return crate::host::check_terminator_config(config);
        }
        catalogue::build(nf, config, &port_infos(ports))
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
