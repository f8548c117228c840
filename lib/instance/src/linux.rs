//! Machines with a Linux kernel of their own (tier `linux`). An emulator, QEMU's machine `microvm`, runs beside the monitor.
//! Frames go to the machine's network interfaces and back as datagrams.

use crate::companion::{self, Owner, Variables, pair};
use crate::maker::Maker;
use anyhow::{Context, anyhow, bail, ensure};
use nfluid_control::model::Program;
use nfluid_control::quantity::Mac;
use nfluid_control::spec::InstanceSpec;
use nfluid_protocol::environment;
use nfluid_sandbox::{
    Accelerator, InheritedFd, LIBRARY_DIRECTORIES, Launch, Root, Shell, ShellSpec, Shown, View,
    has_kvm, runs_kernels,
};
use rustix::net::{SocketType, sockopt};
use serde::Deserialize;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Where Debian has the emulator's firmware; one links to the other.
const FIRMWARE: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];
/// Where Debian has the emulator's parts: it would look for them relative to its own place, and has none.
const MODULES: &CStr = c"QEMU_MODULE_DIR=/usr/lib/x86_64-linux-gnu/qemu";
/// The number of the emulator's first descriptor beside the standard streams.
const FIRST_FD: RawFd = 3;
/// Least memory of an instance in MiB: half of it is the machine's, the rest is the emulator's.
const MEMORY_MIB_MIN: u64 = 192;
/// The pace of the clock where the host does not say its own.
const CLOCK_KHZ: u64 = 2_400_000;
/// Bytes that wait on their way into a machine, or out of it.
const WAITING_BYTES: usize = 1 << 20;

/// The configuration of the machine, as in the deployment.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The initial file system.
    initrd: Option<PathBuf>,
    /// More words of the kernel's command line.
    append: String,
    /// The choice between KVM and emulation.
    accelerator: Choice,
}

/// The choice of what runs the machine's code.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    /// KVM where it runs a kernel at the speed of the processor.
    #[default]
    Auto,
    Kvm,
    Tcg,
}

impl Choice {
    /// Returns what runs the code, and a sentence about it for the log.
    ///
    /// # Errors
    /// KVM was asked for and cannot be used.
    fn decide(self) -> anyhow::Result<(Accelerator, String)> {
        let refusal = match self {
            Choice::Tcg => "asked for by 'accelerator: tcg'".to_owned(),
            Choice::Kvm => {
                has_kvm().map_err(|why| anyhow!("config.accelerator: no KVM: {why}"))?;
                return Ok((Accelerator::Kvm, "KVM runs the machine".to_owned()));
            }
            Choice::Auto => match runs_kernels() {
                Ok(()) => return Choice::Kvm.decide(),
                Err(why) => why,
            },
        };
        let said = format!("the machine is emulated (QEMU's TCG): {refusal}");
        Ok((Accelerator::Tcg, said))
    }
}

/// An emulator that is about to be started.
pub(crate) struct Emulator {
    kernel: PathBuf,
    config: Config,
    accelerator: Accelerator,
    memory_mib: u64,
    /// The machine's ends of its interfaces, with their MAC addresses.
    interfaces: Vec<(OwnedFd, Mac)>,
}

/// Returns the environment variables of the monitor, and the emulator for it. `give` hands a descriptor over and returns its
/// number.
///
/// # Errors
/// A value that cannot be used, or no sockets.
pub(crate) fn equip(
    spec: &InstanceSpec,
    mut give: impl FnMut(OwnedFd) -> RawFd,
) -> anyhow::Result<(Variables, Emulator)> {
    let Program::Path { program, .. } = &spec.program else {
        bail!("tier linux runs a kernel: write 'program: /boot/vmlinuz-...' instead of 'nf'");
    };
    let mut config = match &spec.config {
        serde_json::Value::Null => Config::default(),
        config => Config::deserialize(config).context("config")?,
    };
    let kernel = existing(Path::new(program), "program")?;
    if let Some(initrd) = &mut config.initrd {
        *initrd = existing(initrd, "config.initrd")?;
    }
    let memory_mib = spec.resources.memory.0 >> 20;
    ensure!(
        memory_mib >= MEMORY_MIB_MIN,
        "memory: {memory_mib} MiB is too little for a machine with a kernel of its own; write 'memory: {MEMORY_MIB_MIN}MiB' or more: half of it is the machine's"
    );
    let (mut interfaces, mut numbers) = (Vec::new(), Vec::new());
    for port in &spec.ports {
        let (ours, theirs) = pair(SocketType::DGRAM)?;
        for end in [&ours, &theirs] {
            sockopt::set_socket_send_buffer_size(end, WAITING_BYTES).context("a larger buffer")?;
        }
        numbers.push(give(ours).to_string());
        interfaces.push((theirs, port.mac));
    }
    let (accelerator, said) = config.accelerator.decide()?;
    let variables = vec![
        (environment::INTERFACES, numbers.join(",")),
        (environment::ACCELERATOR, said),
    ];
    let emulator = Emulator {
        kernel,
        config,
        accelerator,
        memory_mib,
        interfaces,
    };
    Ok((variables, emulator))
}

/// Checks a file of the machine.
fn existing(path: &Path, key: &str) -> anyhow::Result<PathBuf> {
    let found = std::fs::metadata(path).with_context(|| format!("{key}: {}", path.display()))?;
    ensure!(found.is_file(), "{key}: {} is no file", path.display());
    ensure!(
        path.is_absolute(),
        "{key}: {} does not begin with '/'",
        path.display()
    );
    let path = path.canonicalize();
    let path = path.with_context(|| format!("{key} is not to be found"))?;
    ensure!(
        path.parent() != Some(Path::new("/")),
        "{key}: {} lies in '/', and the emulator's sandbox shows the folder of the file: put it into one of its own",
        path.display()
    );
    Ok(path)
}

/// Returns these directories without those that are in another one, or in the library directories, which a sandbox shows
/// as well.
fn outermost(mut all: Vec<PathBuf>) -> Vec<PathBuf> {
    all.sort();
    let mut outer: Vec<PathBuf> = Vec::new();
    for directory in all {
        let is_in = |it: &Path| directory.starts_with(it);
        let is_shown = LIBRARY_DIRECTORIES.iter().any(|it| is_in(Path::new(it)));
        if !is_shown && !outer.iter().any(|it| is_in(it)) {
            outer.push(directory);
        }
    }
    outer
}

/// Returns the pace of the processor's clock, for an emulated machine; KVM tells a kernel by itself. A kernel that had to measure it on a busy host
/// would hang now and then.
fn clock_khz() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let base = read("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    if let Ok(khz) = base.trim().parse() {
        return khz;
    }
    let processors = read("/proc/cpuinfo");
    let line = processors
        .lines()
        .find_map(|line| line.strip_prefix("cpu MHz"));
    let mhz = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    mhz.map_or(CLOCK_KHZ, |mhz| (mhz * 1000.0) as u64)
}

impl Emulator {
    /// Starts the emulator.
    ///
    /// # Errors
    /// The host has no emulator, or no process runs.
    pub(crate) fn start(
        self,
        maker: &Maker,
        owner: Owner<'_>,
        life: &OwnedFd,
    ) -> anyhow::Result<()> {
        let program = maker.programs.emulator(self.accelerator)?;
        let (program, filter) = &*program;
        let root = Root::Libraries(Shown {
            extra: self.directories().into_iter().map(View::from).collect(),
            devices: match self.accelerator {
                Accelerator::Kvm => &["kvm"],
                Accelerator::Tcg => &[],
            },
            ..Shown::default()
        });
        let name = format!("{}-machine", owner.name);
        let shell = Shell::prepare(&ShellSpec {
            cpus: owner.cpus(),
            // The sealed namespaces have other directories.
            sealed: None,
            ..maker.sandbox(name, owner.user, owner.cgroup, root)?
        })?;
        let mut launch = Launch::new(program, filter);
        launch.argv.extend(self.arguments()?);
        launch.env.push(MODULES.to_owned());
        let sockets = self.interfaces.iter().map(|(socket, _)| socket.as_fd());
        let inherited = (FIRST_FD..).zip(sockets);
        launch
            .fds
            .extend(inherited.map(|(number, fd)| InheritedFd { fd, number }));
        companion::run(maker, owner, shell, launch, life).context("starting the emulator")
    }

    /// Directories that it reads: the firmware's, and those of the kernel and the initial file system.
    fn directories(&self) -> Vec<PathBuf> {
        let files = [Some(&self.kernel), self.config.initrd.as_ref()];
        let of_files = files.into_iter().flatten().filter_map(|file| file.parent());
        let mut all: Vec<PathBuf> = FIRMWARE
            .iter()
            .map(Path::new)
            .chain(of_files)
            .map(Path::to_owned)
            .collect();
        all.retain(|directory| directory.is_dir());
        outermost(all)
    }

    /// The guest's processor: all that the accelerator has. KVM offers MSR 0x10a (ARCH_CAPABILITIES) on processors of others than Intel, too;
    /// QEMU before 10.1 passes that on, KVM refuses to set the MSR, and QEMU ends.
    fn processor(&self) -> &'static str {
        let is_intel = || {
            let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            text.contains("GenuineIntel")
        };
        match self.accelerator {
            Accelerator::Kvm if !is_intel() => "max,arch-capabilities=off",
            _ => "max",
        }
    }

    fn arguments(&self) -> anyhow::Result<Vec<CString>> {
        let mut all: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-L",
            FIRMWARE[0],
            "-machine",
            "microvm,pit=on,pic=on,rtc=on,acpi=on",
            "-cpu",
            self.processor(),
            "-serial",
            "stdio",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut add = |key: &str, value: String| all.extend([key.to_owned(), value]);
        let mut words = "console=ttyS0 panic=-1".to_owned();
        match self.accelerator {
            Accelerator::Kvm => add("-accel", "kvm".to_owned()),
            Accelerator::Tcg => {
                let code_mib = (self.memory_mib / 8).min(256);
                add("-accel", format!("tcg,tb-size={code_mib}"));
                words = format!("{words} tsc_early_khz={}", clock_khz());
            }
        }
        add("-m", format!("{}M", self.memory_mib / 2));
        add("-kernel", self.kernel.display().to_string());
        if let Some(initrd) = &self.config.initrd {
            add("-initrd", initrd.display().to_string());
        }
        let append = &self.config.append;
        add("-append", format!("{words} {append}"));
        for (number, (_, mac)) in self.interfaces.iter().enumerate() {
            let fd = FIRST_FD + number as RawFd;
            add(
                "-netdev",
                format!("dgram,id=p{number},local.type=fd,local.str={fd}"),
            );
            add(
                "-device",
                format!("virtio-net-device,netdev=p{number},mac={mac}"),
            );
        }
        all.into_iter()
            .map(|argument| CString::new(argument).context("a NUL in an argument of the machine"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 18.12
    #[test]
    fn a_sandbox_shows_each_directory_once_and_never_the_root() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let all = paths(&[
            "/srv/m/a",
            "/boot",
            "/srv/m",
            "/usr/lib/k",
            "/srv/mm",
            "/boot",
        ]);
        assert_eq!(outermost(all), paths(&["/boot", "/srv/m", "/srv/mm"]));
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let real = file.canonicalize().expect("there");
        assert_eq!(existing(&link, "program").expect("a file"), real);
        let refused = existing(folder.path(), "program").expect_err("a folder");
        assert!(refused.to_string().contains("is no file"), "{refused}");
    }
}
