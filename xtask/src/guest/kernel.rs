//! Debian's stock kernels: downloaded as packages, unpacked into the target folder, never installed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::deps;
use crate::session::Session;

/// Series, and the package that depends on Debian's current kernel of the series.
const KERNELS: [(&str, &str); 2] = [
    ("6.1", "linux-image-cloud-amd64"),
    ("6.12", "linux-image-6.12-cloud-amd64"),
];

/// Modules that tests may need, below the folder `kernel` of the modules; in Debian's cloud kernel even veth is a
/// module.
const MODULE_FOLDERS: [&str; 16] = [
    "crypto",
    "drivers/net",
    "drivers/virtio",
    "lib",
    "net/802",
    "net/8021q",
    "net/bridge",
    "net/core",
    "net/ipv4",
    "net/ipv6",
    "net/llc",
    "net/mpls",
    "net/netfilter",
    "net/packet",
    "net/psample",
    "net/sched",
];
/// Drivers of real network cards and of other hypervisors.
const MODULES_LEFT_OUT: [&str; 3] = [
    "drivers/net/ethernet",
    "drivers/net/hyperv",
    "drivers/net/wwan",
];

/// An unpacked kernel.
pub struct Kernel {
    pub series: String,
    folder: PathBuf,
}

impl Kernel {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The image that QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The initramfs with the test programs.
    pub fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs.cpio")
    }

    /// The folder that contains `lib/modules/RELEASE`.
    pub fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }
}

/// Parser of the known series.
pub fn series() -> PossibleValuesParser {
    PossibleValuesParser::new(KERNELS.map(|(series, _)| series))
}

/// Returns the wanted series, or all if none is given.
pub fn chosen(wanted: &[String]) -> impl Iterator<Item = &'static str> {
    let all = KERNELS.into_iter().map(|(series, _)| series);
    all.filter(move |series| wanted.is_empty() || wanted.iter().any(|one| one == series))
}

/// Unpacks the kernel of the oldest series, that of Debian 12, if it is not there.
///
/// # Errors
/// As [`obtain`].
pub fn obtain_oldest(session: &Session) -> Result<()> {
    let (series, _) = KERNELS[0];
    obtain(session, series).map(drop)
}

/// Returns the kernel of a series, from the target folder or from Debian.
///
/// # Errors
/// apt does not offer the kernel, there is no network, or the disk is full.
pub fn obtain(session: &Session, series: &str) -> Result<Kernel> {
    let (_, package) = KERNELS
        .iter()
        .find(|(one, _)| *one == series)
        .context("unknown kernel series")?;
    let parent = session.target.join("guest");
    let kernel = Kernel {
        series: series.to_owned(),
        folder: parent.join(series),
    };
    if kernel.image().exists() {
        return Ok(kernel);
    }
    fs::create_dir_all(&parent)?;
    let scratch = tempfile::tempdir_in(&parent)?;
    let concrete = concrete_package(session, package, series)?;
    let unpacked = unpack(session, &concrete, scratch.path())?;
    let ready = scratch.path().join("ready");
    select(session, &unpacked, &ready)?;
    if kernel.folder.exists() {
        fs::remove_dir_all(&kernel.folder)?;
    }
    fs::rename(&ready, &kernel.folder)?;
    Ok(kernel)
}

/// Returns the package that contains the kernel: the dependency of the series' package.
fn concrete_package(session: &Session, package: &str, series: &str) -> Result<String> {
    let depends = || {
        session.output(
            session
                .command("apt-cache")
                .args(["depends", "--important", package]),
        )
    };
    let listing = match depends() {
        Err(_) if deps::is_root() => {
            session.run(session.command("apt-get").args(["--quiet", "update"]))?;
            depends()
        }
        other => other,
    };
    let listing =
        listing.context("apt knows no such kernel: needs Debian 12 with its `security` archive")?;
    first_dependency(&listing, series).with_context(|| {
        format!("apt's {package} is not a kernel of series {series}: is this Debian 12?")
    })
}

fn first_dependency(listing: &str, series: &str) -> Option<String> {
    let prefix = format!("linux-image-{series}.");
    let names = listing
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .map(str::trim)
        .find(|name| name.starts_with(&prefix))
        .map(str::to_owned)
}

fn unpack(session: &Session, package: &str, scratch: &Path) -> Result<PathBuf> {
    let mut download = session.command("apt-get");
    download.current_dir(scratch).args([
        "--quiet",
        "-o",
        "APT::Sandbox::User=root",
        "download",
        package,
    ]);
    session
        .run(&mut download)
        .context("downloading the kernel; is there a network?")?;
    let unpacked = scratch.join("unpacked");
    let archive = only_entry(scratch, "deb")?;
    session.run(
        session
            .command("dpkg-deb")
            .arg("-x")
            .arg(archive)
            .arg(&unpacked),
    )?;
    Ok(unpacked)
}

/// Returns the only entry of a folder with this extension (or the only entry, for an empty extension).
fn only_entry(folder: &Path, extension: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths = entries.into_iter().map(|entry| entry.path());
    let fits = |path: &PathBuf| {
        extension.is_empty() || path.extension().is_some_and(|end| end == extension)
    };
    paths
        .find(fits)
        .with_context(|| format!("{} holds no {extension} file", folder.display()))
}

/// Moves the image and the wanted modules into a folder and indexes the modules.
fn select(session: &Session, unpacked: &Path, ready: &Path) -> Result<()> {
    let all_modules = only_entry(&unpacked.join("lib/modules"), "")?;
    let release = all_modules
        .file_name()
        .context("a folder without a name")?
        .to_owned();
    let modules = ready.join("modules/lib/modules").join(&release);
    for folder in MODULE_FOLDERS.map(|folder| Path::new("kernel").join(folder)) {
        if !all_modules.join(&folder).exists() {
            continue;
        }
        fs::create_dir_all(
            modules
                .join(&folder)
                .parent()
                .context("a path without a folder")?,
        )?;
        fs::rename(all_modules.join(&folder), modules.join(&folder))?;
    }
    for folder in MODULES_LEFT_OUT.map(|folder| modules.join("kernel").join(folder)) {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    for list in ["modules.builtin", "modules.order"] {
        fs::copy(all_modules.join(list), modules.join(list)).with_context(|| list.to_owned())?;
    }
    decompress(session, &modules)?;
    let mut depmod = session.command("busybox");
    session.run(
        depmod
            .args(["depmod", "-b"])
            .arg(ready.join("modules"))
            .arg(&release),
    )?;
    let image = unpacked
        .join("boot")
        .join(format!("vmlinuz-{}", release.display()));
    fs::rename(&image, ready.join("vmlinuz")).with_context(|| image.display().to_string())?;
    if fs::read(modules.join("modules.dep")).is_ok_and(|index| index.is_empty()) {
        bail!(
            "busybox depmod found no modules below {}",
            modules.display()
        );
    }
    Ok(())
}

/// Newer kernels have `.ko.xz`, which busybox's depmod does not read.
fn decompress(session: &Session, modules: &Path) -> Result<()> {
    let mut compressed = Vec::new();
    let mut folders = vec![modules.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|end| end == "xz") {
                compressed.push(entry.path());
            }
        }
    }
    if compressed.is_empty() {
        return Ok(());
    }
    // Hundreds of names: passed in a file, not printed as arguments.
    let names: Vec<String> = compressed
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let list = modules.join("compressed");
    fs::write(&list, names.join("\n") + "\n")?;
    let mut files = OsString::from("--files=");
    files.push(&list);
    let mut xz = session.command("xz");
    session.run(xz.args(["--decompress", "--threads=0"]).arg(files))?;
    fs::remove_file(list)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_concrete_package_must_be_of_the_series() {
        let listing = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        let found = first_dependency(listing, "6.1");
        assert_eq!(found.as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(first_dependency(listing, "6.12"), None);
        let newer = "  Depends: linux-image-6.12.117+deb12-cloud-amd64";
        assert!(first_dependency(newer, "6.12").is_some());
        assert_eq!(first_dependency(newer, "6.1"), None);
    }

    #[test]
    fn without_a_choice_every_kernel_is_chosen() {
        assert_eq!(chosen(&[]).count(), KERNELS.len());
        assert_eq!(chosen(&["6.12".to_owned()]).collect::<Vec<_>>(), ["6.12"]);
    }
}
