//! The daemon's API over TCP: operators and engines on other hosts.

use nfluid_api::client::ClientError;
use nfluid_api::types::CreateRequest;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::remote::{Remote, arguments, nfluid_at};
use nfluid_tls::testing::Authority;
use serde_json::json;
use std::fs;
use std::ops::DerefMut;

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
    let mut both = own.arguments("migrate", "127.0.0.1:0");
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
