//! Open vSwitch with DPDK, as Debian ships it, as an instance: nfluid's ports are `dpdk` ports of its bridge. Its database runs
//! outside, as an operator's does, and the two meet in a volume.

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

fn log(platform: &Platform) -> String {
    fs::read_to_string(platform.instance_log("ovs")).unwrap_or_default()
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
    assert!(shown.contains("in (dpdk"), "{shown} {}", log(&platform));
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
