//! Nomad's own agent and tools run nfluid's instances. The agent is not in Debian and not nfluid's to ship: `NOMAD_PROGRAM` names it.

use nfluid_testbed::process::signal;
use nfluid_testbed::program::built;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Ports of the agent: requests, other agents, and gossip.
const PORTS: [u16; 3] = [14646, 14647, 14648];

/// An agent that is server and client, and its folder.
struct Nomad {
    program: PathBuf,
    folder: PathBuf,
    agent: Option<Child>,
}

impl Nomad {
    /// Prepares an agent; reports the reason and returns `None` if there is none.
    fn find(test: &str, platform: &Platform) -> Option<Self> {
        let Some(program) = std::env::var_os("NOMAD_PROGRAM").map(PathBuf::from) else {
            skip(
                test,
                "set NOMAD_PROGRAM to Nomad's program, 1.11 or later: docs/guide/nomad.md",
            );
            return None;
        };
        let folder = platform.directory().join("nomad");
        fs::create_dir_all(folder.join("plugins")).expect("a folder");
        let driver = built("nfluid-nomad", "nfluid-nomad").expect("it was built");
        fs::copy(driver, folder.join("plugins/nfluid-nomad")).expect("copied");
        let [http, rpc, serf] = PORTS;
        let at = folder.display();
        let socket = platform.socket();
        let configuration = format!(
            "disable_update_check = true\nbind_addr = \"127.0.0.1\"\nplugin_dir = \"{at}/plugins\"\ndata_dir = \"{at}/data\"\n\
             advertise {{\n http = \"127.0.0.1\"\n rpc = \"127.0.0.1\"\n serf = \"127.0.0.1\"\n}}\n\
             ports {{\n http = {http}\n rpc = {rpc}\n serf = {serf}\n}}\n\
             server {{\n enabled = true\n bootstrap_expect = 1\n}}\n\
             client {{\n enabled = true\n network_interface = \"lo\"\n cpu_total_compute = 4000\n\
             options = {{ \"driver.allowlist\" = \"nfluid\", \"fingerprint.denylist\" = \"env_aws,env_gce,env_azure,env_digitalocean,consul,vault\" }}\n}}\n\
             plugin \"nfluid-nomad\" {{ config {{ socket = \"{}\" }} }}\n",
            socket.display()
        );
        fs::write(folder.join("agent.hcl"), configuration).expect("written");
        Some(Nomad {
            program,
            folder,
            agent: None,
        })
    }

    /// Starts the agent, and waits until it takes jobs.
    fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("agent.log"))
            .expect("a log");
        let agent = Command::new(&self.program)
            .args(["agent", "-config"])
            .arg(self.folder.join("agent.hcl"))
            .env_remove("AWS_CA_BUNDLE")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        self.agent = Some(agent.expect("it starts"));
        eventually("the node is ready", || {
            let nodes = self.json(&["node", "status", "-json"]);
            let mut nodes = nodes.as_array().into_iter().flatten();
            nodes.any(|node| {
                node["Status"] == "ready" && node["Drivers"]["nfluid"]["Healthy"] == true
            })
        });
    }

    /// Ends the agent as a crash would. Its plugins stay.
    fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().expect("killed");
            agent.wait().expect("gone");
        }
    }

    fn command(&self, arguments: &[&str]) -> (bool, String) {
        let done = Command::new(&self.program)
            .args(arguments)
            .env("NOMAD_ADDR", format!("http://127.0.0.1:{}", PORTS[0]))
            .output()
            .expect("it runs");
        let said = [done.stdout, done.stderr].concat();
        (
            done.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn must(&self, arguments: &[&str]) -> String {
        let (is_done, said) = self.command(arguments);
        assert!(is_done, "{arguments:?}: {said}");
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (_, said) = self.command(arguments);
        let end = said.rfind([']', '}']).map_or(0, |end| end + 1);
        serde_json::from_str(&said[..end]).unwrap_or_default()
    }

    /// Runs a job of one group of tasks.
    fn run(&self, job: &str, count: usize, tasks: &str) {
        let text = format!(
            "job \"{job}\" {{\n group \"chain\" {{\n count = {count}\n\
             restart {{\n delay = \"1s\"\n attempts = 10\n}}\n\
             update {{\n min_healthy_time = \"1s\"\n healthy_deadline = \"2m\"\n}}\n{tasks}\n}}\n}}\n"
        );
        let file = self.folder.join(format!("{job}.hcl"));
        fs::write(&file, text).expect("written");
        self.must(&["job", "run", "-detach", &file.display().to_string()]);
    }

    /// Returns the allocations of a job that run.
    fn running(&self, job: &str) -> Vec<String> {
        let all = self.json(&["job", "allocs", "-json", job]);
        let all = all.as_array().into_iter().flatten();
        let runs = |allocation: &&Value| {
            allocation["ClientStatus"] == "running" && allocation["DesiredStatus"] == "run"
        };
        all.filter(runs)
            .filter_map(|it| Some(it["ID"].as_str()?.to_owned()))
            .collect()
    }

    /// The processes of the driver.
    fn drivers(&self) -> Vec<u32> {
        let plugin = self.folder.join("plugins/nfluid-nomad");
        let entries = fs::read_dir("/proc").expect("there").filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(&plugin))
        })
        .collect()
    }
}

impl Drop for Nomad {
    /// Ends the agent and its plugins, and removes what agents leave behind: mounts of allocations, and control groups.
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _gone = agent.kill();
            let _status = agent.wait();
        }
        for driver in self.drivers() {
            signal(driver, Signal::KILL);
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| place.starts_with(&self.folder.display().to_string())) {
            let _gone = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A task of this name that runs a bridge.
fn bridge(name: &str, links: &str, memory: u32) -> String {
    format!(
        "task \"{name}\" {{\n driver = \"nfluid\"\n config {{\n nf = \"bridge\"\n links = {links}\n}}\n\
         resources {{\n cpu = 50\n memory = {memory}\n}}\n}}\n"
    )
}

// promise: 24.5
#[test]
fn nomads_own_agent_runs_updates_drains_and_finds_again() {
    let test = "nomads_own_agent_runs_updates_drains_and_finds_again";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    let Some(mut nomad) = Nomad::find(test, &platform) else {
        return;
    };
    platform.apply(UPLINKS);
    nomad.start();
    let chain = |memory| {
        let first = bridge(
            "fw",
            "[[\"lan\", \".in\"], [\".out\", \"@nat.in\"]]",
            memory,
        );
        first + &bridge("nat", "[[\".out\", \"wan\"]]", memory)
    };
    nomad.run("edge", 1, &chain(16));
    eventually("frames pass", || platform.pings("client", SERVER));
    nomad.run("many", 3, &bridge("x", "[]", 16));
    eventually("three run", || {
        nomad.running("many").len() == 3 && platform.pids().len() == 5
    });
    // A deployment that is under way comes first.
    eventually("it is scaled", || {
        nomad
            .command(&["job", "scale", "-detach", "many", "chain", "6"])
            .0
    });
    eventually("six run", || {
        nomad.running("many").len() == 6 && platform.pids().len() == 8
    });
    let [allocation] = &nomad.running("edge")[..] else {
        panic!("one allocation runs");
    };
    eventually("its log is shown", || {
        nomad
            .command(&["alloc", "logs", allocation, "fw"])
            .1
            .contains("running on 2 ports")
    });
    let refused = nomad.command(&["alloc", "exec", "-task", "fw", allocation, "no-such"]);
    assert!(
        !refused.0 && refused.1.contains("no commands"),
        "{refused:?}"
    );

    // The driver, the daemon and the agent die. Nobody's instance does.
    let before = platform.pids();
    for driver in nomad.drivers() {
        signal(driver, Signal::KILL);
    }
    platform.kill_daemon();
    platform.start();
    nomad.kill();
    nomad.start();
    eventually("all run", || {
        nomad.running("many").len() == 6 && nomad.running("edge").len() == 1
    });
    assert_eq!(platform.pids(), before);

    // An instance dies: Nomad starts its task again, linked as before.
    let fw = before
        .keys()
        .find(|name| name.starts_with("fw-"))
        .expect("it runs");
    signal(before[fw], Signal::KILL);
    eventually("it runs again", || {
        platform
            .pids()
            .get(fw)
            .is_some_and(|pid| *pid != before[fw])
            && platform.pings("client", SERVER)
    });

    // Other resources: new allocations take the places of the old ones.
    nomad.run("edge", 1, &chain(24));
    eventually("it has more memory", || {
        let all = platform.ask(&["get", "instances"]);
        let mut all = all.as_array().into_iter().flatten();
        all.any(|it| it["memory_limit_bytes"] == 24 << 20)
            && platform.pids().len() == 8
            && platform.pings("client", SERVER)
    });

    // Wrong keys are told at the task.
    nomad.run(
        "wrong",
        1,
        "task \"w\" {\n driver = \"nfluid\"\n config {\n nf = \"no-such\"\n}\n}\n",
    );
    eventually("it is told", || {
        let all = nomad.json(&["job", "allocs", "-json", "wrong"]);
        all.to_string().contains("config.nf")
    });
    nomad.must(&["job", "stop", "-purge", "-detach", "wrong"]);

    // A drained node has no instances; afterwards it gets them back.
    nomad.must(&[
        "node",
        "drain",
        "-self",
        "-enable",
        "-yes",
        "-detach",
        "-deadline",
        "5s",
    ]);
    eventually("nothing runs", || platform.pids().is_empty());
    nomad.must(&["node", "drain", "-self", "-disable", "-yes"]);
    eventually("all run", || {
        platform.pids().len() == 8 && platform.pings("client", SERVER)
    });
    for job in ["edge", "many"] {
        nomad.must(&["job", "stop", "-purge", "-detach", job]);
    }
    eventually("nothing is left", || {
        platform.ask(&["get", "instances"]) == serde_json::json!([])
    });
    assert_eq!(platform.ask(&["get", "links"]), serde_json::json!([]));
    nomad.must(&["system", "gc"]);
}
