//! Instances that terminate TLS: what they are given beside what all instances are, and how they end.
//!
//! They are on the kernel's stack. This daemon opens the sockets on which they are called and reads certificate and key; the
//! instance, in the sandbox of all, has both by descriptor and can neither make a socket nor open a file. Who makes connections
//! to its backend is its connector, a process of its own beside it (docs/adr/0024-tls-termination.md).

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

/// The name of the NF, and of the file with its program less its beginning.
pub const NAME: &str = "tls";
/// Descriptors that a terminator, or its connector, has beside its connections'.
const OWN_DESCRIPTORS: u64 = 600;
/// How often a terminator that is to end is asked whether anybody is left.
const LOOK: Duration = Duration::from_millis(20);
const DAY: i64 = 86_400;

/// Whether that terminates TLS.
pub fn is_one(program: &Program) -> bool {
    matches!(program, Program::BuiltIn { nf } if nf == NAME)
}

/// Checks a configuration, and the files that it names.
///
/// # Errors
/// The first thing that is wrong with it.
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

/// Certificates and key, which go together; else the configuration's key that is wrong, and why.
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

/// What a terminator is given.
pub struct Equipment {
    /// Where its sockets are, and its backend is called from.
    pub namespace: OwnedFd,
    /// The sockets on which it is called.
    pub listeners: Vec<OwnedFd>,
    /// Its certificates, PEM.
    pub certificates: Vec<u8>,
    /// Its key.
    pub key: Key,
    /// Its limit of descriptors among others.
    pub limits: Limits,
    /// The way to its connector, if it has a backend.
    pub connector: Option<OwnedFd>,
    /// What its connector is given.
    pub connecting: Option<Connecting>,
}

/// What a connector is given.
pub struct Connecting {
    /// Where the backend is.
    pub server: std::net::SocketAddr,
    /// The way to its terminator.
    pub way: OwnedFd,
    /// Most connections of its terminator.
    pub connections: u64,
}

impl Connecting {
    /// What it may have: besides a little of its own a descriptor for each connection that is on its way.
    pub fn limits(&self) -> Limits {
        Limits {
            descriptors: OWN_DESCRIPTORS + self.connections,
            ..Limits::default()
        }
    }
}

/// Opens all that a terminator is given.
///
/// # Errors
/// Somebody else listens at an address, there is no such namespace, or a file is not what it should be.
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
            // The client's and the backend's of each.
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

/// Opens sockets in a namespace, which a thread of its own enters.
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
    /// What the terminator inherits and under which names it finds that, without the way to its connector: `give` takes a
    /// descriptor and says its number.
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

/// The connectors that this daemon has started. They end by themselves, with their terminators; the kernel keeps what is left
/// of one until this daemon has seen it.
#[derive(Default)]
pub struct Connectors(Mutex<Vec<Instance>>);

impl Connectors {
    /// Remembers one.
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

/// Has a terminator accept nobody any more, and waits until its connections are over or `patience` has passed. A terminator that
/// does not answer is not waited for.
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
