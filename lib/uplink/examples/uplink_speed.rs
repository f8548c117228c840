//! Throughput and latency of uplinks on this machine. Needs root, `ip`, and `iperf3` for the second part.
//!
//! `cargo run --release -p nfluid-uplink --example uplink_speed [seconds] [ring slots]`
//!
//! 1. Frames: an instance sends through one uplink (AF_XDP) over a veth pair into another one
//!    (XDP), whose frames go to a second instance. The uplink's thread does both, the sending and,
//!    since veth delivers in the sender's context, the receiving program: one core for the two.
//! 2. TCP: two namespaces, each behind an uplink, the uplinks linked; beside it, in the same run,
//!    the same namespaces joined by a Linux bridge with the same offloads off.

use nfluid_ring::attach::Attached;
use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::Destination;
use nfluid_testbed::scratch::Scratch;
use nfluid_uplink::{Uplink, UplinkSpec};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIDDLE: &str = "nfl-speed-m";
const LEFT: &str = "nfl-speed-l";
const RIGHT: &str = "nfl-speed-r";
const FEATURES_OFF: &str = "tx off tso off";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The namespaces, removed when dropped.
struct Namespaces;

impl Namespaces {
    fn new() -> Outcome<Self> {
        let namespaces = Namespaces;
        for name in [MIDDLE, LEFT, RIGHT] {
            run(&format!("ip netns add {name}"))?;
        }
        Ok(namespaces)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [MIDDLE, LEFT, RIGHT] {
            let _gone = run(&format!("ip netns del {name}"));
        }
    }
}

fn run(line: &str) -> Outcome<String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("an empty command")?;
    let output = Command::new(program).args(words).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("{line}: {text}{why}").into())
    }
}

fn uplink(scratch: &mut Scratch, interface: &str, slots: u32) -> Outcome<Uplink> {
    let port = scratch.port_ids(1);
    let mut spec = UplinkSpec::new(interface, interface, port, 8000 + port);
    spec.netns = Some(Path::new("/run/netns").join(MIDDLE));
    spec.ring_slots = slots;
    Ok(Uplink::open(&scratch.switch, spec)?)
}

/// CPU time of the thread of this process that is named `name`, in seconds.
fn cpu_of(name: &str) -> Outcome<f64> {
    for task in fs::read_dir("/proc/self/task")?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file));
        if read("comm")?.trim() == name {
            let stat = read("stat")?;
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let ticks = fields.split_whitespace().skip(11).take(2);
            let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
            return Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        }
    }
    Err(format!("no thread {name}").into())
}

/// Hands frames to the port as fast as they are taken.
fn send_until(stop: &AtomicBool, port: &mut Port, len: usize) {
    while !stop.load(Ordering::Relaxed) {
        while port.room() > 0 {
            port.send(|slot| {
                slot[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
                len
            });
        }
        if port.flush(WhenFull::Keep).is_ok_and(|sent| sent < 32) {
            thread::yield_now();
        }
    }
}

/// Takes what arrives for a time; how much it was.
fn receive_for(seconds: f64, ring: &mut Attached) -> u64 {
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed().as_secs_f64() < seconds {
        let got = ring.ports[0].receive(64, |_| ());
        received += got as u64;
        if got == 0 {
            let patience = Duration::from_millis(10);
            let _woken = ring.doorbell.wait(&mut ring.ports, None, patience);
        }
    }
    received
}

/// `both`: the other end of the veth is an uplink, too; else its frames end in the kernel.
fn frames(len: usize, both: bool, seconds: f64, slots: u32) -> Outcome<()> {
    run(&format!(
        "ip -n {MIDDLE} link add wire0 type veth peer name wire1"
    ))?;
    for interface in ["wire0", "wire1"] {
        run(&format!("ip -n {MIDDLE} link set {interface} up"))?;
    }
    let mut scratch = Scratch::new("speed")?;
    let out = uplink(&mut scratch, "wire0", slots)?;
    let into = both.then(|| uplink(&mut scratch, "wire1", slots));
    let into = into.transpose()?;
    let (from, to) = (
        scratch.instance(1, 256, 64)?,
        scratch.instance(1, 1024, 64)?,
    );
    let switch = &scratch.switch;
    switch.connect(from.id(0), Destination::Link(out.spec().port))?;
    if let Some(into) = &into {
        switch.connect(into.spec().port, Destination::Link(to.id(0)))?;
    }
    let stop = AtomicBool::new(false);
    let (mut sender, mut receiver) = (from.attach()?, to.attach()?);
    let received = thread::scope(|scope| {
        scope.spawn(|| send_until(&stop, &mut sender.ports[0], len));
        let received = receive_for(seconds, &mut receiver);
        stop.store(true, Ordering::Relaxed);
        received
    });
    let mpps = |frames: u64| frames as f64 / seconds / 1e6;
    let (sent, cpu) = (out.status().sent_frames, cpu_of("uplink-wire0")?);
    let path = out.status().path.ok_or("the interface is gone")?;
    print!(
        "{len:5} B: out ({}) {:.2} Mpps, {:.2} Mpps per core",
        path.transmit,
        mpps(sent),
        sent as f64 / cpu / 1e6
    );
    match &into {
        Some(into) => println!(
            " with the receiving side ({}): {:.2} Mpps arrive, {:.2} Mpps are read",
            path.receive,
            mpps(switch.counters(into.spec().port).tx_frames),
            mpps(received)
        ),
        None => println!(" (the other end drops)"),
    }
    drop((out, into));
    run(&format!("ip -n {MIDDLE} link del wire0"))?;
    Ok(())
}

fn iperf3(seconds: f64) -> Outcome<String> {
    let mut server = iperf3_server()?;
    thread::sleep(Duration::from_millis(500));
    let line = format!(
        "ip netns exec {LEFT} iperf3 -f g -c 10.9.0.2 -t {}",
        seconds.ceil()
    );
    let report = run(&line);
    let _ended = server.kill().and_then(|()| server.wait().map(drop));
    let report = report?;
    let sum = report.lines().find(|line| line.ends_with("sender"));
    Ok(sum.unwrap_or("no result").trim().to_owned())
}

fn iperf3_server() -> Outcome<Child> {
    let words = ["netns", "exec", RIGHT, "iperf3", "-s", "-1"];
    Ok(Command::new("ip")
        .args(words)
        .stdout(Stdio::null())
        .spawn()?)
}

fn tcp(seconds: f64, slots: u32) -> Outcome<()> {
    for (name, near, address) in [(LEFT, "up0", 1), (RIGHT, "up1", 2)] {
        run(&format!(
            "ip -n {MIDDLE} link add {near} type veth peer name in0 netns {name}"
        ))?;
        run(&format!("ip -n {MIDDLE} link set {near} up"))?;
        run(&format!("ip -n {name} link set in0 up"))?;
        run(&format!(
            "ip -n {name} addr add 10.9.0.{address}/24 dev in0"
        ))?;
    }
    let mut scratch = Scratch::new("speed")?;
    let (a, b) = (
        uplink(&mut scratch, "up0", slots)?,
        uplink(&mut scratch, "up1", slots)?,
    );
    let (port_a, port_b) = (a.spec().port, b.spec().port);
    scratch.switch.connect(port_a, Destination::Link(port_b))?;
    scratch.switch.connect(port_b, Destination::Link(port_a))?;
    println!("TCP over two linked uplinks: {}", iperf3(seconds)?);
    let drops = |port| scratch.switch.counters(port).dropped_total();
    println!(
        "    dropped: {} and {} frames",
        drops(port_a),
        drops(port_b)
    );
    println!(
        "    {}",
        run(&format!(
            "ip netns exec {LEFT} ping -q -i 0.01 -c 100 10.9.0.2"
        ))?
        .lines()
        .last()
        .unwrap_or_default()
    );
    drop((a, b));
    run(&format!("ip -n {MIDDLE} link add bridge type bridge"))?;
    for (name, near) in [(LEFT, "up0"), (RIGHT, "up1")] {
        run(&format!("ip -n {MIDDLE} link set {near} master bridge"))?;
        run(&format!(
            "ip netns exec {name} ethtool -K in0 {FEATURES_OFF}"
        ))?;
    }
    run(&format!("ip -n {MIDDLE} link set bridge up"))?;
    println!(
        "TCP over a Linux bridge, offloads off: {}",
        iperf3(seconds)?
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let number = |index, default| {
        std::env::args()
            .nth(index)
            .map_or(Ok(default), |text: String| text.parse::<f64>())
    };
    let (seconds, slots) = (number(1, 2.0)?, number(2, 1024.0)? as u32);
    let _namespaces = Namespaces::new()?;
    println!("{slots} slots per uplink");
    for len in [64, 512, 1514] {
        frames(len, false, seconds, slots)?;
        frames(len, true, seconds, slots)?;
    }
    tcp(seconds, slots)
}
