//! The daemon's API over TCP: operators and engines on other hosts.

use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::CreateRequest;
use nfluid_testbed::command::Outcome;
use nfluid_testbed::program::built;
use nfluid_tests::harness::command::run_command;
use nfluid_tests::harness::platform::Platform;
use nfluid_tls::mutual::{Files, Mutual};
use nfluid_tls::testing::{self, Authority};
use serde_json::json;
use std::fs;
use std::ops::DerefMut;
use std::process::Command;

const CLIENTS: [&str; 4] = ["ops=operator", "prom=reader", "nomad=engine", "kube=engine"];

/// A daemon that serves its API on loopback.
struct Remote {
    platform: Platform,
    address: String,
    hosts: Authority,
    clients: Authority,
}

fn arguments(files: &testing::Files, clients: &[&str]) -> Vec<String> {
    let path = |path: &std::path::Path| path.display().to_string();
    let mut all = vec![
        "--api-listen".to_owned(),
        "127.0.0.1:0".to_owned(),
        "--api-cert".to_owned(),
        path(&files.certificate),
        "--api-key".to_owned(),
        path(&files.key),
        "--api-ca".to_owned(),
        path(&files.authority),
    ];
    for client in clients {
        all.extend(["--api-client".to_owned(), (*client).to_owned()]);
    }
    all
}

impl Remote {
    fn started(test: &str) -> Option<Self> {
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

    fn files(&self, name: &str) -> testing::Files {
        let written = self
            .hosts
            .write(&self.clients, self.platform.directory(), (name, name));
        written.expect("the directory is ours")
    }

    fn client(&self, name: &str) -> Client {
        let files = self.files(name);
        let mutual = Mutual::load(&Files {
            certificate: files.certificate,
            key: files.key,
            authority: files.authority,
            revoked: None,
        });
        Client::remote(&self.address, &mutual.expect("they fit")).expect("an address")
    }

    /// Runs `nfluid` with the certificate of `name`.
    fn nfluid(&self, name: &str, words: &[&str]) -> Outcome {
        nfluid_at(&self.address, &self.files(name), words)
    }
}

fn nfluid_at(address: &str, files: &testing::Files, words: &[&str]) -> Outcome {
    let mut command = Command::new(built("nfluid", "nfluid").expect("it is built"));
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

/// The address that the daemon's log tells.
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

fn bridge(owner: &str) -> CreateRequest {
    CreateRequest {
        instance: json!({ "nf": "bridge", "owner": owner }),
        ..CreateRequest::default()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a run-time").block_on(future)
}

fn is_forbidden<T>(result: Result<T, ClientError>) -> bool {
    matches!(result, Err(ClientError::Problem(problem)) if problem.status == 403)
}

// promise: 8.13
#[test]
fn operators_use_the_command_line_from_another_host() {
    let Some(remote) = Remote::started("operators_use_the_command_line_from_another_host") else {
        return;
    };
    let deployment = remote.platform.directory().join("deployment.yaml");
    fs::write(
        &deployment,
        "version: 1\ninstances: { a: { nf: bridge } }\n",
    )
    .expect("ours");
    let file = deployment.display().to_string();
    let run = |name: &str, words: &[&str]| remote.nfluid(name, words);
    let refused = run("prom", &["apply", "-f", &file]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("'prom' has the role reader"),
        "{refused:?}"
    );
    let applied = run("ops", &["apply", "-f", &file]);
    assert!(applied.succeeded(), "{applied:?}");
    let seen = run("prom", &["get", "instances"]);
    assert!(
        seen.succeeded() && seen.stdout.contains("bridge"),
        "{seen:?}"
    );
    let restarted = run("ops", &["restart", "a"]);
    assert!(restarted.succeeded(), "{restarted:?}");
    let stranger = run("stranger", &["get", "instances"]);
    assert_eq!(stranger.code, Some(4), "{stranger:?}");
    assert!(stranger.stderr.contains("--api-client"), "{stranger:?}");
    // A certificate of an authority that the daemon does not know, and a daemon that is none.
    let folder = remote.platform.directory();
    let own = remote.hosts.write(&remote.hosts, folder, ("other", "ops"));
    let unknown = nfluid_at(&remote.address, &own.expect("ours"), &["get", "instances"]);
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    assert!(unknown.stderr.contains("no TLS connection"), "{unknown:?}");
    let silent = nfluid_at("127.0.0.1:1", &remote.files("ops"), &["get", "instances"]);
    assert_eq!(silent.code, Some(3), "{silent:?}");
}

// Catches: an engine removes, restarts or takes over what is another's.
// promise: 8.12
#[test]
fn engines_share_a_host_and_leave_each_other_alone() {
    let Some(remote) = Remote::started("engines_share_a_host_and_leave_each_other_alone") else {
        return;
    };
    remote
        .platform
        .apply("version: 1\ninstances: { hosts: { nf: bridge } }\n");
    let (nomad, kube) = (remote.client("nomad"), remote.client("kube"));
    block_on(async {
        nomad
            .create("n", &bridge("nomad:1"))
            .await
            .expect("its own");
        kube.create("k", &bridge("kube/1")).await.expect("its own");
        for (name, client) in [("k", &nomad), ("n", &kube), ("hosts", &nomad)] {
            assert!(is_forbidden(client.restart(name).await), "{name}");
            assert!(is_forbidden(client.save(name).await), "{name}");
        }
        assert!(is_forbidden(kube.create("n", &bridge("kube/2")).await));
        let replacing = CreateRequest {
            replaces: Some("nomad:1".to_owned()),
            ..bridge("kube/2")
        };
        assert!(is_forbidden(kube.create("n", &replacing).await));
        // The path names an instance of its own, and the owner another's.
        assert!(is_forbidden(kube.create("k", &bridge("nomad:1")).await));
        let next = CreateRequest {
            replaces: Some("nomad:1".to_owned()),
            ..bridge("nomad:2")
        };
        nomad.create("n", &next).await.expect("its own");
        nomad.restart("n").await.expect("its own");
        let mut connection = kube.connection().await.expect("it listens");
        for (name, status) in [("n", 403), ("hosts", 403), ("k", 200), ("nobody", 404)] {
            let path = format!("/v1/instances/{name}?with_links=true");
            let answer = connection.request("DELETE", &path, Vec::new()).await;
            assert_eq!(answer.expect("an answer").status, status, "{name}");
        }
    });
    let left = remote.platform.pids();
    assert_eq!(left.into_keys().collect::<Vec<_>>(), ["hosts", "n"]);
}

// Catches: certificates of clients are accepted where instances arrive.
// promise: 8.11
#[test]
fn a_daemon_with_one_authority_for_clients_and_daemons_does_not_start() {
    let test = "a_daemon_with_one_authority_for_clients_and_daemons_does_not_start";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let authority = Authority::new().expect("a key");
    let own = authority.write(&authority, platform.directory(), ("daemon", "127.0.0.1"));
    let own = own.expect("the directory is ours");
    let mut both = own.arguments("127.0.0.1:0");
    both.extend(arguments(&own, &["ops=operator"]));
    platform.set_arguments(both);
    let why = platform
        .deref_mut()
        .start()
        .expect_err("anybody could move instances here");
    assert!(
        format!("{why:#}").contains("use an authority of its own"),
        "{why:#}"
    );
    platform.set_arguments(arguments(&own, &["ops=operator", "ops=reader"]));
    let why = platform.deref_mut().start().expect_err("which role?");
    assert!(format!("{why:#}").contains("'ops' twice"), "{why:#}");
}
