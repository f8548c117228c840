//! The drivers' own tests, in Python.

use nfluid_testbed::openstack::{OpenStack, python_of};
use nfluid_tests::harness::command::must_run;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the drivers.
fn drivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/openstack")
}

/// Runs the drivers' own tests in the files of this pattern, by `python`.
fn python_tests(python: &Path, pattern: &str, environment: &[(&str, &str)]) {
    let drivers = drivers();
    let paths = ["nova", "neutron", "firewall"].map(|of| drivers.join(of).display().to_string());
    let mut command = Command::new(python);
    command
        .args([
            "-B",
            "-m",
            "unittest",
            "discover",
            "--verbose",
            "--start-directory",
        ])
        .arg(drivers.join("tests"))
        .args(["--pattern", pattern])
        .env("PYTHONPATH", paths.join(":"))
        .envs(environment.iter().copied());
    let outcome = must_run(&mut command);
    assert!(
        !outcome.stderr.contains("Ran 0 tests"),
        "{}",
        outcome.stderr
    );
}

// promise: 34.5
#[test]
fn servers_and_rules_become_documents() {
    python_tests(Path::new("python3"), "test_[dg]*[ps].py", &[]);
}

// promise: 35.8
#[test]
fn rules_become_flows() {
    python_tests(Path::new("python3"), "test_firewall.py", &[]);
}

// promise: 34.6
#[test]
fn a_daemon_is_a_node_of_nova() {
    let test = "a_daemon_is_a_node_of_nova";
    let Some(mut platform) = Platform::at_rest(test) else {
        return;
    };
    platform.run_at_edge();
    platform.host("eth1", "10.0.0.1/24");
    platform.start();
    let socket = platform.socket();
    let socket = socket.to_str().expect("a path that is text");
    python_tests(
        Path::new("python3"),
        "test_host.py",
        &[("NFLUID_SOCKET", socket), ("NFLUID_INTERFACE", "eth1")],
    );
}

// promise: 34.7
#[test]
fn nova_finds_that_the_driver_is_a_driver() {
    let test = "nova_finds_that_the_driver_is_a_driver";
    let venv = match OpenStack::find() {
        Ok(venv) => venv,
        Err(why) => {
            skip(test, &why.to_string());
            return;
        }
    };
    let python = python_of(venv.as_deref());
    let fixtures = Command::new(&python)
        .args(["-c", "import nova.test, oslotest"])
        .output();
    if !fixtures.is_ok_and(|it| it.status.success()) {
        skip(test, "Nova's fixtures need the Python package oslotest");
        return;
    }
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    platform.start();
    let socket = platform.socket();
    let socket = socket.to_str().expect("a path that is text");
    let environment = [("NFLUID_SOCKET", socket)];
    python_tests(&python, "test_driver.py", &environment);
}
