//! Programs of container images as instances: what an image says is done, what it should not have it does not get.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::images::{
    self, deployment, get, host, image, log, ports, usual, web, write,
};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

/// Runs a script in an instance of the image, and returns what it has said when it says `done`.
fn said(platform: &Platform, folder: &Path, script: &str, keys: &str) -> String {
    let script = script.replace('\'', "''");
    let keys = format!(
        "restart: never, entrypoint: [sh, -c], args: ['{script}; echo done; sleep 1000'], {keys}"
    );
    let said = images::said(platform, &deployment(&web(folder, &keys)));
    platform.must_say(&["delete", "--all"]);
    said
}

// promise: 20.5
#[test]
fn an_image_is_an_instance_as_it_says() {
    let test = "an_image_is_an_instance_as_it_says";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    platform.apply(&deployment(&web(
        &folder,
        &format!("environment: [B=3, C=4], {}", ports("")),
    )));
    eventually("it answers", || get(&platform) == "upper");
    let first = "entry httpd -f -v -p 8080 -h /srv as 1000:1000 in /srv/made A=1 B=3";
    platform.await_log("web", first);

    // The image stays while it runs, also when the daemon has changed, and another with its name is for later.
    platform.kill_daemon();
    platform.start();
    assert_eq!(get(&platform), "upper");
    let (_, pruned) = image(&platform, &["prune"]);
    assert!(pruned.contains("0 images removed, 1 kept"), "{pruned}");
    let mut other = usual();
    other["Env"] = json!(["A=other"]);
    write(&folder, other);
    let name = format!("oci:{}", folder.display());
    let (done, imported) = image(&platform, &["import", &name]);
    assert!(done && imported.contains("0 of them new"), "{imported}");
    assert!(!log(&platform).contains("A=other"));
    let before = platform.instance_processes();
    platform.must_say(&["restart", "web"]);
    eventually("it runs what the name is now", || {
        log(&platform).contains("A=other")
    });
    eventually("it answers again", || get(&platform) == "upper");
    assert!(
        platform
            .instance_processes()
            .iter()
            .all(|pid| !before.contains(pid))
    );
    let (_, pruned) = image(&platform, &["prune"]);
    assert!(pruned.contains("1 images removed, 1 kept"), "{pruned}");
    let (done, inspected) = image(&platform, &["inspect", &name, "-o", "json"]);
    assert!(done && inspected.contains("A=other"), "{inspected}");

    // The place that it came from is not needed to start it again.
    fs::remove_dir_all(&folder).expect("removed");
    signal(platform.pids()["web"], Signal::KILL);
    eventually("it answers again", || get(&platform) == "upper");
    platform.must_say(&["delete", "--all"]);
    eventually("nothing runs", || platform.instance_processes().is_empty());
    let (_, pruned) = image(&platform, &["prune"]);
    assert!(pruned.contains("1 images removed, 0 kept"), "{pruned}");
    let layers = platform.directory().join("state/images/layers");
    assert_eq!(fs::read_dir(layers).expect("a folder").count(), 0);
}

// promise: 20.6
#[test]
fn an_instance_is_one_user_and_has_that_users_files() {
    let test = "an_instance_is_one_user_and_has_that_users_files";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, json!({}));
    let script = "id -u; sleep 1; id -g; cat /root/secret; cat /var/web/own; echo $HOME; touch /srv/new && stat -c %U:%a /srv/new; \
                  ls /srv; chown 5 /srv/new; test -u /bin/busybox";
    let root = said(&platform, &folder, script, &ports(""));
    assert!(
        root.contains(
            "1000\n1000\nof rootcat: can't open '/var/web/own': Permission denied\n/root\n"
        ),
        "{root}"
    );
    assert!(
        root.contains(":644\nindex.html\nmade\nnew\n") || root.contains(":644\nindex.html\nnew\n"),
        "{root}"
    );
    let web = said(
        &platform,
        &folder,
        script,
        &format!("user: web, {}", ports("")),
    );
    assert!(
        web.contains(
            "101\n102\ncat: can't open '/root/secret': Permission denied\nof web/var/web\n"
        ),
        "{web}"
    );
    assert!(web.contains("touch: /srv/new: Permission denied"), "{web}");
    // What one has written no other sees, and neither does the image.
    let again = said(&platform, &folder, "ls /srv", &ports(""));
    assert!(again.contains("index.html\ndone"), "{again}");
    platform.must_refuse_instance(
        &web_of(&folder, "user: nobody"),
        "the image has no user 'nobody'",
    );
}

fn web_of(folder: &Path, keys: &str) -> String {
    web(
        folder,
        &format!("restart: never, entrypoint: [sh], {keys}, {}", ports("")),
    )
}

// promise: 20.7
#[test]
fn a_hostile_image_reaches_nothing_of_the_host() {
    let test = "a_hostile_image_reaches_nothing_of_the_host";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, json!({}));
    let (data, shown) = (
        platform.directory().join("data"),
        platform.directory().join("shown"),
    );
    for (path, owner) in [(&data, 4321), (&shown, 0)] {
        fs::create_dir_all(path).expect("a folder");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("readable");
        chown(path, Some(owner), Some(owner)).expect("an owner");
    }
    fs::write(shown.join("text"), "shown").expect("written");
    let script = "cat /etc/shadow /proc/1/environ >/dev/null; ls -d /proc/[0-9]*; cat /proc/meminfo; ls /sys; \
                  mount -t tmpfs none /tmp; mount -t proc none /proc; ls /dev; cat /shown/text; touch /shown/x; rm -f /shown/text; \
                  touch /data/x; mkdir /data/y; echo >/data/x; chmod 4755 /data/x; chmod 2755 /data/x; chmod u+s /data/x; /data/../entry.sh 2>/dev/null; \
                  dd if=/dev/zero of=/srv/big bs=1M count=40 2>&1; ls -l /srv/big; echo one > /dev/stdout; echo two > /dev/stderr; \
                  echo $(hostname); cat /etc/hosts /etc/resolv.conf; kill -9 1; ping -c 1 -W 1 127.0.0.1";
    let keys = format!(
        "writable: 16MiB, volumes: [{{ from: {}, at: /data, write: true }}, {{ from: {}, at: /shown }}], {}",
        data.display(),
        shown.display(),
        ports("dns: [192.0.2.53]")
    );
    let said = said(&platform, &folder, script, &keys);
    for wanted in [
        "can't open '/etc/shadow'",
        "can't open '/proc/meminfo'",
        "mount: permission denied",
        "chmod: /data/x: Operation not permitted",
        "touch: /shown/x: Read-only file system",
        "rm: can't remove '/shown/text': Read-only file system",
        "No space left on device",
        "one\ntwo\nweb\n127.0.0.1 localhost",
        "nameserver 192.0.2.53",
        "shown",
    ] {
        assert!(said.contains(wanted), "no {wanted}: {said}");
    }
    let processes = said
        .lines()
        .filter(|line| line.starts_with("/proc/"))
        .count();
    assert!((1..=3).contains(&processes), "{said}");
    assert!(!said.contains("mem\n") && !said.contains("sda"), "{said}");
    // The owner of the directory is the owner of what was made there.
    let made = fs::metadata(data.join("x")).expect("it was made");
    assert_eq!((made.uid(), made.gid()), (4321, 4321));
    assert_eq!(
        made.mode() & 0o7777,
        0o644,
        "whoever executes it would be its owner"
    );
    assert_eq!(fs::read_dir(&shown).expect("a folder").count(), 1);
}

// promise: 20.8
#[test]
fn a_program_is_asked_to_end_before_it_is_killed() {
    let test = "a_program_is_asked_to_end_before_it_is_killed";
    let Some((mut platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let data = platform.directory().join("data");
    fs::create_dir_all(&data).expect("a folder");
    let run = |platform: &Platform, word: &str, keys: &str| {
        let script = format!(
            "trap \"echo {word} > /data/{word}; exit 0\" QUIT USR1; echo ready {word}; while true; do sleep 0.05; done"
        );
        let keys = format!(
            "entrypoint: [sh, -c], args: ['{script}'], volumes: [{{ from: {}, at: /data, write: true }}], {keys} {}",
            data.display(),
            ports("")
        );
        platform.apply(&deployment(&web(&folder, &keys)));
        eventually("it is ready", || {
            log(platform).contains(&format!("ready {word}"))
        });
    };
    run(&platform, "image", "");
    platform.must_say(&["delete", "--all"]);
    assert!(
        data.join("image").is_file(),
        "it was not asked by the image's signal"
    );
    run(&platform, "own", "stop: { signal: USR1, wait: 20s },");
    // Also by a daemon that has adopted it.
    platform.kill_daemon();
    platform.start();
    platform.must_say(&["restart", "web"]);
    assert!(
        data.join("own").is_file(),
        "it was not asked by its own signal"
    );
    // A signal that means nothing to it is not waited for; one that is held goes on for the time it has.
    run(&platform, "deaf", "stop: { signal: INT, wait: 60s },");
    platform.must_say(&["delete", "--all"]);
    assert!(!data.join("deaf").exists());
    run(&platform, "held", "stop: { signal: USR1, wait: 20s },");
    platform.must_say(&["pause", "web"]);
    platform.must_say(&["delete", "--all"]);
    assert!(
        data.join("held").is_file(),
        "it was not asked when it went on"
    );
    // A request may say how, and is refused without anybody being asked.
    run(&platform, "asked", "stop: { signal: INT, wait: 60s },");
    let delete = |query: &str| {
        let path = format!("/v1/instances/web?with_links=true&{query}");
        platform.requests("DELETE", &path, &Value::Null)
    };
    for query in ["stop_signal=NONE", "stop_wait_ms=90001", "stop_wait_ms=-1"] {
        assert!(!delete(query), "{query}");
    }
    assert!(!data.join("asked").exists());
    assert!(delete("stop_signal=USR1&stop_wait_ms=20000"));
    assert!(
        data.join("asked").is_file(),
        "it was not asked as the request says"
    );
    eventually("nothing runs", || platform.instance_processes().is_empty());
}

// What is still in use is not asked to end.
// promise: 20.8
#[test]
fn a_program_that_stays_is_not_asked_to_end() {
    let test = "a_program_that_stays_is_not_asked_to_end";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, usual());
    let script = "trap \"exit 0\" TERM; echo ready; while true; do sleep 0.05; done";
    let keys = format!(
        "entrypoint: [sh, -c], args: ['{script}'], restart: never, {}",
        ports("")
    );
    platform.apply(&deployment(&web(&folder, &keys)));
    platform.await_log("web", "ready");
    // Its link stays: the request is refused.
    assert!(!platform.requests("DELETE", "/v1/instances/web", &Value::Null));
    assert!(platform.requests(
        "DELETE",
        "/v1/instances/web?dry_run=true&with_links=true",
        &Value::Null
    ));
    assert_eq!(platform.ask(&["get", "instances"])[0]["state"], "running");
    platform.must_say(&["delete", "--all"]);
}

// Catches: the host is locked while a program is asked to end; its exit counts as a crash, and it is started again meanwhile.
// promise: 7.41
#[test]
fn a_program_that_takes_its_time_to_end_holds_nobody_up() {
    let test = "a_program_that_takes_its_time_to_end_holds_nobody_up";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, json!({}));
    let data = folder.join("data");
    fs::create_dir_all(&data).expect("a folder");
    let (asked, go) = (data.join("asked"), data.join("go"));
    let script = "trap 'touch /data/asked; while ! [ -e /data/go ]; do sleep 0.05; done; exit 0' TERM; echo ready; echo run >> /data/runs; while true; do sleep 0.05; done";
    let keys = format!(
        "entrypoint: [sh, -c], args: [\"{script}\"], restart: always, stop: {{ wait: 60s }}, volumes: [{{ from: {}, at: /data, write: true }}], {}",
        data.display(),
        ports("")
    );
    platform.apply(&deployment(&web(&folder, &keys)));
    let other = platform.directory().join("other.yaml");
    fs::write(&other, "version: 1\ninstances: { other: { nf: bridge } }\n").expect("ours");
    let other = other.to_str().expect("a path that is text");
    platform.must_say(&["apply", "--add", "-f", other]);
    let runs = || fs::read_to_string(data.join("runs")).map_or(0, |text| text.lines().count());
    let acts = [
        &["restart", "web"][..],
        &["delete", "instance", "web", "--with-links"],
    ];
    for (number, act) in acts.into_iter().enumerate() {
        eventually("it is ready", || runs() == number + 1);
        thread::scope(|scope| {
            let ending = scope.spawn(|| platform.nfluid(act));
            eventually("it is asked", || asked.exists());
            // Others are looked at, and restarted, while it takes its time.
            let before = platform.pids()["other"];
            platform.must_say(&["restart", "other"]);
            assert_ne!(platform.pids()["other"], before);
            // Changes are made, too.
            let more = format!("version: 1\ninstances: {{ more-{number}: {{ nf: bridge }} }}\n");
            let file = platform.directory().join("more.yaml");
            fs::write(&file, more).expect("ours");
            platform.must_say(&["apply", "--add", "-f", &file.display().to_string()]);
            assert!(!ending.is_finished(), "it takes as long as it may");
            fs::write(&go, "").expect("ours");
            let ended = ending.join().expect("no panic");
            assert!(ended.succeeded(), "{ended:?}");
        });
        for file in [&asked, &go] {
            fs::remove_file(file).expect("ours");
        }
    }
    assert_eq!(runs(), 2, "it was started as often as it should be");
    let events = platform.must_say(&["events"]);
    assert!(!events.contains("exited"), "{events}");
    platform.must_say(&["delete", "--all"]);
    eventually("nothing runs", || platform.instance_processes().is_empty());
}

// promise: 20.9
#[test]
fn an_image_that_cannot_run_is_said_and_leaves_nothing() {
    let test = "an_image_that_cannot_run_is_said_and_leaves_nothing";
    let Some((platform, folder)) = host(test) else {
        return;
    };
    write(&folder, json!({}));
    let own = ports("");
    let at = |keys: &str| web(&folder, &format!("restart: never, {keys}, {own}"));
    for (instance, why) in [
        (
            web(Path::new("/none"), &format!("restart: never, {own}")),
            "cannot open /none",
        ),
        (at("flavor: medium"), "the image names no program"),
        (at("entrypoint: [none]"), "the image has no program 'none'"),
        (at("entrypoint: [/none]"), "the image has no /none"),
        (at("entrypoint: [/etc/passwd]"), "is not an ELF executable"),
        (at("entrypoint: [/srv]"), "is no file"),
        (at("entrypoint: [sh], volumes: [/none]"), "the volume /none"),
        (
            at("entrypoint: [sh], volumes: [{ from: /srv, at: /bin/busybox/x }]"),
            "/bin/busybox",
        ),
        (
            "{ image: 'docker://web', ports: { eth0: { kind: interface } } }".to_owned(),
            "names no image",
        ),
        ("{ image: 'oci:/web' }".to_owned(), "are interfaces"),
    ] {
        platform.must_refuse_instance(&instance, why);
        assert!(platform.instance_processes().is_empty(), "{instance}");
    }
    let (_, pruned) = image(&platform, &["prune"]);
    assert!(pruned.contains("1 images removed, 0 kept"), "{pruned}");
}
