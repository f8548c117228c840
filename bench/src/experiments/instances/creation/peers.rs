//! Other ways to start something isolated: a process, namespaces, containers; all with one program that exits at once.

use anyhow::Context;
use nfluid_figures::statistics::Samples;
use nfluid_testbed::CannotRun;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::program::{find, install};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A peer: a way to start the program.
pub struct Peer {
    /// Name in figure ids.
    pub name: &'static str,
    /// Description for readers.
    pub what: &'static str,
    command: Vec<String>,
    /// Start times, in milliseconds.
    pub ms: Samples,
}

/// The peers that this host has, and the reasons why others are left out.
pub struct Peers {
    /// The peers that this host has.
    pub found: Vec<Peer>,
    /// The missing peers: name and reason.
    pub left_out: Vec<(&'static str, String)>,
    _folder: ScratchDirectory,
}

impl Peers {
    /// Finds the peers of this host.
    ///
    /// # Errors
    /// When no folder can be created.
    pub fn new() -> anyhow::Result<Self> {
        let folder = ScratchDirectory::in_memory()?;
        let program = nothing(&folder.path("rootfs"))?;
        let mut peers = Peers {
            found: Vec::new(),
            left_out: Vec::new(),
            _folder: folder,
        };
        let program = program.display().to_string();
        peers.add(
            "process",
            "fork, exec and end of a static program",
            Ok(vec![program.clone()]),
        );
        peers.add(
            "unshare",
            "unshare -Urnmp --fork",
            tool("unshare", "util-linux").map(|tool| command(&tool, &UNSHARE, &[&program])),
        );
        let rootfs = peers._folder.path("rootfs").display().to_string();
        let flags = ["--unshare-all", "--bind", &rootfs, "/", "--cap-drop", "ALL"];
        peers.add(
            "bubblewrap",
            "bwrap --unshare-all",
            tool("bwrap", "bubblewrap").map(|tool| command(&tool, &flags, &["/nothing"])),
        );
        for (name, what) in [("crun", "crun run"), ("runc", "runc run")] {
            let bundle =
                tool(name, name).and_then(|tool| bundle(&tool, &peers._folder.path(name), &rootfs));
            peers.add(name, what, bundle);
        }
        Ok(peers)
    }

    /// As [`Peers::new`], with virtual machines.
    ///
    /// # Errors
    /// As for [`Peers::new`].
    pub fn with_machines() -> anyhow::Result<Self> {
        let mut peers = Self::new()?;
        let firmware = peers._folder.path("firmware");
        let machine = tool("qemu-system-x86_64", "qemu-system-x86").and_then(|tool| {
            fs::write(&firmware, stopping_firmware()).context("writing a firmware")?;
            let firmware = firmware.display().to_string();
            Ok(command(&tool, &QEMU, &["-bios", &firmware]))
        });
        peers.add("qemu", "qemu -M microvm, instructions emulated", machine);
        Ok(peers)
    }

    fn add(
        &mut self,
        name: &'static str,
        what: &'static str,
        command: anyhow::Result<Vec<String>>,
    ) {
        let tried = command.and_then(|command| {
            let peer = Peer {
                name,
                what,
                command,
                ms: Samples::default(),
            };
            peer.run(0).map(|_ms| peer)
        });
        match tried {
            Ok(peer) => self.found.push(peer),
            Err(why) => self.left_out.push((name, format!("{why:#}"))),
        }
    }
}

impl Peer {
    /// Starts the program for the `number`-th time, and waits for its end.
    ///
    /// # Errors
    /// The peer fails.
    pub fn measure(&mut self, number: usize) -> anyhow::Result<()> {
        let ms = self.run(number)?;
        self.ms.push(ms);
        Ok(())
    }

    fn run(&self, number: usize) -> anyhow::Result<f64> {
        let (program, arguments) = self.command.split_first().context("no command")?;
        let id = format!("nfluid-bench-{}-{number}", std::process::id());
        let arguments = arguments.iter().map(|word| word.replace(CONTAINER, &id));
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let start = Instant::now();
        let ended = command
            .output()
            .with_context(|| format!("starting {program}"))?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        anyhow::ensure!(
            ended.status.success(),
            "{program}: {}: {}",
            ended.status,
            String::from_utf8_lossy(&ended.stderr).trim()
        );
        Ok(ms)
    }
}

/// Placeholder for a unique container name.
const CONTAINER: &str = "@container";

/// Arguments of `unshare`: new namespaces, and a child that is the first process of its PID namespace.
pub const UNSHARE: [&str; 6] = [
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
];

/// Arguments of QEMU: its smallest machine, which ends where another would start again. Not by KVM: the first instructions of
/// a machine are in real mode, which hosts that are virtual machines themselves may not run.
const QEMU: [&str; 9] = [
    "-M",
    "microvm,accel=tcg",
    "-m",
    "16",
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-no-reboot",
];

/// A firmware that makes its processor reset the machine: it loads an empty table of interrupts, and interrupts.
fn stopping_firmware() -> Vec<u8> {
    const BYTES: usize = 64 << 10;
    const RESET_VECTOR: usize = BYTES - 16;
    // lidt [0]; int3
    const CODE: [u8; 6] = [0x0f, 0x01, 0x1e, 0, 0, 0xcc];
    let mut firmware = vec![0; BYTES];
    firmware[RESET_VECTOR..RESET_VECTOR + CODE.len()].copy_from_slice(&CODE);
    firmware
}

/// Returns the path of a program of the host.
///
/// # Errors
/// [`CannotRun`] with the package of the program.
pub fn tool(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    find(name).ok_or_else(|| CannotRun(install(package)).into())
}

fn command(tool: &Path, flags: &[&str], program: &[&str]) -> Vec<String> {
    let words = flags.iter().chain(program).map(|word| (*word).to_owned());
    [tool.display().to_string()]
        .into_iter()
        .chain(words)
        .collect()
}

/// Makes a folder for a container run-time, with the configuration that the run-time writes.
fn bundle(tool: &Path, folder: &Path, rootfs: &str) -> anyhow::Result<Vec<String>> {
    write_bundle(tool, folder, |spec| {
        spec["process"]["args"] = json!(["/nothing"]);
        spec["root"] = json!({ "path": rootfs, "readonly": true });
    })?;
    let bundle = folder.display().to_string();
    Ok(command(tool, &["run", "--bundle", &bundle], &[CONTAINER]))
}

/// Makes a folder with the configuration that a container run-time writes, and `change` of it.
///
/// # Errors
/// The folder exists, or the run-time writes none.
pub fn write_bundle(
    tool: &Path,
    folder: &Path,
    change: impl FnOnce(&mut Value),
) -> anyhow::Result<()> {
    fs::create_dir(folder).context("a folder for a container")?;
    output(Command::new(tool).arg("spec").current_dir(folder))?;
    let file = folder.join("config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&file)?)?;
    spec["process"]["terminal"] = json!(false);
    change(&mut spec);
    fs::write(&file, spec.to_string()).context("writing the configuration of a container")
}

/// Makes a file system with one program, which exits at once; returns the program's path.
fn nothing(rootfs: &Path) -> anyhow::Result<PathBuf> {
    for folder in ["", "proc", "dev", "sys"] {
        fs::create_dir_all(rootfs.join(folder)).context("a root file system")?;
    }
    let program = rootfs.join("nothing");
    fs::write(&program, ELF).context("a program that does nothing")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// The smallest program of this architecture: header, one loaded segment, and `exit(0)`.
const ELF: &[u8] = &elf();

#[cfg(target_arch = "x86_64")]
const MACHINE: u8 = 62;
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 12] = [0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0x90, 0x90, 0x90];
#[cfg(target_arch = "aarch64")]
const MACHINE: u8 = 183;
#[cfg(target_arch = "aarch64")]
const CODE: [u8; 12] = [0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4];

/// ELF-64: the file is loaded at 4 MiB, and its code begins after the headers (System V ABI, chapters 4 and 5).
const fn elf() -> [u8; 132] {
    let mut bytes = [0; 132];
    let start = [0x7f, b'E', b'L', b'F', 2, 1, 1];
    let fields: [(usize, u8); 17] = [
        (16, 2),
        (18, MACHINE),
        (20, 1),
        (24, 0x78),
        (26, 0x40),
        (32, 64),
        (52, 64),
        (54, 56),
        (56, 1),
        (58, 64),
        (64, 1),
        (68, 5),
        (82, 0x40),
        (90, 0x40),
        (96, 132),
        (104, 132),
        (113, 0x10),
    ];
    let mut at = 0;
    while at < start.len() {
        bytes[at] = start[at];
        at += 1;
    }
    at = 0;
    while at < fields.len() {
        bytes[fields[at].0] = fields[at].1;
        at += 1;
    }
    at = 0;
    while at < CODE.len() {
        bytes[120 + at] = CODE[at];
        at += 1;
    }
    bytes
}
