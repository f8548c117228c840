//! Instances with a Linux kernel of their own, beside and between others.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::linux::LinuxFiles;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::{SERVER, UPLINKS, two_hosts};
use rustix::process::Signal;

/// Two hosts, and the files of a machine, or the test is skipped.
fn hosts_with_kernel(test: &str) -> Option<(Platform, LinuxFiles)> {
    let platform = two_hosts(test)?;
    let folder = platform.directory().join("machine");
    std::fs::create_dir_all(&folder).expect("a folder");
    let Some(files) = LinuxFiles::bridge(&folder) else {
        skip(
            test,
            "it needs Debian's kernel ('cargo xtask guest' unpacks it) and busybox",
        );
        return None;
    };
    Some((platform, files))
}

/// A chain of a machine with a kernel, and of a built-in NF.
fn chain(files: &LinuxFiles, keys: &str) -> String {
    format!(
        "{UPLINKS}instances:
  machine:
    program: {}
    tier: linux
    memory: 256MiB
    config: {{ initrd: {}, append: quiet{keys} }}
  fw: {{ nf: firewall, config: {{ rules: 'allow icmp from any to any' }} }}
chains:
  web: {{ from: lan, to: wan, via: [machine, fw] }}
",
        files.kernel.display(),
        files.initrd.display()
    )
}

/// The processes of the instance with a kernel: its monitor, and the emulator.
fn processes(platform: &Platform) -> (u32, u32) {
    let monitor = platform.pids()["machine"];
    let firewall = platform.pids()["fw"];
    let others = platform.instance_processes();
    let mut others = others
        .into_iter()
        .filter(|pid| *pid != monitor && *pid != firewall);
    let emulator = others.next().expect("an emulator");
    assert_eq!(others.next(), None);
    (monitor, emulator)
}

// promise: 18.11
#[test]
fn a_linux_kernel_is_a_network_function() {
    let test = "a_linux_kernel_is_a_network_function";
    let Some((mut platform, files)) = hosts_with_kernel(test) else {
        return;
    };
    platform.apply(&chain(&files, ""));
    eventually("a ping crosses the machine", || {
        platform.pings("client", SERVER)
    });
    assert_eq!(platform.instance("machine")["tier"], "linux");
    platform.await_log("machine", "the machine is emulated");
    platform.await_log("machine", "the bridge is up");
    let counters = platform.page("/metrics");
    assert!(counters.contains("machine_frames_in_total"), "{counters}");

    // It is held with everything in it, and outlives the daemon.
    platform.must_say(&["pause", "machine"]);
    assert!(!platform.pings("client", SERVER));
    platform.must_say(&["unpause", "machine"]);
    eventually("a ping crosses after the pause", || {
        platform.pings("client", SERVER)
    });
    let before = processes(&platform);
    platform.kill_daemon();
    platform.start();
    assert_eq!(processes(&platform), before);
    assert!(platform.reaches("client", SERVER));

    // Another configuration starts the machine anew. What it cannot do is refused.
    platform.apply(&chain(&files, " loglevel=4"));
    assert_ne!(processes(&platform), before);
    eventually("a ping crosses the changed machine", || {
        platform.pings("client", SERVER)
    });
    let file = platform.directory().join("machine.state");
    let file = file.to_str().expect("text");
    platform.must_refuse(&["save", "machine", file], "has no state");
    platform.must_refuse(&["command", "machine", "any"], "has no commands");

    // Monitor and emulator end together, whoever is first, and both are started again.
    for which in ["monitor", "emulator"] {
        let (monitor, emulator) = processes(&platform);
        signal(
            if which == "monitor" {
                monitor
            } else {
                emulator
            },
            Signal::KILL,
        );
        eventually("both are others", || {
            let now = platform.instance_processes();
            let runs = platform.pids().contains_key("machine");
            runs && now.len() == 3 && !now.contains(&monitor) && !now.contains(&emulator)
        });
        eventually("a ping crosses the new machine", || {
            platform.pings("client", SERVER)
        });
    }
    platform.must_say(&["delete", "--all"]);
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}

// promise: 18.13
#[test]
fn kvm_runs_the_machine_where_it_is_asked_for() {
    let test = "kvm_runs_the_machine_where_it_is_asked_for";
    let Some((platform, files)) = hosts_with_kernel(test) else {
        return;
    };
    if let Err(why) = nfluid_sandbox::has_kvm() {
        skip(test, &why);
        return;
    }
    let accelerated = chain(&files, ", accelerator: kvm");
    platform.apply(&accelerated);
    platform.await_log("machine", "KVM runs the machine");
    let (_, emulator) = processes(&platform);
    let has_processor = || {
        let descriptors = std::fs::read_dir(format!("/proc/{emulator}/fd")).expect("descriptors");
        let names = descriptors.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
        names
            .into_iter()
            .any(|name| name.to_string_lossy().contains("kvm-vcpu"))
    };
    eventually("it has a virtual processor", has_processor);
    // Where KVM emulates ring 0, a kernel does not come up in a time that a test can wait for.
    if nfluid_sandbox::runs_kernels().is_ok() {
        eventually("a ping crosses the machine", || {
            platform.pings("client", SERVER)
        });
    }
    // Nobody else sees the node, and it is gone with the machine.
    let root = std::fs::read_dir(format!("/proc/{emulator}/root/dev")).expect("devices");
    let devices: Vec<_> = root.filter_map(|it| Some(it.ok()?.file_name())).collect();
    assert_eq!(devices, ["kvm"]);
    let firewall = platform.pids()["fw"];
    assert!(!std::path::Path::new(&format!("/proc/{firewall}/root/dev")).exists());
    platform.apply(&chain(&files, ", accelerator: tcg"));
    platform.await_log("machine", "asked for by 'accelerator: tcg'");
    let (_, other) = processes(&platform);
    assert!(!std::path::Path::new(&format!("/proc/{other}/root/dev")).exists());
}

// promise: 18.12
#[test]
fn a_machine_that_cannot_be_is_refused_with_a_remedy() {
    let test = "a_machine_that_cannot_be_is_refused_with_a_remedy";
    let Some((platform, files)) = hosts_with_kernel(test) else {
        return;
    };
    let (kernel, initrd) = (files.kernel.display(), files.initrd.display());
    for (instance, why) in [
        ("{ nf: bridge, tier: linux }".to_owned(), "runs a kernel"),
        (
            format!("{{ program: {kernel}, tier: linux, memory: 64MiB }}"),
            "write 'memory: 192MiB'",
        ),
        (
            format!(
                "{{ program: {kernel}, tier: linux, memory: 256MiB, config: {{ initrt: x }} }}"
            ),
            "unknown field `initrt`",
        ),
        (
            format!(
                "{{ program: {kernel}, tier: linux, memory: 256MiB, config: {{ accelerator: xen }} }}"
            ),
            "unknown variant `xen`",
        ),
        (
            format!(
                "{{ program: {kernel}, tier: linux, memory: 256MiB, config: {{ initrd: /none }} }}"
            ),
            "config.initrd: /none",
        ),
        (
            format!("{{ program: {kernel}/none, tier: linux, memory: 256MiB }}"),
            "program: ",
        ),
        (
            format!(
                "{{ program: {kernel}, tier: linux, memory: 256MiB, args: [x], config: {{ initrd: {initrd} }} }}"
            ),
            "no arguments",
        ),
        (
            format!(
                "{{ program: {kernel}, tier: linux, memory: 256MiB, ports: {{ in: {{ queues: 2 }} }} }}"
            ),
            "one thread",
        ),
    ] {
        platform.must_refuse_instance(&instance, why);
    }
    assert!(platform.instance_processes().is_empty());
    // What is no kernel does not start, which the log says, and nothing is left.
    let text = files.kernel.with_file_name("text");
    std::fs::write(&text, "no kernel\n").expect("written");
    let text = text.display();
    platform.try_apply(&format!(
        "version: 1\ninstances: {{ machine: {{ program: {text}, tier: linux, memory: 256MiB, restart: never }} }}\n"
    ));
    platform.await_log("machine", "the machine has ended");
    eventually("nothing is left", || {
        platform.instance_processes().is_empty()
    });
}
