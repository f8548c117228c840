//! Installs what the tasks need: Debian packages, Rust targets and components, and one Python program in its own
//! folder.
//!
//! Only what is missing is installed, so that a second run needs neither root nor a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::instance;
use crate::session::Session;

/// A set of packages for one purpose.
pub type Packages = &'static [&'static str];

/// For building the platform's programs.
const BUILD: Packages = &[
    "clang",
    "gcc",
    "libbpf-dev",
    "libc6-dev",
    "libelf-dev",
    "linux-libc-dev",
    "make",
    "pkg-config",
    "zlib1g-dev",
];
/// For building deep packet inspection into the daemon; without them, an instance of `edpi` is refused.
const DPI: Packages = &["libndpi-dev"];
/// For checking the style of C sources.
const LINT: Packages = &["clang-format"];
/// Programs that the demo runs.
const DEMO: Packages = &[
    "bind9-dnsutils",
    "curl",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "nginx-light",
    "procps",
    "python3",
];
/// Further programs that generate or capture the tests' traffic.
const TRAFFIC: Packages = &["ethtool", "nftables", "openssl", "tcpdump", "tcpreplay"];
/// Tests: the kernel, numpy and scipy as oracles, guests, and the API's checker.
const TEST: Packages = &[
    "binutils",
    "busybox-static",
    "conntrack",
    "containernetworking-plugins",
    "libndpi-bin",
    "libxdp1",
    "python3-numpy",
    "python3-pip",
    "python3-scipy",
    "python3-venv",
    "qemu-system-x86",
    "snmpd",
    "xdp-tools",
    "xz-utils",
];
/// Programs on DPDK, and what nfluid's driver for them is built against.
const DPDK: Packages = &["dpdk-dev", "libdpdk-dev"];
/// For building libFuzzer.
const FUZZ: Packages = &["g++"];
/// Peers with which the tests of the benchmarks compare. `make bench` asks nfluid-bench for the packages that it needs.
const PEERS: Packages = &["haproxy", "iptables", "openvswitch-switch-dpdk", "wrk"];

/// Packages and targets that a task needs.
#[derive(Clone, Copy)]
pub struct Needs {
    packages: &'static [Packages],
    /// Rust targets besides the host's own.
    targets: &'static [&'static str],
}

/// The network functions and their dependencies are also built for these targets: a guest without a kernel, and wasm.
pub const NO_STD_TARGETS: [&str; 2] = ["x86_64-unknown-none", "wasm32-unknown-unknown"];
/// Instances without a C library of the host, and guests.
const HOST: &[&str] = &[instance::TARGET, NO_STD_TARGETS[0]];
const GUESTS: &[&str] = &[NO_STD_TARGETS[0]];
const ALL_TARGETS: &[&str] = &[NO_STD_TARGETS[0], NO_STD_TARGETS[1], instance::TARGET];

const fn needs(packages: &'static [Packages], targets: &'static [&'static str]) -> Needs {
    Needs { packages, targets }
}

pub const FOR_BUILD: Needs = needs(&[BUILD, DPI], HOST);
pub const FOR_DEMO: Needs = needs(&[BUILD, DEMO], &[instance::TARGET]);
pub const FOR_TEST: Needs = needs(&[BUILD, DPI, DEMO, TRAFFIC, TEST, DPDK], ALL_TARGETS);
pub const FOR_FUZZ: Needs = needs(&[BUILD, DPI, FUZZ], GUESTS);
pub const FOR_LINT: Needs = needs(&[BUILD, DPI, LINT], GUESTS);
pub const ALL: Needs = needs(
    &[BUILD, DPI, LINT, DEMO, TRAFFIC, TEST, DPDK, FUZZ, PEERS],
    ALL_TARGETS,
);

const COMPONENTS: [(&str, &str); 2] = [("cargo-clippy", "clippy"), ("cargo-fmt", "rustfmt")];

/// Packages that start a service at installation. nfluid needs only their programs.
const SERVICES: [(&str, &str); 4] = [
    ("haproxy", "haproxy"),
    ("nginx-light", "nginx"),
    ("openvswitch-switch-dpdk", "openvswitch-switch"),
    ("snmpd", "snmpd"),
];
const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str =
    "#!/bin/sh\n# written by nfluid's xtask while it installs packages\nexit 101\n";

/// Prints missing packages, targets and components.
///
/// # Errors
/// Something is missing.
pub fn check(needs: Needs) -> Result<()> {
    let packages = missing_packages(needs.packages)?;
    let targets = missing_targets(needs.targets)?;
    if packages.is_empty() && targets.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    bail!("missing: {}", [packages, targets].concat().join(" "))
}

/// Installs what is missing.
///
/// # Errors
/// Not Debian, not root, no network, or a package that does not exist; the message has the remedy.
pub fn install(session: &Session, needs: Needs) -> Result<()> {
    install_packages(session, &missing_packages(needs.packages)?)?;
    for target in missing_targets(needs.targets)? {
        session.run(session.command("rustup").args(["target", "add", target])).context(
            "nfluid needs the Rust targets that `rustup` installs (https://rustup.rs); is there a network?",
        )?;
    }
    Ok(())
}

/// Installs clippy and rustfmt where rustup's minimal profile left them out.
pub fn install_components(session: &Session) -> Result<()> {
    for (program, component) in COMPONENTS {
        if find_program(program).is_none() || !answers(program) {
            session.run(
                session
                    .command("rustup")
                    .args(["component", "add", component]),
            )?;
        }
    }
    Ok(())
}

/// Installs the API's checker into a virtual environment under the target folder; returns the folder of its programs.
///
/// # Errors
/// The environment cannot be made, or pip cannot fetch the packages.
pub fn install_python(session: &Session) -> Result<std::path::PathBuf> {
    let requirements = session.root.join("tests/requirements.txt");
    let wanted =
        fs::read(&requirements).with_context(|| format!("reading {}", requirements.display()))?;
    let venv = session.target.join("venv");
    let stamp = venv.join("requirements.txt");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        session.run(
            session
                .command("/usr/bin/python3")
                .args(["-m", "venv", "--clear"])
                .arg(&venv),
        )?;
        let mut pip = session.command(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&requirements);
        session
            .run(&mut pip)
            .context("installing Python packages; is there a network?")?;
        fs::write(&stamp, wanted)?;
    }
    Ok(venv.join("bin"))
}

/// Returns the first program of that name in `PATH`, or in the folders that a user's path may lack.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .into_iter()
        .map(Into::into);
    folders
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn answers(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn missing_packages(sets: &[Packages]) -> Result<Vec<&'static str>> {
    let wanted: BTreeSet<&'static str> = sets.iter().copied().flatten().copied().collect();
    // dpkg-query fails when one package is unknown, and still lists the others.
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\n"])
        .args(&wanted)
        .stderr(Stdio::null())
        .output();
    let Ok(query) = query else {
        let list = wanted.into_iter().collect::<Vec<_>>().join(" ");
        bail!(
            "this is no Debian (dpkg-query is missing): install what these packages hold: {list}"
        );
    };
    let listing = String::from_utf8_lossy(&query.stdout).into_owned();
    let installed: BTreeSet<&str> = listing.lines().filter_map(installed_package).collect();
    Ok(wanted
        .into_iter()
        .filter(|package| !installed.contains(package))
        .collect())
}

fn installed_package(line: &str) -> Option<&str> {
    line.strip_suffix(" installed")
}

/// Installs these Debian packages.
///
/// # Errors
/// Not root, no network, or a package that does not exist.
pub fn install_packages(session: &Session, packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !is_root() {
        bail!(
            "Debian packages are missing; as root: apt-get install --no-install-recommends {list}"
        );
    }
    let no_services = NoServices::begin()?;
    apt(session, &["update"]).context("apt-get update failed: is there a network?")?;
    let install = ["install", "--yes", "--no-install-recommends"];
    apt(session, &[&install, packages].concat()).with_context(|| {
        format!("cannot install {list}: are Debian's `main` and `security` in the sources?")
    })?;
    drop(no_services);
    disable_services(packages);
    Ok(())
}

fn apt(session: &Session, args: &[&str]) -> Result<()> {
    let mut apt = session.command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .env("NEEDRESTART_MODE", "l");
    apt.args(["--quiet", "-o", "DPkg::Lock::Timeout=600"])
        .args(args);
    session.run(&mut apt)
}

/// Disables the services, which would otherwise start at the next boot.
fn disable_services(installed: &[&str]) {
    if !Path::new("/run/systemd/system").exists() {
        return;
    }
    for (package, service) in SERVICES {
        if installed.contains(&package) {
            let status = Command::new("systemctl")
                .args(["--quiet", "disable", service])
                .status();
            if !status.is_ok_and(|status| status.success()) {
                eprintln!("xtask: could not disable {service}, it may start at the next boot");
            }
        }
    }
}

/// Guard: while it exists, package installation starts no service (Debian policy, invoke-rc.d(8)). An existing policy
/// of the machine stays.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn begin() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let ours = fs::read_to_string(POLICY).map_or(true, |text| text == POLICY_TEXT);
        if ours {
            fs::write(POLICY, POLICY_TEXT).with_context(|| format!("writing {POLICY}"))?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("xtask: could not remove {POLICY}: {error}");
        }
    }
}

fn missing_targets(wanted: &[&'static str]) -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for &target in wanted {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        let output = rustc
            .args(["--print", "target-libdir", "--target", target])
            .output();
        let output = output.context("cannot start rustc: install Rust, https://rustup.rs")?;
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !Path::new(&folder).is_dir() {
            missing.push(target);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_in_state_installed_count() {
        assert_eq!(installed_package("clang installed"), Some("clang"));
        assert_eq!(installed_package("nginx-light config-files"), None);
        assert_eq!(installed_package("llvm not-installed"), None);
    }

    #[test]
    fn no_package_is_named_twice() {
        let all: Vec<_> = ALL.packages.iter().copied().flatten().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn programs_outside_a_users_path_are_found() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program-anywhere"), None);
    }
}
