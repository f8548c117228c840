//! A server of OpenStack Nova, from the request until it is ACTIVE (V1): with nfluid's driver, and with Nova's own fake driver, which does nothing, on another host of
//! the same cloud; in a cloud as it comes, and in one that was tuned. Both run beside each other for the whole time, and take turns. And a server that Nova moves to
//! another host while datagrams cross it.

mod tunings;

use super::life::losses::DropCounters;
use super::orchestrated::row;
use crate::host::platform;
use crate::report::{Report, table};
use crate::setups::segments::{Segments, TO};
use crate::setups::stream::Stream;
use anyhow::{Context, ensure};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::CannotRun;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::openstack::{OpenStack, neutron_config, nova_config, share};
use nfluid_testbed::platform::Platform;
use nfluid_tls::testing::Authority;
use serde_json::{Value, json};
use std::time::Duration;
pub use tunings::run as run_tunings;
use tunings::{TUNINGS, Tuning};

/// The hosts: two of nfluid, and one with Nova's fake driver.
const OURS: [&str; 2] = ["ours", "there"];
const FAKE: &str = "fake";
/// Addresses of the daemons for each other.
const BETWEEN: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const PORT: u16 = 7443;
/// Address of a port that is made before its server.
const PORT_ADDRESS: &str = "10.0.0.200";
/// Share of a server, in thousandths of a core: enough for [`PPS`] while OpenStack has much to do.
const SHARE: u32 = 500;
/// Datagrams per second that cross a server.
const PPS: u32 = 100_000;
/// Time for which they cross it; it moves in the middle.
const CROSSING: Duration = Duration::from_secs(16);
/// Servers that Nova makes in about the time of a move.
const BUSY: usize = 3;

/// A cloud, and its hosts.
struct Cloud {
    // OpenStack ends before its hosts, and these before their interfaces.
    openstack: OpenStack,
    platforms: [Platform; 2],
    segments: Segments,
    _folder: ScratchDirectory,
    image: String,
    flavor: String,
    fake_flavor: String,
    lan: String,
    wan: String,
    guarded: String,
}

/// A server that was made.
struct Made {
    id: String,
    active_ms: f64,
}

impl Cloud {
    /// Starts it with these tunings.
    fn start(name: &str, tunings: &[Tuning]) -> anyhow::Result<Self> {
        let segments = Segments::new()?;
        let [a, b] = &segments.hosts;
        Namespace::join((a, "hosts"), (b, "hosts"))?;
        let (authority, folder) = (Authority::new()?, ScratchDirectory::new()?);
        let start = |at: usize| {
            let address = BETWEEN[at];
            let host = &segments.hosts[at];
            host.ip(&format!("address add {address}/24 dev hosts"))?;
            let name = format!("-{name}-{at}");
            let files = authority.write(&authority, folder.as_ref(), (&name, address))?;
            let arguments = files.arguments("migrate", &format!("{address}:{PORT}"));
            platform::start_within(&name, host, &arguments)
        };
        let platforms = [start(0)?, start(1)?];
        let sockets = [platforms[0].socket(), platforms[1].socket()];
        // The host of the fake driver is bound to a daemon that has nothing to do for it: Neutron has as much to do.
        let [own, other] = &sockets;
        let neutron = neutron_config(&[(OURS[0], own), (OURS[1], other), (FAKE, own)]);
        let interfaces = [("lan", "lan"), ("wan", "wan")];
        let nova = |at: usize| {
            let address = format!("{}:{PORT}", BETWEEN[at]);
            nova_config(
                OURS[at],
                &sockets[at],
                &interfaces,
                &address,
                "uplink_ring=1024\n",
            )
        };
        let fake = "[DEFAULT]\ncompute_driver=fake.FakeDriver\n";
        let fake = (format!("nova-{FAKE}.conf"), fake.to_owned());
        let mut config = vec![neutron, nova(0), nova(1), fake];
        let lines = tunings.iter().flat_map(|tuning| tuning.lines);
        config.extend(lines.map(|(file, text)| ((*file).to_owned(), (*text).to_owned())));
        let mut openstack = OpenStack::start(&[OURS[0], OURS[1], FAKE], &config)?;
        let mut flavor = share(SHARE);
        flavor["nfluid:flavor"] = "large".into();
        let flavor = openstack.id("flavor", &[json!("nf"), json!(256), flavor], Value::Null)?;
        let fake_flavor = json!({ "resources:VCPU": "0" });
        let fake_flavor = openstack.id(
            "flavor",
            &[json!("fake"), json!(256), fake_flavor],
            Value::Null,
        )?;
        let image = [json!("bridge"), json!({ "nfluid_nf": "bridge" })];
        let image = openstack.id("image", &image, Value::Null)?;
        let mut network = |name: &str, physical: Option<&str>, is_guarded: bool| {
            let arguments = [
                json!(name),
                json!(physical),
                json!("10.0.0.0/24"),
                json!(is_guarded),
            ];
            openstack.id("network", &arguments, Value::Null)
        };
        Ok(Cloud {
            lan: network("lan", Some("lan"), false)?,
            wan: network("wan", Some("wan"), false)?,
            guarded: network("guarded", None, true)?,
            openstack,
            platforms,
            segments,
            _folder: folder,
            image,
            flavor,
            fake_flavor,
        })
    }

    /// Makes a server with a port on each of these networks, or with ports that are there: `{"port": ID}`.
    fn make(&mut self, host: &str, networks: &[Value]) -> anyhow::Result<Made> {
        let flavor = if host == FAKE {
            &self.fake_flavor
        } else {
            &self.flavor
        };
        let arguments = [
            json!("s"),
            json!(self.image),
            json!(flavor),
            json!(networks),
            json!(host),
        ];
        let made = self.openstack.ask("create", &arguments)?;
        Ok(Made {
            id: made["id"].as_str().context("no id")?.to_owned(),
            active_ms: made["active_ms"].as_f64().context("no time")?,
        })
    }

    /// Returns all counters of dropped frames.
    fn counters(&self) -> anyhow::Result<DropCounters> {
        let mut counters = DropCounters::default();
        for (name, platform) in OURS.into_iter().zip(&self.platforms) {
            counters.add_platform(name, &mut platform.api()?)?;
        }
        for (name, namespace) in self.segments.all() {
            counters.add_interfaces(name, namespace)?;
        }
        counters.add_backlog()?;
        Ok(counters)
    }

    /// Makes a port with an address on the network `lan`.
    fn port(&mut self, address: &str) -> anyhow::Result<String> {
        let arguments = [json!(self.lan), json!(address)];
        self.openstack.id("port", &arguments, Value::Null)
    }

    fn remove(&mut self, server: &str) -> anyhow::Result<f64> {
        let ms = self.openstack.ask("delete", &[json!(server)])?;
        ms.as_f64().context("no time")
    }

    /// Returns for how long the driver had to do with a server that was made, by its own log.
    fn driver_ms(&self, server: &str) -> anyhow::Result<f64> {
        let log = self.openstack.log(&format!("nova-compute-{}", OURS[0]));
        let mut lines = log.lines().filter(|line| line.contains(server));
        let ms = lines.find_map(|line| {
            line.split_once("spawned in ")?
                .1
                .split_once(" ms")?
                .0
                .parse()
                .ok()
        });
        ms.context("the driver's log has no time")
    }
}

/// The port of a server.
#[derive(Clone, Copy)]
enum Port {
    /// Nova makes the port.
    New,
    /// Nova makes the port, with security groups.
    Guarded,
    /// The port is made before Nova is asked for the server.
    There,
}

/// The servers of a round: the name of their figures, the cloud, the host, and the port.
const TURNS: [(&str, usize, &str, Port); 6] = [
    ("stock", 0, OURS[0], Port::New),
    ("fake", 0, FAKE, Port::New),
    ("guarded", 0, OURS[0], Port::Guarded),
    ("tuned", 1, OURS[0], Port::New),
    ("tuned_fake", 1, FAKE, Port::New),
    ("tuned_port", 1, OURS[0], Port::There),
];

/// Checks that a cloud can be started for this report.
fn check(report: &Report) -> anyhow::Result<()> {
    OpenStack::find()?;
    if report.choose(false, true) {
        let why = "OpenStack takes a minute to start: run it without --quick";
        return Err(CannotRun(why.to_owned()).into());
    }
    Ok(())
}

/// Measures from the request until ACTIVE.
pub fn run_nova(report: &mut Report) -> anyhow::Result<()> {
    check(report)?;
    let rounds = report.effort(50, 2);
    let mut clouds = [
        Cloud::start("stock", &[])?,
        Cloud::start("tuned", &TUNINGS)?,
    ];
    report.settle();
    let mut active = TURNS.map(|_| Samples::default());
    let [mut driver, mut removed] = [Samples::default(), Samples::default()];
    // The first of each makes what the others find.
    for round in 0..=rounds {
        for step in 0..TURNS.len() {
            interrupt::check()?;
            let turn = (step + round) % TURNS.len();
            let (name, cloud, host, port) = TURNS[turn];
            let cloud = &mut clouds[cloud];
            let port = match port {
                Port::New => json!(cloud.lan),
                Port::Guarded => json!(cloud.guarded),
                Port::There => json!({ "port": cloud.port(PORT_ADDRESS)? }),
            };
            let made = cloud.make(host, std::slice::from_ref(&port))?;
            let took = cloud.remove(&made.id)?;
            if let Some(port) = port.get("port") {
                cloud
                    .openstack
                    .ask("drop_port", std::slice::from_ref(port))?;
            }
            if round == 0 {
                continue;
            }
            active[turn].push(made.active_ms);
            if matches!(name, "stock" | "tuned") {
                driver.push(cloud.driver_ms(&made.id)?);
            }
            if name == "stock" {
                removed.push(took);
            }
        }
    }
    let [stock, fake, guarded, tuned, tuned_fake, tuned_port] = &active;
    let conditions = format!(
        "a bridge with a port on a network; {rounds} in turn, two clouds beside each other on these cores"
    );
    for (id, samples, what) in [
        ("v1.nova.active_ms", stock, "POST until ACTIVE"),
        ("v1.nova.fake_ms", fake, "the same with Nova's fake driver"),
        (
            "v1.nova.guarded_ms",
            guarded,
            "POST until ACTIVE, with a security group",
        ),
        (
            "v1.nova.tuned_ms",
            tuned,
            "POST until ACTIVE in the tuned cloud",
        ),
        (
            "v1.nova.tuned_fake_ms",
            tuned_fake,
            "the same with Nova's fake driver",
        ),
        (
            "v1.nova.tuned_port_ms",
            tuned_port,
            "POST until ACTIVE in the tuned cloud, with a port that was made before",
        ),
        ("v1.nova.remove_ms", &removed, "DELETE until it is gone"),
    ] {
        report.figure(id, samples, "ms", &format!("{what}; {conditions}"));
    }
    let mean = format!(
        "mean of {}; the driver's part of it; {conditions}",
        driver.values().len()
    );
    report.derived("v1.nova.active_ms.driver", driver.mean(), "ms", &mean);
    for (id, own, other) in [
        ("v1.nova.vs_fake", stock, fake),
        ("v1.nova.tuned_vs_fake", tuned, tuned_fake),
        ("v1.nova.tuned_vs_stock", tuned, stock),
        ("v1.nova.tuned_port_vs_stock", tuned_port, stock),
    ] {
        report.derived(
            id,
            own.median() / other.median(),
            "",
            &format!("medians; {conditions}"),
        );
    }
    table(
        "A server of Nova",
        &["until", "median ms", "mean ms"],
        &[
            row("active", stock),
            row("active, fake driver", fake),
            row("active, with a security group", guarded),
            row("active, tuned", tuned),
            row("active, tuned, fake driver", tuned_fake),
            row("active, tuned, with a port that was there", tuned_port),
            row("the driver's part", &driver),
            row("removed", &removed),
        ],
    );
    Ok(())
}

/// Moves a server to and fro while datagrams cross it.
pub fn run_migration(report: &mut Report) -> anyhow::Result<()> {
    check(report)?;
    let moves = report.effort(5, 1);
    let mut cloud = Cloud::start("stock", &[])?;
    let networks = [json!(cloud.lan), json!(cloud.wan)];
    let server = cloud.make(OURS[0], &networks)?;
    let mut stream = Stream::new(&cloud.segments.client, &cloud.segments.server, TO)?;
    stream.until_it_crosses()?;
    let [mut still, mut busy, mut lost, mut gap] = <[Samples; 4]>::default();
    let mut counted = DropCounters::default();
    for round in 0..moves {
        interrupt::check()?;
        stream.answer()?;
        still.push(stream.run(PPS, CROSSING / 4, || Ok(()))?.lost as f64);
        let passage = stream.run(PPS, CROSSING, || {
            for _ in 0..BUSY {
                let other = cloud.make(FAKE, &networks[..1])?;
                cloud.remove(&other.id)?;
            }
            Ok(())
        })?;
        busy.push(passage.lost as f64);
        let before = cloud.counters()?;
        let to = OURS[(round + 1) % OURS.len()];
        let passage = stream.run(PPS, CROSSING, || {
            let answer = cloud
                .openstack
                .ask("live_migrate", &[json!(server.id), json!(to)])?;
            ensure!(
                answer["host"] == to,
                "Nova has not moved the server: {answer}"
            );
            Ok(())
        })?;
        counted.merge(&cloud.counters()?.since(&before));
        lost.push(passage.lost as f64);
        gap.push(passage.gap.as_secs_f64() * 1e3);
    }
    cloud.remove(&server.id)?;
    let conditions = format!(
        "{PPS} pps through a bridge, {moves} moves to and fro, both hosts and OpenStack on these cores"
    );
    let rows = [
        ("v1.migrate.lost", &lost, "live migration by Nova"),
        (
            "v1.migrate.lost_busy",
            &busy,
            "no move; Nova makes and removes servers that do nothing meanwhile",
        ),
        ("v1.migrate.lost_still", &still, "no move, and nothing else"),
    ];
    for (id, samples, what) in rows {
        report.figure(id, samples, "packets", &format!("{what}; {conditions}"));
    }
    let what = format!("longest time without a packet, of a move; {conditions}");
    report.figure("v1.migrate.gap_ms", &gap, "ms", &what);
    let row = |(_, samples, what): (&str, &Samples, &str)| {
        vec![what.to_owned(), format!("{:.0}", samples.median())]
    };
    table(
        "Lost while datagrams cross a server",
        &["what happens", "packets"],
        &rows.map(row),
    );
    table(
        "Frames that were dropped in all moves, by who counted them",
        &["place and reason", "frames"],
        &counted.rows(),
    );
    Ok(())
}
