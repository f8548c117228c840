//! The Ansible collection: its integration tests, by Ansible itself, with a daemon over the socket and over TCP.

use nfluid_tests::harness::command::must_run;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::program::find_python_program;
use nfluid_tests::harness::remote::Remote;
use nfluid_tests::harness::skip::skip;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGETS: [&str; 4] = ["deployment", "instance", "info", "inventory"];

fn collection() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/ansible")
}

/// Plays the collection's tests, with `daemon` as the options that lead to the daemon.
fn play(ansible: &Path, platform: &Platform, daemon: Value, is_remote: bool) {
    let folder = platform.directory().join("ansible");
    let collections = folder.join("ansible_collections/nfluid");
    fs::create_dir_all(&collections).expect("the directory is ours");
    symlink(collection(), collections.join("nfluid")).expect("the directory is ours");
    let tasks =
        |target| collection().join(format!("tests/integration/targets/{target}/tasks/main.yml"));
    let book = json!([{
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": false,
        "vars": {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "nfluid_is_remote": is_remote,
            "nfluid_folder": folder,
            "nfluid_daemon": daemon,
        },
        "module_defaults": { "group/nfluid.nfluid.all": daemon },
        "tasks": TARGETS.map(|target| json!({ "ansible.builtin.include_tasks": tasks(target) })),
    }]);
    let path = folder.join("book.yml");
    // JSON is YAML too.
    fs::write(&path, book.to_string()).expect("the directory is ours");
    let mut command = Command::new(ansible);
    let programs = std::env::var("PATH").unwrap_or_default();
    let own = ansible.parent().expect("a folder").display();
    command
        .args(["-i", "localhost,"])
        .arg(&path)
        .env("ANSIBLE_HOME", folder.join("home"))
        .env("ANSIBLE_COLLECTIONS_PATH", &folder)
        .env("LC_ALL", "C.UTF-8")
        .env("PATH", format!("{own}:{programs}"));
    let outcome = must_run(&mut command);
    for target in TARGETS {
        let included = format!("targets/{target}/tasks/main.yml");
        assert!(outcome.stdout.contains(&included), "{target}");
    }
    assert!(
        platform.pids().is_empty(),
        "the tests remove what they make"
    );
}

fn ansible(test: &str) -> Option<PathBuf> {
    let found = find_python_program("ansible-playbook");
    if found.is_none() {
        skip(test, "no ansible-core; `cargo xtask test` installs it");
    }
    found
}

// promise: 25.1
#[test]
fn ansible_applies_what_differs_and_tells_what_is_wrong() {
    let test = "ansible_applies_what_differs_and_tells_what_is_wrong";
    let Some(ansible) = ansible(test) else {
        return;
    };
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.start();
    let daemon = json!({ "socket": platform.run_dir().join("nfluidd.sock") });
    play(&ansible, &platform, daemon, false);
}

// promise: 25.2
#[test]
fn ansible_does_the_same_with_certificates_from_another_host() {
    let test = "ansible_does_the_same_with_certificates_from_another_host";
    let Some(ansible) = ansible(test) else {
        return;
    };
    let Some(remote) = Remote::started(test) else {
        return;
    };
    let files = remote.files("ops");
    let daemon = json!({
        "host": remote.address,
        "client_cert": files.certificate,
        "client_key": files.key,
        "ca_cert": files.authority,
    });
    play(&ansible, &remote.platform, daemon, true);
}
