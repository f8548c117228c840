//! Tenants, hosts, flavors, images and servers.

use super::{Object, Told, check_description, now, own_keys, yes};
use nfluid_tls::mutual::host_of;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use uuid::Uuid;

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// A description, in the client's words.
    pub description: Option<String>,
    /// True if it may make servers.
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl Object for Tenant {
    const WORD: &'static str = "tenant";
    const PLURAL: &'static str = "tenants";
    const LISTED: &'static [&'static str] = &["id", "name", "description", "enabled"];
    const GIVEN: &'static [&'static str] = &["id", "name", "description", "enabled"];
    const CHANGEABLE: &'static [&'static str] = &["name", "description", "enabled"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        check_description(self.description.as_ref())
    }
}

/// The port of daemons' APIs, unless a host names another.
const PORT: u16 = 7444;

/// A host: a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The address of the daemon's API: `NAME`, `NAME:PORT`, or the absolute path of its socket.
    pub ip_name: String,
    /// Its address for tunnels to other hosts, a name or an IP address. Without it, that of the daemon's API, unless this is a socket.
    pub tunnel_address: Option<String>,
    /// The user for a login, which OpenVIM asks for. Nothing here logs in.
    pub user: String,
    /// A description, in the client's words.
    pub description: Option<String>,
    /// True if it gets servers.
    #[serde(default = "yes")]
    pub admin_state_up: bool,
    /// Of hosts with as much free, that with the higher ranking gets a server.
    #[serde(default)]
    pub ranking: u64,
    /// When it was added.
    #[serde(default = "now")]
    pub created_at: String,
}

impl Host {
    /// Returns the address of the daemon's API over TCP, `NAME:PORT`; `None`: the daemon is reached by its socket.
    pub fn api_address(&self) -> Option<String> {
        let address = self.ip_name.as_str();
        if address.starts_with('/') {
            return None;
        }
        let has_port = match address.strip_prefix('[') {
            Some(rest) => rest.contains("]:"),
            None => address.contains(':'),
        };
        Some(match has_port {
            true => address.to_owned(),
            false => format!("{address}:{PORT}"),
        })
    }

    /// Returns its address for tunnels to other hosts; `None`: none leads to it.
    pub fn tunnel_address(&self) -> Option<String> {
        let own = self.tunnel_address.clone();
        own.or_else(|| Some(host_of(&self.api_address()?).ok()?.to_owned()))
    }
}

impl Object for Host {
    const WORD: &'static str = "host";
    const PLURAL: &'static str = "hosts";
    const LISTED: &'static [&'static str] = &[
        "id",
        "name",
        "description",
        "status",
        "admin_state_up",
        "ip_name",
    ];
    const GIVEN: &'static [&'static str] = &[
        "id",
        "name",
        "ip_name",
        "tunnel_address",
        "user",
        "description",
        "admin_state_up",
        "ranking",
    ];
    const CHANGEABLE: &'static [&'static str] = &[
        "name",
        "ip_name",
        "tunnel_address",
        "user",
        "description",
        "admin_state_up",
        "ranking",
    ];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        check_description(self.description.as_ref())
    }
}

/// The visibility of an object to all tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Public {
    /// They do.
    Yes,
    /// Those to which it is attached do.
    #[default]
    No,
}

/// The size of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flavor {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// A description, in the client's words.
    pub description: Option<String>,
    /// Memory in MiB; 0: what the instance's own flavor says.
    #[serde(default)]
    pub ram: u64,
    /// CPUs that it may use. An instance uses one at most.
    #[serde(default)]
    pub vcpus: u64,
    /// The promised resources (`numas`), and the keys of an instance (`nfluid`).
    #[serde(default)]
    pub extended: Map<String, Value>,
    /// Its visibility.
    #[serde(default)]
    pub public: Public,
    /// The tenants to which it is attached.
    #[serde(default)]
    pub tenants: BTreeSet<Uuid>,
}

/// A part of a flavor: CPUs and memory that are promised.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Numa {
    /// Memory in GiB.
    pub memory: Option<u64>,
    /// Whole cores.
    pub cores: Option<u64>,
    /// Threads of cores.
    pub threads: Option<u64>,
    /// Pairs of threads of one core.
    #[serde(rename = "paired-threads")]
    pub paired_threads: Option<u64>,
    /// Ports.
    #[serde(default)]
    pub interfaces: Vec<Value>,
}

impl Flavor {
    /// Returns what is promised, if something is.
    ///
    /// # Errors
    /// Names the attribute that is none.
    pub fn numa(&self) -> Result<Option<Numa>, String> {
        let all = match self.extended.get("numas") {
            None | Some(Value::Null) => return Ok(None),
            Some(all) => all,
        };
        let mut all: Vec<Numa> = serde_path_to_error::deserialize(all)
            .map_err(|error| format!("extended.numas.{}: {}", error.path(), error.inner()))?;
        let first = all.pop();
        if !all.is_empty() {
            return Err("extended.numas: one at most".to_owned());
        }
        Ok(first)
    }
}

/// Refuses what would need hardware of its own, or disks.
fn check_devices(extended: &Map<String, Value>) -> Result<(), String> {
    match extended.get("devices") {
        Some(Value::Array(devices)) if !devices.is_empty() => {
            Err("extended.devices: instances have no disks and no devices of the host".to_owned())
        }
        _ => Ok(()),
    }
}

impl Object for Flavor {
    const WORD: &'static str = "flavor";
    const PLURAL: &'static str = "flavors";
    const LISTED: &'static [&'static str] = &["id", "name", "description", "public"];
    const GIVEN: &'static [&'static str] = &[
        "id",
        "name",
        "description",
        "ram",
        "vcpus",
        "extended",
        "public",
    ];
    const CHANGEABLE: &'static [&'static str] =
        &["name", "description", "ram", "vcpus", "extended", "public"];
    const HIDDEN: &'static [&'static str] = &["tenants"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        check_description(self.description.as_ref())?;
        check_devices(&self.extended)?;
        own_keys(&self.extended).map_err(|why| format!("extended.{why}"))?;
        if self.vcpus > 1 {
            return Err(format!(
                "vcpus: an instance uses one core at most, not {}: divide the work among servers",
                self.vcpus
            ));
        }
        let Some(numa) = self.numa()? else {
            return Ok(());
        };
        let kinds = [numa.cores, numa.threads, numa.paired_threads];
        let promised: Vec<u64> = kinds.into_iter().flatten().collect();
        if promised.len() > 1 || promised.iter().any(|&count| count > 1) {
            return Err(
                "extended.numas: one of cores, threads and paired-threads, and 1 of it: an instance uses one core at most".to_owned(),
            );
        }
        if !numa.interfaces.is_empty() {
            return Err(
                "extended.numas.interfaces: servers have their ports by 'networks'".to_owned(),
            );
        }
        Ok(())
    }
}

/// The program of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Image {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// A description, in the client's words.
    pub description: Option<String>,
    /// `/nf/NAME` for a network function of nfluid, or the path of a program on the hosts.
    pub path: String,
    /// Remarks of users, and the keys of an instance (`nfluid`).
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Its visibility.
    #[serde(default)]
    pub public: Public,
    /// Nothing has to be copied: it can be used as soon as it is there.
    #[serde(default = "active")]
    pub status: String,
    /// When it was made.
    #[serde(default = "now")]
    pub created: String,
    /// The tenants to which it is attached.
    #[serde(default)]
    pub tenants: BTreeSet<Uuid>,
    /// True if a state belongs to it, of the server that it was made of.
    #[serde(default)]
    pub has_state: bool,
}

fn active() -> String {
    "ACTIVE".to_owned()
}

/// The folder of paths that name network functions of nfluid.
const FUNCTIONS: &str = "/nf/";

impl Image {
    /// Returns the keys of an instance that say what runs.
    ///
    /// # Errors
    /// Names the attribute that is wrong.
    pub fn program(&self) -> Result<Map<String, Value>, String> {
        let mut keys = own_keys(&self.metadata).map_err(|why| format!("metadata.{why}"))?;
        let says_itself = ["nf", "program", "image"];
        if says_itself.iter().any(|key| keys.contains_key(*key)) {
            return Ok(keys);
        }
        let (key, value) = match self.path.strip_prefix(FUNCTIONS) {
            Some(name) => ("nf", name),
            None if self.path.starts_with('/') => ("program", self.path.as_str()),
            None => {
                return Err(format!(
                    "path: {FUNCTIONS}NAME, or the absolute path of a program on the hosts, is expected; nothing is fetched"
                ));
            }
        };
        keys.insert(key.to_owned(), value.into());
        Ok(keys)
    }
}

impl Object for Image {
    const WORD: &'static str = "image";
    const PLURAL: &'static str = "images";
    const LISTED: &'static [&'static str] =
        &["id", "name", "description", "path", "public", "status"];
    const GIVEN: &'static [&'static str] =
        &["id", "name", "description", "path", "metadata", "public"];
    const CHANGEABLE: &'static [&'static str] =
        &["name", "description", "path", "metadata", "public"];
    const HIDDEN: &'static [&'static str] = &["tenants", "has_state"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        check_description(self.description.as_ref())?;
        self.program().map(drop)
    }
}

/// The desired state of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The instance runs.
    #[default]
    Running,
    /// The instance is paused.
    Paused,
    /// The server has no instance.
    Off,
    /// The server is to be removed.
    Gone,
}

/// A server: an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// A description, in the client's words.
    pub description: Option<String>,
    /// The tenant that owns it.
    #[serde(default)]
    pub tenant_id: Uuid,
    /// Its flavor.
    #[serde(rename = "flavorRef")]
    pub flavor: Uuid,
    /// Its image.
    #[serde(rename = "imageRef")]
    pub image: Uuid,
    /// Its host.
    #[serde(rename = "hostId", default)]
    pub host: Uuid,
    /// The keys of its instance (`nfluid`) beside those of flavor and image.
    #[serde(default)]
    pub extended: Map<String, Value>,
    /// When it was made.
    #[serde(default = "now")]
    pub created: String,
    /// The last error of its host; absent: the server is as desired.
    pub last_error: Option<String>,
    /// Its ports, in order.
    #[serde(default)]
    pub ports: Vec<Uuid>,
    /// The desired state.
    #[serde(default)]
    pub wanted: Wanted,
    /// The server's host has been told of it, or not.
    #[serde(default)]
    pub told: Told,
}

impl Object for Server {
    const WORD: &'static str = "server";
    const PLURAL: &'static str = "servers";
    const LISTED: &'static [&'static str] = &[
        "id",
        "name",
        "description",
        "hostId",
        "imageRef",
        "flavorRef",
        "status",
        "tenant_id",
    ];
    const GIVEN: &'static [&'static str] = &[
        "id",
        "name",
        "description",
        "flavorRef",
        "imageRef",
        "extended",
    ];
    const CHANGEABLE: &'static [&'static str] = &[];
    const HIDDEN: &'static [&'static str] = &["ports", "wanted", "told"];

    fn id(&self) -> Uuid {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        check_description(self.description.as_ref())?;
        check_devices(&self.extended)?;
        own_keys(&self.extended)
            .map(drop)
            .map_err(|why| format!("extended.{why}"))
    }
}
