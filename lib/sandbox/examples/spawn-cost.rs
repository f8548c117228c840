//! Measures what starting an instance costs, and what of it a prepared shell saves. Needs root.
//!
//! `cargo run --release -p nfluid-sandbox --example spawn-cost -- [PROGRAM] [ROUNDS] [MB]`; the program should end by
//! itself (default /bin/true). Each round makes a cgroup, a shell, launches, waits and removes. MB is how much memory the
//! measuring process uses, as a daemon might.

use nfluid_sandbox::cgroup::{CgroupRoot, Share};
use nfluid_sandbox::seccomp::Policy;
use nfluid_sandbox::{
    EmptyNetNs, KernelIdRange, Launch, NetNs, Program, Root, Sealed, Shell, ShellSpec, Zygote,
    probe,
};
use std::error::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Removes the cgroups also when a round fails.
struct Groups(Option<CgroupRoot>);

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(CgroupRoot::remove) {
            eprintln!("{error}");
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "/bin/true".to_owned());
    let rounds: u32 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let ballast_mb: usize = arguments.next().map_or(Ok(0), |text| text.parse())?;
    for feature in probe() {
        println!(
            "{:?}: {}: {} {}",
            feature.status, feature.name, feature.detail, feature.remedy
        );
    }
    let groups = Groups(Some(CgroupRoot::new(&format!(
        "nfluid-cost-{}",
        std::process::id()
    ))?));
    let zygote = Zygote::start()?;
    let shared = EmptyNetNs::create()?;
    let sealed = Sealed::create()?;
    let ballast = vec![1u8; ballast_mb << 20];
    std::hint::black_box(&ballast);
    println!("{ballast_mb} MB of the caller's memory are in use");
    let net = NetNs::Shared(shared.as_fd());
    for (name, net, sealed, zygote) in [
        ("own-net", NetNs::Own, None, None),
        ("own-net-zygote", NetNs::Own, None, Some(&zygote)),
        ("shared-net-zygote", net, None, Some(&zygote)),
        (
            "shared-net-sealed-zygote",
            net,
            Some(&sealed),
            Some(&zygote),
        ),
    ] {
        measure(
            name,
            (net, sealed, zygote),
            Path::new(&path),
            rounds,
            &groups,
        )?;
    }
    plain(&path, rounds)
}

fn measure(
    name: &str,
    (net, sealed, zygote): (NetNs<'_>, Option<&Sealed>, Option<&Zygote>),
    path: &Path,
    rounds: u32,
    groups: &Groups,
) -> Result<(), Box<dyn Error>> {
    let program = Program::open(path)?;
    let filter = Policy::new(program.linkage(), 0x4e46).compile()?;
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut barriers = None;
    for round in 0..rounds {
        let Some(root) = &groups.0 else { continue };
        let begin = Instant::now();
        let cgroup = root.create(&format!("{name}-{round}"))?;
        cgroup.set_weight(Share::from_percent(50)?)?;
        cgroup.set_memory(64 << 20)?;
        cgroup.set_pids(64)?;
        times[0].push(begin.elapsed());
        let begin = Instant::now();
        let shell = Shell::prepare(&ShellSpec {
            name: format!("{name}-{round}"),
            id: KernelIdRange::DEFAULT.get(round).ok_or("too many rounds")?,
            cgroup: &cgroup,
            root: Root::for_linkage(program.linkage()),
            net,
            capabilities: nfluid_sandbox::Capabilities::default(),
            sealed,
            cpus: None,
            zygote,
        })?;
        times[1].push(begin.elapsed());
        let begin = Instant::now();
        let spawned = shell.launch(&Launch::new(&program, &filter))?;
        times[2].push(begin.elapsed());
        spawned.instance.wait()?;
        barriers = Some(spawned.barriers);
        cgroup.remove()?;
    }
    if let Some(barriers) = barriers {
        println!("{barriers}");
    }
    for (what, times) in ["cgroup with limits", "prepare a shell", "launch in it"]
        .iter()
        .zip(times)
    {
        print(&format!("{name}: {what}"), times);
    }
    Ok(())
}

/// Starts the program without any sandbox, as the standard library starts it.
fn plain(path: &str, rounds: u32) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut child = std::process::Command::new(path).spawn()?;
        times.push(begin.elapsed());
        child.wait()?;
    }
    print("no sandbox: posix_spawn", times);
    Ok(())
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| {
        let index = times.len().saturating_sub(1) * percent / 100;
        times.get(index).copied().unwrap_or_default().as_micros()
    };
    println!(
        "{what}: median {} us, 90 % {} us, most {} us",
        at(50),
        at(90),
        at(100)
    );
}
