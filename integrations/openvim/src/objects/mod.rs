//! The objects of OpenVIM (API 0.6), with the names of their attributes, and how clients make and change them.

mod compute;
mod network;

pub use compute::{Flavor, Host, Image, Public, Server, Tenant, Wanted};
pub use network::{Leg, Network, NetworkKind, Physical, Port, PortKind};

use crate::fault::Fault;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Longest names and descriptions, in characters.
const TEXT_MAX: usize = 255;

/// A kind of object that clients make.
pub trait Object: Serialize + DeserializeOwned {
    /// The kind, in the singular: the one key of a request or an answer about one object.
    const WORD: &'static str;
    /// The kind, in the plural: the one key of a list, and the path.
    const PLURAL: &'static str;
    /// Attributes in lists, which are also those that a list can be filtered by.
    const LISTED: &'static [&'static str];
    /// Attributes that a client can give to a new object; others are ignored, as OpenVIM does.
    const GIVEN: &'static [&'static str];
    /// Attributes that a client can change; others are refused.
    const CHANGEABLE: &'static [&'static str];
    /// Attributes that no client sees.
    const HIDDEN: &'static [&'static str] = &[];

    /// Returns the id.
    fn id(&self) -> Uuid;

    /// Returns the name.
    fn name(&self) -> &str;

    /// Checks what the types of the attributes do not say.
    ///
    /// # Errors
    /// Names the attribute.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Reads a new object from the request of a client.
///
/// # Errors
/// Names the attribute that is missing or wrong.
pub fn made<T: Object>(request: Value) -> Result<T, Fault> {
    let mut given = inner::<T>(request)?;
    given.retain(|key, value| T::GIVEN.contains(&key.as_str()) && !value.is_null());
    given
        .entry("id")
        .or_insert_with(|| Uuid::new_v4().to_string().into());
    read(given)
}

/// Reads what a client wants to change of an object, and returns the object as it would be.
///
/// # Errors
/// Names the attribute that is wrong, or cannot be changed.
pub fn changed<T: Object>(old: &T, request: Value) -> Result<T, Fault> {
    let given = inner::<T>(request)?;
    if given.is_empty() {
        return Err(Fault::bad(format!("{}: nothing to change", T::WORD)));
    }
    let mut all = attributes(old);
    for (key, value) in given {
        if !T::CHANGEABLE.contains(&key.as_str()) {
            let known = T::CHANGEABLE.join(", ");
            return Err(Fault::bad(format!(
                "{}.{key} cannot be changed; these can: {known}",
                T::WORD
            )));
        }
        if value.is_null() {
            all.remove(&key);
        } else {
            all.insert(key, value);
        }
    }
    read(all)
}

/// Returns the object in a request, `{"flavor": {..}}`.
fn inner<T: Object>(request: Value) -> Result<Map<String, Value>, Fault> {
    let word = T::WORD;
    let expected = || {
        Fault::bad(format!(
            "'{word}' with the attributes of a {word} is expected"
        ))
    };
    let Value::Object(mut all) = request else {
        return Err(expected());
    };
    let Some(Value::Object(given)) = all.remove(word) else {
        return Err(expected());
    };
    Ok(given)
}

fn read<T: Object>(attributes: Map<String, Value>) -> Result<T, Fault> {
    let word = T::WORD;
    let object: T = serde_path_to_error::deserialize(Value::Object(attributes))
        .map_err(|error| Fault::bad(format!("{word}.{}: {}", error.path(), error.inner())))?;
    let is_plain = |c: char| !c.is_control();
    let name = object.name();
    if name.is_empty() || name.chars().count() > TEXT_MAX || !name.chars().all(is_plain) {
        return Err(Fault::bad(format!(
            "{word}.name: 1 to {TEXT_MAX} printable characters are expected"
        )));
    }
    object
        .check()
        .map_err(|why| Fault::bad(format!("{word}.{why}")))?;
    Ok(object)
}

fn attributes<T: Object>(object: &T) -> Map<String, Value> {
    // Objects are structures of such attributes.
    match serde_json::to_value(object) {
        Ok(Value::Object(attributes)) => attributes,
        _ => Map::new(),
    }
}

/// Returns what clients see of an object.
pub fn seen<T: Object>(object: &T) -> Map<String, Value> {
    let mut all = attributes(object);
    all.retain(|key, value| !value.is_null() && !T::HIDDEN.contains(&key.as_str()));
    all
}

/// Returns the keys of an instance that an object has in its attribute `nfluid`.
///
/// # Errors
/// The attribute is no set of keys.
pub fn own_keys(attributes: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    match attributes.get("nfluid") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(keys)) => Ok(keys.clone()),
        Some(_) => Err("nfluid: keys of an instance are expected".to_owned()),
    }
}

/// A host's knowledge of an object: the host has been told what the object is to be, or not.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// False: the host is yet to be told.
    pub is_settled: bool,
    /// How often the object has changed.
    changes: u64,
}

impl Told {
    /// Notes that the object changes.
    pub fn unsettle(&mut self) {
        self.changes += 1;
        self.is_settled = false;
    }

    /// Notes whether the host was told what the object was at `then`. Of what has changed since, the host knows nothing.
    pub fn note(&mut self, then: Told, is_settled: bool) {
        if self.changes == then.changes {
            self.is_settled = is_settled;
        }
    }
}

/// Returns the present time as OpenVIM writes it.
fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S")
        .to_string()
}

const fn yes() -> bool {
    true
}

fn check_description(description: Option<&String>) -> Result<(), String> {
    match description {
        Some(text) if text.chars().count() > TEXT_MAX => {
            Err(format!("description: {TEXT_MAX} characters at most"))
        }
        _ => Ok(()),
    }
}
