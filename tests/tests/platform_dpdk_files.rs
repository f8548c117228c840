//! Programs on DPDK that have files and sockets. Open vSwitch, as Debian ships it: nfluid's ports are `dpdk` ports of its
//! bridge, its database runs outside, as an operator's does, and the two meet in a volume. A hostile program reaches no more than
//! that.

mod dpdk_fixture;

use dpdk_fixture::driver_and_hosts;
use nfluid_testbed::process::{Service, signal};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::transfer::stream;
use nfluid_tests::harness::two_hosts::UPLINKS;
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The full path: the system may have selected the other switch as `ovs-vswitchd`.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Where the instance has the volume.
const INSIDE: &str = "/ovs";
const PATIENCE: Duration = Duration::from_secs(60);

/// The database of a switch, in a folder.
struct Database {
    folder: PathBuf,
    _server: Service,
}

impl Database {
    fn start(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("conf.db");
        let mut create = Command::new("ovsdb-tool");
        let made = create
            .arg("create")
            .args([&file, Path::new(SCHEMA)])
            .output();
        assert!(made.expect("ovsdb-tool").status.success());
        let mut command = Command::new("ovsdb-server");
        command
            .env("OVS_RUNDIR", &folder)
            .arg(&file)
            .arg(format!(
                "--remote=punix:{}",
                folder.join("db.sock").display()
            ))
            .arg(format!("--unixctl={}", folder.join("db.ctl").display()))
            .args(["-vconsole:warn", "-vsyslog:off"]);
        let server = Service::start("ovsdb-server", &mut command, folder.join("db.log"));
        let mut server = server.expect("it starts");
        let is_there = || folder.join("db.sock").exists();
        server.await_service(PATIENCE, is_there).expect("it serves");
        Database {
            folder,
            _server: server,
        }
    }

    fn try_vsctl(&self, words: &[&str]) -> Output {
        let mut command = Command::new("ovs-vsctl");
        command
            .arg(format!(
                "--db=unix:{}",
                self.folder.join("db.sock").display()
            ))
            .arg("--timeout=60")
            .args(words);
        command.output().expect("ovs-vsctl")
    }

    fn vsctl(&self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = self.try_vsctl(&words);
        assert!(done.status.success(), "{line}: {done:?}");
    }

    /// Asks the switch by its control socket, which it has made in the volume.
    fn appctl(&self, words: &[&str]) -> String {
        let mut command = Command::new("ovs-appctl");
        command
            .arg("--target")
            .arg(self.folder.join("switch.ctl"))
            .args(words);
        let done = command.output().expect("ovs-appctl");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

/// Tries what a program could do to the host, and says of each attempt what came of it.
const ATTEMPTS: &str = r#"
import os, socket, sys
def tried(name, attempt):
    try:
        print(name, "done", attempt(), flush=True)
    except Exception as why:
        print(name, "refused", why, flush=True)
def connected(family, place):
    socket.socket(family).connect(place)
tried("interfaces", lambda: socket.if_nameindex())
tried("tcp", lambda: connected(socket.AF_INET, ("127.0.0.1", PORT)))
tried("abstract", lambda: connected(socket.AF_UNIX, "\0NAME"))
tried("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("hyperio", lambda: socket.socket().setsockopt(0x4e46, 2, b"\1" * 64))
tried("shadow", lambda: open("/etc/shadow").read())
tried("root", lambda: sorted(os.listdir("/")))
tried("read-only", lambda: open("/ro/file", "w"))
tried("writable", lambda: open("/rw/file", "w").write("mine"))
tried("setuid", lambda: os.chmod("/rw/file", 0o4755))
os.symlink("/etc/shadow", "/rw/link")
tried("link", lambda: open("/rw/link").read())
os.symlink("/ro/../../..", "/rw/above")
tried("above", lambda: sorted(os.listdir("/rw/above")))
tried("kill", lambda: os.kill(OUTSIDE, 9))
tried("scratch", lambda: open("/tmp/own", "w").write("mine"))
tried("execute", lambda: os.execv("/usr/bin/id", ["id"]))
print("over", os.environ["WORD"], os.getcwd(), flush=True)
import time
time.sleep(1000)
"#;

// promise: 21.7
#[test]
fn a_program_on_dpdk_with_files_reaches_nothing_else_of_the_host() {
    let test = "a_program_on_dpdk_with_files";
    const PYTHON: &str = "/usr/bin/python3";
    let Some(platform) = Platform::new(test) else {
        return;
    };
    let Ok(python) = fs::canonicalize(PYTHON) else {
        skip(test, "it needs python3");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let name = format!("{test}-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("a listener");
    let folder = |name: &str| {
        let folder = platform.directory().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder.display().to_string()
    };
    let (readable, writable) = (folder("ro"), folder("rw"));
    let script = ATTEMPTS
        .replace("PORT", &port.to_string())
        .replace("NAME", &name)
        .replace("OUTSIDE", &std::process::id().to_string());
    fs::write(Path::new(&readable).join("attempts.py"), script).expect("written");
    let python = python.display();
    platform.apply(&format!(
        "version: 1
instances:
  ovs:
    program: {python}
    api: dpdk
    args: [/ro/attempts.py]
    environment: [WORD=own, PYTHONHOME=/usr]
    directory: /rw
    volumes: [{{ from: {readable}, at: /ro }}, {{ from: {writable}, at: /rw, write: true }}]
    restart: never
    memory: 128MiB
    ports: {{ in: {{}} }}
"
    ));
    platform.await_log("ovs", "over");
    let said = platform.log("ovs");
    let of = |name: &str| {
        let start = format!("{name} ");
        let line = said.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{name}: {said}")).to_owned()
    };
    assert_eq!(of("interfaces"), "done [(1, 'lo')]");
    for attempt in [
        "tcp",
        "abstract",
        "packets",
        "hyperio",
        "shadow",
        "root",
        "above",
        "read-only",
        "setuid",
        "link",
        "kill",
        "execute",
    ] {
        assert!(of(attempt).starts_with("refused"), "{attempt}: {said}");
    }
    assert_eq!(of("writable"), "done 4");
    assert_eq!(of("scratch"), "done 4");
    assert_eq!(of("over"), "own /rw");
    let mine = fs::read_to_string(Path::new(&writable).join("file"));
    assert_eq!(mine.expect("written by it"), "mine");
    // What only programs on a stack of their own have.
    for (key, why) in [
        ("capabilities: [NET_RAW]", "has no 'capabilities'"),
        ("forwarding: true", "'forwarding'"),
        ("volumes: [/proc]", "instances see nothing of the host's"),
        ("volumes: [/none]", "the volume /none"),
    ] {
        let instance = format!(
            "{{ program: {PYTHON}, api: dpdk, memory: 128MiB, ports: {{ in: {{}} }}, restart: never, {key} }}"
        );
        platform.must_refuse_instance(&instance, why);
    }
}

// promise: 21.7
#[test]
fn open_vswitch_with_dpdk_bridges_between_ports_of_nfluid() {
    let test = "open_vswitch_with_dpdk";
    if !Path::new(SWITCH).is_file() || !Path::new(SCHEMA).is_file() {
        skip(test, "it needs openvswitch-switch-dpdk");
        return;
    }
    let Some((driver, platform)) = driver_and_hosts(test) else {
        return;
    };
    let database = Database::start(platform.directory().join("ovs"));
    let driver = driver.0.join("librte_net_nfluid.so");
    let eal = format!(
        "--no-huge --legacy-mem --no-shconf --no-pci --no-telemetry -m 160 -d {}",
        driver.display()
    );
    database.vsctl("--no-wait init");
    database.vsctl(
        "--no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:pmd-cpu-mask=2",
    );
    let extra = format!("other_config:dpdk-extra=\"{eal}\"");
    assert!(
        database
            .try_vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &extra])
            .status
            .success()
    );
    let volume = database.folder.display().to_string();
    platform.apply(&format!(
        "{UPLINKS}instances:
  ovs:
    program: {SWITCH}
    api: dpdk
    args: ['unix:{INSIDE}/db.sock', --enable-dummy, '--unixctl={INSIDE}/switch.ctl', '-vconsole:info', '-vsyslog:off', '-vfile:off']
    environment: ['OVS_RUNDIR={INSIDE}', 'OVS_SYSCONFDIR={INSIDE}']
    volumes: [{{ from: {volume}, at: {INSIDE}, write: true }}]
    memory: 512MiB
    ports: {{ in: {{}}, out: {{}} }}
chains:
  web: {{ from: lan, to: wan, via: [ovs] }}
"
    ));
    database.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    for (number, port) in ["in", "out"].iter().enumerate() {
        database.vsctl(&format!(
            "add-port br0 {port} -- set Interface {port} type=dpdk options:dpdk-devargs=net_nfluid{number},port={port}"
        ));
    }
    eventually("it bridges", || platform.pings("client", "10.0.0.2"));
    stream(&platform, 4 << 20);
    let shown = database.appctl(&["dpctl/show"]);
    assert!(
        shown.contains("in (dpdk"),
        "{shown} {}",
        platform.log("ovs")
    );
    // A rule of the bridge holds.
    let flow = |flow: &str| {
        let management = format!("unix:{}/br0.mgmt", database.folder.display());
        let done = Command::new("ovs-ofctl")
            .args(["add-flow", &management, flow])
            .output();
        let done = done.expect("ovs-ofctl");
        assert!(done.status.success(), "{flow}: {done:?}");
    };
    flow("priority=9,icmp,actions=drop");
    eventually("it drops", || !platform.pings("client", "10.0.0.2"));
    stream(&platform, 1 << 20);
    flow("priority=9,icmp,actions=NORMAL");
    eventually("it bridges again", || platform.pings("client", "10.0.0.2"));

    // It comes back as its database says.
    let pid = platform.pids()["ovs"];
    signal(pid, Signal::KILL);
    eventually("another one runs", || {
        platform.pids().get("ovs").is_some_and(|now| *now != pid)
    });
    eventually("it bridges after its restart", || {
        platform.pings("client", "10.0.0.2")
    });
    stream(&platform, 1 << 20);
    platform.must_say(&["delete", "--all"]);
    eventually("nothing runs", || platform.instance_processes().is_empty());
}
