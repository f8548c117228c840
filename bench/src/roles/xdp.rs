//! Roles in a network namespace of the kernel's peers: programs of `peers/xdp.bpf.c`.

use super::work::{FLOW, Outcome, cpu_seconds, print_ready, serve};
use crate::traffic::udp_frame;
use anyhow::Context;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Flag of live frames: frames that the program redirects are sent (linux/bpf.h, Linux 5.18).
const LIVE_FRAMES: u32 = 1 << 1;
/// Ethernet and IPv4: as in `peers/xdp.bpf.c`.
const HEADERS: usize = 34;
/// Frames of the first call, which measures the speed, and of any later call.
const FRAMES_FIRST: u32 = 1 << 15;
const FRAMES_MIN: f64 = 1e4;
const FRAMES_MAX: f64 = 4e6;

/// Destinations of consecutive frames, in turn.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Addressees {
    /// Hardware address of the first; the others count up from it.
    pub first: [u8; 6],
    /// Number of destinations. Number i has the IPv4 address of flow i's destination.
    pub count: u32,
    /// Hardware address of the sender.
    pub from: [u8; 6],
}

/// Sends frames of `len` bytes out of `interface` as fast as the kernel can: frames are made once and recycled through
/// a page pool, as pktgen and pkt-gen do.
pub fn generate(
    object: &Path,
    interface: &str,
    len: usize,
    to: Option<Addressees>,
) -> anyhow::Result<()> {
    let mut object = load(object)?;
    send_out_of(&mut object, interface)?;
    let mut frame = udp_frame(len, to.map_or(FLOW, |_| 0));
    if let Some(to) = to {
        frame[..6].copy_from_slice(&to.first);
        frame[6..12].copy_from_slice(&to.from);
        write(&mut object, "destinations", &to.count.to_ne_bytes())?;
    }
    write(&mut object, "headers", &frame[..HEADERS])?;
    let generate = program(&mut object, "generate")?;
    print_ready()?;
    serve(|span| blast(&generate, &frame, span.time))
}

/// Attaches a program to `interface`, until standard input ends.
pub fn attach(object: &Path, name: &str, interface: &str, to: Option<&str>) -> anyhow::Result<()> {
    let mut object = load(object)?;
    if let Some(to) = to {
        send_out_of(&mut object, to)?;
    }
    let program = program(&mut object, name)?;
    let attached = program.attach_xdp(index(interface)?.cast_signed());
    // Detached when the process ends.
    let _link = attached.with_context(|| format!("attaching XDP to {interface}"))?;
    print_ready()?;
    serve(|_| Ok(Outcome::default()))
}

/// Sends for `time`. Each call waits for all cores once (it changes code that they run), so there are few calls, and
/// the time is the kernel's own, without that wait.
fn blast(program: &ProgramMut<'_>, frame: &[u8], time: Duration) -> anyhow::Result<Outcome> {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut outcome = Outcome::default();
    let mut repeat = FRAMES_FIRST;
    while start.elapsed() < time {
        let input = ProgramInput {
            data_in: Some(frame),
            flags: LIVE_FRAMES,
            repeat,
            ..ProgramInput::default()
        };
        let begun = Instant::now();
        let output = match program.test_run(input) {
            // The kernel does not report how many frames it has sent by then; the sink counts them, so the time must
            // count as well.
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                outcome.seconds += begun.elapsed().as_secs_f64();
                continue;
            }
            output => output.context("sending frames by XDP")?,
        };
        // The duration is the mean over all frames.
        outcome.seconds += output.duration.as_secs_f64() * f64::from(repeat);
        outcome.frames += u64::from(repeat);
        let rate = outcome.frames as f64 / outcome.seconds.max(1e-6);
        let left = time.saturating_sub(start.elapsed()).as_secs_f64();
        repeat = (left * rate).clamp(FRAMES_MIN, FRAMES_MAX) as u32;
    }
    outcome.cpu_seconds = cpu_seconds() - cpu;
    Ok(outcome)
}

fn load(path: &Path) -> anyhow::Result<Object> {
    let open = ObjectBuilder::default().open_file(path);
    let open = open.with_context(|| format!("reading {}", path.display()))?;
    open.load().context("loading the XDP programs")
}

fn program<'a>(object: &'a mut Object, name: &str) -> anyhow::Result<ProgramMut<'a>> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.with_context(|| format!("no XDP program '{name}'"))
}

fn send_out_of(object: &mut Object, interface: &str) -> anyhow::Result<()> {
    write(object, "out", &index(interface)?.to_ne_bytes())
}

/// Writes the only entry of a map.
fn write(object: &mut Object, name: &str, value: &[u8]) -> anyhow::Result<()> {
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.name() == name);
    let map = map.with_context(|| format!("no map '{name}'"))?;
    let key = 0u32.to_ne_bytes();
    map.update(&key, value, MapFlags::ANY)
        .with_context(|| format!("writing map '{name}'"))
}

fn index(interface: &str) -> anyhow::Result<u32> {
    let path = format!("/sys/class/net/{interface}/ifindex");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    Ok(text.trim().parse()?)
}
