//! The wires that go with an instance: its links, its attachments to switches, and chains that have this instance
//! alone. The names in the wires, of uplinks, switches, groups and other instances, are those of the target's own.

use anyhow::{Context, bail, ensure};
use nfluid_control::model::Deployment;
use nfluid_formats::message::Hello;
use serde_json::{Map, Value, json};

/// Keys of a port that do not connect it.
const OWN_KEYS: [&str; 3] = ["mac", "mtu", "queues"];

/// Links and chains of an instance, as a document, and the names of the chains; `all` is `deployment` as JSON.
///
/// # Errors
/// A chain has other instances: it cannot be cut.
pub fn of(
    name: &str,
    deployment: &Deployment,
    all: &Value,
) -> Result<(Value, Vec<String>), String> {
    let mut chains = Map::new();
    for (chain, model) in deployment.chains.iter() {
        let has_ends = model.ends_at(name);
        if !has_ends && !model.crosses(name) {
            continue;
        }
        if has_ends || model.via.iter().any(|hop| hop.instance != name) {
            return Err(format!(
                "instance {name} cannot be moved alone: chain {chain} has others"
            ));
        }
        let found = all.get("chains").and_then(|chains| chains.get(chain));
        chains.insert(chain.to_owned(), found.cloned().unwrap_or_default());
    }
    let links = deployment.links.iter();
    let links: Vec<Value> = links
        .filter(|link| link.is_of(name))
        .map(|link| json!([link.0.to_string(), link.1.to_string()]))
        .collect();
    let names = chains.keys().cloned().collect();
    let mut document = json!({ "version": 1 });
    if !links.is_empty() {
        document["links"] = Value::Array(links);
    }
    if !chains.is_empty() {
        document["chains"] = Value::Object(chains);
    }
    Ok((document, names))
}

/// Checks that a peer asks for one instance and what leads to it, and for nothing else.
///
/// A chain has this instance alone, as [`of`] sends it: a chain with other instances, or with none, would lead
/// traffic of this host elsewhere. The other end of a link, and a chain's ends, are this host's own names: a peer
/// cannot show which of this host's free ports, switches and uplinks a moved instance may be put at; a port that has
/// a wire already is refused when the document is applied. A peer that must not choose such names any more is put on
/// the list of revoked certificates.
///
/// # Errors
/// The peer asks for more.
pub fn check(hello: &Hello) -> anyhow::Result<()> {
    only(&hello.document, &["version", "instances", "flavors"])?;
    only(&hello.wires, &["version", "links", "chains"])?;
    let instances = hello.document.get("instances").and_then(Value::as_object);
    let instances = instances.context("it names no instance")?;
    ensure!(
        instances.len() == 1 && instances.contains_key(&hello.name),
        "it names other instances than {}",
        hello.name
    );
    let links = hello.wires.get("links").and_then(Value::as_array);
    for link in links.into_iter().flatten() {
        let ends = link.as_array().map(Vec::as_slice);
        let Some([Value::String(a), Value::String(b)]) = ends else {
            bail!("a link has two ends");
        };
        ensure!(
            [a, b].into_iter().any(|end| is_of(end, &hello.name)),
            "a link is not of instance {}",
            hello.name
        );
    }
    let chains = hello.wires.get("chains").and_then(Value::as_object);
    for (name, chain) in chains.into_iter().flatten() {
        ensure!(
            hello.chains.contains(name),
            "a chain is not named twice: {name}"
        );
        ensure!(
            is_chain_of(chain, &hello.name),
            "chain {name} is not of instance {} alone",
            hello.name
        );
    }
    Ok(())
}

/// Returns true if a port is one of this instance.
fn is_of(port: &str, instance: &str) -> bool {
    port.split_once('.')
        .is_some_and(|(owner, _)| owner == instance)
}

/// Returns true if a chain leads through this instance, once or more often, and through no other, from and to others.
fn is_chain_of(chain: &Value, instance: &str) -> bool {
    let via = chain.get("via").and_then(Value::as_array);
    let is_here = |hop: &Value| hop.get("instance").and_then(Value::as_str) == Some(instance);
    let ends = ["from", "to"].map(|end| chain.get(end).and_then(Value::as_str));
    via.is_some_and(|via| !via.is_empty() && via.iter().all(is_here))
        && ends
            .iter()
            .all(|end| end.is_some_and(|end| !is_of(end, instance)))
}

fn only(document: &Value, known: &[&str]) -> anyhow::Result<()> {
    let document = document.as_object().context("it is no deployment")?;
    match document.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => bail!("'{key}' is not moved with an instance"),
        None => Ok(()),
    }
}

/// Takes the attachments to switches out of an instance's document: they are made when its ports are shut. Returns whether
/// there were any.
pub fn detach(document: &mut Value) -> bool {
    let instances = document.get_mut("instances").and_then(Value::as_object_mut);
    let instances = instances.into_iter().flat_map(Map::values_mut);
    let ports = instances.filter_map(|instance| instance.get_mut("ports")?.as_object_mut());
    let mut had = false;
    for port in ports.flat_map(Map::values_mut) {
        if let Some(port) = port.as_object_mut() {
            let before = port.len();
            port.retain(|key, _| OWN_KEYS.contains(&key.as_str()));
            had |= port.len() < before;
        }
    }
    had
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_formats::message::PROTOCOL;

    fn hello() -> Hello {
        let port = json!({ "mac": "02:00:00:00:00:01", "switch": "lan", "vlan": 7 });
        let hop = json!({ "instance": "fw", "in": "in", "out": "out" });
        let chain = json!({ "from": "wan", "to": "lan", "via": [hop] });
        Hello {
            protocol: PROTOCOL,
            id: "7f".into(),
            name: "fw".into(),
            document: json!({ "version": 1, "instances": { "fw": { "nf": "firewall", "ports": { "in": port } } } }),
            wires: json!({ "version": 1, "links": [["lan", "fw.in"]], "chains": { "web": chain } }),
            chains: vec!["web".into()],
        }
    }

    // Catches: the hops of a chain are not looked at; a chain without hops is accepted; the first end of a link alone is.
    // promise: 5.38
    #[test]
    fn a_peer_can_ask_for_one_instance_and_what_leads_to_it_only() {
        check(&hello()).expect("one instance");
        fn chain(hello: &mut Hello) -> &mut Value {
            &mut hello.wires["chains"]["web"]
        }
        let other = || json!({ "instance": "other", "in": "in", "out": "out" });
        let mut added = hello();
        let via = chain(&mut added)["via"].as_array_mut().expect("hops");
        via.push(other());
        check(&added).expect_err("a chain of the host's own instance");
        type Change = fn(&mut Hello);
        let changes: [Change; 14] = [
            |it| *chain(it) = json!({}),
            |it| chain(it)["via"] = json!([]),
            |it| chain(it)["via"] = json!(["other"]),
            |it| chain(it)["via"][0]["instance"] = json!("other"),
            |it| chain(it)["from"] = json!("fw.in"),
            |it| chain(it)["to"] = json!({}),
            |it| it.wires["links"] = json!([["lan", "fw.in", "other.in"]]),
            |it| it.wires["links"] = json!([{ "a": "lan", "b": "fw.in" }]),
            |it| it.document["instances"]["other"] = json!({}),
            |it| it.document["uplinks"] = json!({}),
            |it| it.wires["instances"] = json!({}),
            |it| it.wires["links"] = json!([["lan", "other.in"]]),
            |it| it.chains.clear(),
            |it| it.document = Value::Null,
        ];
        for change in changes {
            let mut changed = hello();
            change(&mut changed);
            check(&changed).expect_err("more than one instance");
        }
    }

    #[test]
    fn attachments_are_left_for_later() {
        let mut document = hello().document;
        assert!(detach(&mut document));
        let port = &document["instances"]["fw"]["ports"]["in"];
        assert_eq!(*port, json!({ "mac": "02:00:00:00:00:01" }));
        assert!(!detach(&mut document));
    }
}
