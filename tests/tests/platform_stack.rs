//! Programs of the host that run unchanged on a network stack of their own, beside and between network functions.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::must;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";
const CLIENT6: &str = "2001:db8::1";
const SERVER6: &str = "2001:db8::2";

/// A host, a platform, and a directory that everyone may read; `None`: the test is skipped.
fn host(test: &str) -> Option<(Platform, PathBuf)> {
    let (mut platform, folder) = host_of(test)?;
    platform.start();
    Some((platform, folder))
}

/// The same; the platform is not started.
fn host_of(test: &str) -> Option<(Platform, PathBuf)> {
    if !Path::new("/usr/sbin/nginx").is_file() {
        skip(test, "it needs nginx");
        return None;
    }
    let mut platform = Platform::at_rest(test)?;
    platform.host("client", &format!("{CLIENT}/24"));
    for line in [
        "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0".to_owned(),
        format!("ip address add {CLIENT6}/64 dev eth0 nodad"),
    ] {
        let done = platform.on("client", &line);
        assert!(done.succeeded(), "{done:?}");
    }
    let folder = platform.directory().join("srv");
    for path in [platform.directory(), &folder] {
        fs::create_dir_all(path).expect("a folder");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("readable");
    }
    fs::write(
        folder.join("nginx.conf"),
        format!(
            "daemon off; error_log stderr; pid /run/nginx.pid; worker_processes 2; events {{ }}
             http {{
               access_log off; sendfile on;
               client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;
               uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
               server {{ listen 80; listen [::]:80; root {}; }}
             }}",
            folder.display()
        ),
    )
    .expect("written");
    Some((platform, folder))
}

/// nginx behind a firewall, with these keys.
fn nginx(folder: &Path, keys: &str) -> String {
    let folder = folder.display();
    format!(
        "
version: 1
uplinks:
  lan: {{ interface: client, netns: EDGE }}
instances:
  fw: {{ nf: firewall, config: {{ rules: ['allow tcp from any to any keep-state', 'allow icmp from any to any', 'allow ipv6-icmp from any to any'] }} }}
  web:
    program: /usr/sbin/nginx
    args: [-c, {folder}/nginx.conf]
    memory: 128MiB
    volumes: [{folder}]
    capabilities: [NET_BIND_SERVICE]
    ports: {{ eth0: {{ kind: interface, addresses: [{SERVER}/24, '{SERVER6}/64'] }} }}
    {keys}
chains:
  way: {{ from: lan, to: web.eth0, via: [fw] }}
"
    )
}

/// The first process of nginx.
fn main_process(platform: &Platform) -> u32 {
    let known: Vec<u32> = platform.pids().into_values().collect();
    let mut others = platform
        .instance_processes()
        .into_iter()
        .filter(|pid| !known.contains(pid));
    others
        .find(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("master")
        })
        .expect("nginx")
}

/// What its port has sent.
#[derive(Clone, Copy, PartialEq)]
struct Sent {
    frames: u64,
    segments: u64,
}

/// Returns what its port has sent once nothing more follows: the counters are read one after the other, and an end of a connection may be on its
/// way.
fn sent(platform: &Platform) -> Sent {
    let of = |name: &str| {
        let found = platform.port_counter(name, "web.eth0");
        found.unwrap_or_else(|| panic!("web.eth0 has no {name}"))
    };
    let read = || Sent {
        frames: of("tx_packets"),
        segments: of("tx_segments"),
    };
    let mut last = read();
    eventually("nothing more is sent", || {
        let before = std::mem::replace(&mut last, read());
        before == last
    });
    last
}

fn gets(platform: &Platform, url: &str) -> bool {
    let get = format!("curl --silent --fail --max-time 20 --output /dev/null {url}");
    platform.on("client", &get).succeeded()
}

// promise: 19.1
#[test]
fn nginx_serves_from_an_instance() {
    let test = "nginx_serves_from_an_instance";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    let mut text = String::new();
    for line in 0..200_000 {
        writeln!(text, "line {line} of a long file").expect("text");
    }
    fs::write(folder.join("long"), &text).expect("written");
    platform.apply(&nginx(&folder, ""));
    let long = format!("http://{SERVER}/long");
    eventually("nginx answers", || gets(&platform, &long));
    let both = [long.clone(), format!("http://[{SERVER6}]/long")];
    for url in &both {
        let got = platform.directory().join("got");
        let get = format!(
            "curl --globoff --silent --fail --output {} {url}",
            got.display()
        );
        assert!(
            platform.on("client", &get).succeeded(),
            "{url}: {}",
            platform.log("web")
        );
        assert!(
            fs::read_to_string(&got).expect("a file") == text,
            "{url}: another file"
        );
    }
    let counters = platform.page("/metrics");
    assert!(counters.contains("server_frames_in_total"), "{counters}");
    assert_eq!(platform.instance("web")["tier"], "stack");

    // What it sends crosses whole, until somebody on the way takes plain frames alone.
    eventually("super-frames leave", || {
        let before = sent(&platform);
        gets(&platform, &long);
        let now = sent(&platform);
        now.segments - before.segments > 2 * (now.frames - before.frames)
    });
    let plain = nginx(&folder, "").replace("{ nf: firewall,", "{ nf: firewall, frames: plain,");
    for deployment in [&plain, &nginx(&folder, "")] {
        platform.apply(deployment);
        let before = sent(&platform);
        assert!(gets(&platform, &long));
        let now = sent(&platform);
        if *deployment == plain {
            assert_eq!(now.segments - before.segments, now.frames - before.frames);
        }
        let counters = platform.page("/metrics");
        let unfit = counters
            .lines()
            .find(|line| line.contains("no_offload") && !line.ends_with(" 0"));
        assert_eq!(unfit, None, "frames that nobody takes");
    }

    // It is held, and outlives the daemon.
    platform.must_say(&["pause", "web"]);
    let quick = format!("curl --silent --max-time 1 --output /dev/null {long}");
    assert!(!platform.on("client", &quick).succeeded());
    platform.must_say(&["unpause", "web"]);
    assert!(gets(&platform, &long));
    let before = platform.instance_processes();
    platform.kill_daemon();
    platform.start();
    assert_eq!(platform.instance_processes(), before);
    assert!(gets(&platform, &long));

    // Whichever process ends, all of them are started again.
    let monitor = platform.pids()["web"];
    let master = main_process(&platform);
    for which in ["monitor", "program"] {
        let before = platform.instance_processes();
        signal(
            if which == "monitor" {
                monitor
            } else {
                main_process(&platform)
            },
            Signal::KILL,
        );
        eventually("all are others", || {
            let now = platform.instance_processes();
            let same = now.iter().filter(|pid| before.contains(pid)).count();
            same == 1 && now.len() == before.len()
        });
        eventually("nginx answers again", || gets(&platform, &long));
    }
    assert!(!platform.instance_processes().contains(&master));
    platform.must_say(&["delete", "--all"]);
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}

/// Ends of veths in the namespace of the daemon.
fn outer_ends(platform: &Platform) -> usize {
    let links = format!("ip -n {} -br link", platform.edge());
    let links = must(&links);
    links.lines().filter(|link| link.starts_with("nfl")).count()
}

// promise: 19.6
#[test]
fn requests_pass_no_process_where_the_uplink_is_beside_the_program() {
    let test = "requests_pass_no_process_where_the_uplink_is_beside_the_program";
    let Some((mut platform, folder)) = host_of(test) else {
        return;
    };
    platform.run_at_edge();
    platform.start();
    fs::write(folder.join("long"), "x".repeat(1 << 20)).expect("written");
    let deployment = format!(
        "
version: 1
uplinks: {{ lan: {{ interface: client }} }}
instances:
  web:
    program: /usr/sbin/nginx
    args: [-c, {0}/nginx.conf]
    memory: 128MiB
    volumes: [{0}]
    capabilities: [NET_BIND_SERVICE]
    ports: {{ eth0: {{ kind: interface, addresses: [{SERVER}/24, '{SERVER6}/64'] }} }}
links: [[lan, web.eth0]]
",
        folder.display()
    );
    platform.apply(&deployment);
    let urls = [
        format!("http://{SERVER}/long"),
        format!("http://[{SERVER6}]/long"),
    ];
    let pass = |platform: &Platform, what: &str| {
        for url in &urls {
            eventually("nginx answers", || gets(platform, url));
        }
        let figures = || {
            ["web.eth0", "lan"].map(|port| {
                ["forwarded_packets", "rx_packets"].map(|name| {
                    let figure = platform.port_counter(name, port);
                    figure.unwrap_or_else(|| panic!("{what}: {port} has no {name}"))
                })
            })
        };
        // The last frames of a connection come after its client has ended.
        let settled = || {
            let mut last = figures();
            eventually("no frame is under way", || {
                let now = figures();
                std::mem::replace(&mut last, now) == now
            });
            last
        };
        let before = settled();
        for url in &urls {
            assert!(gets(platform, url), "{what}: {url}");
        }
        for (before, now) in before.into_iter().zip(settled()) {
            let [forwarded, all] = [now[0] - before[0], now[1] - before[1]];
            assert!(
                forwarded > 10 && forwarded == all,
                "{what}: {forwarded} of {all}"
            );
        }
        assert_eq!(outer_ends(platform), 1, "{what}");
    };
    pass(&platform, "at first");

    platform.kill_daemon();
    for url in &urls {
        assert!(gets(&platform, url), "without a daemon: {url}");
    }
    platform.start();
    pass(&platform, "by another daemon");

    let before = platform.instance_processes();
    signal(main_process(&platform), Signal::KILL);
    eventually("others are there", || {
        let now = platform.instance_processes();
        now.len() == before.len() && !now.iter().any(|pid| before.contains(pid))
    });
    pass(&platform, "started again");
    platform.must_say(&["restart", "web"]);
    pass(&platform, "restarted");

    // In the midst of a change of the uplink, and without it.
    platform.apply(&deployment.replace("interface: client }", "interface: client, super: off }"));
    eventually("nginx answers by the ring", || gets(&platform, &urls[0]));
    platform.apply(&deployment);
    pass(&platform, "with super-frames again");
    platform.must_say(&["delete", "--all"]);
    eventually("no interface is left", || outer_ends(&platform) == 0);
}

// promise: 19.5
#[test]
fn a_stack_forwards_if_it_is_asked_to() {
    let test = "a_stack_forwards_if_it_is_asked_to";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    platform.host("far", "10.0.9.1/24");
    for (host, line) in [
        ("far", "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0"),
        ("far", "ip address add 2001:db8:9::1/64 dev eth0 nodad"),
        ("far", "ip route add default via 10.0.9.2"),
        ("far", "ip -6 route add default via 2001:db8:9::2"),
        ("client", "ip route add default via 10.0.0.2"),
        ("client", "ip -6 route add default via 2001:db8::2"),
    ] {
        let done = platform.on(host, line);
        assert!(done.succeeded(), "{done:?}");
    }
    let router = |forwarding: bool| {
        let folder = folder.display();
        format!(
            "
version: 1
uplinks: {{ lan: {{ interface: client, netns: EDGE }}, wan: {{ interface: far, netns: EDGE }} }}
instances:
  web:
    program: /usr/sbin/nginx
    args: [-c, {folder}/nginx.conf]
    memory: 128MiB
    volumes: [{folder}]
    capabilities: [NET_BIND_SERVICE]
    forwarding: {forwarding}
    ports:
      near: {{ kind: interface, addresses: [{SERVER}/24, '{SERVER6}/64'] }}
      far: {{ kind: interface, addresses: [10.0.9.2/24, '2001:db8:9::2/64'] }}
links: [[lan, web.near], [wan, web.far]]
"
        )
    };
    let pings = |address: &str| {
        let ping = format!("ping -c 1 -W 1 {address}");
        platform.on("client", &ping).succeeded()
    };
    platform.apply(&router(true));
    for address in ["10.0.9.1", "2001:db8:9::1"] {
        eventually("a ping is answered", || pings(address));
    }
    platform.apply(&router(false));
    eventually("the router itself answers", || pings("10.0.9.2"));
    for address in ["10.0.9.1", "2001:db8:9::1"] {
        assert!(!pings(address), "{address}");
    }
}

// promise: 19.4
#[test]
fn what_cannot_be_made_is_said_and_leaves_nothing() {
    let test = "what_cannot_be_made_is_said_and_leaves_nothing";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    let web = |keys: &str| {
        format!("{{ program: /usr/sbin/nginx, memory: 64MiB, restart: never, {keys} }}")
    };
    let interface = |keys: &str| format!("ports: {{ eth0: {{ kind: interface, {keys} }} }}");
    let link = folder.join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("a link");
    for (instance, why) in [
        (
            web(&format!("volumes: [/none], {}", interface(""))),
            "the volume /none",
        ),
        (
            web(&format!("volumes: [{}], {}", link.display(), interface(""))),
            "name that one",
        ),
        (
            web(&interface("addresses: ['2001:db8::1/64'], mtu: 1000")),
            "2001:db8::1/64",
        ),
        (
            "{ program: /usr/sbin/none, ports: { eth0: { kind: interface } } }".to_owned(),
            "/usr/sbin/none",
        ),
    ] {
        platform.must_refuse_instance(&instance, why);
    }
    assert!(platform.instance_processes().is_empty());
    // A program that ends at once says why in the log.
    let document = format!(
        "version: 1\ninstances:\n  web: {}\n",
        web(&format!("args: [-c, /none.conf], {}", interface("")))
    );
    let _ends_at_once = platform.try_apply(&document);
    platform.await_log("web", "/none.conf");
    platform.await_log("web", "the server has ended");
    eventually("nothing runs", || platform.instance_processes().is_empty());
}

/// A server that keeps the end of its socket to the monitor for itself, and has the kernel signal nobody about it.
const HOSTILE: &str = "
import fcntl, os, socket, time
flags = fcntl.fcntl(511, fcntl.F_GETFL)
fcntl.fcntl(511, fcntl.F_SETFL, flags & ~os.O_ASYNC)
for _ in range(3):
    os.fork()
print('stays', flush=True)
while True:
    time.sleep(1)
";

// promise: 19.4
#[test]
fn a_hostile_program_does_not_outlive_its_instance() {
    let test = "a_hostile_program_does_not_outlive_its_instance";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    let Some(python) = ["/usr/bin/python3.11", "/usr/bin/python3.13"]
        .into_iter()
        .find(|it| Path::new(it).is_file())
    else {
        skip(test, "it needs Debian's python3");
        return;
    };
    fs::write(folder.join("hostile.py"), HOSTILE).expect("written");
    let folder = folder.display();
    platform.apply(&format!(
        "version: 1\ninstances:\n  web: {{ program: {python}, args: [-S, {folder}/hostile.py], volumes: [{folder}], ports: {{ eth0: {{ kind: interface }} }} }}\n"
    ));
    platform.await_log("web", "stays");
    // Its eight processes, and the monitor.
    eventually("all of them are there", || {
        platform.instance_processes().len() == 9
    });
    let before = platform.instance_processes();
    signal(platform.pids()["web"], Signal::KILL);
    eventually("all are gone, and others are there", || {
        let now = platform.instance_processes();
        now.len() == before.len() && now.iter().all(|pid| !before.contains(pid))
    });
    platform.must_say(&["delete", "--all"]);
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}
