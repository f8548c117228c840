//! What the daemons are asked for: instances, switches and uplinks of servers, networks and ports.

use crate::objects::{Flavor, Image, Network, Physical, Port, Server, own_keys};
use nfluid_api::types::CreateRequest;
use nfluid_control::model::DEFAULT_PORTS;
use serde_json::{Map, Value, json};
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
    let mut keys = image.program().map_err(|why| format!("image.{why}"))?;
    keys.extend(size(flavor).map_err(|why| format!("flavor.{why}"))?);
    keys.extend(own_keys(&server.extended).map_err(|why| format!("server.extended.{why}"))?);
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
pub fn port_names(
    server: &Server,
    (flavor, image): (&Flavor, &Image),
) -> Result<Vec<String>, String> {
    let mut keys = own_keys(&image.metadata)?;
    keys.extend(own_keys(&flavor.extended)?);
    keys.extend(own_keys(&server.extended)?);
    let ports = named_ports(keys.remove("ports"))?;
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
