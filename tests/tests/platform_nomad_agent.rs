//! Nomad's own agent and tools run nfluid's instances. The agent is not in Debian and not nfluid's to ship: `NOMAD_PROGRAM` names it.

use nfluid_testbed::CannotRun;
use nfluid_testbed::nomad::{self, Nomad};
use nfluid_testbed::process::signal;
use nfluid_testbed::program::built;
use nfluid_tests::harness::command::run_command;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

/// An agent and the folder of its jobs.
struct Agent {
    nomad: Nomad,
    folder: PathBuf,
}

impl Agent {
    /// Starts an agent; reports the reason and returns `None` if there is none here.
    fn start(test: &str, platform: &Platform) -> Option<Self> {
        let program = match nomad::find() {
            Ok(program) => program,
            Err(CannotRun(why)) => {
                skip(test, &why);
                return None;
            }
        };
        let folder = platform.directory().join("nomad");
        let driver = built("nfluid-nomad", "nfluid-nomad").expect("it was built");
        let mut nomad = Nomad::new(program, folder.clone(), &driver, &platform.socket(), &[])
            .expect("prepared");
        nomad.start().expect("it starts");
        Some(Agent { nomad, folder })
    }

    fn command(&self, arguments: &[&str]) -> (bool, String) {
        self.nomad.command(arguments).expect("it runs")
    }

    fn must(&self, arguments: &[&str]) -> String {
        let (is_done, said) = self.command(arguments);
        assert!(is_done, "{arguments:?}: {said}");
        said
    }

    /// Returns the allocations of a job.
    fn allocations(&self, job: &str) -> Vec<Value> {
        let all = self.nomad.get(&format!("/v1/job/{job}/allocations"));
        all.unwrap_or_default()
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Runs a job of one group of tasks.
    fn run(&self, job: &str, count: usize, tasks: &str) {
        self.run_where(job, count, "", tasks);
    }

    /// Runs a job of one group of tasks on nodes that `place` describes.
    fn run_where(&self, job: &str, count: usize, place: &str, tasks: &str) {
        let text = format!(
            "job \"{job}\" {{\n group \"chain\" {{\n count = {count}\n{place}\n\
             restart {{\n delay = \"1s\"\n attempts = 10\n}}\n\
             update {{\n min_healthy_time = \"1s\"\n healthy_deadline = \"2m\"\n}}\n{tasks}\n}}\n}}\n"
        );
        let file = self.folder.join(format!("{job}.hcl"));
        fs::write(&file, text).expect("written");
        self.must(&["job", "run", "-detach", &file.display().to_string()]);
    }

    /// Returns the allocations of a job that run.
    fn running(&self, job: &str) -> Vec<String> {
        let runs = |it: &Value| it["ClientStatus"] == "running" && it["DesiredStatus"] == "run";
        let all = self.allocations(job).into_iter().filter(runs);
        all.filter_map(|it| Some(it["ID"].as_str()?.to_owned()))
            .collect()
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
    platform.apply(UPLINKS);
    let Some(mut agent) = Agent::start(test, &platform) else {
        return;
    };
    let chain = |memory| {
        let first = bridge(
            "fw",
            "[[\"lan\", \".in\"], [\".out\", \"@nat.in\"]]",
            memory,
        );
        first + &bridge("nat", "[[\".out\", \"wan\"]]", memory)
    };
    agent.run("edge", 1, &chain(16));
    eventually("frames pass", || platform.pings("client", SERVER));
    agent.run("many", 3, &bridge("x", "[]", 16));
    eventually("three run", || {
        agent.running("many").len() == 3 && platform.pids().len() == 5
    });
    // A deployment that is under way comes first.
    eventually("it is scaled", || {
        agent
            .command(&["job", "scale", "-detach", "many", "chain", "6"])
            .0
    });
    eventually("six run", || {
        agent.running("many").len() == 6 && platform.pids().len() == 8
    });
    let [allocation] = &agent.running("edge")[..] else {
        panic!("one allocation runs");
    };
    eventually("its log is shown", || {
        agent
            .command(&["alloc", "logs", allocation, "fw"])
            .1
            .contains("running on 2 ports")
    });
    let refused = agent.command(&["alloc", "exec", "-task", "fw", allocation, "no-such"]);
    assert!(
        !refused.0 && refused.1.contains("no commands"),
        "{refused:?}"
    );

    // The driver, the daemon and the agent die. Nobody's instance does.
    let before = platform.pids();
    for driver in agent.nomad.drivers() {
        signal(driver, Signal::KILL);
    }
    platform.kill_daemon();
    platform.start();
    agent.nomad.kill();
    agent.nomad.start().expect("it starts");
    eventually("all run", || {
        agent.running("many").len() == 6 && agent.running("edge").len() == 1
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
    agent.run("edge", 1, &chain(24));
    eventually("it has more memory", || {
        let all = platform.ask(&["get", "instances"]);
        let mut all = all.as_array().into_iter().flatten();
        all.any(|it| it["memory_limit_bytes"] == 24 << 20)
            && platform.pids().len() == 8
            && platform.pings("client", SERVER)
    });

    // Wrong keys are told at the task.
    agent.run(
        "wrong",
        1,
        "task \"w\" {\n driver = \"nfluid\"\n config {\n nf = \"no-such\"\n}\n}\n",
    );
    eventually("it is told", || {
        let all = Value::from(agent.allocations("wrong"));
        all.to_string().contains("config.nf")
    });
    agent.must(&["job", "stop", "-purge", "-detach", "wrong"]);

    // A drained node has no instances; afterwards it gets them back.
    agent.must(&[
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
    agent.must(&["node", "drain", "-self", "-disable", "-yes"]);
    eventually("all run", || {
        platform.pids().len() == 8 && platform.pings("client", SERVER)
    });
    for job in ["edge", "many"] {
        agent.must(&["job", "stop", "-purge", "-detach", job]);
    }
    eventually("nothing is left", || {
        platform.ask(&["get", "instances"]) == serde_json::json!([])
    });
    assert_eq!(platform.ask(&["get", "links"]), serde_json::json!([]));
    agent.must(&["system", "gc"]);
}

/// Answers each request with a file, for as long as the test runs. Returns the port.
fn serve(file: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut request = BufReader::new(stream.try_clone().expect("a copy"));
            let mut line = String::new();
            // Up to the empty line.
            while request.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let length = file.len();
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n");
            // The client may be content with the head.
            let _gone = stream.write_all((head + file).as_bytes());
        }
    });
    port
}

// promise: 24.5
#[test]
fn nomads_own_clients_share_jobs_and_one_takes_over() {
    let test = "nomads_own_clients_share_jobs_and_one_takes_over";
    let Some(first) = two_hosts(test) else {
        return;
    };
    let Some(mut second) = first.beside(test) else {
        return;
    };
    let Some(agent) = Agent::start(test, &first) else {
        return;
    };
    second.start();
    let folder = second.directory().join("nomad");
    let beside = agent.nomad.beside(folder, &second.socket());
    let mut beside = beside.expect("prepared");
    beside.start().expect("it starts");
    let counts = || (first.pids().len(), second.pids().len());

    // The rules come from elsewhere. One on each host.
    let port = serve("allow icmp from any to any\n");
    let firewall = format!(
        "task \"fw\" {{\n driver = \"nfluid\"\n\
         artifact {{\n source = \"http://127.0.0.1:{port}/rules\"\n destination = \"local/\"\n}}\n\
         config {{\n nf = \"firewall\"\n config = {{ rules_file = \"local/rules\" }}\n}}\n\
         resources {{\n cpu = 50\n memory = 16\n}}\n}}\n"
    );
    let apart = "constraint {\n operator = \"distinct_hosts\"\n value = \"true\"\n}";
    agent.run_where("edge", 2, apart, &firewall);
    eventually("one is on each host", || counts() == (1, 1));
    for platform in [&first, &second] {
        let name = platform.pids().into_keys().next().expect("it runs");
        let rules = platform.must_say(&["command", &name, "rules"]);
        assert!(rules.contains("allow icmp"), "{rules}");
    }

    // A service is at the address of its instance.
    let web = "task \"web\" {\n driver = \"nfluid\"\n\
         config {\n program = \"/bin/sleep\"\n args = [\"100000\"]\n tier = \"stack\"\n\
         ports = { eth0 = { kind = \"interface\", addresses = [\"10.3.0.9/24\"] } }\n}\n\
         service {\n provider = \"nomad\"\n name = \"edge-web\"\n address_mode = \"driver\"\n port = 80\n}\n\
         resources {\n cpu = 50\n memory = 32\n}\n}\n";
    agent.run("web", 1, web);
    eventually("the service is known", || {
        let found = agent.nomad.get("/v1/service/edge-web").unwrap_or_default();
        found[0]["Address"] == "10.3.0.9" && found[0]["Port"] == 80
    });
    agent.must(&["job", "stop", "-purge", "-detach", "web"]);
    eventually("it has ended", || counts() == (1, 1));

    // A client is lost: its instances go on there, and others take the places of those that can be elsewhere.
    let spread = "spread {\n attribute = \"${node.unique.name}\"\n}";
    agent.run_where("pair", 2, spread, &bridge("x", "[]", 16));
    eventually("they are spread", || counts() == (2, 2));
    let before = second.pids();
    beside.kill();
    eventually("one is taken over", || counts() == (3, 2));
    assert_eq!(second.pids(), before);

    // It is back: what runs elsewhere ends there, and what has to be there is there once.
    beside.start().expect("it starts");
    eventually("each runs once", || {
        let all = first.pids().len() + second.pids().len();
        all == 4 && agent.running("edge").len() == 2 && agent.running("pair").len() == 2
    });
    for job in ["edge", "pair"] {
        agent.must(&["job", "stop", "-purge", "-detach", job]);
    }
    eventually("nothing is left", || counts() == (0, 0));
    agent.must(&["system", "gc"]);
}

// promise: 24.6
#[test]
fn nomads_own_updates_keep_flows() {
    let test = "nomads_own_updates_keep_flows";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(UPLINKS);
    let Some(agent) = Agent::start(test, &platform) else {
        return;
    };
    let task = |memory: u32| {
        format!(
            "task \"fw\" {{\n driver = \"nfluid\"\n config {{\n name = \"fw-${{NOMAD_ALLOC_INDEX}}\"\n hand_over = \"5s\"\n nf = \"firewall\"\n\
             config {{\n rules = \"allow icmp from any to any keep-state\"\n}}\n\
             links = [[\"lan\", \".in\"], [\".out\", \"wan\"]]\n}}\nresources {{\n cpu = 50\n memory = {memory}\n}}\n}}\n"
        )
    };
    agent.run("edge", 1, &task(16));
    eventually("frames pass", || platform.pings("client", SERVER));
    for memory in [24_u32, 32] {
        let [before] = &agent.running("edge")[..] else {
            panic!("one allocation runs");
        };
        agent.run("edge", 1, &task(memory));
        eventually("a new allocation runs", || {
            let now = agent.running("edge");
            now.len() == 1 && now[0] != *before
        });
        let instance = platform.instance("fw-0");
        assert_eq!(instance["memory_limit_bytes"], u64::from(memory) << 20);
    }
    let events = platform.ask(&["events"]).to_string();
    assert_eq!(events.matches("entries of state taken over").count(), 2);
    assert!(!events.contains("; 0 entries"), "{events}");
    agent.must(&["job", "stop", "-purge", "-detach", "edge"]);
    eventually("nothing is left", || platform.pids().is_empty());
    agent.must(&["system", "gc"]);
}

// promise: 28.1
#[test]
fn nomads_own_jobs_are_asked_for_at_a_rate() {
    let test = "nomads_own_jobs_are_asked_for_at_a_rate";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    let Some(agent) = Agent::start(test, &platform) else {
        return;
    };
    let orchestra = |arguments: &[&str]| {
        let program = built("nfluid-orchestra", "nfluid-orchestra").expect("it was built");
        run_command(Command::new(program).args(arguments))
    };
    let at = |name: &str| agent.folder.join(name).display().to_string();
    let events = agent.nomad.follow_events().expect("they are told");
    let task = bridge("br", "[]", 16);
    let job = format!("job \"pushed\" {{\n group \"one\" {{\n{task}}}\n}}\n");
    fs::write(at("pushed.hcl"), job).expect("written");
    let template = agent.must(&["job", "run", "-output", &at("pushed.hcl")]);
    fs::write(at("pushed.json"), template).expect("written");
    let address = agent.nomad.address();
    let pushed = orchestra(&[
        "push",
        "--nomad",
        &address,
        "--load",
        "5x2s",
        "--template",
        &at("pushed.json"),
    ]);
    assert!(pushed.succeeded(), "{pushed:?}");
    eventually("ten run", || platform.pids().len() == 10);
    let told = platform.must_say(&["events", "-o", "json"]);
    fs::write(at("nfluid.json"), told).expect("written");
    let analyse = || {
        orchestra(&[
            "analyse",
            "--nomad-events",
            &events.display().to_string(),
            "--nfluid-events",
            &at("nfluid.json"),
            "--name",
            "pushed-",
        ])
    };
    eventually("Nomad knows that all run", || {
        analyse().stdout.contains("10 times")
    });
    let said = analyse().stdout;
    println!("{said}");
    for part in [
        "API",
        "evaluation, plan",
        "client poll",
        "folders",
        "nfluid",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}
