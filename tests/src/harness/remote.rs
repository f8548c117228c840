//! A daemon that serves its API over TCP, and the certificates of its clients.

use super::command::run_command;
use super::platform::Platform;
use super::program::program;
use nfluid_api::client::Client;
use nfluid_testbed::command::Outcome;
use nfluid_tls::mutual::Mutual;
use nfluid_tls::testing::{self, Authority};
use std::fs;
use std::process::Command;

/// The clients, with their roles.
const CLIENTS: [&str; 4] = ["ops=operator", "prom=reader", "nomad=engine", "kube=engine"];

/// A daemon that serves its API on loopback.
pub struct Remote {
    /// Its platform.
    pub platform: Platform,
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// The authority that has signed its certificate.
    pub hosts: Authority,
    clients: Authority,
}

/// Returns the arguments of a daemon that serves its API to these clients, on loopback.
pub fn arguments(files: &testing::Files, clients: &[&str]) -> Vec<String> {
    let mut all = files.arguments("api", "127.0.0.1:0");
    for client in clients {
        all.extend(["--api-client".to_owned(), (*client).to_owned()]);
    }
    all
}

impl Remote {
    /// Starts the daemon; `None`: this host cannot run it.
    ///
    /// # Panics
    /// If it does not start.
    pub fn started(test: &str) -> Option<Self> {
        let mut platform = Platform::new(test)?;
        let [hosts, clients] = [(); 2].map(|()| Authority::new().expect("a key"));
        let own = clients.write(&hosts, platform.directory(), ("daemon", "127.0.0.1"));
        let own = own.expect("the directory is ours");
        platform.set_arguments(arguments(&own, &CLIENTS));
        platform.start();
        let address = listens_at(&platform);
        Some(Remote {
            platform,
            address,
            hosts,
            clients,
        })
    }

    /// Writes the files of the client `name`.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn files(&self, name: &str) -> testing::Files {
        let written = self
            .hosts
            .write(&self.clients, self.platform.directory(), (name, name));
        written.expect("the directory is ours")
    }

    /// Returns the client `name`.
    ///
    /// # Panics
    /// If its files cannot be written.
    pub fn client(&self, name: &str) -> Client {
        let mutual = Mutual::load(&self.files(name).into());
        Client::remote(&self.address, &mutual.expect("they fit")).expect("an address")
    }

    /// Runs `nfluid` with the certificate of `name`.
    ///
    /// # Panics
    /// If the program does not exist.
    pub fn nfluid(&self, name: &str, words: &[&str]) -> Outcome {
        nfluid_at(&self.address, &self.files(name), words)
    }
}

/// Runs `nfluid` for the daemon at `address`.
///
/// # Panics
/// If the program does not exist.
pub fn nfluid_at(address: &str, files: &testing::Files, words: &[&str]) -> Outcome {
    let mut command = Command::new(program("nfluid"));
    command.args(["--host", address]);
    for (option, file) in [
        ("--cert", &files.certificate),
        ("--key", &files.key),
        ("--ca", &files.authority),
    ] {
        command.arg(option).arg(file);
    }
    run_command(command.args(words))
}

/// Returns the address in the daemon's log.
fn listens_at(platform: &Platform) -> String {
    let log = platform.daemon_logs().last().expect("it was started");
    let log = fs::read_to_string(log).expect("it is ours");
    let line = log
        .lines()
        .find(|line| line.contains("clients of the API may call"));
    let (_, address) = line
        .and_then(|line| line.rsplit_once("address="))
        .unwrap_or_else(|| panic!("{log}"));
    address.trim().to_owned()
}
