//! OpenVIM's interface over real daemons: traffic through servers, and a manager that is killed.

use nfluid_testbed::openvim::{OpenVim, Tenant};
use nfluid_testbed::program::find_built;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::remote::Remote;
use nfluid_tests::harness::two_daemons::{TwoDaemons, WIRE};
use nfluid_tests::harness::two_hosts::SERVER;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Starts a manager with its database in `folder`.
fn manager(folder: &Path, arguments: Vec<String>) -> OpenVim {
    let program = find_built("nfluid-openvim").expect("it was built");
    let mut manager = OpenVim::new(program, folder, arguments).expect("ports are free");
    manager.start().expect("it serves");
    manager
}

/// Counts the objects of a kind.
fn count(platform: &Platform, kind: &str) -> usize {
    let all = platform.ask(&["get", kind]);
    all.as_array().expect("a list").len()
}

/// Makes a tenant.
fn tenant(manager: &OpenVim) -> Tenant {
    Tenant::new(manager, "5%").expect("it is made")
}

/// Makes a server, which is active, and returns its path.
fn made(manager: &OpenVim, tenant: &Tenant, server: &Value) -> String {
    let answer = manager.must("POST", &tenant.servers, server);
    let answer = answer.expect("it is made");
    assert_eq!(answer["server"]["status"], "ACTIVE", "{answer}");
    let id = answer["server"]["id"].as_str().expect("an id");
    format!("{}/{id}", tenant.servers)
}

fn status(manager: &OpenVim, server: &str) -> Value {
    let answer = manager.must("GET", server, &Value::Null);
    answer.expect("it is there")["server"]["status"].take()
}

fn act(manager: &OpenVim, server: &str, action: &str) {
    let path = format!("{server}/action");
    let done = manager.must("POST", &path, &json!({ action: null }));
    done.unwrap_or_else(|why| panic!("{action}: {why:#}"));
}

fn delete(manager: &OpenVim, path: &str) {
    let done = manager.must("DELETE", path, &Value::Null);
    done.unwrap_or_else(|why| panic!("{why:#}"));
}

/// A platform between two hosts, whose daemon is where the interfaces to them are, `eth1` and `eth2`, and a manager that knows it.
fn edge(test: &str) -> Option<(OpenVim, Platform)> {
    let mut platform = Platform::at_rest(test)?;
    platform.run_at_edge();
    platform.host("eth1", "10.0.0.1/24");
    platform.host("eth2", "10.0.0.2/24");
    platform.start();
    let openvim = manager(platform.directory(), Vec::new());
    let host = json!({ "name": "here", "ip_name": platform.socket(), "user": "nobody" });
    openvim.make("hosts", "host", host).expect("a host");
    Some((openvim, platform))
}

/// Makes a network on each of the two interfaces.
fn networks(openvim: &OpenVim) -> [String; 2] {
    ["eth1", "eth2"].map(|interface| {
        let [network, _port] = openvim.network_on(interface).expect("a network");
        network
    })
}

/// Returns true if a ping crosses the platform.
fn crosses(platform: &Platform) -> bool {
    platform.pings("eth1", "10.0.0.2")
}

// promise: 32.9
#[test]
fn traffic_goes_through_a_server_as_long_as_it_is_active() {
    let test = "traffic_goes_through_a_server_as_long_as_it_is_active";
    let Some((mut openvim, platform)) = edge(test) else {
        return;
    };
    let networks = networks(&openvim);
    let tenant = tenant(&openvim);
    let server = tenant.server("fw", &[&networks[0], &networks[1]]);
    let server = made(&openvim, &tenant, &server);
    eventually("the first echo comes", || crosses(&platform));

    act(&openvim, &server, "pause");
    assert_eq!(status(&openvim, &server), "PAUSED");
    assert!(!crosses(&platform));
    act(&openvim, &server, "resume");
    assert_eq!(status(&openvim, &server), "ACTIVE");
    eventually("it goes on", || crosses(&platform));
    let pids = platform.pids();
    act(&openvim, &server, "reboot");
    eventually("another process", || {
        let now = platform.pids();
        now.len() == 1 && now != pids
    });
    eventually("it is active", || status(&openvim, &server) == "ACTIVE");
    for off in ["shutoff", "forceOff"] {
        act(&openvim, &server, off);
        assert_eq!(status(&openvim, &server), "INACTIVE");
        assert!(!crosses(&platform));
        act(&openvim, &server, "start");
        eventually("it is back", || crosses(&platform));
    }
    let down = json!({ "network": { "admin_state_up": false } });
    let up = json!({ "network": { "admin_state_up": true } });
    let network = format!("networks/{}", networks[1]);
    openvim.must("PUT", &network, &down).expect("it is changed");
    assert!(!crosses(&platform));
    openvim.must("PUT", &network, &up).expect("it is changed");
    eventually("it is up again", || crosses(&platform));

    // The manager's end is nothing to its servers.
    let pids = platform.pids();
    openvim.kill();
    assert!(crosses(&platform));
    openvim.start().expect("it serves again");
    assert_eq!(platform.pids(), pids);
    assert_eq!(status(&openvim, &server), "ACTIVE");
    delete(&openvim, &server);
    let ports = openvim.must("GET", "ports", &Value::Null).expect("a list");
    for port in ports["ports"].as_array().expect("ports") {
        let path = format!("ports/{}", port["id"].as_str().expect("an id"));
        delete(&openvim, &path);
    }
    for kind in ["instances", "uplinks", "switches"] {
        assert_eq!(count(&platform, kind), 0, "{kind}");
    }
}

// promise: 32.11
#[test]
fn an_image_of_a_server_has_its_state() {
    let Some((openvim, platform)) = edge("an_image_of_a_server_has_its_state") else {
        return;
    };
    let [lan, wan] = networks(&openvim);
    let tenant = tenant(&openvim);
    let rules = "allow icmp from any to any keep-state";
    let config = json!({ "rules": rules, "states": { "timeouts": { "icmp": 3600 } } });
    let firewall = json!({ "name": "fw", "path": "/nf/firewall", "metadata": { "nfluid": { "config": config } } });
    let firewall = openvim.make(&tenant.images, "image", firewall);
    let mut server = tenant.server("fw", &[&lan, &wan]);
    server["server"]["imageRef"] = firewall.expect("an image").into();
    let states = || {
        let name = platform.pids().into_keys().next().expect("an instance");
        let said = platform.must_say(&["command", &name, "states"]);
        said.contains("10.0.0.1")
    };
    let first = made(&openvim, &tenant, &server);
    eventually("a ping crosses", || crosses(&platform));
    assert!(states());
    let action = json!({ "createImage": { "name": "with states" } });
    let answer = openvim
        .must("POST", &format!("{first}/action"), &action)
        .expect("an image");
    let image = answer["image"]["id"].as_str().expect("an id").to_owned();
    delete(&openvim, &first);

    let empty = made(&openvim, &tenant, &server);
    assert!(!states(), "a server of the program alone knows nothing");
    delete(&openvim, &empty);
    server["server"]["imageRef"] = image.as_str().into();
    let second = made(&openvim, &tenant, &server);
    assert!(states());
    eventually("a ping crosses", || crosses(&platform));
    let path = format!("{}/{image}", tenant.images);
    let (status, _) = openvim
        .ask("DELETE", &path, &Value::Null)
        .expect("an answer");
    assert_eq!(status, 409, "it is used");
    delete(&openvim, &second);
    delete(&openvim, &path);
}

// promise: 32.13
#[test]
fn traffic_crosses_a_network_of_two_hosts() {
    let Some(TwoDaemons { a, b }) = TwoDaemons::wired("traffic_crosses_a_network_of_two_hosts")
    else {
        return;
    };
    let openvim = manager(a.directory(), Vec::new());
    let make = |path: &str, word: &str, object: Value| {
        openvim.make(path, word, object).expect("it is made")
    };
    let tenant = tenant(&openvim);
    let between = make(
        "networks",
        "network",
        json!({ "name": "between", "type": "ptp" }),
    );
    let sides = [("a", &a, "client"), ("b", &b, "server")];
    let mut paths = Vec::new();
    for ((name, platform, interface), address) in sides.into_iter().zip(WIRE[0]) {
        let host = json!({ "name": name, "ip_name": platform.socket(), "user": "nobody", "tunnel_address": address });
        let host = make("hosts", "host", host);
        let own = openvim.network_on(&format!("{name}:{interface}"));
        let [network, port] = own.expect("a network");
        let mut server = tenant.server(name, &[&network, &between]);
        server["server"]["hostId"] = host.into();
        let server = made(&openvim, &tenant, &server);
        paths.extend([server, format!("ports/{port}")]);
    }
    eventually("a ping crosses both", || a.pings("client", SERVER));
    for path in paths {
        delete(&openvim, &path);
    }
    for platform in [&a, &b] {
        for kind in ["instances", "uplinks", "switches"] {
            assert_eq!(count(platform, kind), 0, "{kind}");
        }
    }
}

// promise: 32.12
#[test]
fn the_commands_of_the_guide_work() {
    let Some((openvim, platform)) = edge("the_commands_of_the_guide_work") else {
        return;
    };
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/openvim.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, section) = guide
        .split_once("## A firewall between two interfaces")
        .expect("the section");
    let (_, block) = section.split_once("```sh\n").expect("its commands");
    let (commands, _) = block.split_once("```").expect("their end");
    let script = format!("vim={}\n{commands}", openvim.administrators());
    let done = Command::new("sh")
        .args(["-ec", &script])
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(said.contains("\"status\": \"ACTIVE\""), "{said}");
    eventually("a ping crosses", || crosses(&platform));
}

// Catches: a server that is made, changed or removed when the manager is killed is doubled or forgotten.
// promise: 32.10
#[test]
fn a_manager_that_is_killed_at_any_time_loses_and_doubles_nothing() {
    let test = "a_manager_that_is_killed_at_any_time_loses_and_doubles_nothing";
    let Some(remote) = Remote::started(test) else {
        return;
    };
    let files = remote.files("ops");
    let path = |path: &Path| path.display().to_string();
    let arguments = [
        ("--cert", path(&files.certificate)),
        ("--key", path(&files.key)),
        ("--ca", path(&files.authority)),
    ];
    let arguments = arguments
        .into_iter()
        .flat_map(|(option, file)| [option.to_owned(), file]);
    let folder = remote.platform.directory().to_owned();
    let mut openvim = manager(&folder, arguments.collect());
    let host = json!({ "name": "far", "ip_name": remote.address, "user": "nobody" });
    openvim.make("hosts", "host", host).expect("a host");
    let network = json!({ "name": "n", "shared": true });
    let network = openvim
        .make("networks", "network", network)
        .expect("a network");
    let (servers, server) = {
        let tenant = tenant(&openvim);
        (tenant.servers.clone(), tenant.server("s", &[&network]))
    };
    for turn in 0..24 {
        // Each turn is cut off a little later.
        let pause = Duration::from_millis(turn);
        thread::scope(|scope| {
            let asking = &openvim;
            let (servers, server) = (&servers, &server);
            let asked = scope.spawn(move || {
                let made = asking.must("POST", servers, server).ok()?;
                let id = made["server"]["id"].as_str()?.to_owned();
                let path = format!("{servers}/{id}");
                let off = json!({ "shutoff": null });
                asking.must("POST", &format!("{path}/action"), &off).ok()?;
                asking.must("DELETE", &path, &Value::Null).ok()
            });
            thread::sleep(pause);
            openvim.crash();
            let _cut_off = asked.join().expect("no panic");
        });
        openvim.kill();
        openvim.start().expect("it serves again");
    }
    // What it was asked for, and has written down, it finishes.
    let known = || {
        let all = openvim.must("GET", &servers, &Value::Null).expect("a list");
        all["servers"].as_array().expect("a list").clone()
    };
    eventually("nothing is in between", || {
        known()
            .iter()
            .all(|it| it["status"] == "ACTIVE" || it["status"] == "INACTIVE")
    });
    let active = known().iter().filter(|it| it["status"] == "ACTIVE").count();
    assert_eq!(count(&remote.platform, "instances"), active);
    for server in known() {
        let path = format!("{servers}/{}", server["id"].as_str().expect("an id"));
        delete(&openvim, &path);
    }
    assert_eq!(count(&remote.platform, "instances"), 0);
    delete(&openvim, &format!("networks/{network}"));
    assert_eq!(count(&remote.platform, "switches"), 0);
}
