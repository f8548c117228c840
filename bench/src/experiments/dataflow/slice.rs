//! M7 over the platform: an LTE uplink as a slice in a chain. A radio sends a subframe's samples per interval in UDP; the
//! transport blocks come out at the other end of the chain.

use super::rows::Rows;
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::Report;
use anyhow::Context;
use nfluid_baseband::channel::{Channel, Random};
use nfluid_baseband::size::{Cell, LAYERS};
use nfluid_baseband::transmit::subframe;
use nfluid_baseband::uplink::Identity;
use nfluid_figures::statistics::Samples;
use nfluid_slices::message::{Kind, Message};
use nfluid_slices::radio;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const RADIO: &str = "10.2.0.1:4991";
const CORE: &str = "10.2.0.2:4991";
const MTU: u16 = 9000;
/// Bytes of samples in a datagram.
const PIECE: usize = 8192;
/// 18 dB.
const NOISE: f32 = 0.016;
const IDENTITY: Identity = Identity {
    cell: 1,
    subframe: 0,
};
/// Subframes before each measurement: costs are measured, and the graph is composed with them.
const WARM_UP: u16 = 100;

/// A pace at which subframes come, and what is computed of them.
struct Variant {
    id: &'static str,
    name: &'static str,
    decoder: &'static str,
    interval: Duration,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        id: "bypass.1ms",
        name: "decoder bypassed, a subframe per 1 ms",
        decoder: "bypass",
        interval: Duration::from_millis(1),
    },
    Variant {
        id: "turbo.1ms",
        name: "up to five iterations, a subframe per 1 ms",
        decoder: "turbo",
        interval: Duration::from_millis(1),
    },
    Variant {
        id: "turbo.4ms",
        name: "up to five iterations, a subframe per 4 ms",
        decoder: "turbo",
        interval: Duration::from_millis(4),
    },
];

/// Runs the experiment.
pub fn run(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (rounds, subframes) = report.effort((5, 1000), (2, 100));
    let road = Road::new()?;
    let cell = Cell::literature();
    let mut random = Random::new(1);
    let unitary = |_, _: &mut Random| Channel::unitary();
    let sent = subframe(&cell, IDENTITY, NOISE, unitary, &mut random);
    let input = radio::sent(&sent.samples);
    let mut rows = Rows::default();
    for _ in 0..rounds {
        for variant in &VARIANTS {
            interrupt::check()?;
            report.settle();
            let results = cell.users().len() * LAYERS;
            let measured = road.measure(variant, &input, subframes as u16, results)?;
            let mut add = |id: &str, what: &str, unit: &'static str, value: f64| {
                let id = format!("dataflow.slice.{}.{id}", variant.id);
                rows.add(&id, &format!("{}, {what}", variant.name), unit, value);
            };
            // Of subframes that are all late there is nothing else to tell.
            let done = measured.done_percent;
            add(
                "done_percent",
                "subframes that were whole and in time",
                "%",
                done,
            );
            if let Some(makespan) = measured.makespan_ms {
                let latency = &measured.latency_ms;
                add(
                    "latency_ms",
                    "last sample sent to last block",
                    "ms",
                    latency.median(),
                );
                add("latency.p99_ms", "the same, p99", "ms", latency.p99());
                add("makespan_ms", "of it the graph, median", "ms", makespan);
            }
        }
    }
    rows.finish(
        report,
        "An LTE uplink as a slice in a chain",
        "8 users, 832 tasks, 67 kB of samples per subframe in datagrams of 8 kB, MTU 9000; the deadline is the interval; two PEs; \
         radio, uplinks, slice and listener on the same two cores",
    );
    Ok(())
}

struct Measured {
    latency_ms: Samples,
    /// Absent if no graph was done.
    makespan_ms: Option<f64>,
    done_percent: f64,
}

/// A radio and a listener, with a platform between them.
struct Road {
    platform: Platform,
    radio: Namespace,
    core: Namespace,
    edge: Namespace,
}

impl Road {
    fn new() -> anyhow::Result<Self> {
        let (radio, core, edge) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (host, outer, address) in [(&radio, "radio", RADIO), (&core, "core", CORE)] {
            Namespace::join((host, "eth0"), (&edge, outer))?;
            edge.ip(&format!("link set {outer} mtu {MTU}"))?;
            host.ip(&format!("link set eth0 mtu {MTU}"))?;
            let (address, _) = address.split_once(':').unwrap_or_default();
            host.ip(&format!("address add {address}/24 dev eth0"))?;
        }
        Ok(Road {
            platform: platform::start()?,
            radio,
            core,
            edge,
        })
    }

    fn deployment(&self, variant: &Variant) -> Value {
        let uplink = |interface: &str| json!({ "interface": interface, "netns": self.edge.name() });
        let interval = format!("{}us", variant.interval.as_micros());
        json!({
            "version": 1,
            "uplinks": { "radio": uplink("radio"), "core": uplink("core") },
            "slices": { "cell": {
                "graph": "lte-uplink",
                "parameters": { "decoder": variant.decoder },
                "interval": interval,
                "deadline": interval,
                "pes": 2,
                "memory": "256MiB",
                "ports": { "in": { "mtu": MTU }, "out": { "mtu": MTU } },
            } },
            "chains": { "all": { "from": "radio", "via": ["cell"], "to": "core" } },
        })
    }

    fn measure(
        &self,
        variant: &Variant,
        input: &[u8],
        subframes: u16,
        results: usize,
    ) -> anyhow::Result<Measured> {
        self.platform.apply(&self.deployment(variant).to_string())?;
        self.platform.restart("cell")?;
        let (radio, core) = (self.radio.udp_socket(RADIO)?, self.core.udp_socket(CORE)?);
        radio.connect(CORE)?;
        core.set_read_timeout(Some(Duration::from_millis(100)))?;
        let all = WARM_UP + subframes;
        let is_over = AtomicBool::new(false);
        let (sent, heard) = thread::scope(|scope| {
            let hearing = scope.spawn(|| hear(&core, all, results, &is_over));
            let sent = send(&radio, variant.interval, all, input);
            // What is under way comes within some intervals.
            thread::sleep(Duration::from_millis(200));
            is_over.store(true, Ordering::Relaxed);
            (sent, hearing.join())
        });
        let sent = sent?;
        let heard = heard.ok().context("the listener failed")?;
        let begin = usize::from(WARM_UP);
        let times = sent[begin..].iter().zip(&heard[begin..]);
        let latency = times
            .filter_map(|(sent, heard)| Some(heard.as_ref()?.saturating_duration_since(*sent)));
        let latency_ms: Samples = latency.map(|it| it.as_secs_f64() * 1e3).collect();
        let done = latency_ms.values().len();
        let makespan = self.told()?["makespan_p50_ns"].as_f64();
        Ok(Measured {
            latency_ms,
            makespan_ms: makespan.filter(|_| done > 0).map(|ns| ns / 1e6),
            done_percent: done as f64 / f64::from(subframes) * 100.0,
        })
    }

    /// The instance's description of its slice.
    fn told(&self) -> anyhow::Result<Value> {
        let request = json!({ "name": "slice", "args": ["cell"] });
        let mut api = self.platform.api()?;
        let answer = api.request("POST", "/v1/instances/cell/command", &request)?;
        Ok(answer["output"].clone())
    }
}

/// Sends the samples of all subframes, each at its time. Returns when the last sample of each was sent.
fn send(
    socket: &UdpSocket,
    interval: Duration,
    subframes: u16,
    input: &[u8],
) -> anyhow::Result<Vec<Instant>> {
    let mut sent = Vec::with_capacity(subframes.into());
    let mut datagram = Vec::new();
    let begun = Instant::now();
    for number in 0..subframes {
        let due = begun + interval * u32::from(number);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        for (at, payload) in (0..).step_by(PIECE).zip(input.chunks(PIECE)) {
            datagram.clear();
            let message = Message {
                kind: Kind::Samples,
                slice: 0,
                interval: number,
                phase: IDENTITY.subframe as u8,
                at,
                payload,
            };
            message.write(&mut datagram);
            socket.send(&datagram).context("sending samples")?;
        }
        sent.push(Instant::now());
    }
    Ok(sent)
}

/// Hears results until all is over. Returns when the last result of each subframe came, if all of them did.
fn hear(
    socket: &UdpSocket,
    subframes: u16,
    results: usize,
    is_over: &AtomicBool,
) -> Vec<Option<Instant>> {
    let mut counts = vec![0; subframes.into()];
    let mut heard = vec![None; subframes.into()];
    let mut buffer = [0; 2048];
    while !is_over.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut buffer) else {
            continue;
        };
        let Ok(message) = Message::parse(&buffer[..length]) else {
            continue;
        };
        let interval = usize::from(message.interval);
        let Some(count) = counts
            .get_mut(interval)
            .filter(|_| message.kind == Kind::Result)
        else {
            continue;
        };
        *count += 1;
        if *count == results {
            heard[interval] = Some(Instant::now());
        }
    }
    heard
}
