//! Instances that terminate TLS: their additional descriptors, and their end.
//!
//! Terminators use the kernel's stack. This daemon opens their listening sockets and reads certificate and key. The
//! instance, in the usual sandbox, gets both by descriptor, and can neither create a socket nor open a file. A
//! connector, a separate process beside the terminator, makes connections to the backend
//! (docs/adr/0024-tls-termination.md).

use anyhow::{Context, anyhow};
use nfluid_control::host::NfConfigError;
use nfluid_control::model::Program;
use nfluid_control::spec::InstanceSpec;
use nfluid_control::stack::Stack;
use nfluid_netdev::NetNs;
use nfluid_protocol::answer::{self, Draining};
use nfluid_protocol::environment;
use nfluid_protocol::{Request, daemon};
use nfluid_sandbox::{Instance, Limits, open_regular};
use nfluid_tls::config::Config;
use nfluid_tls::identity::{self, Validity, read_certificates};
use nfluid_tls::key::{Key, KeyError};
use nfluid_tls::listening;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name of the NF, and the suffix of its program's file name.
pub const NAME: &str = "tls";
/// Descriptors of a terminator, or its connector, beside those of its connections.
const OWN_DESCRIPTORS: u64 = 600;
/// Interval at which a terminator that is to end is asked for open connections.
const LOOK: Duration = Duration::from_millis(20);
const DAY: i64 = 86_400;

/// Returns true if `program` is the TLS terminator.
pub fn is_terminator(program: &Program) -> bool {
    matches!(program, Program::BuiltIn { nf } if nf == NAME)
}

/// Checks a configuration, and the files that it names.
///
/// # Errors
/// Returns the first fault.
pub fn check_config(config: &Value) -> Result<(), NfConfigError> {
    let wrong = |key: &str, message: String| NfConfigError {
        path: key.to_owned(),
        line: None,
        message,
    };
    let config = Config::parse(config).map_err(|error| wrong(&error.key, error.message))?;
    let (certificates, _) = secrets(&config).map_err(|(key, why)| wrong(key, why))?;
    let file = config.certificate.display();
    let refused = |why: String| wrong("certificate", format!("{file}: {why}"));
    let validity = identity::validity(&certificates).map_err(|error| refused(error.to_string()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    });
    check_validity(validity, now).map_err(refused)
}

fn check_validity(validity: Validity, now: i64) -> Result<(), String> {
    if now > validity.until {
        let days = (now - validity.until) / DAY;
        return Err(format!("it expired {days} days ago; have a new one issued"));
    }
    if now < validity.from {
        let days = (validity.from - now).div_euclid(DAY);
        return Err(format!(
            "it is not good before {days} days have passed; is the host's clock right?"
        ));
    }
    Ok(())
}

/// Reads certificates and key, and checks that they match. On failure returns the key of the configuration that is
/// wrong, with the reason.
fn secrets(config: &Config) -> Result<(Vec<u8>, Key), (&'static str, String)> {
    let about = |key: &'static str, path: &Path, why: &dyn std::fmt::Display| {
        (key, format!("{}: {why}", path.display()))
    };
    let certificates = open_regular(&config.certificate)
        .and_then(read_certificates)
        .map_err(|error| about("certificate", &config.certificate, &error))?;
    let key = open_regular(&config.key)
        .map_err(KeyError::from)
        .and_then(Key::read)
        .map_err(|error| about("key", &config.key, &error))?;
    match identity::server(&certificates, &key, &config.alpn) {
        Ok(_) => Ok((certificates, key)),
        Err(error) if error.key() == "key" => Err(about("key", &config.key, &error)),
        Err(error) => Err(about("certificate", &config.certificate, &error)),
    }
}

/// The additional descriptors of a terminator.
pub struct Equipment {
    /// The network namespace of its sockets, from which its backend is called.
    pub namespace: OwnedFd,
    /// Its listening sockets.
    pub listeners: Vec<OwnedFd>,
    /// Its certificates, PEM.
    pub certificates: Vec<u8>,
    /// Its key.
    pub key: Key,
    /// Its limits, among them that of descriptors.
    pub limits: Limits,
    /// The socket to its connector, if it has a backend.
    pub connector: Option<OwnedFd>,
    /// The input of its connector.
    pub connecting: Option<Connecting>,
}

/// The input of a connector.
pub struct Connecting {
    /// The address of the backend.
    pub server: std::net::SocketAddr,
    /// The socket to its terminator.
    pub way: OwnedFd,
    /// Limit of its terminator's connections.
    pub connections: u64,
}

impl Connecting {
    /// Returns the limits of the connector: some descriptors of its own, and one for each connection in progress.
    pub fn limits(&self) -> Limits {
        Limits {
            descriptors: OWN_DESCRIPTORS + self.connections,
            ..Limits::default()
        }
    }
}

/// Opens everything that a terminator is given.
///
/// # Errors
/// An address is in use, the namespace does not exist, or a file is invalid.
pub fn equip(spec: &InstanceSpec, stack: &Stack) -> anyhow::Result<Equipment> {
    let config = Config::parse(&spec.config).map_err(|error| anyhow!("{}: {error}", error.key))?;
    let (certificates, key) = secrets(&config).map_err(|(key, why)| anyhow!("{key}: {why}"))?;
    let path = stack.netns.as_deref().map(nfluid_control::netns::path);
    let namespace = NetNs::open(path.as_deref())?.into_fd();
    let listeners = listen(&namespace, stack)?;
    let connections = u64::from(config.connections(spec.resources.memory.0));
    let mut equipment = Equipment {
        namespace,
        listeners,
        certificates,
        key,
        limits: Limits {
            // Two sockets for each connection: the client's and the backend's.
            descriptors: OWN_DESCRIPTORS + 2 * connections,
            ..Limits::default()
        },
        connector: None,
        connecting: None,
    };
    if let Some(server) = config.backend() {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .context("making the way to its connector")?;
        equipment.connector = Some(ours);
        equipment.connecting = Some(Connecting {
            server,
            way: theirs,
            connections,
        });
    }
    Ok(equipment)
}

/// Opens listening sockets in a namespace, which a separate thread enters.
fn listen(namespace: &OwnedFd, stack: &Stack) -> anyhow::Result<Vec<OwnedFd>> {
    let open = || -> anyhow::Result<Vec<OwnedFd>> {
        if stack.netns.is_some() {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .context("entering the network namespace")?;
        }
        let addresses = stack.listen.iter();
        Ok(addresses
            .map(|at| listening::open(*at))
            .collect::<Result<_, _>>()?)
    };
    thread::scope(|scope| {
        let opened = scope.spawn(open).join();
        opened.map_err(|_| anyhow!("the thread that opens sockets has failed"))?
    })
}

impl Equipment {
    /// Adds the terminator's descriptors, without the socket to its connector, and returns their names: `give` takes
    /// a descriptor and returns its number.
    ///
    /// # Errors
    /// The kernel has no more memory.
    pub fn hand_over(
        &mut self,
        memory_bytes: u64,
        mut give: impl FnMut(OwnedFd) -> i32,
    ) -> anyhow::Result<Vec<(&'static str, String)>> {
        let numbers: Vec<String> = self
            .listeners
            .drain(..)
            .map(|socket| give(socket).to_string())
            .collect();
        let file = nfluid_protocol::daemon::memory_file;
        let mut env = vec![
            (environment::LISTENERS, numbers.join(",")),
            (
                environment::CERTIFICATES,
                give(file("certificates", &self.certificates)?).to_string(),
            ),
            (
                environment::KEY,
                give(file("key", self.key.pem())?).to_string(),
            ),
            (environment::MEMORY, memory_bytes.to_string()),
        ];
        if let Some(way) = self.connector.take() {
            env.push((environment::CONNECTOR, give(way).to_string()));
        }
        Ok(env)
    }
}

/// The connectors that this daemon has started. They end with their terminators. The kernel keeps a zombie until this
/// daemon reaps it.
#[derive(Default)]
pub struct Connectors(Mutex<Vec<Instance>>);

impl Connectors {
    /// Adds a connector.
    pub fn keep(&self, connector: Instance) {
        self.reap();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(connector);
    }

    /// Reaps the connectors that have ended.
    pub fn reap(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| matches!(one.try_wait(), Ok(None)));
    }
}

/// Makes a terminator stop accepting connections, and waits until its connections are over or `patience` has passed.
/// Returns at once if the terminator does not answer.
pub fn drain(control: &Path, patience: Duration) {
    let end = Instant::now() + patience;
    let request = Request::Drain { until: Vec::new() };
    loop {
        let time = end.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return;
        }
        let left = daemon::ask_within(time, control, &request, None);
        let left = left.ok().and_then(answer::read::<Draining>);
        if left.unwrap_or_default().connections == 0 {
            return;
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // promise: 17.2
    #[test]
    fn a_certificate_is_good_from_its_first_second_to_its_last() {
        let validity = Validity {
            from: 10 * DAY,
            until: 20 * DAY,
        };
        for good in [10 * DAY, 15 * DAY, 20 * DAY] {
            assert_eq!(check_validity(validity, good), Ok(()));
        }
        let expired = check_validity(validity, 23 * DAY).expect_err("it has expired");
        assert!(expired.contains("3 days ago"), "{expired}");
        let early = check_validity(validity, 8 * DAY).expect_err("it is not good yet");
        assert!(early.contains("2 days"), "{early}");
    }

    #[test]
    fn files_that_are_not_there_are_named_with_the_key_of_the_configuration() {
        let config = json!({ "certificate": "/none.crt", "key": "/none.key", "answer": "" });
        let error = check_config(&config).expect_err("there are no such files");
        assert_eq!(error.path, "certificate");
        assert!(error.message.contains("/none.crt"), "{}", error.message);
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let open = |address| {
            let stack = Stack {
                listen: vec![address],
                netns: None,
            };
            let own = NetNs::open(None).expect("it has one").into_fd();
            listen(&own, &stack)
        };
        let first = open("127.0.0.1:0".parse().expect("an address")).expect("there are ports");
        let taken = first.into_iter().map(std::net::TcpListener::from).next();
        let taken = taken.expect("one");
        let address = taken.local_addr().expect("it has one");
        let error = open(address).expect_err("it is taken");
        assert!(
            format!("{error:#}").contains(&address.to_string()),
            "{error:#}"
        );
    }
}
