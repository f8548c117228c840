//! nginx from a container image: from the request until its first HTTP answer, as an instance from a pool, as one without, and
//! by crun, runc and podman, beside no other instance and beside many (target `oci.create`).
//!
//! A measurement begins when the pool is full: nobody is measured while shells are made. All have the same files. The others are given a network namespace that is there already, and no cgroup; crun and runc also
//! their files, unpacked. They run in a mount namespace with a tree of cgroup v2 alone, without which crun refuses to.

use super::creation::peers::{tool, write_bundle};
use crate::host::cpu::require_two_cores;
use crate::host::platform;
use crate::report::{Report, table};
use anyhow::{Context, bail, ensure};
use nfluid_figures::statistics::Samples;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::image::{Layer, Layout};
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const OURS: &str = "10.1.0.2";
const THEIRS: &str = "10.2.0.2";
const PORT: u16 = 8080;
/// Shells in the pool.
const SHELLS: u64 = 4;
/// Time after which nobody is going to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The configuration: whoever nginx runs as, it stays that user.
const CONFIGURATION: &str = "daemon off; user root root; error_log stderr; pid /run/nginx.pid; worker_processes 1;
events { }
http {
  access_log off;
  client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
  server { listen 8080; root /srv; }
}";
const ARGUMENTS: [&str; 3] = ["/usr/sbin/nginx", "-c", "/etc/nginx.conf"];

struct Setup {
    platform: Platform,
    directory: ScratchDirectory,
    client: Namespace,
    theirs: Namespace,
    _edge: Namespace,
    /// The image, as documents name it.
    image: String,
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let [client, edge, theirs] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        Namespace::join((&client, "ours"), (&edge, "n0"))?;
        Namespace::join((&client, "theirs"), (&theirs, "eth0"))?;
        client.ip("address add 10.1.0.1/24 dev ours")?;
        client.ip("address add 10.2.0.1/24 dev theirs")?;
        theirs.ip(&format!("address add {THEIRS}/24 dev eth0"))?;
        let directory = ScratchDirectory::new()?;
        let folder = directory.as_ref().canonicalize()?;
        write_image(&folder)?;
        let image = format!("oci:{}", folder.join("oci").display());
        let platform = platform::start_with(
            "",
            &[
                "--image-dir".to_owned(),
                folder.join("images").display().to_string(),
            ],
        )?;
        // Else each link changes the offloads of the interface, which takes the kernel 50 ms.
        let uplink = json!({ "interface": "n0", "netns": edge.name(), "super": "off" });
        let pool = json!({ "for": "images", "image": image, "ports": 1, "size": SHELLS });
        let document = json!({
            "version": 1, "overcommit": true, "uplinks": { "lan": uplink }, "pool": { "web": pool },
        });
        platform.apply(&document.to_string())?;
        Ok(Setup {
            platform,
            directory,
            client,
            theirs,
            _edge: edge,
            image,
        })
    }

    fn instance(&self, address: &str, is_pooled: bool) -> Value {
        let mut instance = json!({
            "image": self.image,
            "memory": "32MiB",
            "ports": { "eth0": { "kind": "interface", "addresses": [format!("{address}/24")] } },
        });
        if !is_pooled {
            // The shells have another sandbox.
            instance["writable"] = json!("60MiB");
        }
        instance
    }

    /// Waits until the pool is full.
    fn await_shells(&self) -> anyhow::Result<()> {
        self.platform.api()?.await_shells(SHELLS)
    }

    /// Makes instances until there are `count`.
    fn populate(&self, from: usize, count: usize) -> anyhow::Result<()> {
        let mut api = self.platform.api()?;
        for number in from..count {
            interrupt::check()?;
            let instance = json!({ "instance": self.instance("10.9.0.2", false) });
            api.request("PUT", &format!("/v1/instances/idle{number}"), &instance)?;
        }
        Ok(())
    }

    /// Returns the milliseconds until an instance answers.
    fn instance_ms(&self, is_pooled: bool) -> anyhow::Result<f64> {
        self.await_shells()?;
        let mut api = self.platform.api()?;
        let instance = self.instance(OURS, is_pooled);
        let request = json!({ "instance": instance, "links": [["lan", "web.eth0"]] });
        let start = Instant::now();
        api.request("PUT", "/v1/instances/web", &request)?;
        self.await_answer(OURS, start + PATIENCE)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        api.request("DELETE", "/v1/instances/web?with_links=true", &Value::Null)?;
        Ok(ms)
    }

    /// Waits until nginx answers a request.
    fn await_answer(&self, address: &str, end: Instant) -> anyhow::Result<()> {
        let place: SocketAddr = format!("{address}:{PORT}").parse()?;
        self.client.within(|| {
            while Instant::now() < end {
                interrupt::check()?;
                match ask(place) {
                    Ok(()) => return Ok(()),
                    Err(_) => std::thread::sleep(Duration::from_micros(300)),
                }
            }
            bail!("nobody answers at {place}")
        })
    }
}

fn ask(place: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&place, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "another answer");
    Ok(())
}

/// Writes the image below a directory, and its files unpacked.
fn write_image(folder: &Path) -> anyhow::Result<()> {
    let nginx = tool("nginx", "nginx-light")?;
    let mut layer = Layer::default();
    layer.program(&nginx)?;
    for (path, content) in [
        ("etc/nginx.conf", CONFIGURATION),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/group", "root:x:0:\n"),
        ("srv/index.html", "hello\n"),
        ("run/.keep", ""),
        ("tmp/.keep", ""),
        ("var/log/nginx/.keep", ""),
        ("var/lib/nginx/.keep", ""),
        ("proc/.keep", ""),
        ("sys/.keep", ""),
        ("dev/.keep", ""),
    ] {
        layer.file(path, 0o644, (0, 0), content.as_bytes())?;
    }
    let layer = layer.finish()?;
    let layout_folder = folder.join("oci");
    let layout = Layout::new(&layout_folder, json!({ "Entrypoint": ARGUMENTS }));
    layout.write_plain(std::slice::from_ref(&layer))?;
    fs::write(folder.join("layer.tar"), layer)?;
    let files = folder.join("rootfs");
    fs::create_dir(&files)?;
    let mut tar = Command::new("tar");
    output(
        tar.arg("-C")
            .arg(&files)
            .arg("-xf")
            .arg(folder.join("layer.tar")),
    )?;
    Ok(())
}

/// Another way to run the image.
struct Peer {
    name: &'static str,
    start: Vec<String>,
    end: Vec<String>,
    ms: Samples,
}

impl Peer {
    /// Returns the milliseconds until its nginx answers.
    fn measure(&mut self, setup: &Setup) -> anyhow::Result<f64> {
        setup.await_shells()?;
        let start = Instant::now();
        run(&self.start)?;
        let answered = setup.await_answer(THEIRS, start + PATIENCE);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        run(&self.end)?;
        answered.map(|()| ms)
    }
}

/// Runs a command in the calling thread's namespaces. Nobody reads what it leaves running says.
fn run(words: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command
        .status()
        .with_context(|| format!("starting {program}"))?;
    ensure!(status.success(), "{}: {status}", words.join(" "));
    Ok(())
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// The ways that this host has, and why others are left out. Runs in a thread with mounts of its own.
fn peers(setup: &Setup) -> (Vec<Peer>, Vec<String>) {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    let id = format!("nfluid-bench-{}", std::process::id());
    for name in ["alone", "crun", "runc", "podman"] {
        let made = match name {
            "alone" => alone(setup),
            "podman" => podman(setup, &id),
            _ => runtime(setup, name, &id),
        };
        let tried = made.and_then(|mut peer| peer.measure(setup).map(|_| peer));
        match tried {
            Ok(peer) => found.push(peer),
            Err(why) => left_out.push(format!("{name}: {why:#}")),
        }
    }
    (found, left_out)
}

/// nginx without any container: in the same files and the same network namespace, which takes two programs more. Less than what
/// nginx takes by itself nobody can reach.
fn alone(setup: &Setup) -> anyhow::Result<Peer> {
    let [setsid, nsenter] = ["setsid", "nsenter"].map(|name| tool(name, "util-linux"));
    let files = setup.directory.path("rootfs");
    let start = [
        setsid?.display().to_string(),
        "--fork".to_owned(),
        nsenter?.display().to_string(),
        format!("--net={}", setup.theirs.path().display()),
        format!("--root={}", files.display()),
    ];
    let pid = files.join("run/nginx.pid");
    let end = format!(
        "kill -QUIT $(cat {0}); while test -e {0}; do sleep 0.01; done",
        pid.display()
    );
    Ok(Peer {
        name: "alone",
        start: [&start[..], &words(&ARGUMENTS)].concat(),
        end: words(&["sh", "-c", &end]),
        ms: Samples::default(),
    })
}

fn runtime(setup: &Setup, name: &'static str, id: &str) -> anyhow::Result<Peer> {
    let program = tool(name, name)?;
    let bundle = setup.directory.path(name);
    // That of the round before.
    let _ = fs::remove_dir_all(&bundle);
    write_bundle(&program, &bundle, |spec| {
        spec["process"]["args"] = json!(ARGUMENTS);
        spec["root"] = json!({ "path": setup.directory.path("rootfs"), "readonly": false });
        if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
            namespaces.retain(|one| one["type"] != "network" && one["type"] != "cgroup");
            namespaces.push(json!({ "type": "network", "path": setup.theirs.path() }));
        }
    })?;
    let program = program.display().to_string();
    let bundle = bundle.display().to_string();
    let mut start = vec![program];
    if name == "crun" {
        start.push("--cgroup-manager=disabled".to_owned());
    }
    let end = [&start[..], &words(&["delete", "--force", id])].concat();
    start.extend(words(&["run", "--detach", "--bundle", &bundle, id]));
    Ok(Peer {
        name,
        start,
        end,
        ms: Samples::default(),
    })
}

fn podman(setup: &Setup, id: &str) -> anyhow::Result<Peer> {
    let program = tool("podman", "podman")?.display().to_string();
    let own = |name: &str| setup.directory.path(name).display().to_string();
    let (storage, run_root) = (own("podman"), own("podman-run"));
    let base = words(&[
        &program,
        "--root",
        &storage,
        "--runroot",
        &run_root,
        "--storage-driver",
        "overlay",
        "--cgroup-manager",
        "cgroupfs",
    ]);
    let import = words(&["import", &own("layer.tar"), id]);
    run(&[&base[..], &import].concat())?;
    let network = format!("ns:{}", setup.theirs.path().display());
    let start = words(&[
        "run",
        "--detach",
        "--pull",
        "never",
        "--cgroups",
        "disabled",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
        "--network",
        &network,
        "--name",
        id,
        id,
    ]);
    let start = [&base[..], &start, &words(&ARGUMENTS)].concat();
    let end = [&base[..], &words(&["rm", "--force", "--time", "0", id])].concat();
    Ok(Peer {
        name: "podman",
        start,
        end,
        ms: Samples::default(),
    })
}

/// Leaves the calling thread a tree of cgroup v2 and nothing of v1.
fn with_unified_cgroups() -> anyhow::Result<()> {
    // SAFETY: only the mounts of this thread change; its descriptor table does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.context("a mount namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(c"/", private).context("private mounts")?;
    let place = c"/sys/fs/cgroup";
    unmount(place, UnmountFlags::DETACH).context("leaving the cgroups")?;
    mount(c"none", place, c"cgroup2", MountFlags::empty(), None).context("mounting cgroup v2")
}

/// Runs the experiment.
pub fn run_images(report: &mut Report) -> anyhow::Result<()> {
    require_two_cores()?;
    let (numbers, rounds) = report.choose(([0, 100], 20), ([0, 3], 2));
    let setup = Setup::new()?;
    let measured = std::thread::scope(|scope| {
        scope
            .spawn(|| measure(report, &setup, numbers, rounds))
            .join()
    });
    measured.map_err(|_| anyhow::anyhow!("the measuring thread failed"))?
}

fn measure(
    report: &mut Report,
    setup: &Setup,
    numbers: [usize; 2],
    rounds: usize,
) -> anyhow::Result<()> {
    with_unified_cgroups()?;
    // The first one imports the image.
    setup.instance_ms(false)?;
    let mut rows = Vec::new();
    let mut before = 0;
    for idle in numbers {
        setup.populate(before, idle)?;
        before = idle;
        report.settle();
        let (mut peers, left_out) = peers(setup);
        for why in left_out {
            println!("left out: {why}");
        }
        let (mut ours, mut without) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            interrupt::check()?;
            ours.push(setup.instance_ms(true)?);
            without.push(setup.instance_ms(false)?);
            for peer in &mut peers {
                let ms = peer.measure(setup)?;
                peer.ms.push(ms);
            }
        }
        let beside = match idle {
            0 => String::new(),
            idle => format!(".{idle}"),
        };
        let conditions = format!(
            "nginx of an image, from the request until its first HTTP answer, beside {idle} idle instances of it"
        );
        let of_pool = [
            ("create", &ours, "from a pool"),
            ("without_pool", &without, "without a pool"),
        ];
        for (name, samples, how) in of_pool {
            let conditions = format!("{conditions}; {how}");
            report.figure(format!("oci.{name}{beside}_ms"), samples, "ms", &conditions);
        }
        rows.push(row("nfluid", idle, &ours, 1.0));
        let ratio = ours.ratios(&without).median();
        rows.push(row("nfluid, no pool", idle, &without, ratio));
        for peer in &peers {
            let name = peer.name;
            let ratios = ours.ratios(&peer.ms);
            report.figure(
                format!("oci.{name}{beside}_ms"),
                &peer.ms,
                "ms",
                &conditions,
            );
            report.figure(
                format!("oci.create{beside}.{name}_ratio"),
                &ratios,
                "x",
                &conditions,
            );
            rows.push(row(name, idle, &peer.ms, ratios.median()));
        }
    }
    table(
        "nginx from a container image, until its first HTTP answer",
        &["by", "beside", "median ms", "nfluid / it"],
        &rows,
    );
    Ok(())
}

fn row(by: &str, idle: usize, ms: &Samples, ratio: f64) -> Vec<String> {
    vec![
        by.to_owned(),
        idle.to_string(),
        format!("{:.1}", ms.median()),
        format!("{ratio:.2}"),
    ]
}
