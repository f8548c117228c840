//! The program from outside, against a server in memory.

use nfluid_api::testing::{FakeServer, PCAP};
use nfluid_api::types::EventKind;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server in memory, behind a socket in a directory of its own.
struct Fixture {
    server: Arc<FakeServer>,
    directory: TempDir,
    // Serves until it is dropped.
    _runtime: Runtime,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = Runtime::new().expect("a runtime");
        let server = Arc::new(FakeServer::default());
        runtime
            .block_on(server.clone().listen(&directory.path().join("socket")))
            .expect("listens");
        Fixture {
            server,
            directory,
            _runtime: runtime,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("writes");
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nfluid"));
        command
            .args(args)
            .current_dir(self.directory.path())
            .env("NFLUID_SOCKET", self.path("socket"))
            .env_remove("NO_COLOR");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    /// Runs it, expects success, returns standard output.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs it, expects an exit code, returns standard error.
    #[track_caller]
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            stderr(&output)
        );
        stderr(&output)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn apply_prints_what_changed() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", "version: 1\n");
    assert_eq!(
        fixture.ok(&["apply", "-f", "web.yaml"]),
        "+ instance fw1 created\n"
    );
    assert_eq!(
        fixture.ok(&["apply", "-f", "web.yaml", "--dry-run"]),
        "+ instance fw1 created\ndry run: nothing was changed\n"
    );
    fixture.write("web.yaml", "# again\n");
    assert_eq!(
        fixture.ok(&["apply", "-f", "web.yaml"]),
        "nothing to change\n"
    );
    let json = fixture.ok(&["apply", "-f", "web.yaml", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["changes"], serde_json::json!([]));
}

#[test]
fn apply_reads_standard_input() {
    let fixture = Fixture::new();
    let mut child = fixture
        .command(&["apply", "-f", "-", "--add"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"version: 1").expect("writes");
    drop(stdin);
    assert!(child.wait().expect("ends").success());
    assert_eq!(
        fixture.server.requests(),
        ["apply - dry_run=false merge=true attachments=[]"]
    );
}

#[test]
fn apply_sends_the_files_that_the_deployment_names() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("sub")).expect("makes it");
    fixture.write("sub/fw.rules", "allow ip from any to any");
    let text =
        "version: 1\ninstances:\n  fw1: { nf: firewall, config: { rules_file: fw.rules } }\n";
    fixture.write("sub/web.yaml", text);
    fixture.ok(&["apply", "-f", "sub/web.yaml"]);
    assert_eq!(
        fixture.server.requests(),
        ["apply sub/web.yaml dry_run=false merge=false attachments=[\"fw.rules\"]"]
    );
    fixture.write("web.yaml", text);
    let error = fixture.fails(1, &["apply", "-f", "web.yaml"]);
    assert!(
        error.contains(
            "web.yaml:3:46: error: instances.fw1.config.rules_file: cannot read fw.rules"
        ),
        "{error}"
    );
    assert_eq!(fixture.server.requests().len(), 1, "nothing was sent");
}

#[test]
fn errors_of_a_document_name_line_cause_and_remedy() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", "wrong");
    assert_eq!(
        fixture.fails(1, &["apply", "-f", "web.yaml"]),
        "web.yaml:3:5: error: instances.fw1.nf: unknown NF 'wrong'\n  help: there are: bridge\n\
         error: 1 error; nothing was changed\n"
    );
    fixture.write("web.yaml", "fail");
    assert_eq!(
        fixture.fails(1, &["apply", "-f", "web.yaml"]),
        "error: cannot create instance fw1\n  help: make room\n"
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let fixture = Fixture::new();
    assert!(
        fixture
            .fails(1, &["apply", "-f", "none.yaml"])
            .contains("cannot read none.yaml")
    );
    std::fs::write(fixture.path("latin1.yaml"), b"version: 1\n# M\xfcnchen\n").expect("writes");
    let error = fixture.fails(1, &["apply", "-f", "latin1.yaml"]);
    assert!(
        error.contains("latin1.yaml:2: this is not UTF-8"),
        "{error}"
    );
    let large = std::fs::File::create(fixture.path("large.yaml")).expect("creates");
    large.set_len(100 << 20).expect("grows");
    let error = fixture.fails(1, &["apply", "-f", "large.yaml"]);
    assert!(error.contains("larger than the 16 MiB"), "{error}");
    let error = fixture.fails(1, &["apply", "-f", "/dev/zero"]);
    assert!(error.contains("larger than the 16 MiB"), "{error}");
    assert!(fixture.server.requests().is_empty());
}

#[test]
fn delete_by_name_file_or_all() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", "version: 1");
    assert_eq!(
        fixture.ok(&["delete", "instance", "fw1"]),
        "- instance fw1 removed\n"
    );
    fixture.ok(&["delete", "-f", "web.yaml", "--dry-run"]);
    fixture.ok(&["delete", "--all"]);
    assert_eq!(
        fixture.server.requests(),
        [
            "delete [\"instance fw1\"] text=false everything=false dry_run=false",
            "delete [] text=true everything=false dry_run=true",
            "delete [] text=false everything=true dry_run=false",
        ]
    );
    let error = fixture.fails(1, &["delete", "chain", "nobody"]);
    assert!(error.contains("there is no instance 'nobody'"), "{error}");
    fixture.fails(2, &["delete"]);
    fixture.fails(2, &["delete", "instance"]);
    fixture.fails(2, &["delete", "--all", "instance", "fw1"]);
}

#[test]
fn get_prints_tables() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.ok(&["get", "instances"]),
        "NAME  NF        STATE    AGE   RESTARTS  IO      TRUST  FLAVOR  GROUP  SHARE  CAP  CORE  MEMORY   PORTS\n\
         fw1   firewall  running  1d1h  2         inline  -      small   gold   30.0%  -    -     16.0MiB  2\n"
    );
    assert_eq!(
        fixture.ok(&["get", "io"]),
        "THREAD     MODEL  INSTANCES  CORE  CPU TIME\n\
         merge fw1  merge  fw1        0     2.500s\n\
         all together: 2.500s of at most 50.0% of a core\n"
    );
    for (kind, text) in [
        ("ports", "fw1.in"),
        ("switches", "300s"),
        ("links", "fw1.out--nat1.in"),
        ("chains", "proto tcp dport 80"),
        ("uplinks", "the interface vanished"),
        ("events", "2023-11-14T22:13:20.001Z"),
        ("deployment", "nf: firewall"),
    ] {
        let table = fixture.ok(&["get", kind]);
        assert!(table.contains(text), "{kind}: {table}");
    }
    assert!(fixture.ok(&["get", "instance", "fw1"]).contains("firewall"));
    for (kind, name) in [("pool", "small"), ("template", "subscriber")] {
        assert!(fixture.ok(&["get", kind, name]).contains(name));
        assert!(fixture.ok(&["describe", kind, name]).contains(name));
        let error = fixture.fails(1, &["get", kind, "nobody"]);
        assert!(error.contains("nobody"), "{error}");
    }
    for kind in ["io", "deployment"] {
        let error = fixture.fails(2, &["get", kind, "fw1"]);
        assert!(error.contains("only one"), "{error}");
    }
    let error = fixture.fails(1, &["get", "instances", "nobody"]);
    assert!(
        error.contains("help: 'nfluid get instances' lists them"),
        "{error}"
    );
}

#[test]
fn get_prints_json_and_yaml() {
    let fixture = Fixture::new();
    for kind in [
        "instances",
        "ports",
        "switches",
        "links",
        "chains",
        "uplinks",
        "events",
    ] {
        let json = fixture.ok(&["get", kind, "-o", "json"]);
        let from_json: serde_json::Value = serde_json::from_str(&json).expect(kind);
        let yaml = fixture.ok(&["get", kind, "-o", "yaml"]);
        let from_yaml = nfluid_control::yaml::parse(&yaml).expect(kind).to_json();
        assert_eq!(from_json, from_yaml, "{kind}");
        assert_eq!(
            from_json.as_array().map(Vec::is_empty),
            Some(false),
            "{kind}"
        );
    }
    let one = fixture.ok(&["get", "instances", "fw1", "-o", "json"]);
    assert!(one.starts_with('{'), "{one}");
}

#[test]
fn describe_shows_object_ports_drops_and_events() {
    let fixture = Fixture::new();
    let text = fixture.ok(&["describe", "instance", "fw1"]);
    for part in [
        "last_exit: killed by signal 9",
        "fw1.out",
        "ring_full 3, foreign_mac 1",
        "daemon_started",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        fixture
            .ok(&["describe", "uplink", "wan"])
            .contains("mode: generic")
    );
}

// promise: 8.5
#[test]
fn top_without_a_terminal_prints_text() {
    let fixture = Fixture::new();
    let text = fixture.ok(&["top", "--once", "-i", "0.1"]);
    for part in [
        "Instances, over 1.0 s",
        "25.0%",
        "30.0%",
        "ring_full 3",
        "3.0ms",
        "12.0ms",
        "1.0k",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    fixture.fails(2, &["top", "-i", "0"]);
    fixture.fails(2, &["top", "-i", "NaN"]);
}

/// `script` gives the program a terminal of its own.
// promise: 8.5
#[test]
fn top_draws_on_a_terminal_until_q_is_pressed() {
    let fixture = Fixture::new();
    let command = format!(
        "stty cols 120 rows 40; {} top -i 0.1",
        env!("CARGO_BIN_EXE_nfluid")
    );
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("NFLUID_SOCKET", fixture.path("socket"))
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is part of util-linux");
    let mut stdout = child.stdout.take().expect("piped");
    let mut drawn = Vec::new();
    let mut piece = [0u8; 4096];
    while !String::from_utf8_lossy(&drawn).contains("ring_full") {
        let length = stdout.read(&mut piece).expect("reads");
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&drawn));
        drawn.extend_from_slice(&piece[..length]);
    }
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"q").expect("writes");
    stdin.flush().expect("writes");
    stdout.read_to_end(&mut drawn).expect("reads");
    assert!(child.wait().expect("ends").success());
    let text = String::from_utf8_lossy(&drawn);
    assert!(
        text.contains("\x1b[?1049h"),
        "it takes the alternate screen"
    );
    assert!(text.contains("\x1b[?1049l"), "and gives it back");
}

#[test]
fn stats_logs_commands_restarts() {
    let fixture = Fixture::new();
    assert!(fixture.ok(&["stats"]).contains("rules_matched_total 42"));
    assert!(
        fixture
            .ok(&["stats", "-o", "json"])
            .contains("\"rx_packets\"")
    );
    assert_eq!(fixture.ok(&["logs", "fw1", "-n", "2"]), "line 3\nline 4\n");
    fixture.fails(1, &["logs", "nobody"]);
    assert_eq!(
        fixture.ok(&["command", "fw1", "top-talkers", "--limit", "3"]),
        "command: top-talkers\nargs: [\"--limit\", \"3\"]\n"
    );
    assert_eq!(fixture.ok(&["restart", "fw1"]), "instance fw1 restarted\n");
}

#[test]
fn instances_are_paused_upgraded_saved_and_restored() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.ok(&["pause", "fw1", "--traffic", "bypass"]),
        "instance fw1 paused; frames go past it\n"
    );
    assert_eq!(fixture.ok(&["unpause", "fw1"]), "instance fw1 goes on\n");
    assert_eq!(
        fixture.ok(&["upgrade", "fw1"]),
        "instance fw1 upgraded in 6.2 ms; its ports were silent for 0.34 ms; state: 1000 entries, 2 left out\n"
    );
    assert_eq!(
        fixture.ok(&["migrate", "fw1", "--to", "edge2:7443"]),
        "instance fw1 moved to edge2:7443 in 41.0 ms; its ports were silent for 1.90 ms; state: 1000 entries, 2 left out; 190 frames handed on\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fw1.image");
    let file = file.to_str().expect("text");
    assert!(fixture.ok(&["save", "fw1", file]).contains("8 bytes"));
    assert_eq!(std::fs::read(file).expect("written"), b"NFLIMAGE");
    // A failed write leaves the existing file as it was.
    let gone = folder.path().join("gone/fw1.image");
    fixture.fails(1, &["save", "fw1", gone.to_str().expect("text")]);
    let files = std::fs::read_dir(folder.path()).expect("it is there");
    assert_eq!(files.count(), 1, "nothing lies beside it");
    assert_eq!(
        fixture.ok(&["restore", file, "--name", "fw2", "--paused"]),
        "instance fw2 restored, paused; state: 1000 entries; 3 frames in its rings; nothing leads to it before a link, chain or switch names it\n"
    );
    let config = folder.path().join("own.yaml");
    std::fs::write(&config, "addresses: { a: [192.0.2.2/24] }").expect("room");
    let config = config.to_str().expect("text");
    fixture.ok(&["restore", file, "--name", "r2", "--config", config]);
    fixture.fails(2, &["restore", file, "--config", config]);
    std::fs::write(config, "addresses: [").expect("room");
    let error = fixture.fails(1, &["restore", file, "--name", "r2", "--config", config]);
    assert!(error.contains("own.yaml:"), "{error}");
    fixture.fails(1, &["pause", "nobody"]);
    fixture.fails(1, &["restore", "/nonexistent"]);
}

#[test]
fn arguments_after_a_function_are_its_own() {
    let fixture = Fixture::new();
    let own = std::env::current_exe().expect("this program");
    let own = own.with_file_name("arguments_after_a_function_are_its_own");
    std::fs::write(&own, "#!/bin/sh\n").expect("room");
    let program = own.to_str().expect("text");
    fixture.fails(7, &["run-function", program, "--timeout", "not mine"]);
    fixture.fails(2, &["run-function", "--timeout", "mine", program]);
    fixture.fails(2, &["run-function"]);
    std::fs::remove_file(&own).expect("it is there");
}

#[test]
fn events_can_be_followed() {
    let fixture = Fixture::new();
    let mut child = fixture
        .command(&["events", "-f", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let stdout = child.stdout.take().expect("piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let mut next = || lines.next().expect("a line").expect("reads");
    assert!(next().contains("daemon_started"));
    fixture.server.happen(EventKind::Crashed, "fw1 was killed");
    assert!(next().contains("fw1 was killed"));
    child.kill().expect("kills");
    child.wait().expect("ends");
}

#[test]
fn a_capture_goes_to_standard_output_or_a_file() {
    let fixture = Fixture::new();
    let output = fixture.run(&["capture", "fw1.in"]);
    assert_eq!(output.stdout, PCAP);
    fixture.ok(&["capture", "fw1.in", "-w", "frames.pcap"]);
    assert_eq!(
        std::fs::read(fixture.path("frames.pcap")).expect("reads"),
        PCAP
    );
    fixture.fails(1, &["capture", "nowhere"]);
    let error = fixture.fails(1, &["capture", "fw1.in", "-w", "no/such/folder"]);
    assert!(error.contains("cannot write no/such/folder"), "{error}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let fixture = Fixture::new();
    let mut child = fixture
        .command(&["events", "-f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    fixture.server.happen(EventKind::Crashed, "fw1 was killed");
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

// promise: 8.7
#[test]
fn doctor_prints_checks_and_works_without_the_daemon() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.ok(&["doctor"]),
        "ok    kernel: 6.1.0\nwarn  bpf: may_goto: missing: loops are slower\n      help: use a kernel from 6.9 on\n"
    );
    let output = fixture.run(&["--socket", "/nowhere/socket", "doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("FAIL  daemon: the daemon is not running"),
        "{text}"
    );
    assert_eq!(stderr(&output), "");
}

// promise: 8.4
#[test]
fn a_daemon_that_does_not_run_is_exit_code_3() {
    let fixture = Fixture::new();
    let error = fixture.fails(3, &["--socket", "/nowhere/socket", "get", "instances"]);
    assert!(
        error.contains("nothing listens on /nowhere/socket"),
        "{error}"
    );
    assert!(
        error.contains("help: start it with 'sudo systemctl start nfluidd'"),
        "{error}"
    );
}

/// Root can open every socket: the test then runs as the user nobody, by means of `setpriv`.
// promise: 8.4
#[test]
fn a_socket_that_is_not_permitted_is_exit_code_4() {
    let fixture = Fixture::new();
    let open = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(fixture.directory.path(), open(0o755)).expect("sets");
    std::fs::set_permissions(fixture.path("socket"), open(0o600)).expect("sets");
    // The program's own folder may be closed to others. A copy that this process had open for writing could be inherited by a child of another
    // test's thread, and could not be executed then (ETXTBSY).
    let program = fixture.path("nfluid");
    let mut copying = Command::new("cp");
    let copied = copying.arg(env!("CARGO_BIN_EXE_nfluid")).arg(&program);
    assert!(copied.status().expect("cp is there").success());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["get", "instances"])
        .env("NFLUID_SOCKET", fixture.path("socket"))
        .current_dir("/")
        .output()
        .expect("setpriv is part of util-linux");
    let error = stderr(&output);
    if error.contains("setresuid failed") || error.contains("setgroups") {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(
        error.contains("help: use sudo, or join the group"),
        "{error}"
    );
}

#[test]
fn colours_only_where_they_are_wanted() {
    let fixture = Fixture::new();
    let plain = fixture.ok(&["get", "instances"]);
    assert!(!plain.contains('\x1b'), "standard output is no terminal");
    let colored = fixture.ok(&["get", "instances", "--color", "always"]);
    assert!(colored.contains("\x1b[1mNAME"));
}

#[test]
fn traffic_on_a_port_is_for_instances() {
    let fixture = Fixture::new();
    assert!(fixture.ok(&["gen", "--help"]).contains("replay"));
    let error = fixture.fails(1, &["gen", "receive", "--port", "in"]);
    assert!(error.contains("cannot open port 'in'"), "{error}");
    assert!(error.contains("run it as an instance"), "{error}");
    let error = fixture.fails(1, &["gen", "receive", "--interface", "nowhere0"]);
    assert!(error.contains("nowhere0"), "{error}");
}

#[test]
fn usage_version_completion() {
    let fixture = Fixture::new();
    fixture.fails(2, &["frobnicate"]);
    fixture.fails(2, &["get", "nothing"]);
    assert!(
        fixture
            .ok(&["--help"])
            .contains("3  the daemon cannot be reached")
    );
    assert!(
        fixture
            .ok(&["version"])
            .contains("nfluidd 0.0.0-fake, API v1")
    );
    let without = fixture.ok(&["--socket", "/nowhere", "version", "-o", "json"]);
    assert!(without.contains("\"daemon\": null"), "{without}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = fixture.ok(&["completion", shell]);
        assert!(
            script.contains("nfluid") && script.contains("capture"),
            "{shell}"
        );
    }
}
