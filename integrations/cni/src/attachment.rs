//! Interfaces of containers that are ports of the daemon's: a veth whose outer end is an uplink.
//!
//! Nothing is kept on disk. The outer end's name, which is the uplink's name too, follows from network, container and interface, and
//! the uplink's owner says the same in words.

use crate::answer::{Address, Code, Interface, Outcome, Refusal, Route, VERSIONS};
use crate::ipam;
use crate::network::{Network, Wire, version_of};
use crate::request::{Command, Leg, Request};
use nfluid_api::client::Client;
use nfluid_api::types::{Kind, PortState, UplinkStatus, Version};
use nfluid_control::quantity::Mac;
use nfluid_engine::names::fingerprint;
use nfluid_engine::requests::{found, merge, remove_owned};
use nfluid_netdev::own_stack::Settings;
use nfluid_netdev::{NetNs, Prefix, leg};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The beginning of the owners of uplinks of all networks.
const ENGINE: &str = "cni";
/// Hexadecimal digits of a network's part of an owner.
const NETWORK_DIGITS: usize = 12;
/// Hexadecimal digits of an outer end's name, as many as an interface's name has room for.
const LEG_DIGITS: usize = 11;

/// Does what a runtime asks for. `text` is the network's configuration. Returns the answer, if there is one beside success.
///
/// # Errors
/// The reason, for the runtime.
pub async fn perform(request: &Request, text: &[u8]) -> Result<Option<Value>, Refusal> {
    if request.command == Command::Version {
        let version = version_of(text);
        return Ok(Some(
            json!({ "cniVersion": version, "supportedVersions": VERSIONS }),
        ));
    }
    let network = Network::read(text)?;
    let daemon = Client::new(&network.socket);
    match (request.command, &request.leg) {
        (Command::Status, _) => {
            ipam::ask("STATUS", request, &network, text)?;
            let _answers: Version = daemon.get("/v1/version").await?;
            Ok(None)
        }
        (Command::Clean, _) => clean(request, &network, &daemon, text).await.map(|()| None),
        (command, Some(leg)) => {
            let attachment = Attachment::new(&network, leg);
            match command {
                Command::Add => attachment.add(request, &daemon, text).await.map(Some),
                Command::Check => attachment
                    .check(request, &daemon, text)
                    .await
                    .map(|()| None),
                _ => attachment
                    .delete(request, &daemon, text)
                    .await
                    .map(|()| None),
            }
        }
        _ => Err(Refusal::new(
            Code::Environment,
            "the request names no interface",
        )),
    }
}

/// Removes what is left of containers that are gone.
async fn clean(
    request: &Request,
    network: &Network,
    daemon: &Client,
    text: &[u8],
) -> Result<(), Refusal> {
    let valid = network.valid.iter();
    let valid: Vec<String> = valid
        .map(|leg| Attachment::new(network, leg).owner)
        .collect();
    let of_network = prefix(&network.name);
    let uplinks: Vec<UplinkStatus> = daemon.get("/v1/uplinks").await?;
    let mut failed = None;
    for uplink in uplinks {
        let Some(owner) = uplink.owner.filter(|owner| owner.starts_with(&of_network)) else {
            continue;
        };
        if valid.contains(&owner) {
            continue;
        }
        let gone = remove_owned(daemon, (Kind::Uplink, &uplink.name), &owner, true).await;
        // The others can go all the same.
        let gone = gone.map_err(Refusal::from);
        let gone = gone.and_then(|()| Ok(leg::remove(&uplink.interface, &owner)?));
        failed = gone.err().or(failed);
    }
    ipam::ask("GC", request, network, text)?;
    failed.map_or(Ok(()), Err)
}

fn prefix(network: &str) -> String {
    format!("{ENGINE}:{}/", fingerprint(network, NETWORK_DIGITS))
}

/// An interface of a container.
struct Attachment<'a> {
    network: &'a Network,
    /// Its name in the container.
    name: String,
    /// The name of the outer end, and of the uplink.
    outer: String,
    /// The uplink's owner, and the outer end's alias.
    owner: String,
}

impl<'a> Attachment<'a> {
    fn new(network: &'a Network, leg: &Leg) -> Self {
        let Leg {
            container,
            interface,
        } = leg;
        let name = network.interface.as_ref().unwrap_or(interface);
        let owner = format!("{}{container}/{name}", prefix(&network.name));
        Attachment {
            network,
            name: name.clone(),
            outer: format!("cni{}", fingerprint(&owner, LEG_DIGITS)),
            owner,
        }
    }

    fn outer(&self) -> (&str, &str) {
        (&self.outer, &self.owner)
    }

    async fn add(&self, request: &Request, daemon: &Client, text: &[u8]) -> Result<Value, Refusal> {
        let path = namespace_of(request)?;
        let namespace = container(path)?;
        let given = ipam::ask("ADD", request, self.network, text)?;
        let added = self.add_with(request, &namespace, daemon, &given).await;
        let mac = match added {
            Ok(mac) => mac,
            Err(refusal) => {
                // The reason of the first refusal is the one to be told, and the runtime deletes as well.
                let _ = self.delete(request, daemon, text).await;
                return Err(refusal);
            }
        };
        Ok(json!(self.outcome(path, mac, given)))
    }

    /// Makes the interface and the uplink. Returns the interface's hardware address.
    async fn add_with(
        &self,
        request: &Request,
        namespace: &NetNs,
        daemon: &Client,
        given: &Outcome,
    ) -> Result<Mac, Refusal> {
        let asked = request.mac.or(self.network.mac);
        let mac = asked.unwrap_or_else(|| Mac::derived(&self.owner));
        let settings = self.settings(mac, &given.ips, &given.routes)?;
        leg::make(namespace, self.outer(), &settings)?;
        merge(daemon, &self.document(mac)).await?;
        Ok(mac)
    }

    fn settings(&self, mac: Mac, ips: &[Address], routes: &[Route]) -> Result<Settings, Refusal> {
        let routes = routes.iter().map(|route| way(route, ips));
        Ok(Settings {
            name: self.name.clone(),
            mac: mac.0,
            mtu: self.network.mtu,
            addresses: ips.iter().map(prefix_of).collect(),
            routes: routes.collect::<Result<_, _>>()?,
        })
    }

    /// The uplink, and the link of its port, as a document.
    fn document(&self, mac: Mac) -> Value {
        let mut uplink: Map<String, Value> = self.network.uplink.clone();
        uplink.insert("interface".to_owned(), json!(self.outer));
        uplink.insert("owner".to_owned(), json!(self.owner));
        let mut links = Vec::new();
        match &self.network.wire {
            Wire::Link(port) => links.push([port.clone(), self.outer.clone()]),
            Wire::Switch { switch, is_checked } => {
                uplink.insert("switch".to_owned(), json!(switch));
                if *is_checked {
                    // The port has the container's address, and takes no other one.
                    uplink.insert("learn".to_owned(), json!(false));
                    uplink.insert("mac".to_owned(), json!(mac.to_string()));
                }
            }
        }
        json!({ "version": 1, "uplinks": { &self.outer: uplink }, "links": links })
    }

    /// Returns the result for the runtime: that of earlier plugins, and this interface.
    fn outcome(&self, namespace: &Path, mac: Mac, given: Outcome) -> Outcome {
        let mut all = self.network.before.clone().unwrap_or_default();
        let interface = |name: &str, mac: String, sandbox: String| Interface {
            name: name.to_owned(),
            mac,
            sandbox,
            more: Map::new(),
        };
        all.interfaces
            .push(interface(&self.outer, String::new(), String::new()));
        let at = all.interfaces.len();
        let sandbox = namespace.display().to_string();
        all.interfaces
            .push(interface(&self.name, mac.to_string(), sandbox));
        let ips = given.ips.into_iter();
        all.ips.extend(ips.map(|ip| Address {
            interface: Some(at),
            ..ip
        }));
        all.routes.extend(given.routes);
        let dns = self.network.dns.clone().or(given.dns);
        all.dns = dns.or(all.dns);
        all.in_version(&self.network.version)
    }

    async fn check(&self, request: &Request, daemon: &Client, text: &[u8]) -> Result<(), Refusal> {
        let namespace = container(namespace_of(request)?)?;
        let Some(before) = &self.network.before else {
            return Err(Refusal::new(
                Code::Configuration,
                "there is no prevResult to check",
            ));
        };
        ipam::ask("CHECK", request, self.network, text)?;
        let at = before
            .interfaces
            .iter()
            .position(|it| it.name == self.name && !it.sandbox.is_empty());
        let Some(at) = at else {
            let message = format!("prevResult has no interface {}", self.name);
            return Err(Refusal::new(Code::Configuration, message));
        };
        let mac = before.interfaces[at].mac.parse();
        let mac =
            mac.map_err(|_| Refusal::new(Code::Configuration, "prevResult: no hardware address"))?;
        let own = before.ips.iter().filter(|ip| ip.interface == Some(at));
        let own: Vec<_> = own.cloned().collect();
        let settings = self.settings(mac, &own, &[])?;
        let mut faults = leg::differences(&namespace, self.outer(), &settings)?;
        faults.extend(self.fault_of_uplink(daemon).await?);
        if faults.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(Code::Different, faults.join("; ")))
    }

    async fn fault_of_uplink(&self, daemon: &Client) -> Result<Option<String>, Refusal> {
        let path = format!("/v1/uplinks/{}", self.outer);
        let uplink: Option<UplinkStatus> = found(daemon.get(&path).await)?;
        let own = uplink.filter(|it| it.owner.as_deref() == Some(&self.owner));
        let Some(uplink) = own else {
            return Ok(Some(format!("nfluid has no uplink {}", self.outer)));
        };
        let leads_nowhere = uplink.destination == "nowhere";
        let why = match uplink.state {
            PortState::Up if leads_nowhere => "its link or its switch is gone".to_owned(),
            PortState::Up => return Ok(None),
            _ => uplink.reason.unwrap_or_else(|| "it is down".to_owned()),
        };
        Ok(Some(format!("uplink {}: {why}", self.outer)))
    }

    /// Takes the interface away. What is gone already is no fault.
    async fn delete(&self, request: &Request, daemon: &Client, text: &[u8]) -> Result<(), Refusal> {
        let uplink = remove_owned(daemon, (Kind::Uplink, &self.outer), &self.owner, true).await;
        // All three go, whatever becomes of one.
        let interface = leg::remove(&self.outer, &self.owner);
        let address = ipam::ask("DEL", request, self.network, text);
        uplink?;
        interface?;
        address.map(drop)
    }
}

fn namespace_of(request: &Request) -> Result<&Path, Refusal> {
    let path = request.namespace.as_deref();
    path.ok_or_else(|| Refusal::new(Code::Environment, "CNI_NETNS: it is missing"))
}

/// Opens a container's namespace, which is not the host's.
fn container(path: &Path) -> Result<NetNs, Refusal> {
    let wrong = |why: String| Refusal::new(Code::Environment, format!("CNI_NETNS: {why}"));
    let namespace = NetNs::open(Some(path)).map_err(|error| wrong(error.to_string()))?;
    if namespace.id() == NetNs::open(None)?.id() {
        return Err(wrong("it is the host's own namespace".to_owned()));
    }
    Ok(namespace)
}

fn prefix_of(ip: &Address) -> Prefix {
    (ip.address.addr(), ip.address.prefix_len())
}

/// The destinations of a route, and its next router.
fn way(route: &Route, ips: &[Address]) -> Result<(Prefix, Option<std::net::IpAddr>), Refusal> {
    // Nothing of what else the specification knows is carried out: a route that asks for it would be another one.
    if let Some(key) = route.more.keys().next() {
        let message = format!("a route to {}: '{key}' is not supported", route.dst);
        return Err(Refusal::new(Code::Configuration, message));
    }
    let is_v4 = route.dst.addr().is_ipv4();
    let mut routers = ips.iter().filter_map(|ip| ip.gateway);
    let router = route
        .gw
        .or_else(|| routers.find(|it| it.is_ipv4() == is_v4));
    Ok(((route.dst.network(), route.dst.prefix_len()), router))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(network: &Network, container: &str) -> (String, String, Value) {
        let (container, interface) = (container.to_owned(), "net1".to_owned());
        let made = Attachment::new(
            network,
            &Leg {
                container,
                interface,
            },
        );
        let document = made.document(Mac([2, 0, 0, 0, 0, 1]));
        (made.outer, made.owner, document)
    }

    fn network(keys: &str) -> Network {
        let text =
            format!(r#"{{ "cniVersion": "1.0.0", "name": "n", "type": "nfluid-cni", {keys} }}"#);
        Network::read(text.as_bytes()).expect("valid")
    }

    // promise: 27.1
    #[test]
    fn the_longest_names_fit_and_each_has_its_own() {
        let lan = network(r#""switch": "lan""#);
        let long = "x".repeat(96);
        let (outer, owner, _) = attachment(&lan, &long);
        assert!(outer.len() <= 15 && owner.len() <= 128, "{outer} {owner}");
        nfluid_control::model::check_name(&outer).expect(&outer);
        assert_ne!(attachment(&lan, "a").0, attachment(&lan, "b").0);
        assert_ne!(attachment(&lan, "a").1, attachment(&lan, "b").1);
    }

    // promise: 27.1
    #[test]
    fn a_port_on_a_switch_has_the_containers_address_alone() {
        let (outer, owner, document) = attachment(&network(r#""switch": "lan""#), "c");
        let own = json!({
            "interface": outer, "owner": owner, "switch": "lan", "learn": false, "mac": "02:00:00:00:00:01"
        });
        assert_eq!(document["uplinks"][&outer], own);
        assert_eq!(document["links"], json!([]));
        let open = network(r#""switch": "lan", "spoofCheck": false"#);
        assert_eq!(attachment(&open, "c").2["uplinks"][&outer].get("mac"), None);
        let linked = network(r#""link": "fw.in", "uplink": { "super": "off" }"#);
        let (_, _, document) = attachment(&linked, "c");
        assert_eq!(document["links"], json!([["fw.in", outer]]));
        assert_eq!(document["uplinks"][&outer]["super"], "off");
    }

    // promise: 27.3
    #[test]
    fn a_route_has_the_router_of_its_family_and_nothing_is_ignored() {
        let ips: Vec<Address> = serde_json::from_value(json!([
            { "address": "10.0.0.2/24", "gateway": "10.0.0.1" }, { "address": "fd00::2/64", "gateway": "fd00::1" }
        ]))
        .expect("addresses");
        let way = |route: Value| way(&serde_json::from_value(route).expect("a route"), &ips);
        let to = |text: &str| text.parse().expect("an address");
        assert_eq!(
            way(json!({ "dst": "::/0" })),
            Ok(((to("::"), 0), Some(to("fd00::1"))))
        );
        let own = json!({ "dst": "10.9.0.0/16", "gw": "10.0.0.9" });
        assert_eq!(way(own), Ok(((to("10.9.0.0"), 16), Some(to("10.0.0.9")))));
        way(json!({ "dst": "10.9.0.0/16", "table": 7 })).expect_err("another table");
    }
}
