//! The objects of a daemon that servers, networks and ports of OpenVIM become: instances, switches and uplinks.

use crate::objects::{Flavor, Image, Network, Physical, Port, Server, own_keys};
use nfluid_api::types::CreateRequest;
use nfluid_control::model::DEFAULT_PORTS;
use nfluid_engine::names::TUNNELS;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use uuid::Uuid;

/// Longest part of a server's name that becomes part of its instance's.
const NAME_MAX: usize = 40;
/// Digits of an id that become part of a name.
const DIGITS: usize = 12;

fn digits(id: Uuid) -> String {
    let mut digits = id.simple().to_string();
    digits.truncate(DIGITS);
    digits
}

/// Returns the name of a server's instance: its own as far as that has letters and digits, and the beginning of its id.
pub fn instance_of(server: &Server) -> String {
    let words = server.name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut text = words.join("-");
    text.truncate(NAME_MAX);
    if !text.is_empty() {
        text.push('-');
    }
    text + &digits(server.id)
}

/// Returns the name of a network's switch. A network can get another name.
pub fn switch_of(network: Uuid) -> String {
    format!("net-{}", digits(network))
}

/// Returns the name of the uplink of a network, or of an external port.
pub fn uplink_of(id: Uuid) -> String {
    format!("ext-{}", digits(id))
}

/// Returns the switch of a network, with its uplink, as a document.
///
/// # Errors
/// The network cannot be joined to what it names.
pub fn network(network: &Network, owner: &str) -> Result<Value, String> {
    let switch = switch_of(network.id);
    let mut uplinks = Map::new();
    if let Physical::Interface(interface) = network.physical()? {
        let keys = json!({ "interface": interface, "switch": switch, "owner": owner });
        uplinks.insert(uplink_of(network.id), keys);
    }
    Ok(json!({ "version": 1, "switches": { switch: { "owner": owner } }, "uplinks": uplinks }))
}

/// Returns the name of the tunnel of a network with this number, at both ends.
pub fn tunnel_of(network: Uuid, vni: u32) -> String {
    format!("tun-{}-{vni:x}", digits(network))
}

/// Returns a tunnel to the host at an address, on the network's switch, as a document.
pub fn tunnel(network: &Network, vni: u32, remote: IpAddr, owner: &str) -> Value {
    let keys = json!({
        "interface": format!("{TUNNELS}{vni:x}"), "tunnel": { "remote": remote, "vni": vni },
        "switch": switch_of(network.id), "owner": owner,
    });
    json!({ "version": 1, "uplinks": { tunnel_of(network.id, vni): keys } })
}

/// Adds the uplinks of another document to one.
pub fn add_uplinks(document: &mut Value, other: &Value) {
    let own = document.get_mut("uplinks").and_then(Value::as_object_mut);
    let others = other.get("uplinks").and_then(Value::as_object);
    if let (Some(own), Some(others)) = (own, others) {
        own.extend(others.clone());
    }
}

/// Returns the names of a network's uplink, if it has one, and its switch: to be removed in this order.
pub fn objects_of(network: &Network) -> (Option<String>, String) {
    let has_uplink = matches!(network.physical(), Ok(Physical::Interface(_)));
    let uplink = has_uplink.then(|| uplink_of(network.id));
    (uplink, switch_of(network.id))
}

/// Returns the uplink of an external port on a switch, as a document.
pub fn external(port: &Port, interface: &str, switch: Option<&str>, owner: &str) -> Value {
    let mut keys = json!({ "interface": interface, "owner": owner });
    if let Some(switch) = switch {
        keys["switch"] = switch.into();
    }
    json!({ "version": 1, "uplinks": { uplink_of(port.id): keys } })
}

/// A port of a server, and the switch that it is on.
#[derive(Clone, Debug)]
pub struct Plugged {
    /// The port.
    pub port: Port,
    /// The switch; `None`: none at present.
    pub switch: Option<String>,
}

/// Returns the instance of a server.
///
/// # Errors
/// Names the attribute of the server, its flavor or its image that makes no sense.
pub fn instance(
    server: &Server,
    (flavor, image): (&Flavor, &Image),
    ports: &[Plugged],
    owner: &str,
) -> Result<CreateRequest, String> {
    let mut keys = keys(server, (flavor, image))?;
    keys.insert("owner".to_owned(), owner.into());
    if !ports.is_empty() {
        let mut all = named_ports(keys.remove("ports"))?;
        let is_default = |it: &Plugged| DEFAULT_PORTS.contains(&it.port.name.as_str());
        if all.is_empty() && ports.iter().all(is_default) {
            // A port that no network is for is there as it would be without networks.
            all.extend(DEFAULT_PORTS.map(|name| (name.to_owned(), json!({}))));
        }
        for plugged in ports {
            let port = &plugged.port;
            let keys = all.entry(&port.name).or_insert(Value::Null);
            if keys.is_null() {
                *keys = json!({});
            }
            let Value::Object(keys) = keys else {
                return Err(format!("ports.{}: keys are expected", port.name));
            };
            let mac = port.mac_address.as_deref();
            keys.extend(mac.map(|mac| ("mac".to_owned(), mac.into())));
            if let Some(switch) = &plugged.switch {
                keys.insert("switch".to_owned(), switch.as_str().into());
                // What a server forwards has the addresses of others.
                keys.entry("learn").or_insert(true.into());
            }
        }
        keys.insert("ports".to_owned(), all.into());
    }
    Ok(CreateRequest {
        instance: keys.into(),
        ..CreateRequest::default()
    })
}

/// Returns the keys that image, flavor and server give to an instance: the server's count before the flavor's, and these before the image's.
fn keys(server: &Server, (flavor, image): (&Flavor, &Image)) -> Result<Map<String, Value>, String> {
    let mut keys = image.program().map_err(|why| format!("image.{why}"))?;
    keys.extend(size(flavor).map_err(|why| format!("flavor.{why}"))?);
    keys.extend(own_keys(&server.extended).map_err(|why| format!("server.extended.{why}"))?);
    Ok(keys)
}

/// Returns the ports that an instance's keys name, which is a list of names or a mapping.
fn named_ports(ports: Option<Value>) -> Result<Map<String, Value>, String> {
    match ports {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(ports)) => Ok(ports),
        Some(Value::Array(names)) => {
            let names = names.iter().map(|name| {
                let name = name.as_str().ok_or("ports: names are expected")?;
                Ok((name.to_owned(), json!({})))
            });
            names.collect()
        }
        Some(_) => Err("ports: a mapping or a list of names is expected".to_owned()),
    }
}

/// Returns the names of ports that an image, a flavor and a server say an instance has, in order.
///
/// # Errors
/// They say no ports.
pub fn port_names(server: &Server, of: (&Flavor, &Image)) -> Result<Vec<String>, String> {
    let ports = named_ports(keys(server, of)?.remove("ports"))?;
    Ok(ports.into_iter().map(|(name, _)| name).collect())
}

/// Returns the keys of an instance that say what it may use.
fn size(flavor: &Flavor) -> Result<Map<String, Value>, String> {
    let mut keys = Map::new();
    if flavor.ram > 0 {
        keys.insert("memory".to_owned(), format!("{}MiB", flavor.ram).into());
    }
    if let Some(numa) = flavor.numa()? {
        if let Some(gib) = numa.memory {
            keys.insert("memory".to_owned(), format!("{gib}GiB").into());
        }
        let cores = [numa.cores, numa.threads, numa.paired_threads];
        if cores.into_iter().flatten().any(|count| count > 0) {
            keys.insert("share".to_owned(), "100%".into());
            keys.insert("placement".to_owned(), "pinned".into());
        }
    }
    keys.extend(own_keys(&flavor.extended).map_err(|why| format!("extended.{why}"))?);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::made;

    fn parts(flavor: Value, image: Value, server: Value) -> (Flavor, Image, Server) {
        let with = |mut object: Value, more: Value| {
            let (all, more) = (object.as_object_mut(), more.as_object());
            all.expect("attributes")
                .extend(more.expect("attributes").clone());
            object
        };
        let id = Uuid::from_u128(7);
        let flavor = with(json!({ "name": "f" }), flavor);
        let image = with(json!({ "name": "i", "path": "/nf/bridge" }), image);
        let own = json!({ "name": "s", "flavorRef": id, "imageRef": id });
        let server = with(own, server);
        (
            made(json!({ "flavor": flavor })).expect("a flavor"),
            made(json!({ "image": image })).expect("an image"),
            made(json!({ "server": server })).expect("a server"),
        )
    }

    fn port(name: &str, switch: Option<&str>) -> Plugged {
        let port = json!({ "port": {
            "name": name, "mac_address": "02:00:00:00:00:01", "binding:switch_port": "eth1"
        } });
        Plugged {
            port: made(port).expect("a port"),
            switch: switch.map(str::to_owned),
        }
    }

    #[test]
    fn keys_of_the_server_count_before_the_flavors_and_these_before_the_images() {
        let of = |share: &str| json!({ "nfluid": { "share": share } });
        let (flavor, image, server) = parts(
            json!({ "ram": 32, "extended": { "nfluid": { "share": "2%", "ring": 64 } } }),
            json!({ "metadata": { "os_type": "linux", "nfluid": { "share": "1%", "ring": 32, "tier": "microvm" } } }),
            json!({ "extended": of("3%") }),
        );
        let request = instance(&server, (&flavor, &image), &[], "vim").expect("valid");
        let expected = json!({ "nf": "bridge", "share": "3%", "ring": 64, "tier": "microvm", "memory": "32MiB", "owner": "vim" });
        assert_eq!(request.instance, expected);
    }

    #[test]
    fn a_promised_core_is_one_that_the_instance_has() {
        for kind in ["cores", "threads", "paired-threads"] {
            let numas = json!({ "extended": { "numas": [{ kind: 1, "memory": 2 }] } });
            let (flavor, image, server) = parts(numas, json!({ "path": "/opt/probe" }), json!({}));
            let request = instance(&server, (&flavor, &image), &[], "vim").expect("valid");
            let expected = json!({ "program": "/opt/probe", "memory": "2GiB", "share": "100%", "placement": "pinned", "owner": "vim" });
            assert_eq!(request.instance, expected, "{kind}");
        }
    }

    #[test]
    fn ports_are_in_the_order_of_the_image_with_their_switches() {
        let on =
            |switch: &str| json!({ "mac": "02:00:00:00:00:01", "switch": switch, "learn": true });
        let off = json!({ "mac": "02:00:00:00:00:01" });
        for (named, plugged, expected) in [
            (
                json!(null),
                vec![port("in", Some("a"))],
                json!({ "in": on("a"), "out": {} }),
            ),
            (
                json!(null),
                vec![port("left", Some("a")), port("right", None)],
                json!({ "left": on("a"), "right": off }),
            ),
            (
                json!(["wan", "lan"]),
                vec![port("lan", Some("a"))],
                json!({ "wan": {}, "lan": on("a") }),
            ),
            (
                json!({ "lan": { "learn": false, "mtu": 9000 } }),
                vec![port("lan", Some("a")), port("dmz", Some("b"))],
                json!({ "lan": { "learn": false, "mtu": 9000, "mac": "02:00:00:00:00:01", "switch": "a" }, "dmz": on("b") }),
            ),
        ] {
            let image = json!({ "metadata": { "nfluid": { "ports": named } } });
            let (flavor, image, server) = parts(json!({}), image, json!({}));
            let request = instance(&server, (&flavor, &image), &plugged, "vim").expect("valid");
            let ports = &request.instance["ports"];
            assert_eq!(*ports, expected);
            let names = |value: &Value| {
                let names = value.as_object().expect("ports").keys();
                names.cloned().collect::<Vec<_>>()
            };
            assert_eq!(names(ports), names(&expected), "the order counts");
        }
        for wrong in [json!(1), json!([1]), json!({ "in": 1 })] {
            let image = json!({ "metadata": { "nfluid": { "ports": wrong } } });
            let (flavor, image, server) = parts(json!({}), image, json!({}));
            let plugged = [port("in", Some("a"))];
            instance(&server, (&flavor, &image), &plugged, "vim").expect_err("no ports");
        }
    }

    #[test]
    fn names_are_names_of_nfluid() {
        for (name, expected) in [
            ("fw", "fw-000000000000"),
            ("edge 1 (b)", "edge-1-b-000000000000"),
            ("\u{e9}", "000000000000"),
            ("-", "000000000000"),
        ] {
            let (_, _, mut server) = parts(json!({}), json!({}), json!({ "name": name }));
            server.id = Uuid::from_u128(7);
            assert_eq!(instance_of(&server), expected);
        }
        let (_, _, long) = parts(json!({}), json!({}), json!({ "name": "x".repeat(255) }));
        assert!(instance_of(&long).len() <= 63);
    }
}
