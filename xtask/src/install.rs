//! Installs a release build into the system, and removes it again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::release;
use crate::session::Session;

const PROGRAMS: [&str; 5] = ["nfluid", "nfluidd", "nfluid-nf", "nfluid-vmm", "nfluid-tls"];
const LIBRARIES: [&str; 2] = ["libnfluid.so", "libnfluid.a"];
/// The library for programs on netmap: as cargo names it, and where it is loaded from. No program links it.
const NETMAP: (&str, &str) = ("libnfluid_netmap.so", "lib/nfluid/libnfluid-netmap.so");
/// The task driver for Nomad. Its users copy it into the folder of their agent's plugins.
const NOMAD: (&str, &str) = ("nfluid-nomad", "lib/nfluid/nfluid-nomad");
/// The agent of nodes and the controller for Kubernetes.
const KUBERNETES: (&str, &str) = ("nfluid-kubernetes", "lib/nfluid/nfluid-kubernetes");
/// The CNI plugin. Its users copy it into the folder of their container runtime's plugins.
const CNI: (&str, &str) = ("nfluid-cni", "lib/nfluid/nfluid-cni");
/// The load pusher and message analyser for engines.
const ORCHESTRA: (&str, &str) = ("nfluid-orchestra", "lib/nfluid/nfluid-orchestra");
/// The server with OpenVIM's interface.
const OPENVIM: (&str, &str) = ("nfluid-openvim", "lib/nfluid/nfluid-openvim");
/// Guest images for tier microvm, built with the monitor.
const GUESTS: [&str; 2] = ["daytime", "http"];
const SERVICE: &str = "nfluidd.service";
/// Shell, and its folder for completions below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/nfluid"),
    ("fish", "share/fish/vendor_completions.d/nfluid.fish"),
    ("zsh", "share/zsh/site-functions/_nfluid"),
];

/// Installation paths.
#[derive(Args)]
pub struct Options {
    /// Folder that gets bin/, lib/, include/ and share/
    #[arg(long, env = "PREFIX", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Put in front of every path, for packaging
    #[arg(long, env = "DESTDIR", default_value = "/")]
    destdir: PathBuf,
}

impl Options {
    /// Returns options for an installation below `folder` only, for tests and packages.
    pub fn below(folder: &Path) -> Self {
        Self {
            prefix: "/usr/local".into(),
            destdir: folder.to_owned(),
        }
    }

    fn place(&self, below_prefix: impl AsRef<Path>) -> PathBuf {
        let path = self.prefix.join(below_prefix);
        self.destdir.join(path.strip_prefix("/").unwrap_or(&path))
    }

    /// Returns true for an installation into the running system. Only then systemd is called: a package's own scripts
    /// do that.
    fn is_this_system(&self) -> bool {
        self.destdir == Path::new("/") && Path::new("/run/systemd/system").exists()
    }
}

enum Source {
    File(PathBuf),
    Text(String),
}

struct Item {
    source: Source,
    to: PathBuf,
    mode: u32,
}

/// # Errors
/// The build fails, or a file cannot be written.
pub fn install(session: &Session, options: &Options) -> Result<()> {
    release::build(session)?;
    install_built(session, options, &session.target.join("release"))?;
    refresh_library_cache(options);
    if options.is_this_system() {
        systemctl(&["daemon-reload"])?;
        println!("start the daemon now and at every boot: systemctl enable --now nfluidd");
    }
    Ok(())
}

/// Copies the programs of the folder `built` and the files that belong to them to their places.
///
/// # Errors
/// A file cannot be read or written.
pub fn install_built(session: &Session, options: &Options, built: &Path) -> Result<()> {
    for item in items(session, options, built)? {
        put(&item).with_context(|| format!("installing {}", item.to.display()))?;
        println!("installed {}", item.to.display());
    }
    Ok(())
}

/// Updates the linker's cache, so that programs linked to libnfluid find it, or no longer find it. A package uses a
/// trigger.
fn refresh_library_cache(options: &Options) {
    if options.destdir == Path::new("/")
        && !Command::new("ldconfig")
            .status()
            .is_ok_and(|status| status.success())
    {
        eprintln!("xtask: ldconfig failed: set LD_LIBRARY_PATH to use libnfluid.so");
    }
}

/// # Errors
/// A file cannot be removed.
pub fn uninstall(_session: &Session, options: &Options) -> Result<()> {
    let targets = targets(options);
    if options.is_this_system() && options.place(service_path()).exists() {
        systemctl(&["disable", "--now", "nfluidd"])?;
    }
    for path in targets {
        match fs::remove_file(&path) {
            Ok(()) => println!("removed {}", path.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(format!("removing {}", path.display())),
        }
    }
    refresh_library_cache(options);
    if options.is_this_system() {
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}

fn service_path() -> PathBuf {
    Path::new("lib/systemd/system").join(SERVICE)
}

/// Returns every path that `install` writes, in the order of [`items`].
fn targets(options: &Options) -> Vec<PathBuf> {
    let programs = PROGRAMS.iter().map(|name| Path::new("bin").join(name));
    let library = LIBRARIES
        .map(|name| Path::new("lib").join(name))
        .into_iter()
        .chain(["include/nfluid.h", "lib/pkgconfig/libnfluid.pc"].map(PathBuf::from));
    let completions = COMPLETIONS.iter().map(|(_, path)| PathBuf::from(path));
    let guests = GUESTS.map(|name| Path::new("lib/nfluid/guests").join(name));
    let all = programs
        .chain(library)
        .chain(
            [NETMAP, NOMAD, KUBERNETES, CNI, ORCHESTRA, OPENVIM].map(|(_, at)| PathBuf::from(at)),
        )
        .chain(guests)
        .chain([service_path()])
        .chain(completions);
    all.map(|path| options.place(path)).collect()
}

fn items(session: &Session, options: &Options, built: &Path) -> Result<Vec<Item>> {
    let mut sources: Vec<(Source, u32)> = Vec::new();
    sources.extend(PROGRAMS.map(|name| (Source::File(built.join(name)), 0o755)));
    sources.extend(LIBRARIES.map(|name| (Source::File(built.join(name)), 0o644)));
    sources.push((
        Source::File(session.root.join("lib/ring/include/nfluid.h")),
        0o644,
    ));
    sources.push((Source::Text(pkg_config(options)), 0o644));
    sources.push((Source::File(built.join(NETMAP.0)), 0o644));
    sources.extend(
        [NOMAD, KUBERNETES, CNI, ORCHESTRA, OPENVIM]
            .map(|(name, _)| (Source::File(built.join(name)), 0o755)),
    );
    let guests = built
        .with_file_name("guests")
        .join("x86_64-unknown-none/guest");
    sources.extend(GUESTS.map(|name| (Source::File(guests.join(name)), 0o755)));
    sources.push((Source::Text(service(session, options)?), 0o644));
    for (shell, _) in COMPLETIONS {
        let text = session.output(
            session
                .command(built.join("nfluid"))
                .args(["completion", shell]),
        )?;
        if text.trim().is_empty() {
            bail!("`nfluid completion {shell}` printed nothing");
        }
        sources.push((Source::Text(text), 0o644));
    }
    let items = sources.into_iter().zip(targets(options));
    Ok(items
        .map(|((source, mode), to)| Item { source, to, mode })
        .collect())
}

/// The file for `pkg-config --cflags --libs libnfluid`. The private libraries are those of Rust's standard library.
fn pkg_config(options: &Options) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
        Name: libnfluid\nDescription: the port library of nfluid\nVersion: {}\n\
        Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lnfluid\n\
        Libs.private: -lgcc_s -lpthread -lm -ldl\n",
        options.prefix.display(),
        env!("CARGO_PKG_VERSION")
    )
}

/// The unit with the programs' folder of this prefix.
fn service(session: &Session, options: &Options) -> Result<String> {
    let path = session.root.join("packaging").join(SERVICE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.replace(
        "/usr/local/bin/",
        &format!("{}/", options.prefix.join("bin").display()),
    ))
}

/// Writes a temporary file beside the target and renames it: a running program keeps its old file.
fn put(item: &Item) -> Result<()> {
    let folder = item.to.parent().context("a path without a folder")?;
    fs::create_dir_all(folder)?;
    let temporary = tempfile::NamedTempFile::new_in(folder)?;
    match &item.source {
        Source::File(from) => {
            fs::copy(from, temporary.path())
                .with_context(|| format!("copying {}", from.display()))?;
        }
        Source::Text(text) => fs::write(temporary.path(), text)?,
    }
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(item.mode))?;
    temporary.persist(&item.to)?;
    Ok(())
}

fn systemctl(args: &[&str]) -> Result<()> {
    let status = Command::new("systemctl")
        .args(args)
        .status()
        .context("starting systemctl")?;
    if !status.success() {
        bail!("systemctl {}: {status}", args.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(prefix: &str, destdir: &str) -> Options {
        Options {
            prefix: prefix.into(),
            destdir: destdir.into(),
        }
    }

    #[test]
    fn a_destdir_comes_before_the_prefix() {
        let plain = options("/usr/local", "/").place("bin/nfluid");
        assert_eq!(plain, Path::new("/usr/local/bin/nfluid"));
        let packaged = options("/usr", "/tmp/package").place("bin/nfluid");
        assert_eq!(packaged, Path::new("/tmp/package/usr/bin/nfluid"));
    }

    #[test]
    fn a_file_is_replaced_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("deep/file");
        for text in ["one", "two"] {
            put(&Item {
                source: Source::Text(text.into()),
                to: to.clone(),
                mode: 0o755,
            })
            .unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), text);
        }
        assert_eq!(
            fs::metadata(&to).unwrap().permissions().mode() & 0o777,
            0o755
        );
        assert_eq!(fs::read_dir(folder.path().join("deep")).unwrap().count(), 1);
    }
}
