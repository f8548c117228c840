//! Answers of the plugin (CNI specification 1.1.0, sections 5 and 6).

use ipnet::IpNet;
use nfluid_api::client::ClientError;
use nfluid_engine::requests::{may_pass, words};
use nfluid_netdev::NetdevError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The versions of the specification that the plugin speaks, oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The reason of a refusal, in the specification's numbers (section 6); from 100 on, they are the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The network is written for a version that the plugin does not speak.
    Version = 1,
    /// The environment is not as the specification says.
    Environment = 4,
    /// A file or the kernel.
    System = 5,
    /// The configuration is no JSON, or no network.
    Unreadable = 6,
    /// The configuration asks for something that cannot be.
    Configuration = 7,
    /// The same request may work later.
    Later = 11,
    /// The daemon does not answer: nothing can be added now.
    Unavailable = 50,
    /// The daemon refuses.
    Refused = 100,
    /// The container's interface is not as it was made.
    Different = 101,
}

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    code: u16,
    message: String,
    details: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Refusal {
            code: code as u16,
            message: message.into(),
            details: String::new(),
        }
    }

    /// The kernel or a file is the reason.
    pub fn system(message: impl Into<String>) -> Self {
        Refusal::new(Code::System, message)
    }

    /// Another plugin has refused, in its own words.
    pub fn of_plugin(plugin: &str, answer: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Said {
            code: u16,
            #[serde(default)]
            msg: String,
            #[serde(default)]
            details: String,
        }
        match serde_json::from_slice(answer) {
            Ok(Said { code, msg, details }) => Refusal {
                code,
                message: format!("{plugin}: {msg}"),
                details,
            },
            Err(_) => {
                let said = String::from_utf8_lossy(answer);
                let said: String = said.chars().take(200).collect();
                Refusal::system(format!("{plugin} has failed: {}", said.trim()))
            }
        }
    }

    /// Returns the error as the runtime reads it.
    pub fn json(&self, version: &str) -> Value {
        let mut object = json!({ "cniVersion": version, "code": self.code, "msg": self.message });
        if !self.details.is_empty() {
            object["details"] = json!(self.details);
        }
        object
    }
}

impl From<NetdevError> for Refusal {
    fn from(error: NetdevError) -> Self {
        Refusal::system(error.to_string())
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Problem(_) if may_pass(&error) => Code::Later,
            ClientError::Problem(_) | ClientError::Misunderstood(_) => Code::Refused,
            _ => Code::Unavailable,
        };
        Refusal::new(code, words(&error, str::to_owned))
    }
}

/// An address of the container's interface, as a plugin for addresses gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address, with the length of its network's prefix.
    pub address: IpNet,
    /// The router of that network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Position of the interface among [`Outcome::interfaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// `4` or `6`, before version 1.0.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A route of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its destinations.
    pub dst: IpNet,
    /// The next router; without it, that of the address of the same family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The route's other keys (`mtu`, `priority`, `table`...).
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// The container's namespace; absent: it is in the host's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Further keys that another plugin has written.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The result of plugins for a container: interfaces, addresses, routes (section 5.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The version of the specification in which it is written.
    #[serde(default)]
    pub cni_version: String,
    /// The interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Address>,
    /// The container's routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Its name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Value>,
}

impl Outcome {
    /// Writes the addresses as a version of the specification wants them.
    pub fn in_version(mut self, version: &str) -> Self {
        let is_old = version.starts_with("0.");
        for ip in &mut self.ips {
            let family = if ip.address.addr().is_ipv4() {
                "4"
            } else {
                "6"
            };
            ip.version = is_old.then(|| family.to_owned());
        }
        version.clone_into(&mut self.cni_version);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 27.2
    #[test]
    fn addresses_have_a_family_before_version_1() {
        let read = || -> Outcome {
            serde_json::from_value(json!({
                "ips": [{ "address": "10.0.0.2/24" }, { "address": "fd00::2/64", "gateway": "fd00::1", "version": "6" }]
            }))
            .expect("a result")
        };
        let old = json!(read().in_version("0.4.0"));
        assert_eq!(
            [&old["ips"][0]["version"], &old["ips"][1]["version"]],
            ["4", "6"]
        );
        let new = json!(read().in_version("1.0.0"));
        assert_eq!(
            new["ips"][1],
            json!({ "address": "fd00::2/64", "gateway": "fd00::1" })
        );
        assert_eq!(new["cniVersion"], "1.0.0");
    }

    #[test]
    fn another_plugins_refusal_keeps_its_number() {
        let said = br#"{ "cniVersion": "1.0.0", "code": 11, "msg": "no address is free" }"#;
        let refusal = Refusal::of_plugin("host-local", said).json("1.0.0");
        assert_eq!(refusal["code"], 11);
        assert_eq!(refusal["msg"], "host-local: no address is free");
        assert_eq!(
            Refusal::of_plugin("x", b"core dumped").json("1.0.0")["code"],
            5
        );
    }
}
