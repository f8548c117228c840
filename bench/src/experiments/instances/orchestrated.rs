//! The experiments with orchestrators share this: two hosts with a platform between them, and the time until the first frame has crossed it.

use crate::host::platform;
use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

const CLIENT: &str = "10.3.0.1";
const SERVER: &str = "10.3.0.2";
const SERVER_MAC: &str = "02:00:00:00:00:02";
const PORT: u16 = 7000;
/// Shells that are ready when a measurement begins.
pub const SHELLS: u64 = 4;
/// Interval of the client's frames.
const INTERVAL: Duration = Duration::from_micros(500);
/// Time after which what was asked for is not going to run.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a client of Kubernetes, and what it runs on.
pub fn open_cluster(kubeconfig: &Path) -> anyhow::Result<(Runtime, Client)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let client = runtime.block_on(async {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        anyhow::Ok(Client::try_from(config)?)
    })?;
    Ok((runtime, client))
}

/// A client and a server, and a platform between them, with a pool of shells.
pub struct Hosts {
    pub platform: Platform,
    client: Namespace,
    server: Namespace,
    _edge: Namespace,
}

impl Hosts {
    /// Makes the hosts, and an uplink to each: `lan` and `wan`.
    pub fn new() -> anyhow::Result<Self> {
        Self::make(true)
    }

    /// Makes the hosts. The daemon is where the interfaces to them are, `lan` and `wan`, and has no uplinks.
    pub fn without_uplinks() -> anyhow::Result<Self> {
        Self::make(false)
    }

    fn make(has_uplinks: bool) -> anyhow::Result<Self> {
        let [client, edge, server] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        Namespace::join((&client, "eth0"), (&edge, "lan"))?;
        Namespace::join((&server, "eth0"), (&edge, "wan"))?;
        for (host, address) in [(&client, CLIENT), (&server, SERVER)] {
            host.ip(&format!("address add {address}/24 dev eth0"))?;
        }
        server.ip(&format!("link set eth0 address {SERVER_MAC}"))?;
        client.ip(&format!(
            "neighbour replace {SERVER} lladdr {SERVER_MAC} dev eth0"
        ))?;
        let mut document =
            json!({ "version": 1, "pool": { "small": { "flavor": "small", "size": SHELLS } } });
        let platform = if has_uplinks {
            let uplink = |interface: &str| json!({ "interface": interface, "netns": edge.name(), "super": "off" });
            document["uplinks"] = json!({ "lan": uplink("lan"), "wan": uplink("wan") });
            platform::start()?
        } else {
            platform::start_within("", &edge, &[])?
        };
        platform.apply(&document.to_string())?;
        Ok(Hosts {
            platform,
            client,
            server,
            _edge: edge,
        })
    }

    /// Waits until the pool is full.
    pub fn await_shells(&self) -> anyhow::Result<()> {
        self.platform.api()?.await_shells(SHELLS)
    }

    /// Calls `create`, and returns the milliseconds since then until the first frame arrives.
    pub fn until_first_frame<T>(
        &self,
        create: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(f64, T)> {
        let receiver = self
            .server
            .within(|| Ok(UdpSocket::bind((SERVER, PORT))?))?;
        let sender = self.client.within(|| Ok(UdpSocket::bind((CLIENT, 0))?))?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        let has_arrived = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_arrived.load(Ordering::Relaxed) {
                    // Without a way the frame is dropped.
                    let _sent = sender.send_to(b"frame", (SERVER, PORT));
                    std::thread::sleep(INTERVAL);
                }
            });
            let waiting = scope.spawn(|| {
                let came = receiver.recv(&mut [0; 16]).map(|_| Instant::now());
                has_arrived.store(true, Ordering::Relaxed);
                came
            });
            let begun = Instant::now();
            let created = create();
            if created.is_err() {
                has_arrived.store(true, Ordering::Relaxed);
                receiver.set_read_timeout(Some(Duration::from_millis(1)))?;
            }
            let came = waiting.join().ok().context("the receiving thread failed")?;
            let created = created?;
            let came = came.context("no frame arrives")?;
            Ok((came.duration_since(begun).as_secs_f64() * 1e3, created))
        })
    }

    /// The instance by nfluid's own API.
    pub fn directly(&self) -> anyhow::Result<f64> {
        let mut api = self.platform.api()?;
        api.await_shells(SHELLS)?;
        let instance = json!({ "nf": "bridge", "flavor": "small", "memory": "16MiB", "share": "1%", "restart": "never" });
        let request =
            json!({ "instance": instance, "links": [["lan", "direct.in"], ["direct.out", "wan"]] });
        let (ms, _) =
            self.until_first_frame(|| api.request("PUT", "/v1/instances/direct", &request))?;
        api.request(
            "DELETE",
            "/v1/instances/direct?with_links=true",
            &Value::Null,
        )?;
        Ok(ms)
    }
}

/// Returns the time in milliseconds since 1970.
pub fn now_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() * 1e3
}

/// Returns a row of a table: what, and the median and the mean of its times.
pub fn row(what: &str, samples: &Samples) -> Vec<String> {
    vec![
        what.to_owned(),
        format!("{:.1}", samples.median()),
        format!("{:.1}", samples.mean()),
    ]
}
