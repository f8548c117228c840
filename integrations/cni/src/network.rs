//! A network's configuration, as an administrator writes it and the runtime completes it (CNI specification 1.1.0, section 1).

use crate::answer::{Code, Outcome, Refusal, VERSIONS};
use crate::request::{Leg, interface};
use nfluid_control::quantity::Mac;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The version of a configuration that names none (section 1).
const FIRST: &str = "0.1.0";
/// The longest packets of interfaces whose network says nothing.
const MTU: u32 = 1500;
/// The shortest (RFC 791) and the longest packets of a port.
const MTU_BOUNDS: (u32, u32) = (68, 9216);

/// Where the frames of the container's interface go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// To a switch of the daemon's.
    Switch {
        /// Its name.
        switch: String,
        /// Frames with another source than the interface's address are dropped.
        is_checked: bool,
    },
    /// To a port of an instance, or to an uplink, and back.
    Link(String),
}

/// A network.
#[derive(Clone, Debug)]
pub struct Network {
    /// The version of the specification.
    pub version: String,
    /// The network's name.
    pub name: String,
    /// Where frames go.
    pub wire: Wire,
    /// The interface's name, instead of the runtime's.
    pub interface: Option<String>,
    /// The interface's hardware address.
    pub mac: Option<Mac>,
    /// The longest packets in bytes.
    pub mtu: u32,
    /// Further keys of the uplink.
    pub uplink: Map<String, Value>,
    /// The plugin that gives addresses.
    pub ipam: Option<String>,
    /// Name servers.
    pub dns: Option<Value>,
    /// The result of the plugins before this one.
    pub before: Option<Outcome>,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The interfaces that exist, of [`crate::request::Command::Clean`].
    pub valid: Vec<Leg>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    cni_version: Option<String>,
    #[serde(default)]
    name: String,
    switch: Option<String>,
    spoof_check: Option<bool>,
    link: Option<String>,
    interface: Option<String>,
    mac: Option<String>,
    mtu: Option<u32>,
    #[serde(default)]
    uplink: Map<String, Value>,
    #[serde(default)]
    ipam: Ipam,
    dns: Option<Value>,
    prev_result: Option<Outcome>,
    socket: Option<PathBuf>,
    #[serde(default)]
    runtime_config: RuntimeConfig,
    #[serde(rename = "cni.dev/valid-attachments", default)]
    valid: Vec<Valid>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct Ipam {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Default, Deserialize)]
struct RuntimeConfig {
    mac: Option<String>,
}

#[derive(Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

/// Keys that mean something to the runtime, or to all plugins of a list.
const OF_OTHERS: [&str; 8] = [
    "args",
    "capabilities",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "ipMasq",
    "loadOnlyInlinedPlugins",
    "type",
];

/// Returns the version in which the runtime wants to be answered, whatever the configuration is worth.
pub fn version_of(text: &[u8]) -> String {
    let found: Option<Value> = serde_json::from_slice(text).ok();
    let version = found.as_ref().and_then(|it| it["cniVersion"].as_str());
    version.unwrap_or(FIRST).to_owned()
}

impl Network {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The configuration cannot be read, is written for another version, or asks for something impossible.
    pub fn read(text: &[u8]) -> Result<Self, Refusal> {
        let written: Written = serde_json::from_slice(text).map_err(|error| {
            Refusal::new(
                Code::Unreadable,
                format!("the network's configuration: {error}"),
            )
        })?;
        let version = written.cni_version.unwrap_or_else(|| FIRST.to_owned());
        if !VERSIONS.contains(&version.as_str()) {
            let message = format!("cniVersion {version} is none of {}", VERSIONS.join(", "));
            return Err(Refusal::new(Code::Version, message));
        }
        let is_foreign =
            |key: &&String| !OF_OTHERS.contains(&key.as_str()) && !key.starts_with("cni.dev/");
        if let Some(key) = written.rest.keys().find(is_foreign) {
            return Err(wrong(&format!("there is no key '{key}'")));
        }
        if written
            .rest
            .get("ipMasq")
            .is_some_and(|value| *value != false)
        {
            return Err(wrong(
                "ipMasq: the host's kernel does not see these packets: link the network function 'nat'",
            ));
        }
        if written.name.is_empty() {
            return Err(wrong("the network has no 'name'"));
        }
        let wire = match (written.switch, written.link) {
            (Some(switch), None) => Wire::Switch {
                switch,
                is_checked: written.spoof_check.unwrap_or(true),
            },
            (None, Some(_)) if written.spoof_check.is_some() => {
                return Err(wrong("'spoofCheck' needs a 'switch'"));
            }
            (None, Some(port)) => Wire::Link(port),
            _ => {
                return Err(wrong(
                    "write either 'switch': a switch of nfluid, or 'link': a port, such as 'fw.in'",
                ));
            }
        };
        let mtu = written.mtu.unwrap_or(MTU);
        if !(MTU_BOUNDS.0..=MTU_BOUNDS.1).contains(&mtu) {
            let (least, most) = MTU_BOUNDS;
            return Err(wrong(&format!("mtu: {least} to {most} bytes are possible")));
        }
        for key in ["interface", "netns", "owner", "switch", "learn", "mac"] {
            if written.uplink.contains_key(key) {
                return Err(wrong(&format!(
                    "uplink.{key}: it follows from the other keys"
                )));
            }
        }
        let mac = written.runtime_config.mac.or(written.mac);
        let mac = mac.map(|mac| {
            mac.parse()
                .map_err(|_| wrong(&format!("mac: '{mac}' is no hardware address")))
        });
        Ok(Network {
            version,
            name: written.name,
            wire,
            interface: written
                .interface
                .map(|name| interface("interface", name))
                .transpose()?,
            mac: mac.transpose()?,
            mtu,
            uplink: written.uplink,
            ipam: Some(written.ipam.kind).filter(|kind| !kind.is_empty()),
            dns: written.dns,
            before: written.prev_result,
            socket: written
                .socket
                .unwrap_or_else(|| "/run/nfluid/nfluidd.sock".into()),
            valid: written
                .valid
                .into_iter()
                .map(|it| Leg {
                    container: it.container,
                    interface: it.ifname,
                })
                .collect(),
        })
    }
}

fn wrong(why: &str) -> Refusal {
    Refusal::new(Code::Configuration, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(keys: Value) -> Result<Network, Value> {
        let mut network = json!({ "cniVersion": "1.0.0", "name": "n", "type": "nfluid-cni" });
        if let (Some(network), Value::Object(keys)) = (network.as_object_mut(), keys) {
            network.extend(keys);
        }
        Network::read(network.to_string().as_bytes()).map_err(|refusal| refusal.json("1.0.0"))
    }

    // promise: 27.3
    #[test]
    fn what_a_network_cannot_be_is_refused_with_its_key() {
        for (keys, code, part) in [
            (json!({}), 7, "'switch'"),
            (json!({ "switch": "lan", "link": "fw.in" }), 7, "either"),
            (json!({ "swich": "lan" }), 7, "'swich'"),
            (
                json!({ "link": "fw.in", "spoofCheck": true }),
                7,
                "'spoofCheck'",
            ),
            (json!({ "switch": "lan", "mtu": 10_000 }), 7, "mtu"),
            (json!({ "switch": "lan", "mac": "x" }), 7, "mac"),
            (json!({ "switch": "lan", "ipMasq": true }), 7, "ipMasq"),
            (
                json!({ "switch": "lan", "uplink": { "netns": "x" } }),
                7,
                "uplink.netns",
            ),
            (
                json!({ "switch": "lan", "interface": "a/b" }),
                4,
                "interface",
            ),
            (json!({ "switch": 1 }), 6, "configuration"),
            (
                json!({ "switch": "lan", "cniVersion": "2.0.0" }),
                1,
                "2.0.0",
            ),
            (json!({ "switch": "lan", "name": "" }), 7, "'name'"),
        ] {
            let refusal = read(keys.clone()).expect_err(&keys.to_string());
            assert_eq!(refusal["code"], code, "{refusal}");
            assert!(
                refusal["msg"].as_str().unwrap_or_default().contains(part),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_network_has_what_its_runtime_adds() {
        let network = read(json!({
            "switch": "lan", "mac": "02:00:00:00:00:01", "capabilities": { "mac": true }, "ipam": {},
            "runtimeConfig": { "mac": "02:00:00:00:00:02" }, "cni.dev/attachments": [],
            "cni.dev/valid-attachments": [{ "containerID": "c", "ifname": "eth0" }]
        }));
        let network = network.expect("valid");
        assert_eq!(network.mac, Some(Mac([2, 0, 0, 0, 0, 2])));
        assert_eq!(network.ipam, None);
        assert_eq!(network.valid.len(), 1);
        let switch = "lan".to_owned();
        assert_eq!(
            network.wire,
            Wire::Switch {
                switch,
                is_checked: true
            }
        );
    }
}
