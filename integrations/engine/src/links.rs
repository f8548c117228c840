//! Links as an engine's object writes them: `.PORT` is its own port, `@OTHER.PORT` that of another member of the same group (a task of the
//! same allocation, a container of the same pod), `switch/NAME` a switch of the host, and everything else a port or an uplink of the host.

use nfluid_control::model::DEFAULT_PORTS;
use serde_json::{Map, Value, json};

/// The beginning of an end that is a switch.
const SWITCH: &str = "switch/";

/// Puts the instance's own ports on switches: adds that to the instance's keys, and returns the other links.
///
/// # Errors
/// A switch is linked to something else than an own port.
pub fn put_on_switches(
    keys: &mut Map<String, Value>,
    links: Vec<[String; 2]>,
) -> Result<Vec<[String; 2]>, String> {
    let mut rest = Vec::new();
    for link in links {
        let [a, b] = &link;
        let (switch, port) = match (a.strip_prefix(SWITCH), b.strip_prefix(SWITCH)) {
            (None, None) => {
                rest.push(link);
                continue;
            }
            (Some(switch), None) => (switch, b),
            (None, Some(switch)) => (switch, a),
            (Some(_), Some(_)) => return Err(format!("{a} and {b} are two switches")),
        };
        let Some(port) = port.strip_prefix('.') else {
            return Err(format!(
                "{SWITCH}{switch} and {port}: only a port of the instance's own, such as .in, can be put on a switch"
            ));
        };
        let default = DEFAULT_PORTS.map(|port| (port.to_owned(), json!({})));
        let ports = keys
            .entry("ports")
            .or_insert_with(|| Map::from_iter(default).into());
        let own = ports
            .as_object_mut()
            .map(|ports| ports.entry(port).or_insert(Value::Null));
        let own = own.map(|own| match own {
            Value::Null => {
                *own = json!({});
                own
            }
            own => own,
        });
        match own.and_then(Value::as_object_mut) {
            Some(own) if !own.contains_key("switch") => {
                own.insert("switch".to_owned(), switch.into());
                // What is linked passes on the frames of others.
                own.entry("learn").or_insert(true.into());
            }
            Some(_) => return Err(format!("the port {port} is on a switch already")),
            None => return Err(format!("ports.{port}: keys are expected")),
        }
    }
    Ok(rest)
}

/// A link to another member of the group, which is made when both instances exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish([String; 2]);

impl Wish {
    /// Divides the links of the instance `name` into those to other members and the others.
    pub fn divide(name: &str, links: Vec<[String; 2]>) -> (Vec<Wish>, Vec<[String; 2]>) {
        let own = |end: String| match end.strip_prefix('.') {
            Some(port) => format!("{name}.{port}"),
            None => end,
        };
        let links = links.into_iter().map(|link| link.map(own));
        let (wishes, links): (Vec<_>, Vec<_>) =
            links.partition(|link| link.iter().any(|end| end.starts_with('@')));
        (wishes.into_iter().map(Wish).collect(), links)
    }

    /// Returns the link, given the instances of the other members; `None` while one of them has no instance.
    pub fn resolve(&self, find: impl Fn(&str) -> Option<String>) -> Option<[String; 2]> {
        let end = |end: &String| match end.strip_prefix('@').and_then(|end| end.split_once('.')) {
            Some((member, port)) => Some(format!("{}.{port}", find(member)?)),
            None => Some(end.clone()),
        };
        Some([end(&self.0[0])?, end(&self.0[1])?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: &str, b: &str) -> [String; 2] {
        [a.to_owned(), b.to_owned()]
    }

    #[test]
    fn ports_are_put_on_switches() {
        let attach = |keys: Value, links: Vec<[String; 2]>| {
            let Value::Object(mut keys) = keys else {
                panic!("keys");
            };
            let rest = put_on_switches(&mut keys, links)?;
            Ok::<_, String>((Value::Object(keys), rest))
        };
        let links = || vec![link("switch/lan", ".in"), link(".out", "wan")];
        let (keys, rest) = attach(json!({ "nf": "x" }), links()).expect("valid");
        assert_eq!(
            keys["ports"],
            json!({ "in": { "switch": "lan", "learn": true }, "out": {} })
        );
        assert_eq!(rest, [link(".out", "wan")]);
        let known = json!({ "ports": { "in": { "vlan": 7, "learn": false }, "x": null } });
        let both = vec![link(".in", "switch/a"), link("switch/b", ".x")];
        let (keys, _) = attach(known, both).expect("valid");
        assert_eq!(
            keys["ports"],
            json!({ "in": { "vlan": 7, "learn": false, "switch": "a" }, "x": { "switch": "b", "learn": true } })
        );
        for (keys, a, b) in [
            (json!({}), "switch/a", "switch/b"),
            (json!({}), "switch/a", "wan"),
            (json!({}), "@nat.in", "switch/a"),
            (
                json!({ "ports": { "in": { "switch": "b" } } }),
                "switch/a",
                ".in",
            ),
            (json!({ "ports": [] }), "switch/a", ".in"),
            (json!({ "ports": { "in": 1 } }), "switch/a", ".in"),
        ] {
            attach(keys, vec![link(a, b)]).expect_err(a);
        }
    }

    #[test]
    fn ends_are_ones_own_another_members_or_the_hosts() {
        let links = vec![
            link("lan", ".in"),
            link(".out", "@nat.in"),
            link("@a.x", "@b.y"),
        ];
        let (wishes, links) = Wish::divide("fw-1", links);
        assert_eq!(links, [link("lan", "fw-1.in")]);
        let known = |member: &str| (member != "b").then(|| format!("{member}-1"));
        let found: Vec<_> = wishes.iter().map(|wish| wish.resolve(known)).collect();
        assert_eq!(found, [Some(link("fw-1.out", "nat-1.in")), None]);
        let without_port = Wish(link("@nat", "x"));
        assert_eq!(
            without_port.resolve(known),
            Some(link("@nat", "x")),
            "the daemon says what is wrong"
        );
    }
}
