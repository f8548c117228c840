//! A daemon that tests kill: starts an instance or prepares a shell, prints its process id, and waits.
//!
//! `nfluid-test-parent instance|shell CGROUP USER`: makes the cgroup `daemon` below the platform's directory CGROUP,
//! with the host's user number USER. Prints one line, `pid start-time boot-id` (for a shell the pid alone), and waits
//! for the end of its standard input.

use nfluid_sandbox::cgroup::CgroupRoot;
use nfluid_sandbox::seccomp::Policy;
use nfluid_sandbox::{KernelIdRange, Launch, NetNs, Program, Root, Shell, ShellSpec, Zygote};
use nfluid_tests::harness::{program::program, sandboxed::LEVEL};
use std::error::Error;
use std::ffi::CString;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, cgroup, user] = arguments.as_slice() else {
        return Err("usage: nfluid-test-parent instance|shell CGROUP USER".into());
    };
    let zygote = Zygote::start()?;
    let program = Program::open(&program("nfluid-test-hostile"))?;
    let filter = Policy::new(program.linkage(), LEVEL).compile()?;
    let cgroup = CgroupRoot::new(cgroup)?.create("daemon")?;
    let ids = KernelIdRange::new(user.parse()?, 1)?;
    let shell = Shell::prepare(&ShellSpec {
        name: "orphan".to_owned(),
        id: ids.get(0).ok_or("an empty range")?,
        cgroup: &cgroup,
        root: Root::for_linkage(program.linkage()),
        net: NetNs::Own,
        capabilities: nfluid_sandbox::Capabilities::default(),
        sealed: None,
        cpus: None,
        zygote: Some(&zygote),
    })?;
    if what == "shell" {
        println!("{}", shell.pid());
        wait()?;
        return Ok(());
    }
    let spawned = shell.launch(&Launch {
        argv: vec![CString::new("orphan")?, CString::new("burn-until")?],
        ..Launch::new(&program, &filter)
    })?;
    let identity = spawned.instance.identity();
    println!(
        "{} {} {}",
        identity.pid, identity.start_time, identity.boot_id
    );
    wait()
}

fn wait() -> Result<(), Box<dyn Error>> {
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
