//! Instances of images that are made from shells are instances like any other.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::images::{
    deployment, get, host, image, log, ports, said, usual, web, write,
};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::pools::{await_shells, pool};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Says everything that a program can see of its surroundings.
const SURVEY: &str = "hostname; id; pwd; env; cat /etc/hosts /etc/hostname /etc/resolv.conf /proc/mounts; \
    ls -la / /dev /etc /srv /proc/self/fd; busybox ip address; busybox ip route; \
    cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/eth0/accept_ra /proc/sys/net/ipv6/conf/eth0/autoconf; \
    busybox grep -E '^(Cap|NoNew|Seccomp|Uid|Gid|Groups|NSpid|Cpus_allowed_list)' /proc/self/status; ulimit -a; \
    echo over > /over && cat /over; touch /data/no; hostname other; mount -t tmpfs none /tmp";

/// The deployment with a pool for the image, whose shells have these keys as well.
fn with_pool(deployment: &str, folder: &Path, keys: &str) -> String {
    let image = format!("'oci:{}'", folder.display());
    format!(
        "{deployment}pool: {{ webs: {{ for: images, image: {image}, ports: 1, size: 2, {keys} }} }}\n"
    )
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim().to_owned()
}

/// Returns a survey without what differs from run to run: times and sizes, numbers of interfaces and sockets, and whether an address has been probed
/// already.
fn lasting(said: &str) -> String {
    let lasting = |line: &str| {
        let is_of_file = line.starts_with(['d', '-', 'l', 'c']) && line.contains(':');
        let line = line.replace(" tentative", "");
        match is_of_file || line.contains("@if") {
            true => without_numbers(&line),
            false => line,
        }
    };
    said.lines().map(lasting).collect::<Vec<_>>().join("\n")
}

/// Replaces each number, which may be wider than another.
fn without_numbers(line: &str) -> String {
    let numbers = |word: &str| {
        word.split(|c: char| c.is_ascii_digit())
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>()
            .join("#")
    };
    line.split_whitespace()
        .map(numbers)
        .collect::<Vec<_>>()
        .join(" ")
}

// promise: 20.10
#[test]
fn an_instance_of_an_image_from_a_shell_is_like_any_other() {
    let test = "an_instance_of_an_image_from_a_shell_is_like_any_other";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let data = platform.directory().join("data");
    fs::create_dir_all(&data).expect("a folder");
    let sandbox = format!(
        "capabilities: [NET_RAW], writable: 2MiB, volumes: [{{ from: {}, at: /data }}]",
        data.display()
    );
    let script = SURVEY.replace('\'', "''");
    let keys = format!(
        "entrypoint: [sh, -c], args: ['exec 2>&1; echo begin; {script}; echo done; sleep 1000'], environment: [A=own], directory: /srv, \
         forwarding: true, restart: never, {sandbox}, {}",
        ports("mtu: 1400, dns: [192.0.2.53], routes: [{ to: 0.0.0.0/0, via: 10.0.0.1 }]")
    );
    let surveyed = |platform: &Platform, pooled: bool| {
        let plain = deployment(&web(&folder, &keys));
        let all = with_pool(&plain, &folder, &sandbox);
        let said = said(platform, if pooled { &all } else { &plain });
        platform.must_say(&["delete", "instance", "web", "--with-links"]);
        let (_, survey) = said.split_once("begin\n").expect("it has begun");
        survey.to_owned()
    };
    let without = surveyed(&platform, false);
    let none = deployment("").replace("  web: \nlinks: [[lan, web.eth0]]\n", "");
    platform.apply(&with_pool(
        &none.replace("instances:\n", ""),
        &folder,
        &sandbox,
    ));
    await_shells(&platform, 2);
    let with = surveyed(&platform, true);
    assert_eq!(pool(&platform)["taken"], 1, "no shell was used");
    assert_eq!(lasting(&with), lasting(&without));
    assert!(
        with.starts_with("web\n") && with.contains("mtu 1400"),
        "{with}"
    );
    assert!(with.ends_with("root?)\ndone\n"), "{with}");

    // An instance asks for another sandbox: no shell is for it.
    platform.apply(&with_pool(
        &deployment(&web(&folder, &ports(""))),
        &folder,
        &sandbox,
    ));
    eventually("it answers", || get(&platform) == "upper");
    assert_eq!(pool(&platform)["taken"], 1);
    platform.must_say(&["delete", "--all"]);
    eventually("nothing runs", || platform.instance_processes().is_empty());
    platform.terminate_daemon();
}

// promise: 20.10
#[test]
fn interfaces_of_a_shell_are_renamed_although_one_has_the_name_of_another() {
    let test = "interfaces_of_a_shell_are_renamed";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let image = format!("image: 'oci:{}'", folder.display());
    platform.apply(&format!(
        "version: 1\npool: {{ webs: {{ for: images, {image}, ports: 2, size: 1 }} }}\n"
    ));
    await_shells(&platform, 1);
    let port = |address: &str| format!("{{ kind: interface, addresses: [{address}/24] }}");
    let deployment = format!(
        "version: 1\ninstances:\n  web:\n    {image}\n    entrypoint: [sh, -c]\n    \
         args: ['busybox ip address; echo done; sleep 1000']\n    ports: {{ eth1: {}, lan: {} }}\n\
         pool: {{ webs: {{ for: images, {image}, ports: 2, size: 1 }} }}\n",
        port("10.1.0.2"),
        port("10.2.0.2")
    );
    let said = said(&platform, &deployment);
    assert_eq!(pool(&platform)["taken"], 1, "{said}");
    for line in ["scope global eth1", "scope global lan"] {
        assert!(said.contains(line), "{said}");
    }
    let (first, second) = (said.find("10.1.0.2/24"), said.find("10.2.0.2/24"));
    assert!(first < second && !said.contains("eth0"), "{said}");
}

// promise: 20.10
#[test]
fn shells_of_what_an_image_was_are_not_used() {
    let test = "shells_of_what_an_image_was_are_not_used";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let data = platform.directory().join("data");
    fs::create_dir_all(&data).expect("a folder");
    let sandbox = format!("volumes: [{{ from: {}, at: /data }}]", data.display());
    let instance = web(&folder, &format!("{sandbox}, {}", ports("")));
    let all = with_pool(&deployment(&instance), &folder, &sandbox);
    let is_from_shell = |platform: &Platform, wanted: bool| {
        await_shells(platform, 2);
        let before = pool(platform);
        platform.apply(&all);
        eventually("it answers", || get(platform) == "upper");
        let after = pool(platform);
        let is_more = |key: &str| before[key].as_u64() < after[key].as_u64();
        assert_eq!(is_more("taken"), wanted, "{before} {after}");
        assert_eq!(is_more("missed"), !wanted, "{before} {after}");
    };
    let end = |platform: &Platform| {
        platform.must_say(&["delete", "instance", "web", "--with-links"]);
    };
    let idle = with_pool(
        &deployment("x").replace("instances:\n  web: x\nlinks: [[lan, web.eth0]]\n", ""),
        &folder,
        &sandbox,
    );
    platform.apply(&idle);
    is_from_shell(&platform, true);

    // Its program is asked to end by the image's signal, also by a daemon that has adopted it. Shells end with their daemon.
    platform.kill_daemon();
    eventually("only the instance is left", || {
        platform.instance_processes().len() == 2
    });
    platform.start();
    assert_eq!(get(&platform), "upper");
    // It starts again by itself, not in a shell.
    signal(platform.pids()["web"], Signal::KILL);
    eventually("it answers again", || get(&platform) == "upper");
    end(&platform);

    // Another image has the name now.
    let mut other = usual();
    other["Env"] = json!(["A=other"]);
    write(&folder, other);
    await_shells(&platform, 2);
    let name = format!("oci:{}", folder.display());
    let (done, imported) = image(&platform, &["import", &name]);
    assert!(done, "{imported}");
    let has_run_other = |times: usize| {
        let starts = || log(&platform).matches("A=other").count();
        eventually("the other image runs", || starts() == times);
    };
    is_from_shell(&platform, false);
    has_run_other(1);
    end(&platform);
    is_from_shell(&platform, true);
    has_run_other(2);
    end(&platform);

    // Another directory is the volume now.
    await_shells(&platform, 2);
    fs::rename(&data, data.with_extension("old")).expect("renamed");
    fs::create_dir_all(&data).expect("a folder");
    is_from_shell(&platform, false);
    end(&platform);

    // The sandboxes of the shells were killed; their monitors wait.
    await_shells(&platform, 2);
    for pid in platform.instance_processes() {
        // A sandbox that waits is still a copy of the process that forked it.
        if name_of(pid) != "nfluid-vmm" {
            signal(pid, Signal::KILL);
        }
    }
    is_from_shell(&platform, false);
    platform.must_say(&["delete", "--all"]);
    // The daemon's threads take back what shells had after it has answered, and images with it.
    eventually("nothing runs and no image is kept", || {
        let (_, pruned) = image(&platform, &["prune"]);
        platform.instance_processes().is_empty() && pruned.contains("0 kept")
    });
}

/// What an instance or a shell could leave behind: descriptors and mounts of the daemon, outer ends, cgroups.
fn belongings(platform: &Platform) -> Vec<(&'static str, usize)> {
    let count = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
    let process = PathBuf::from(format!("/proc/{}", platform.daemon_pid()));
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let ends = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let is_outer = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("nfl");
    let cgroups = platform.cgroups();
    vec![
        ("descriptors", count(&process.join("fd"))),
        ("mounts", mounts.lines().count()),
        ("outer ends", ends.filter(is_outer).count()),
        ("cgroups", cgroups.iter().map(|path| count(path)).sum()),
        ("pins", count(&platform.pins().join("instances"))),
        ("records", count(&platform.run_dir().join("instances"))),
        ("pipes", count(&platform.run_dir().join("bells"))),
    ]
}

// promise: 20.10
#[test]
fn instances_of_images_from_shells_leave_nothing() {
    let test = "instances_of_images_from_shells_leave_nothing";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let instance = web(&folder, &ports(""));
    let one = format!("version: 1\ninstances:\n  web: {instance}\n");
    platform.apply(&with_pool("version: 1\n", &folder, ""));
    let cycle = || {
        await_shells(&platform, 2);
        platform.apply(&with_pool(&one, &folder, ""));
        platform.must_say(&["delete", "instance", "web"]);
    };
    (0..3).for_each(|_| cycle());
    await_shells(&platform, 2);
    let before = belongings(&platform);
    (0..10).for_each(|_| cycle());
    await_shells(&platform, 2);
    assert_eq!(pool(&platform)["taken"], 13, "{}", pool(&platform));
    // Ports and numbers of the last one are removed in the background.
    let more = || -> Vec<String> {
        let now = belongings(&platform).into_iter().zip(&before);
        now.filter(|((_, now), (_, before))| now > before)
            .map(|((what, now), (_, before))| format!("{now} {what} instead of {before}"))
            .collect()
    };
    eventually("nothing is more than before", || {
        let more = more();
        more.iter().for_each(|more| eprintln!("{more}"));
        more.is_empty()
    });
    platform.must_say(&["delete", "--all"]);
    eventually("no shell is left", || {
        platform.instance_processes().is_empty()
    });
}

// promise: 20.10
#[test]
fn a_pool_of_images_that_cannot_be_is_refused() {
    let test = "a_pool_of_images_that_cannot_be_is_refused";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let image = format!("image: 'oci:{}'", folder.display());
    for (keys, why) in [
        ("for: images".to_owned(), "the pool has no image"),
        (image.clone(), "a pool 'for: built-in' has no 'image'"),
        ("capabilities: [NET_RAW]".to_owned(), "has no 'image'"),
        (
            "for: images, image: 'docker://web'".to_owned(),
            "names no image",
        ),
        (
            format!("for: images, {image}, environment: [A=1]"),
            "have no effect for a pool",
        ),
        (
            format!("for: images, {image}, capabilities: [SYS_ADMIN]"),
            "cannot be had",
        ),
    ] {
        let pool = format!("version: 1\npool: {{ webs: {{ size: 1, {keys} }} }}\n");
        let outcome = platform.try_apply(&pool);
        assert!(!outcome.succeeded(), "{keys}");
        assert!(outcome.stderr.contains(why), "{keys}: {}", outcome.stderr);
    }
}
