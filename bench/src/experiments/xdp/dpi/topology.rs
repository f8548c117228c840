//! Topology of the measurement: a client, a forwarding host, a server, each in its own namespace; four pairs of iperf3.

use anyhow::{Context, bail};
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::process::Background;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The host's interface to the client.
pub const FRONT: &str = "front";
/// The host's interface to the server.
pub const BACK: &str = "back";
const END: &str = "eth0";
const SERVER: &str = "10.80.1.2";
/// A server of iperf3 takes one flow at a time.
pub const PORTS: [u16; 4] = [5201, 5202, 5203, 5204];
/// Number of checks for the server.
const TRIES: u32 = 10;

/// The processes in a namespace are fields before the namespace, so that they end first.
pub struct Topology {
    _servers: Vec<Background>,
    pub host: Namespace,
    client: Namespace,
    _server: Namespace,
}

impl Topology {
    /// Makes the topology. Packets are not aggregated on the path: only the receiving stack merges segments; it polls
    /// (GRO), as veth needs it to accept frames that XDP sends.
    pub fn new() -> anyhow::Result<Self> {
        let (client, host, server) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        host.run("sysctl -qw net.ipv4.ip_forward=1")?;
        for (end, near, own, theirs) in [
            (&client, FRONT, "10.80.0.1", "10.80.0.2"),
            (&server, BACK, "10.80.1.1", SERVER),
        ] {
            Namespace::join((end, END), (&host, near))?;
            end.ip(&format!("address add {theirs}/24 dev {END}"))?;
            host.ip(&format!("address add {own}/24 dev {near}"))?;
            end.ip(&format!("route add default via {own}"))?;
            end.run(&format!("ethtool -K {END} tx off tso off gso off gro on"))?;
        }
        let topology = Topology {
            _servers: serve(&server)?,
            host,
            client,
            _server: server,
        };
        topology.plain()?;
        topology.reach()?;
        Ok(topology)
    }

    /// Resets the host's interfaces, as needed after a program was attached or detached.
    pub fn plain(&self) -> anyhow::Result<()> {
        for interface in [FRONT, BACK] {
            let line = format!("ethtool -K {interface} tx off tso off gso off gro off");
            self.host.run(&line)?;
        }
        Ok(())
    }

    fn reach(&self) -> anyhow::Result<()> {
        let mut answer = Ok(String::new());
        for _ in 0..TRIES {
            answer = self.client.run(&format!("ping -c 1 -W 1 {SERVER}"));
            if answer.is_ok() {
                return Ok(());
            }
        }
        answer.map(drop).context("there is no way to the server")
    }

    /// Sends at full rate, a flow to each port; returns the received Gbit/s.
    pub fn transfer(&self, time: Duration) -> anyhow::Result<f64> {
        let seconds = time.as_secs_f64().ceil().max(1.0).to_string();
        let clients: Vec<Child> = PORTS
            .iter()
            .map(|port| {
                let mut command = self.client.command("iperf3");
                command.args(["-J", "-t", &seconds, "-c", SERVER, "-p", &port.to_string()]);
                start(&mut command)
            })
            .collect::<Result<_, _>>()?;
        let mut sum = 0.0;
        for client in clients {
            sum += received(client)?;
        }
        Ok(sum)
    }
}

fn serve(server: &Namespace) -> anyhow::Result<Vec<Background>> {
    let servers = PORTS.iter().map(|port| {
        let mut command = server.command("iperf3");
        Background::start(command.args(["-s", "-p", &port.to_string()]))
    });
    let servers = servers.collect();
    // The servers print nothing when they are ready; a client that starts earlier fails.
    std::thread::sleep(Duration::from_millis(500));
    servers
}

fn start(command: &mut Command) -> anyhow::Result<Child> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
    piped.spawn().context("starting iperf3")
}

fn received(client: Child) -> anyhow::Result<f64> {
    let output = client.wait_with_output().context("iperf3")?;
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("what iperf3 says")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("what iperf3 received")? / 1e9)
}
