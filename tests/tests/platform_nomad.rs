//! Tasks of Nomad are instances. The agent is a double that speaks its protocol; `platform_nomad_agent.rs` has the real one.

#[path = "platform_nomad/agent.rs"]
mod agent;

use agent::Agent;
use nfluid_nomad::protocol::drivers::{
    InspectTaskRequest, TaskConfig, TaskEventsRequest, TaskHandle, TaskState, TaskStatsRequest,
};
use nfluid_testbed::process::signal;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::soak::choose;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const ALLOCATION: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
/// The instances of its tasks `fw` and `nat`.
const FW: &str = "fw-0b1c2d3e4f50";
const NAT: &str = "nat-0b1c2d3e4f50";

/// A bridge that is linked to nothing.
fn bridge() -> Value {
    json!({ "nf": "bridge" })
}

fn names(platform: &Platform) -> Vec<String> {
    let all = platform.ask(&["get", "instances"]);
    let all = all.as_array().expect("a list").iter();
    all.map(|instance| instance["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Starts a task that must run.
fn must_run(agent: &Agent, task: &TaskConfig) -> TaskHandle {
    agent.run(task).expect("it runs")
}

// promise: 24.1
#[test]
fn tasks_of_an_allocation_are_a_chain_of_instances() {
    let test = "tasks_of_an_allocation_are_a_chain_of_instances";
    let Some(mut platform) = two_hosts(test) else {
        return;
    };
    platform.apply(UPLINKS);
    let agent = Agent::start(&platform);
    let found = agent.fingerprint();
    for known in [
        "driver.nfluid",
        "driver.nfluid.nf.firewall",
        "driver.nfluid.tier.process",
    ] {
        assert!(
            found.attributes.contains_key(known),
            "no {known} in {found:?}"
        );
    }

    // The first of them waits for its link to the second.
    let firewall = json!({
        "nf": "firewall", "config": { "rules_file": "local/rules" }, "ports": { "in": {}, "out": {} },
        "links": [["lan", ".in"], [".out", "@nat.in"]]
    });
    let fw = agent.task(ALLOCATION, "fw", &firewall);
    fs::write(agent.local(&fw).join("rules"), "allow ip from any to any\n").expect("written");
    must_run(&agent, &fw);
    let start_nat = || {
        let nat = agent.task(
            ALLOCATION,
            "nat",
            &json!({ "nf": "bridge", "links": [[".out", "wan"]] }),
        );
        must_run(&agent, &nat);
        nat
    };
    let nat = start_nat();
    eventually("frames pass", || platform.pings("client", SERVER));

    // Nomad has decided about CPU and memory: a fortieth of two cores, 16 MiB.
    let instance = platform.instance(FW);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(instance["share_percent"], 2.5 * cpus as f64);
    assert_eq!(instance["memory_limit_bytes"], 16 << 20);
    assert_eq!(instance["owner"], format!("nomad:{}", fw.id));

    let (code, said) = agent.exec(&fw.id, &["rules"]);
    assert!(code == 0 && said.contains("allow"), "{said}");
    let (code, said) = agent.exec(&fw.id, &["no-such-command"]);
    assert!(code == 1 && said.contains("unknown command"), "{said}");
    eventually("its log is copied", || {
        agent.log(&fw).contains("running on 2 ports")
    });

    let (percent, memory) = agent.call(async |mut driver| {
        let request = TaskStatsRequest {
            task_id: fw.id.clone(),
            ..TaskStatsRequest::default()
        };
        let mut stats = driver
            .task_stats(request)
            .await
            .expect("a stream")
            .into_inner();
        let mut last = (0.0, 0);
        for _ in 0..3 {
            let next = stats.message().await.expect("an answer").expect("figures");
            let usage = next
                .stats
                .and_then(|stats| stats.agg_resource_usage)
                .expect("usage");
            last = (
                usage.cpu.expect("cpu").percent,
                usage.memory.expect("memory").rss,
            );
        }
        last
    });
    assert!(
        (0.0..=100.0 * cpus as f64).contains(&percent) && memory > 0,
        "{percent} {memory}"
    );
    let task_id = fw.id.clone();
    let inspected =
        agent.call(async |mut driver| driver.inspect_task(InspectTaskRequest { task_id }).await);
    let inspected = inspected.expect("an answer").into_inner();
    let attributes = inspected.driver.expect("attributes").attributes;
    let received: u64 = attributes[&format!("{FW}.in.rx_packets")]
        .parse()
        .expect("a number");
    assert!(received > 0 && inspected.task.expect("a task").state == i32::from(TaskState::Running));

    // A template has another text now: the same process has the new rules.
    let pid = platform.pids()[FW];
    fs::write(
        agent.local(&fw).join("rules"),
        "deny icmp from any to any\nallow ip from any to any\n",
    )
    .expect("written");
    agent.signal(&fw.id, "SIGHUP").expect("read again");
    assert!(!platform.pings("client", SERVER));
    assert_eq!(platform.pids()[FW], pid);
    let refused = agent.signal(&fw.id, "SIGUSR1").expect_err("another signal");
    assert!(refused.message().contains("SIGHUP"), "{refused}");
    fs::write(agent.local(&fw).join("rules"), "allow\n").expect("written");
    let refused = agent.signal(&fw.id, "SIGHUP").expect_err("no rules");
    assert!(refused.message().contains("config.config"), "{refused}");

    // The second of them starts anew, and is linked again.
    fs::write(agent.local(&fw).join("rules"), "allow ip from any to any\n").expect("written");
    agent.signal(&fw.id, "SIGHUP").expect("read again");
    agent.stop(&nat.id).expect("stopped");
    assert_eq!(
        agent
            .wait(&nat.id)
            .expect("an end")
            .result
            .expect("a result")
            .exit_code,
        0
    );
    agent.destroy(&nat.id, false).expect("forgotten");
    assert_eq!(names(&platform), [FW]);
    let nat = start_nat();
    eventually("frames pass", || platform.pings("client", SERVER));

    // What is Nomad's stays when an operator applies a document of his own.
    platform.apply(&format!(
        "{UPLINKS}instances: {{ own: {{ nf: bridge }} }}\n"
    ));
    assert_eq!(names(&platform), [FW, NAT, "own"]);
    assert!(platform.pings("client", SERVER));
    let taken = platform.try_apply(&format!(
        "{UPLINKS}instances: {{ {FW}: {{ nf: bridge }} }}\n"
    ));
    assert!(
        taken.stderr.contains("the instance exists and is 'nomad:"),
        "{taken:?}"
    );
    for id in [&fw.id, &nat.id] {
        agent.stop(id).expect("stopped");
        agent.stop(id).expect("stopped already");
        agent.destroy(id, false).expect("forgotten");
    }
    assert_eq!(names(&platform), ["own"]);
    assert!(agent.end(), "it ends when it is asked to");
    assert!(platform.is_up());
}

// promise: 24.2
#[test]
fn an_end_is_told_with_its_reason() {
    let Some(platform) = Platform::new("an_end_is_told_with_its_reason") else {
        return;
    };
    let agent = Agent::start(&platform);
    let mut events = agent.call(async |mut driver| {
        let events = driver.task_events(TaskEventsRequest {}).await;
        events.expect("a stream").into_inner()
    });
    let ends: [(&str, &dyn Fn(), i32, &str); 3] = [
        (
            "killed",
            &|| signal(platform.pids()[FW], Signal::KILL),
            9,
            "",
        ),
        (
            "removed",
            &|| drop(platform.must_say(&["delete", "instance", FW])),
            0,
            "somebody has removed",
        ),
        (
            "started again",
            &|| drop(platform.must_say(&["restart", FW])),
            0,
            "started again",
        ),
    ];
    for (what, end, by_signal, why) in ends {
        let task = agent.task(ALLOCATION, "fw", &bridge());
        must_run(&agent, &task);
        agent.destroy(&task.id, false).expect_err("it runs");
        end();
        let ended = agent.wait(&task.id).expect("an end");
        let result = ended.result.expect("a result");
        assert!(
            result.signal == by_signal && ended.err.contains(why),
            "{what}: {ended:?} {result:?}"
        );
        assert!(
            result.signal != 0 || result.exit_code != 0,
            "{what} is no success: {result:?}"
        );
        agent.destroy(&task.id, false).expect("forgotten");
        assert_eq!(names(&platform), Vec::<String>::new(), "{what}");
        agent.wait(&task.id).expect_err("it is not known any more");
    }
    let told = agent
        .call(async |_| events.message().await)
        .expect("an answer")
        .expect("an event");
    assert!(
        told.message.starts_with("crashed: killed by signal 9") && told.task_name == "fw",
        "{told:?}"
    );
}

// promise: 24.3
#[test]
fn whoever_dies_the_task_is_found_again() {
    let Some(mut platform) = Platform::new("whoever_dies_the_task_is_found_again") else {
        return;
    };
    let agent = Agent::start(&platform);
    let handles =
        ["fw", "nat"].map(|name| must_run(&agent, &agent.task(ALLOCATION, name, &bridge())));
    let [fw, nat] = handles
        .clone()
        .map(|handle| handle.config.expect("a task").id);
    let pids = platform.pids();
    let runs = |agent: &Agent, platform: &Platform| {
        assert_eq!(platform.pids(), pids);
        let task_id = fw.clone();
        let found = agent
            .call(async |mut driver| driver.inspect_task(InspectTaskRequest { task_id }).await);
        let task = found.expect("an answer").into_inner().task.expect("a task");
        assert_eq!(task.state, i32::from(TaskState::Running));
    };

    // The driver dies, and gets its tasks back; twice.
    agent.kill();
    let agent = Agent::start(&platform);
    agent.stop(&fw).expect_err("not known yet");
    for handle in handles.iter().chain(&handles) {
        agent.recover(handle).expect("recovered");
    }
    runs(&agent, &platform);

    // The daemon dies. Nomad is told that the host takes no tasks, and the tasks stay.
    platform.kill_daemon();
    eventually("it is told", || {
        agent.fingerprint().health_description.contains("daemon")
    });
    platform.start();
    eventually("it is told", || {
        agent.fingerprint().health_description == "Healthy"
    });
    runs(&agent, &platform);

    // Both die, and one of the instances. The driver is there first.
    agent.kill();
    platform.kill_daemon();
    signal(pids[NAT], Signal::KILL);
    let agent = Agent::start(&platform);
    for handle in &handles {
        agent.recover(handle).expect("the daemon is asked later");
    }
    platform.start();
    let ended = agent.wait(&nat).expect("an end");
    assert!(ended.err.contains("started again"), "{ended:?}");
    agent.destroy(&nat, false).expect("forgotten");
    assert_eq!(names(&platform), [FW]);
    assert_eq!(platform.pids()[FW], pids[FW]);

    // While no driver runs, an instance is started again: it is not taken for the first one, and does not stay.
    agent.kill();
    platform.must_say(&["restart", FW]);
    let agent = Agent::start(&platform);
    let [first, second] = &handles;
    let refused = agent.recover(first).expect_err("it is another one");
    assert!(refused.message().contains("started again"), "{refused}");
    agent.recover(second).expect_err("it is gone");
    assert_eq!(names(&platform), Vec::<String>::new());

    // A start that nobody knows any more gives way to the next start of the same task.
    must_run(&agent, &agent.task(ALLOCATION, "fw", &bridge()));
    agent.kill();
    let agent = Agent::start(&platform);
    let task = agent.task(ALLOCATION, "fw", &bridge());
    must_run(&agent, &task);
    assert_eq!(names(&platform), [FW]);
    agent.destroy(&task.id, true).expect("ended");
    assert_eq!(names(&platform), Vec::<String>::new());
}

// promise: 24.3
#[test]
fn a_task_that_the_hosts_chain_goes_through_starts_again_in_its_place() {
    let test = "a_task_that_the_hosts_chain_goes_through_starts_again_in_its_place";
    let Some(platform) = two_hosts(test) else {
        return;
    };
    platform.apply(UPLINKS);
    let agent = Agent::start(&platform);
    let named = json!({ "nf": "bridge", "name": "middle" });
    let start = || {
        let task = agent.task(ALLOCATION, "fw", &named);
        must_run(&agent, &task);
        task.id
    };
    let first = start();
    platform.apply(&format!(
        "{UPLINKS}chains: {{ web: {{ from: lan, to: wan, via: [middle] }} }}\n"
    ));
    assert!(platform.pings("client", SERVER));
    let refused = agent.stop(&first).expect_err("a chain goes through it");
    assert!(refused.message().contains("web"), "{refused}");
    assert!(platform.pings("client", SERVER));

    signal(platform.pids()["middle"], Signal::KILL);
    assert_eq!(
        agent
            .wait(&first)
            .expect("an end")
            .result
            .expect("a result")
            .signal,
        9
    );
    agent.destroy(&first, false).expect("forgotten");
    let second = start();
    eventually("frames pass", || platform.pings("client", SERVER));
    platform.must_say(&["delete", "chain", "web"]);
    agent.stop(&second).expect("stopped");
    assert_eq!(names(&platform), Vec::<String>::new());
}

// promise: 24.4
#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let Some(platform) = Platform::new("what_cannot_be_is_refused_and_leaves_nothing") else {
        return;
    };
    platform.apply("version: 1\ninstances: { own: { nf: bridge } }\n");
    let agent = Agent::start(&platform);
    let long = "x".repeat(300 << 10);
    let wrong = [
        (json!({ "nf": "no-such" }), "config.nf"),
        (json!({ "nf": "bridge", "share": "900%" }), "config.share"),
        (json!({ "nf": "bridge", "memory": "much" }), "config.memory"),
        (
            json!({ "nf": "bridge", "links": [[".in", "no-uplink"]] }),
            "no-uplink",
        ),
        (json!({ "nf": "bridge", "links": [["in"]] }), "two ends"),
        (
            json!({ "nf": "bridge", "links": [[".no-port", "own.in"]] }),
            "no-port",
        ),
        (
            json!({ "nf": "bridge", "name": "own" }),
            "the instance exists",
        ),
        (json!({ "nf": "bridge", "name": "../own" }), "is not a name"),
        (
            json!({ "nf": "firewall", "config": { "rules_file": "/etc/shadow" } }),
            "rules_file",
        ),
        (
            json!({ "nf": "firewall", "config": { "rules_file": "local/out" } }),
            "rules_file",
        ),
        (
            json!({ "nf": "firewall", "config": { "rules_file": "local/none" } }),
            "rules_file",
        ),
        (
            json!({ "program": "/bin/true", "tier": "stack", "volumes": ["/etc"] }),
            "host_volumes",
        ),
        (json!({ "program": "local/../../../x" }), "leads out"),
        (json!({ "nf": "bridge", "frames": long }), "config.frames"),
        (
            json!({ "nf": "bridge", "tier": "xdp", "interface": "no-such" }),
            "",
        ),
        (json!({}), "config"),
    ];
    for (config, why) in wrong {
        let task = agent.task(ALLOCATION, "fw", &config);
        let local = agent.local(&task);
        if !local.join("out").exists() {
            std::os::unix::fs::symlink("/etc/hostname", local.join("out")).expect("a link");
        }
        let refused = agent.run(&task).expect_err("it cannot be");
        let told = refused.message();
        assert!(told.contains(why) && told.len() < 10_000, "{why}: {told}");
        agent.wait(&task.id).expect_err("it is no task");
    }
    // Bytes of somebody else.
    for bytes in [
        vec![],
        vec![0xc1],
        vec![0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0x91; 100_000],
    ] {
        let task = TaskConfig {
            msgpack_driver_config: bytes,
            ..agent.task(ALLOCATION, "fw", &bridge())
        };
        agent.run(&task).expect_err("no configuration");
    }
    agent.run(&TaskConfig::default()).expect_err("no task");
    agent
        .recover(&TaskHandle::default())
        .expect_err("no handle");

    let task = agent.task(ALLOCATION, "fw", &bridge());
    let handle = must_run(&agent, &task);
    agent.run(&task).expect_err("it runs already");
    let other = agent.task(
        "ffffffff-4f50-6172-8394-a5b6c7d8e9f0",
        "fw",
        &json!({ "nf": "bridge", "name": FW }),
    );
    let refused = agent.run(&other).expect_err("the name is taken");
    assert!(
        refused.message().contains("the instance exists"),
        "{refused}"
    );
    let of_later = TaskHandle {
        version: 2,
        ..handle
    };
    agent.recover(&of_later).expect_err("another version");
    for id in ["", "no-such", &other.id] {
        agent.stop(id).expect_err("no task");
        agent.destroy(id, true).expect_err("no task");
        agent.signal(id, "SIGHUP").expect_err("no task");
    }
    assert_eq!(names(&platform), [FW, "own"]);
    agent.stop(&task.id).expect("stopped");
    assert_eq!(names(&platform), ["own"]);
}

/// Tasks start and end at full rate, in parallel, while daemon and driver are killed.
// promise: 24.3
#[test]
fn nothing_is_left_or_doubled_whoever_is_killed() {
    let Some(mut platform) = Platform::new("nothing_is_left_or_doubled_whoever_is_killed") else {
        return;
    };
    for round in 0..3 {
        let agent = Agent::start(&platform);
        std::thread::scope(|scope| {
            for lane in 0..4 {
                let agent = &agent;
                scope.spawn(move || {
                    let allocation = format!("{lane}{round}1c2d3e-4f50-6172-8394-a5b6c7d8e9f0");
                    for _ in 0..6 {
                        let task = agent.task(&allocation, "fw", &bridge());
                        // The daemon may be away: Nomad tries again.
                        if agent.run(&task).is_ok() {
                            agent.stop(&task.id).expect("stopped");
                            agent.destroy(&task.id, true).expect("forgotten");
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(60));
            platform.kill_daemon();
            platform.start();
        });
        // Starts whose answer was lost: the next start of each task cleans up.
        for lane in 0..4 {
            let allocation = format!("{lane}{round}1c2d3e-4f50-6172-8394-a5b6c7d8e9f0");
            let task = agent.task(&allocation, "fw", &bridge());
            must_run(&agent, &task);
            agent.stop(&task.id).expect("stopped");
        }
        assert_eq!(names(&platform), Vec::<String>::new());
        agent.kill();
    }
    eventually("nothing runs", || platform.instance_processes().is_empty());
}

/// A firewall between the uplinks that a successor can take over.
fn heir(agent: &Agent, allocation: &str, job: &str, keys: &Value) -> TaskConfig {
    let mut config = json!({
        "name": "fw-0", "nf": "firewall", "config": { "rules": "allow icmp from any to any keep-state" },
        "ports": { "in": {}, "out": {} }, "links": [["lan", ".in"], [".out", "wan"]]
    });
    let more = keys.as_object().expect("keys").clone();
    config.as_object_mut().expect("keys").extend(more);
    TaskConfig {
        job_id: job.to_owned(),
        ..agent.task(allocation, "fw", &config)
    }
}

/// Returns how often the instance has gone on in a successor's task, with its flows.
fn successions(platform: &Platform) -> usize {
    let all = platform.ask(&["events"]);
    let all = all.as_array().expect("a list").iter();
    let with_flows = |event: &&Value| {
        let message = event["message"].as_str().unwrap_or_default();
        message.contains("taken over") && !message.contains("; 0 entries")
    };
    let about = all.filter(|event| event["name"] == "fw-0" && event["kind"] == "replaced");
    about.filter(with_flows).count()
}

// promise: 24.6
#[test]
fn an_update_keeps_the_instance() {
    let Some(platform) = two_hosts("an_update_keeps_the_instance") else {
        return;
    };
    platform.apply(UPLINKS);
    let agent = Agent::start(&platform);
    let patient = json!({ "hand_over": "60s" });
    let first = heir(&agent, "1111", "edge", &patient);
    must_run(&agent, &first);
    eventually("frames pass", || platform.pings("client", SERVER));

    // Nomad believes that the task has ended. Its instance goes on.
    agent.stop(&first.id).expect("it is stopped");
    let end = agent.wait(&first.id).expect("it has ended");
    assert_eq!(
        (end.result.expect("an end").exit_code, end.err.as_str()),
        (0, "")
    );
    agent.destroy(&first.id, false).expect("it has ended");
    assert!(platform.pings("client", SERVER));

    // Others do not get it: another job, whatever it says.
    for keys in [&patient, &json!({})] {
        let other = heir(&agent, "4444", "other", keys);
        let refused = agent.run(&other).expect_err("it is taken");
        assert!(refused.message().contains("exists"), "{refused}");
    }

    // The successor has other rules and more memory.
    let more = json!({ "hand_over": "60s", "memory": "24MiB", "config": { "rules": "allow icmp from any to any keep-state\nallow tcp from any to any 80" } });
    let second = heir(&agent, "2222", "edge", &more);
    must_run(&agent, &second);
    let instance = platform.instance("fw-0");
    assert_eq!(instance["owner"], format!("nomad:{}", second.id));
    assert_eq!(instance["memory_limit_bytes"], 24 << 20);
    assert_eq!(successions(&platform), 1);
    assert!(platform.pings("client", SERVER));

    // One that nobody gives way to.
    let early = heir(&agent, "5555", "edge", &patient);
    let refused = agent.run(&early).expect_err("the other one runs");
    assert!(refused.message().contains("exists"), "{refused}");

    // The driver is killed in between: what it has left is found.
    agent.stop(&second.id).expect("it is stopped");
    agent.kill();
    let agent = Agent::start(&platform);
    let third = heir(&agent, "3333", "edge", &json!({ "hand_over": "100ms" }));
    must_run(&agent, &third);
    assert_eq!(successions(&platform), 2);

    // Nobody comes.
    agent.stop(&third.id).expect("it is stopped");
    eventually("it ends", || names(&platform).is_empty());

    // The job does not hand over any more.
    let fourth = heir(&agent, "6666", "edge", &patient);
    must_run(&agent, &fourth);
    agent.stop(&fourth.id).expect("it is stopped");
    let fifth = heir(&agent, "7777", "edge", &json!({}));
    must_run(&agent, &fifth);
    assert_eq!(successions(&platform), 2, "it is a new one");
    agent.stop(&fifth.id).expect("it is stopped");
    assert!(names(&platform).is_empty());

    // The driver ends, and takes along what waits.
    let sixth = heir(&agent, "8888", "edge", &patient);
    must_run(&agent, &sixth);
    agent.stop(&sixth.id).expect("it is stopped");
    assert!(agent.end());
    eventually("it ends", || names(&platform).is_empty());

    let agent = Agent::start(&platform);
    let nameless = agent.task("9999", "fw", &json!({ "nf": "bridge", "hand_over": "1s" }));
    let refused = agent.run(&nameless).expect_err("it has no name");
    assert!(refused.message().contains("config.hand_over"), "{refused}");
    let never = heir(&agent, "9999", "edge", &json!({ "hand_over": "2h" }));
    let refused = agent.run(&never).expect_err("too long");
    assert!(refused.message().contains("2h"), "{refused}");
}

// promise: 24.6
#[test]
fn a_successor_that_comes_at_the_last_moment_runs() {
    let Some(platform) = two_hosts("a_successor_that_comes_at_the_last_moment_runs") else {
        return;
    };
    platform.apply(UPLINKS);
    let agent = Agent::start(&platform);
    let keys = json!({ "hand_over": "50ms" });
    let mut last = heir(&agent, "a0", "edge", &keys);
    must_run(&agent, &last);
    for turn in 1..=choose(30_u64, 400) {
        let next = heir(&agent, &format!("a{turn}"), "edge", &keys);
        agent.stop(&last.id).expect("it is stopped");
        std::thread::sleep(Duration::from_millis(35 + turn % 30));
        must_run(&agent, &next);
        let instance = platform.instance("fw-0");
        assert_eq!(
            instance["owner"],
            format!("nomad:{}", next.id),
            "turn {turn}"
        );
        agent.destroy(&last.id, false).expect("it has ended");
        last = next;
    }
    let events = platform.events_of("fw-0");
    let replaced = events.iter().filter(|it| *it == "replaced").count();
    println!("taken over: {replaced}");
    agent.stop(&last.id).expect("it is stopped");
    eventually("it ends", || names(&platform).is_empty());
}
