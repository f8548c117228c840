//! Programs on a network stack of their own, as instances and as bare processes in namespaces (targets M4, and nginx in a
//! chain). Both sides have the same nginx and the same iperf3, each in a cgroup with the weight of any other, and the client is
//! one. In turn:
//!
//! | what | instances | bare processes |
//! |---|---|---|
//! | `rr`: one HTTP request of 100 B after the other, on one connection | uplink, instance | veth |
//! | `stream`, `stream_out`: one TCP stream to the server, and from it | uplink, instance | veth |
//! | `redis`, `memcached`: their own clients | uplink, instance | veth |
//! | `chain`: 32 connections | uplink, firewall with states, instance | veth, router with nftables, veth |

mod stores;

use crate::host::platform;
use crate::report::{Report, table};
use anyhow::{Context, ensure};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use nfluid_testbed::process::Service;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use stores::Store;

const PATIENCE: Duration = Duration::from_secs(30);
/// Connections through the firewall.
const CONNECTIONS: u32 = 32;
const HTTP: u16 = 80;
const IPERF: u16 = 5201;
/// Bytes of an answer, without its header.
const ANSWER: usize = 100;
/// The router's rules: connections that a client opens, and their answers.
const RULES: &str =
    "table inet filter { chain forward { type filter hook forward priority 0; policy drop;
 ct state established,related accept; meta l4proto tcp ct state new accept\n}\n}\n";

/// The addresses of one side's servers.
struct Servers {
    direct: &'static str,
    streams: &'static str,
    filtered: &'static str,
}

/// Instances, and bare processes.
const SIDES: [Servers; 2] = [
    Servers {
        direct: "10.1.0.2",
        streams: "10.6.0.2",
        filtered: "10.2.0.2",
    },
    Servers {
        direct: "10.3.0.2",
        streams: "10.3.0.2",
        filtered: "10.5.0.2",
    },
];

/// Both sides. Processes are declared before their namespaces, so that they end first.
struct Setup {
    bare: Vec<Service>,
    /// The cgroups of the bare processes.
    shares: Cgroups,
    _platform: Platform,
    _directory: ScratchDirectory,
    client: Namespace,
    stores: Vec<Store>,
    _others: Vec<Namespace>,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let [client, edge, router, server] = [
            Namespace::new()?,
            Namespace::new()?,
            Namespace::new()?,
            Namespace::new()?,
        ];
        let stores = stores::found();
        let mut hosts = vec![
            ("n0".to_owned(), "10.1.0.1".to_owned()),
            ("n1".to_owned(), "10.2.0.1".to_owned()),
            ("n2".to_owned(), "10.6.0.1".to_owned()),
        ];
        for store in &stores {
            let host = store.address.trim_end_matches('2');
            hosts.push((store.name.to_owned(), format!("{host}1")));
        }
        for (name, address) in hosts {
            Namespace::join((&client, &name), (&edge, &name))?;
            client.ip(&format!("address add {address}/24 dev {name}"))?;
        }
        Namespace::join((&client, "b0"), (&server, "eth0"))?;
        Namespace::join((&client, "b1"), (&router, "in"))?;
        Namespace::join((&router, "out"), (&server, "eth1"))?;
        for (namespace, line) in [
            (&client, "address add 10.3.0.1/24 dev b0"),
            (&server, "address add 10.3.0.2/24 dev eth0"),
            (&client, "address add 10.4.0.1/24 dev b1"),
            (&router, "address add 10.4.0.254/24 dev in"),
            (&router, "address add 10.5.0.254/24 dev out"),
            (&server, "address add 10.5.0.2/24 dev eth1"),
            (&client, "route add 10.5.0.0/24 via 10.4.0.254"),
            (&server, "route add 10.4.0.0/24 via 10.5.0.254"),
        ] {
            namespace.ip(line)?;
        }
        router.run("sysctl -qw net.ipv4.ip_forward=1")?;
        router.run_with_input("nft -f -", RULES)?;
        let directory = ScratchDirectory::new()?;
        let folder = directory.as_ref().canonicalize()?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        directory.write("answer", &"x".repeat(ANSWER))?;
        directory.write("nginx.conf", &nginx(&folder, Path::new("/tmp")))?;
        let configuration = directory.write("bare.conf", &nginx(&folder, &folder))?;
        let mut bare = Vec::new();
        for (name, mut command) in [
            ("nginx", server.command("nginx")),
            ("iperf3", server.command("iperf3")),
        ] {
            match name {
                "nginx" => command.arg("-c").arg(&configuration),
                _ => command.arg("-s"),
            };
            bare.push(Service::start(
                name,
                &mut command,
                directory.path(&format!("{name}.log")),
            )?);
        }
        for store in &stores {
            bare.push(Service::start(
                store.name,
                &mut store.command(&server),
                directory.path(&format!("{}.log", store.name)),
            )?);
        }
        let platform = platform::start_within("", &edge, &[])?;
        platform.apply(&deployment(&folder, &stores).to_string())?;
        let mut setup = Setup {
            bare,
            shares: Cgroups::with_ordinary_weight()?,
            _platform: platform,
            _directory: directory,
            client,
            stores,
            _others: vec![edge, router, server],
        };
        setup.await_all()?;
        setup.share()?;
        Ok(setup)
    }

    /// Puts each bare server, with its own processes, into a cgroup, as each instance is in one.
    fn share(&mut self) -> anyhow::Result<()> {
        for server in &self.bare {
            let pid = server.pid();
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.context("the processes of a server")?;
            let children = children.split_whitespace().map(str::parse);
            let mut all = children.collect::<Result<Vec<u32>, _>>()?;
            all.push(pid);
            self.shares.add(&all, None, None)?;
        }
        Ok(())
    }

    fn await_all(&self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        let [_, bare] = &SIDES;
        let of_stores = self
            .stores
            .iter()
            .flat_map(|store| [(store.address, store.port), (bare.direct, store.port)]);
        let of_sides = SIDES.iter().flat_map(|side| {
            [
                (side.direct, HTTP),
                (side.filtered, HTTP),
                (side.streams, IPERF),
            ]
        });
        for (address, port) in of_sides.chain(of_stores) {
            let place = format!("{address}:{port}").parse().context("an address")?;
            let once = Duration::from_secs(1);
            let accepts = || {
                self.client
                    .within(|| Ok(TcpStream::connect_timeout(&place, once)?))
            };
            while let Err(why) = accepts() {
                interrupt::check()?;
                if Instant::now() > end {
                    return Err(why).with_context(|| format!("nobody serves {address}:{port}"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Returns the answered requests per second.
    fn requests(&self, address: &str, connections: u32, seconds: u64) -> anyhow::Result<f64> {
        interrupt::check()?;
        let mut wrk = self.client.command("wrk");
        wrk.args([
            "-t",
            "1",
            "-c",
            &connections.to_string(),
            "-d",
            &format!("{seconds}s"),
        ]);
        rate(&output(wrk.arg(format!("http://{address}/answer")))?)
    }

    /// Returns what a TCP stream brings in Gbit/s.
    fn stream(&self, address: &str, way: &[&str], seconds: u64) -> anyhow::Result<f64> {
        interrupt::check()?;
        let mut iperf3 = self.client.command("iperf3");
        iperf3
            .args(["--json", "-c", address, "-t", &seconds.to_string()])
            .args(way);
        let said: Value =
            serde_json::from_str(&output(&mut iperf3)?).context("what iperf3 says")?;
        let received = &said["end"]["sum_received"]["bits_per_second"];
        Ok(received.as_f64().context("no rate from iperf3")? / 1e9)
    }
}

/// The configuration of nginx on both sides, which differ in the directory that it writes to.
fn nginx(folder: &Path, own: &Path) -> String {
    let own = own.display();
    format!(
        "daemon off; error_log stderr; pid {own}/nginx.pid; worker_processes 1; events {{ }}
http {{
  access_log off; keepalive_requests 100000000; root {};
  client_body_temp_path {own}/b; proxy_temp_path {own}/p; fastcgi_temp_path {own}/f;
  uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;
  server {{ listen {HTTP}; }}
}}",
        folder.display()
    )
}

fn deployment(folder: &Path, stores: &[Store]) -> Value {
    let uplink = |interface: &str| json!({ "interface": interface });
    let interface =
        |address: &str| json!({ "kind": "interface", "addresses": [format!("{address}/24")] });
    let [ours, _] = &SIDES;
    let mut deployment = json!({
        "version": 1,
        "uplinks": { "direct": uplink("n0"), "filtered": uplink("n1"), "streams": uplink("n2") },
        "instances": {
            "fw": { "nf": "firewall", "config": { "rules": "allow tcp from any to any keep-state" } },
            "web": {
                "program": "/usr/sbin/nginx",
                "args": ["-c", folder.join("nginx.conf")],
                "memory": "128MiB",
                "volumes": [folder],
                "capabilities": ["NET_BIND_SERVICE"],
                "ports": { "eth0": interface(ours.direct), "eth1": interface(ours.filtered) },
            },
            "perf": {
                "program": "/usr/bin/iperf3",
                "args": ["-s"],
                "memory": "128MiB",
                "ports": { "eth0": interface(ours.streams) },
            },
        },
        "links": [["direct", "web.eth0"], ["streams", "perf.eth0"]],
        "chains": { "way": { "from": "filtered", "to": "web.eth1", "via": ["fw"] } },
    });
    for store in stores {
        let name = store.name;
        deployment["uplinks"][format!("to-{name}")] = uplink(name);
        deployment["instances"][name] = store.instance();
        if let Some(links) = deployment["links"].as_array_mut() {
            links.push(json!([format!("to-{name}"), format!("{name}.eth0")]));
        }
    }
    deployment
}

/// Reads wrk's report. A run with errors is none.
fn rate(said: &str) -> anyhow::Result<f64> {
    let faults = ["Socket errors", "Non-2xx"];
    let fault = said
        .lines()
        .find(|line| faults.iter().any(|fault| line.contains(fault)));
    ensure!(fault.is_none(), "wrk: {}", fault.unwrap_or_default().trim());
    let rate = said
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate: f64 = rate
        .with_context(|| format!("wrk said: {}", said.trim()))?
        .trim()
        .parse()?;
    ensure!(rate > 0.0, "no request was answered");
    Ok(rate)
}

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let (rounds, seconds) = report.choose((5, 3), (1, 1));
    let setup = Setup::new()?;
    let requests = |address, connections| setup.requests(address, connections, seconds);
    type Measure<'a> = Box<dyn Fn(&Servers) -> anyhow::Result<f64> + 'a>;
    let measures: [(&str, &str, &str, &'static str, Measure<'_>); 4] = [
        (
            "m4.tcp_rr",
            "m4.tcp_rr.ratio",
            "one request of 100 B at a time, on one connection to nginx",
            "requests/s",
            Box::new(|side| requests(side.direct, 1)),
        ),
        (
            "m4.stream",
            "m4.stream.ratio",
            "one TCP stream of iperf3 to the server",
            "Gbit/s",
            Box::new(|side| setup.stream(side.streams, &[], seconds)),
        ),
        (
            "m4.stream_out",
            "m4.stream_out.ratio",
            "one TCP stream of iperf3 from the server",
            "Gbit/s",
            Box::new(|side| setup.stream(side.streams, &["--reverse"], seconds)),
        ),
        (
            "kernel.nginx",
            "kernel.nginx_chain",
            "32 connections to nginx: through a firewall instance with states; through a router with nftables",
            "requests/s",
            Box::new(|side| requests(side.filtered, CONNECTIONS)),
        ),
    ];
    let mut rows = Vec::new();
    for (id, ratio_id, what, unit, measure) in &measures {
        report.settle();
        let [mut ours, mut bare] = [Samples::default(), Samples::default()];
        for _ in 0..rounds {
            ours.push(measure(&SIDES[0])?);
            bare.push(measure(&SIDES[1])?);
        }
        let told = format!(
            "{what}; {rounds} rounds of {seconds} s in turn, client and server on both cores"
        );
        rows.push(compare(
            report,
            (id, ratio_id),
            (&ours, &bare),
            (what, unit),
            &told,
        ));
    }
    let thousands = report.choose(300, 20);
    for store in &setup.stores {
        report.settle();
        let [mut ours, mut bare] = [Samples::default(), Samples::default()];
        for _ in 0..rounds {
            interrupt::check()?;
            ours.push(store.rate(&setup.client, store.address, thousands)?);
            bare.push(store.rate(&setup.client, SIDES[1].direct, thousands)?);
        }
        let id = format!("m4.{}", store.name);
        let ratio_id = match store.name {
            "redis" => "m4.redis.get_ratio",
            _ => "m4.memcached.ratio",
        };
        let told = format!(
            "{}; {rounds} rounds of {thousands}000 requests in turn, client and server on both cores",
            store.what
        );
        let shown = (store.what, "requests/s");
        rows.push(compare(
            report,
            (&id, ratio_id),
            (&ours, &bare),
            shown,
            &told,
        ));
    }
    table(
        "Programs on a network stack of their own, as instances and as bare processes",
        &["what", "unit", "instance", "bare", "ratio"],
        &rows,
    );
    Ok(())
}

/// Adds the figures of both sides. Returns the row of the table.
fn compare(
    report: &mut Report,
    (id, ratio_id): (&str, &str),
    (ours, bare): (&Samples, &Samples),
    (what, unit): (&str, &'static str),
    conditions: &str,
) -> Vec<String> {
    let ratios = ours.ratios(bare);
    report.figure(format!("{id}.instance"), ours, unit, conditions);
    report.figure(format!("{id}.bare"), bare, unit, conditions);
    report.figure(ratio_id, &ratios, "x", conditions);
    vec![
        what.to_owned(),
        unit.to_owned(),
        format!("{:.1}", ours.median()),
        format!("{:.1}", bare.median()),
        format!("{:.2}", ratios.median()),
    ]
}

#[cfg(test)]
mod tests {
    use super::rate;

    // promise: 13.17
    #[test]
    fn a_run_of_wrk_with_errors_is_none() {
        let said = "  120 requests in 1.00s\nRequests/sec:    119.50\nTransfer/sec: 1KB\n";
        assert_eq!(rate(said).unwrap(), 119.5);
        for fault in [
            "  Socket errors: connect 0, read 1, write 0, timeout 0",
            "  Non-2xx or 3xx responses: 3",
        ] {
            assert!(rate(&format!("{fault}\n{said}")).is_err());
        }
        assert!(rate("unable to connect").is_err() && rate("Requests/sec: 0.00").is_err());
    }
}
