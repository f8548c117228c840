//! Requests of the runtime (CNI specification 1.1.0, section 2).

use crate::answer::{Code, Refusal};
use nfluid_control::quantity::Mac;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variable of the command.
pub const COMMAND: &str = "CNI_COMMAND";
/// The longest id of a container that fits into an owner.
const CONTAINER_BYTES_MAX: usize = 96;
/// The longest name of an interface (the kernel's IFNAMSIZ without its final zero).
const INTERFACE_BYTES_MAX: usize = 15;

/// A command of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give a container an interface.
    Add,
    /// Take it away.
    Delete,
    /// Say whether it is as it was made.
    Check,
    /// Take all away that are not in the configuration's list.
    Clean,
    /// Say whether interfaces can be added.
    Status,
    /// Say which versions the plugin speaks.
    Version,
}

/// An interface of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The runtime's id of the container.
    pub container: String,
    /// The interface's name in the container.
    pub interface: String,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The interface; of [`Command::Clean`], [`Command::Status`] and [`Command::Version`], none.
    pub leg: Option<Leg>,
    /// The container's network namespace.
    pub namespace: Option<PathBuf>,
    /// The hardware address that is asked for.
    pub mac: Option<Mac>,
    /// Folders of other plugins, as in `PATH`.
    pub path: OsString,
}

impl Request {
    /// Reads a request. `variable` returns the value of a variable of the environment.
    ///
    /// # Errors
    /// A variable is missing, or has no such value.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Refusal> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let command = match variable(COMMAND).unwrap_or_default().as_str() {
            "ADD" => Command::Add,
            "DEL" => Command::Delete,
            "CHECK" => Command::Check,
            "GC" => Command::Clean,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            other => return Err(wrong(COMMAND, &format!("'{other}' is no command"))),
        };
        let is_about_one = matches!(command, Command::Add | Command::Delete | Command::Check);
        let needed = |name: &str| variable(name).ok_or_else(|| wrong(name, "it is missing"));
        let leg = if is_about_one {
            Some(Leg {
                container: needed("CNI_CONTAINERID").and_then(container)?,
                interface: needed("CNI_IFNAME").and_then(|name| interface("CNI_IFNAME", name))?,
            })
        } else {
            None
        };
        let namespace = variable("CNI_NETNS").map(PathBuf::from);
        if namespace.is_none() && matches!(command, Command::Add | Command::Check) {
            return Err(wrong("CNI_NETNS", "it is missing"));
        }
        let arguments = variable("CNI_ARGS").unwrap_or_default();
        let mac = arguments.split(';').find_map(|it| it.strip_prefix("MAC="));
        let mac = mac.map(str::parse).transpose();
        Ok(Request {
            command,
            leg,
            namespace,
            mac: mac.map_err(|_| wrong("CNI_ARGS", "MAC is no hardware address"))?,
            path: variable("CNI_PATH").unwrap_or_default().into(),
        })
    }
}

fn wrong(variable: &str, why: &str) -> Refusal {
    Refusal::new(Code::Environment, format!("{variable}: {why}"))
}

fn container(id: String) -> Result<String, Refusal> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    if id.len() <= CONTAINER_BYTES_MAX && id.bytes().all(is_plain) {
        return Ok(id);
    }
    let why = format!("1 to {CONTAINER_BYTES_MAX} letters, digits, '_', '.' and '-' are expected");
    Err(wrong("CNI_CONTAINERID", &why))
}

/// Checks the name of an interface. `place` is where it is written.
///
/// # Errors
/// The kernel would not take it.
pub fn interface(place: &str, name: String) -> Result<String, Refusal> {
    let is_plain = |c: u8| c.is_ascii_graphic() && !b"/:%".contains(&c);
    if name.len() <= INTERFACE_BYTES_MAX
        && name.bytes().all(is_plain)
        && name != "."
        && name != ".."
    {
        return Ok(name);
    }
    Err(wrong(
        place,
        &format!(
            "'{}' cannot be the name of an interface",
            name.escape_debug()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pairs: &[(&str, &str)]) -> Result<Request, Refusal> {
        Request::of(|name| {
            let mut pairs = pairs.iter();
            pairs
                .find(|(it, _)| *it == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    const ADD: [(&str, &str); 4] = [
        (COMMAND, "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "net1"),
        ("CNI_NETNS", "/run/netns/x"),
    ];

    // promise: 27.3
    #[test]
    fn each_wrong_variable_is_named() {
        assert!(request(&ADD).is_ok());
        for (name, value) in [
            (COMMAND, "add"),
            ("CNI_CONTAINERID", "a/b"),
            ("CNI_CONTAINERID", ""),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", "eth%d"),
            ("CNI_IFNAME", ".."),
            ("CNI_IFNAME", "sixteen-bytes-xx"),
            ("CNI_NETNS", ""),
            ("CNI_ARGS", "IgnoreUnknown=1;MAC=x"),
        ] {
            let mut pairs = vec![(name, value)];
            pairs.extend(ADD);
            let refusal = request(&pairs).expect_err(value).json("1.0.0");
            assert_eq!(refusal["code"], 4);
            let message = refusal["msg"].as_str().unwrap_or_default();
            assert!(message.starts_with(&format!("{name}: ")), "{message}");
        }
    }

    #[test]
    fn a_removal_needs_no_namespace() {
        let mut pairs = ADD;
        pairs[0].1 = "DEL";
        pairs[3].1 = "";
        assert_eq!(request(&pairs).expect("valid").namespace, None);
        let status = request(&[(COMMAND, "STATUS")]).expect("valid");
        assert_eq!(status.leg, None);
    }
}
