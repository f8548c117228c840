//! Volumes and capabilities of a program on a network stack of its own, and how the program is run.

use crate::quantity::{Bytes, Millis};
use serde::{Serialize, Serializer};

/// The capabilities that an instance may ask for: they concern its network namespace alone (capabilities(7)).
pub const CAPABILITIES: [&str; 3] = ["NET_BIND_SERVICE", "NET_RAW", "NET_ADMIN"];
/// Maximum number of volumes of an instance.
pub const VOLUMES_MAX: usize = 16;
/// Maximum number of environment variables.
pub const VARIABLES_MAX: usize = 256;
/// Directories that a program of the host has alone, in which it may write.
pub const SCRATCH: [&str; 4] = ["/tmp", "/run", "/var/tmp", "/dev/shm"];
/// Bytes that an instance of an image may write, unless it says otherwise.
pub const WRITABLE: Bytes = Bytes(64 << 20);
/// Time that a program has to end by itself, unless the instance says otherwise.
pub const STOP_WAIT: Millis = Millis::secs(5);

/// Volumes, capabilities, and how the program is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Directories of the host that it sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Capabilities in its network namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Environment variables, `NAME=value` each, beside those of an image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The user, `USER` or `USER:GROUP`, instead of the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The working directory, instead of the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Most bytes that it writes over its image; absent: [`WRITABLE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writable: Option<Bytes>,
    /// Its stack forwards packets between its interfaces.
    #[serde(skip_serializing_if = "is_false")]
    pub forwarding: bool,
    /// How it is asked to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
}

impl Access {
    /// Returns the part that a program on DPDK can have.
    pub fn of_program_with_files(&self) -> Access {
        Access {
            volumes: self.volumes.clone(),
            environment: self.environment.clone(),
            directory: self.directory.clone(),
            ..Access::default()
        }
    }

    /// Returns what a sandbox is made with, before its program is known.
    pub fn of_sandbox(&self) -> Access {
        Access {
            environment: Vec::new(),
            directory: None,
            forwarding: false,
            ..self.clone()
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A directory of the host that an instance sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The directory.
    pub from: String,
    /// The place where the instance has it; absent: the same.
    pub at: Option<String>,
    /// The instance writes there, as the owner of the directory.
    pub is_writable: bool,
}

impl Volume {
    /// Returns the place where the instance has it.
    pub fn place(&self) -> &str {
        self.at.as_deref().unwrap_or(&self.from)
    }
}

impl Serialize for Volume {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Long<'a> {
            from: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            at: Option<&'a str>,
            write: bool,
        }
        match (&self.at, self.is_writable) {
            (None, false) => serializer.serialize_str(&self.from),
            (at, write) => Long {
                from: &self.from,
                at: at.as_deref(),
                write,
            }
            .serialize(serializer),
        }
    }
}

/// How a program is asked to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The signal; absent: the image's, or SIGTERM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<StopSignal>,
    /// How long it may take until it is killed; absent: [`STOP_WAIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Millis>,
}

/// A signal that asks a program to end (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal {
    name: &'static str,
    number: i32,
}

/// The signals that programs are asked to end by.
const SIGNALS: [(&str, i32); 8] = [
    ("SIGTERM", 15),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGHUP", 1),
    ("SIGUSR1", 10),
    ("SIGUSR2", 12),
    ("SIGWINCH", 28),
    ("SIGKILL", 9),
];

impl StopSignal {
    /// SIGTERM.
    pub const TERM: StopSignal = StopSignal {
        name: "SIGTERM",
        number: 15,
    };

    /// Returns the names of all of them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SIGNALS.into_iter().map(|(name, _)| name)
    }

    /// Finds one by its name, with or without `SIG`, or by its number.
    pub fn find(text: &str) -> Option<Self> {
        let number = text.parse().ok();
        let found = SIGNALS.into_iter().find(|(name, own)| {
            *name == text || name.strip_prefix("SIG") == Some(text) || number == Some(*own)
        });
        found.map(|(name, number)| StopSignal { name, number })
    }

    /// Returns its number.
    pub fn number(self) -> i32 {
        self.number
    }
}

impl Serialize for StopSignal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
