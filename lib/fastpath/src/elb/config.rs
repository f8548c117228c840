//! The configuration of `nf: elb`.

use super::load::LoadConfig;
use crate::config::{check_place, read, wrong};
use nfluid_control::host::NfConfigError;
use nfluid_control::quantity::Millis;
use nfluid_evnf::balancer::program::{SERVERS_MAX, SERVICES_MAX};
use nfluid_evnf::balancer::{Mode, Transport};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

/// Default number of connections that a balancer remembers.
const CONNECTIONS: u32 = 65_536;
/// Largest configurable number of connections.
const CONNECTIONS_MAX: u32 = 1 << 23;
const WEIGHT_MAX: u32 = 65_535;

/// Configuration of a balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerConfig {
    /// Number of connections that it remembers.
    pub connections: u32,
    /// Its services by name.
    pub services: BTreeMap<String, ServiceConfig>,
}

/// Configuration of a service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// The address for clients.
    pub at: SocketAddr,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// How packets reach its servers.
    #[serde(default)]
    mode: Way,
    /// Its servers.
    pub servers: Vec<ServerConfig>,
    /// The health checks of its servers; absent: none, all servers count as up.
    #[serde(default)]
    pub health: Option<CheckConfig>,
    /// The load measurement that the servers' weights follow; absent: weights are constant.
    #[serde(default)]
    pub load: Option<LoadConfig>,
}

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The address at which it listens.
    pub at: SocketAddr,
    /// Its share of new connections relative to the other servers.
    #[serde(default = "one")]
    pub weight: u32,
    /// True: it keeps its connections and gets no new ones.
    #[serde(default)]
    pub drain: bool,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    #[default]
    Dnat,
    Dsr,
}

/// Configuration of health checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// The kind of check.
    pub check: Check,
    /// The path of HTTP requests.
    #[serde(default = "root")]
    pub path: String,
    #[serde(default = "second")]
    interval: String,
    #[serde(default = "second")]
    timeout: String,
    /// Failures in a row after which a server is down.
    #[serde(default = "three")]
    pub fall: u32,
    /// Successes in a row after which a server is up again.
    #[serde(default = "two")]
    pub rise: u32,
}

/// Kind of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The server accepts a connection.
    Tcp,
    /// The server answers a request with a status of 200 to 399.
    Http,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BalancerText {
    #[serde(default)]
    connections: Option<u32>,
    services: BTreeMap<String, Value>,
}

fn one() -> u32 {
    1
}

fn two() -> u32 {
    2
}

fn three() -> u32 {
    3
}

fn root() -> String {
    "/".to_owned()
}

fn second() -> String {
    "1s".to_owned()
}

/// Parses a configuration.
///
/// # Errors
/// The first error in the configuration.
pub fn parse(config: &Value) -> Result<BalancerConfig, NfConfigError> {
    let text: BalancerText = read("", config)?;
    let connections = text.connections.unwrap_or(CONNECTIONS);
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        let message = format!("{connections} connections; write 1 to {CONNECTIONS_MAX}");
        return Err(wrong("connections", message));
    }
    let mut services = BTreeMap::new();
    let mut places: HashMap<(SocketAddr, Transport), String> = HashMap::new();
    let mut servers = 0;
    for (name, value) in &text.services {
        let path = format!("services.{name}");
        let service = service(&path, value)?;
        let place = (service.at, service.transport());
        if let Some(other) = places.insert(place, name.clone()) {
            let message = format!("service '{other}' is at {} too", service.at);
            return Err(wrong(format!("{path}.at"), message));
        }
        servers += service.servers.len();
        services.insert(name.clone(), service);
    }
    if services.len() > SERVICES_MAX as usize || servers > SERVERS_MAX as usize {
        let message = format!(
            "{} services with {servers} servers; at most {SERVICES_MAX} and {SERVERS_MAX}",
            services.len()
        );
        return Err(wrong("services", message));
    }
    Ok(BalancerConfig {
        connections,
        services,
    })
}

fn service(path: &str, value: &Value) -> Result<ServiceConfig, NfConfigError> {
    let service: ServiceConfig = read(path, value)?;
    check_place(&format!("{path}.at"), service.at)?;
    if let Some(health) = &service.health {
        health.check(&format!("{path}.health"))?;
    }
    if let Some(load) = &service.load {
        load.check(&format!("{path}.load"))?;
    }
    let mut seen = HashSet::new();
    for (number, server) in service.servers.iter().enumerate() {
        let path = format!("{path}.servers[{number}]");
        check_place(&format!("{path}.at"), server.at)?;
        if server.at.is_ipv4() != service.at.is_ipv4() {
            let message = format!("{} cannot serve {}", server.at, service.at);
            return Err(wrong(format!("{path}.at"), message));
        }
        if service.mode == Way::Dsr && server.at.port() != service.at.port() {
            let message = format!(
                "with 'mode: dsr' packets come as they are: it listens on port {}",
                service.at.port()
            );
            return Err(wrong(format!("{path}.at"), message));
        }
        if server.weight > WEIGHT_MAX {
            let message = format!("a weight of {}; write 0 to {WEIGHT_MAX}", server.weight);
            return Err(wrong(format!("{path}.weight"), message));
        }
        if !seen.insert(server.at) {
            let message = format!("{} is in the list already", server.at);
            return Err(wrong(format!("{path}.at"), message));
        }
    }
    Ok(service)
}

impl ServiceConfig {
    /// Returns the protocol as the fast path represents it.
    pub fn transport(&self) -> Transport {
        match self.protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        }
    }

    /// Returns how packets reach the servers.
    pub fn mode(&self) -> Mode {
        match self.mode {
            Way::Dnat => Mode::Translate,
            Way::Dsr => Mode::Direct,
        }
    }

    /// Returns the service's key, which a later daemon uses as well: `tcp 203.0.113.1:80`.
    pub fn key(&self) -> String {
        format!("{} {}", self.protocol.name(), self.at)
    }

    /// Returns the key of a server of this service.
    pub fn server_key(&self, server: SocketAddr) -> String {
        format!("{} > {server}", self.key())
    }
}

impl Protocol {
    /// Returns the name as in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

impl CheckConfig {
    /// Returns the interval of the checks and their timeout, in milliseconds.
    pub fn times(&self) -> (Millis, Millis) {
        let read = |text: &str| text.parse().unwrap_or(Millis::secs(1));
        (read(&self.interval), read(&self.timeout))
    }

    fn check(&self, path: &str) -> Result<(), NfConfigError> {
        for (key, text) in [("interval", &self.interval), ("timeout", &self.timeout)] {
            let path = format!("{path}.{key}");
            let time: Millis = text.parse().map_err(|error| wrong(&path, error))?;
            if !(10..=3_600_000).contains(&time.0) {
                return Err(wrong(path, format!("{time}; write 10ms to 1h")));
            }
        }
        for (key, count) in [("fall", self.fall), ("rise", self.rise)] {
            if !(1..=1000).contains(&count) {
                let message = format!("{count} in a row; write 1 to 1000");
                return Err(wrong(format!("{path}.{key}"), message));
            }
        }
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        if !self.path.starts_with('/') || !self.path.bytes().all(is_plain) {
            let message = "a path begins with '/' and has no spaces";
            return Err(wrong(format!("{path}.path"), message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(config: &Value) -> (String, String) {
        let error = parse(config).expect_err("it is wrong");
        (error.path, error.message)
    }

    fn web(service: Value) -> Value {
        json!({ "services": { "web": service } })
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config =
            web(json!({ "at": "203.0.113.1:80", "servers": [{ "at": "192.0.2.2:8080" }] }));
        let found = parse(&config).expect("it is right");
        assert_eq!(found.connections, CONNECTIONS);
        let web = &found.services["web"];
        assert_eq!(
            (web.mode(), web.transport()),
            (Mode::Translate, Transport::Tcp)
        );
        assert_eq!((web.servers[0].weight, web.servers[0].drain), (1, false));
    }

    // promise: 15.14
    #[test]
    fn what_is_wrong_is_named() {
        let server = |at: &str| json!({ "at": "203.0.113.1:80", "servers": [{ "at": at }] });
        let cases = [
            (
                web(server("[2001:db8::1]:80")),
                "services.web.servers[0].at",
            ),
            (web(server("0.0.0.0:80")), "services.web.servers[0].at"),
            (
                web(json!({ "at": "203.0.113.1:80", "servers": [], "colour": 1 })),
                "services.web",
            ),
            (json!({ "services": {}, "connections": 0 }), "connections"),
            (json!({}), ""),
        ];
        for (config, path) in cases {
            assert_eq!(error(&config).0, path, "{config}");
        }
        let mut direct = server("192.0.2.2:8080");
        direct["mode"] = json!("dsr");
        assert!(error(&web(direct)).1.contains("listens on port 80"));
        let mut looked_after = server("192.0.2.2:8080");
        looked_after["health"] = json!({ "check": "http", "interval": "0s" });
        assert_eq!(error(&web(looked_after)).0, "services.web.health.interval");
    }
}
