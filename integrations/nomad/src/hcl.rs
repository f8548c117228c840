//! Configurations: the keys that Nomad accepts, and values as Nomad sends them (MessagePack of cty's values).

use crate::protocol::hclspec::spec::Block;
use crate::protocol::hclspec::{Attr, Default, Literal, Object, Spec};
use anyhow::{Context, bail};
use rmpv::Value as Packed;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

/// Maximum depth of a configuration.
const DEPTH_MAX: usize = 64;

/// Keys of a task that are the driver's own.
const OWN_KEYS: [&str; 3] = ["name", "links", "hand_over"];

/// Keys of an instance that a task can have. What is not among them is Nomad's: `restart`, `owner`.
const INSTANCE_KEYS: [&str; 41] = [
    "api",
    "args",
    "beside",
    "cap",
    "capabilities",
    "config",
    "cpus",
    "direction",
    "directory",
    "entrypoint",
    "environment",
    "flavor",
    "forwarding",
    "frames",
    "group",
    "guarantee",
    "health",
    "image",
    "interface",
    "io",
    "listen",
    "memory",
    "mode",
    "netns",
    "nf",
    "order",
    "placement",
    "ports",
    "priority",
    "program",
    "replicas",
    "share",
    "slice",
    "slow",
    "stop",
    "tier",
    "trust",
    "user",
    "volumes",
    "wake",
    "writable",
];

/// Keys whose values are maps. A map at a task's key and a block look alike to Nomad: it sends a list of blocks.
const MAP_KEYS: [&str; 6] = ["config", "health", "ports", "slow", "stop", "wake"];

/// Settings of the plugin in the agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Settings {
    /// The daemon's socket.
    pub socket: String,
    /// Directories of the host below which a task's volumes may be.
    #[serde(default, deserialize_with = "or_empty")]
    pub host_volumes: Vec<String>,
}

fn or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn attribute(name: &str, of: &str) -> Spec {
    Spec {
        block: Some(Block::Attr(Attr {
            name: name.to_owned(),
            r#type: of.to_owned(),
            required: false,
        })),
    }
}

fn object(attributes: impl IntoIterator<Item = (String, Spec)>) -> Spec {
    Spec {
        block: Some(Block::Object(Object {
            attributes: attributes.into_iter().collect(),
        })),
    }
}

/// Returns the keys of the plugin's settings.
pub fn settings_schema() -> Spec {
    let default = Literal {
        value: format!("{:?}", nfluid_api::SOCKET_PATH),
    };
    let socket = Default {
        primary: Some(Box::new(attribute("socket", "string"))),
        default: Some(Box::new(Spec {
            block: Some(Block::Literal(default)),
        })),
    };
    let socket = Spec {
        block: Some(Block::Default(Box::new(socket))),
    };
    object([
        ("socket".to_owned(), socket),
        (
            "host_volumes".to_owned(),
            attribute("host_volumes", "list(string)"),
        ),
    ])
}

/// Returns the keys of a task. The daemon checks their values, with the words that it has for deployments.
pub fn task_schema() -> Spec {
    let keys = OWN_KEYS.into_iter().chain(INSTANCE_KEYS);
    object(keys.map(|key| (key.to_owned(), attribute(key, "any"))))
}

/// Reads the plugin's settings.
///
/// # Errors
/// The bytes are no configuration of this plugin.
pub fn settings(bytes: &[u8]) -> anyhow::Result<Settings> {
    let socket = Value::from(nfluid_api::SOCKET_PATH);
    let mut all = match bytes {
        [] => Map::new(),
        bytes => decode(bytes)?,
    };
    all.entry("socket").or_insert(socket);
    Ok(serde_json::from_value(Value::Object(all))?)
}

/// Reads a configuration. Keys without a value are left out.
///
/// # Errors
/// The bytes are no MessagePack, or contain something that is not in cty's encoding.
pub fn decode(mut bytes: &[u8]) -> anyhow::Result<Map<String, Value>> {
    let packed = rmpv::decode::read_value_with_max_depth(&mut bytes, DEPTH_MAX)
        .context("the configuration is no MessagePack")?;
    let Packed::Map(entries) = packed else {
        bail!("the configuration is no map");
    };
    let mut all = Map::new();
    for (key, value) in entries {
        let key = key.as_str().context("a key is no text")?.to_owned();
        match without_list(
            &key,
            plain(without_type(value)).with_context(|| key.clone())?,
        ) {
            Value::Null => {}
            value => drop(all.insert(key, value)),
        }
    }
    Ok(all)
}

/// Returns the value of an attribute of type `any`, which cty sends as a pair: its type as JSON, and the value.
fn without_type(value: Packed) -> Packed {
    let Packed::Array(mut pair) = value else {
        return value;
    };
    let is_typed = pair.len() == 2 && matches!(pair.first(), Some(Packed::Binary(_)));
    match (is_typed, pair.pop()) {
        (true, Some(value)) => value,
        (_, last) => Packed::Array(pair.into_iter().chain(last).collect()),
    }
}

/// Returns the map of a key whose value is one.
fn without_list(key: &str, value: Value) -> Value {
    match value {
        Value::Array(mut blocks) if blocks.len() == 1 && MAP_KEYS.contains(&key) => {
            blocks.remove(0)
        }
        value => value,
    }
}

fn plain(value: Packed) -> anyhow::Result<Value> {
    Ok(match value {
        Packed::Nil => Value::Null,
        Packed::Boolean(value) => Value::Bool(value),
        Packed::Integer(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => value.into(),
            (None, Some(value)) => value.into(),
            (None, None) => bail!("a number is too large"),
        },
        Packed::F32(value) => number(value.into())?,
        Packed::F64(value) => number(value)?,
        Packed::String(text) => Value::String(text.into_str().context("a text is not in UTF-8")?),
        Packed::Binary(_) | Packed::Ext(..) => bail!("a value is not known yet"),
        Packed::Array(items) => {
            Value::Array(items.into_iter().map(plain).collect::<Result<_, _>>()?)
        }
        Packed::Map(entries) => {
            let mut all = Map::new();
            for (key, value) in entries {
                let key = key.as_str().context("a key is no text")?.to_owned();
                all.insert(key, plain(value)?);
            }
            Value::Object(all)
        }
    })
}

fn number(value: f64) -> anyhow::Result<Value> {
    Number::from_f64(value)
        .map(Value::Number)
        .context("a number is infinite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_api::types::ApplyRequest;
    use nfluid_control::document::read_unchecked;
    use serde_json::json;

    fn packed(value: &Packed) -> Vec<u8> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, value).expect("room");
        bytes
    }

    fn text(text: &str) -> Packed {
        Packed::from(text)
    }

    fn any(of: &str, value: Packed) -> Packed {
        Packed::Array(vec![Packed::Binary(of.as_bytes().to_vec()), value])
    }

    #[test]
    fn values_of_any_type_are_read_and_absent_ones_left_out() {
        let ports = Packed::Map(vec![(
            text("in"),
            Packed::Map(vec![(text("mtu"), 1400.into())]),
        )]);
        let all = Packed::Map(vec![
            (text("nf"), any("\"string\"", text("nat"))),
            (
                text("ports"),
                any("[\"tuple\",[]]", Packed::Array(vec![ports])),
            ),
            (
                text("args"),
                any("[\"tuple\",[]]", Packed::Array(vec![text("a"), text("b")])),
            ),
            (text("forwarding"), any("\"bool\"", true.into())),
            (text("share"), Packed::Nil),
            (text("plain"), Packed::Array(vec![1.into(), (-2).into()])),
        ]);
        let expected = json!({
            "nf": "nat", "ports": { "in": { "mtu": 1400 } }, "args": ["a", "b"], "forwarding": true, "plain": [1, -2]
        });
        assert_eq!(
            Value::Object(decode(&packed(&all)).expect("read")),
            expected
        );
    }

    #[test]
    fn garbage_is_refused() {
        let unknown = Packed::Map(vec![(text("nf"), Packed::Ext(0, vec![0]))]);
        let deep = (0..2000).fold(Packed::Nil, |inner, _| Packed::Array(vec![inner]));
        let infinite = Packed::Map(vec![(text("nf"), Packed::F64(f64::INFINITY))]);
        for bad in [
            vec![],
            vec![0xc1],
            packed(&Packed::Nil),
            packed(&unknown),
            packed(&infinite),
            packed(&deep),
        ] {
            assert!(decode(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn settings_have_defaults() {
        let read = settings(&[]).expect("defaults");
        assert_eq!(
            (read.socket.as_str(), read.host_volumes.len()),
            (nfluid_api::SOCKET_PATH, 0)
        );
        let given = Packed::Map(vec![
            (text("socket"), text("/s")),
            (text("host_volumes"), Packed::Array(vec![text("/srv")])),
        ]);
        let read = settings(&packed(&given)).expect("settings");
        assert_eq!(
            (read.socket.as_str(), read.host_volumes),
            ("/s", vec!["/srv".to_owned()])
        );
    }

    /// Returns what the daemon says about an instance with these keys.
    fn faults(keys: &[&str]) -> Vec<String> {
        let instance: Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!([])))
            .collect();
        let request = ApplyRequest {
            text: json!({ "version": 1, "instances": { "x": instance } }).to_string(),
            ..ApplyRequest::default()
        };
        let errors = read_unchecked(&request.text, None).expect_err("empty lists");
        errors
            .into_iter()
            .map(|error| format!("{} {}", error.message, error.remedy))
            .collect()
    }

    #[test]
    fn a_tasks_keys_are_those_of_an_instance() {
        let unknown = |keys: &[&str]| -> Vec<String> {
            let all = faults(keys).into_iter();
            all.filter(|fault| fault.starts_with("unknown key"))
                .collect()
        };
        let fast = [
            "beside",
            "direction",
            "interface",
            "mode",
            "order",
            "priority",
            "slow",
        ];
        let of_instances: Vec<_> = INSTANCE_KEYS
            .into_iter()
            .filter(|key| !fast.contains(key))
            .collect();
        assert_eq!(unknown(&of_instances), Vec::<String>::new());
        assert_eq!(unknown(&["no_key"]).len(), 1);
    }
}
