//! The hosts of a side: a client, one or two forwarding hosts, two servers, each in its own namespace, joined by veth
//! pairs.

use anyhow::Context;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Service;
use std::net::TcpStream;
use std::time::Duration;

/// The servers.
pub const SERVERS: [&str; 2] = ["10.70.1.2", "10.70.2.2"];
/// The service's address; the side under test distributes its connections.
pub const SERVICE: &str = "10.70.9.1";
/// The interface of the client and of the servers.
pub const END: &str = "eth0";
/// The first host's interface to the client.
pub const LAN: &str = "lan";
/// The last host's interfaces to the servers.
pub const BACK: [&str; 2] = ["s0", "s1"];
/// The link between two hosts: the first host's interface, and the second host's.
pub const BETWEEN: [&str; 2] = ["next", "before"];
const PATIENCE: Duration = Duration::from_secs(120);

/// The processes in a namespace are fields before the namespace, so that they end first.
pub struct Topology {
    /// nginx, answering every request with an empty body.
    pub services: Vec<Service>,
    /// Files of the topology's programs.
    pub directory: ScratchDirectory,
    pub client: Namespace,
    /// The hosts from the client's side to the servers' side.
    pub hosts: Vec<Namespace>,
    pub servers: Vec<Namespace>,
}

impl Topology {
    /// Makes namespaces with one or two forwarding hosts and nothing else between client and servers.
    pub fn new(hosts: usize) -> anyhow::Result<Self> {
        let mut topology = Topology {
            services: Vec::new(),
            directory: ScratchDirectory::new()?,
            client: Namespace::new()?,
            hosts: (0..hosts)
                .map(|_| Namespace::new())
                .collect::<Result<_, _>>()?,
            servers: vec![Namespace::new()?, Namespace::new()?],
        };
        for host in &topology.hosts {
            host.run("sysctl -qw net.ipv4.ip_forward=1")?;
        }
        let (first, last) = (topology.first(), topology.last());
        connect(
            (&topology.client, END, "10.70.0.2"),
            (first, LAN, "10.70.0.1"),
        )?;
        topology.client.ip("route add default via 10.70.0.1")?;
        for (at, server) in topology.servers.iter().enumerate() {
            let own = format!("10.70.{}.1", at + 1);
            connect((server, END, SERVERS[at]), (last, BACK[at], &own))?;
            server.ip(&format!("route add default via {own}"))?;
        }
        if let [first, second] = &topology.hosts[..] {
            let [next, before] = BETWEEN;
            connect((first, next, "10.70.8.1"), (second, before, "10.70.8.2"))?;
            first.ip("route add default via 10.70.8.2")?;
            second.ip("route add default via 10.70.8.1")?;
        }
        for at in 0..topology.servers.len() {
            topology.services.push(topology.serve(at)?);
        }
        Ok(topology)
    }

    /// Makes the kernel distribute connections by routing: both servers have the service's address, with two routes to
    /// it.
    pub fn share_by_routing(&self) -> anyhow::Result<()> {
        for server in &self.servers {
            server.ip(&format!("address add {SERVICE}/32 dev lo"))?;
        }
        let last = self.last();
        last.run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1")?;
        // A retransmitted packet keeps its connection's hash, which selects the route.
        self.client.run("sysctl -qw net.core.txrehash=0")?;
        let [a, b] = SERVERS;
        let ways = format!("nexthop via {a} nexthop via {b}");
        last.ip(&format!("route add {SERVICE}/32 {ways}"))?;
        Ok(())
    }

    /// Returns the host on the client's side.
    pub fn first(&self) -> &Namespace {
        &self.hosts[0]
    }

    /// Returns the host on the servers' side.
    pub fn last(&self) -> &Namespace {
        &self.hosts[self.hosts.len() - 1]
    }

    fn serve(&self, at: usize) -> anyhow::Result<Service> {
        let folder = self.directory.path(&format!("nginx{at}"));
        std::fs::create_dir(&folder).context("a folder for nginx")?;
        let file = folder.join("nginx.conf");
        std::fs::write(&file, NGINX).context("the configuration of nginx")?;
        let mut command = self.servers[at].command("nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(&file);
        command.args(["-e", "stderr"]);
        let log = self.directory.path(&format!("nginx{at}.log"));
        let mut service = Service::start("nginx", &mut command, log)?;
        let address = format!("{}:80", SERVERS[at]);
        service.await_service(PATIENCE, || self.answers(&address))?;
        Ok(service)
    }

    /// Returns true if the client gets an answer from an address.
    pub fn answers(&self, address: &str) -> bool {
        let connected = self.client.within(|| {
            let address = address.parse()?;
            Ok(TcpStream::connect_timeout(
                &address,
                Duration::from_millis(500),
            )?)
        });
        connected.is_ok()
    }

    /// Starts a program on the last host that serves the service.
    pub fn between(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Service> {
        let mut command = self.last().command(program);
        let log = self.directory.path("between.log");
        let mut service = Service::start(program, command.args(arguments), log)?;
        let address = format!("{SERVICE}:80");
        service.await_service(PATIENCE, || self.answers(&address))?;
        Ok(service)
    }
}

/// Joins two namespaces by interfaces with these addresses.
fn connect(a: (&Namespace, &str, &str), b: (&Namespace, &str, &str)) -> anyhow::Result<()> {
    Namespace::join((a.0, a.1), (b.0, b.1))?;
    for (namespace, interface, address) in [a, b] {
        namespace.ip(&format!("address add {address}/24 dev {interface}"))?;
    }
    Ok(())
}

/// The servers' configuration: a single process, no log, persistent connections. An answer is a header of about
/// 140 bytes.
const NGINX: &str = "\
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 1024; }
http {
access_log off;
server_tokens off;
keepalive_requests 1000000000;
keepalive_timeout 1h;
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
server { listen 80; location / { return 200; } }
}
";
