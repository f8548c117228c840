//! File system of a guest.
//!
//! Test programs and the platform's programs keep their paths of the host, because they find each other and the
//! project's files by path.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use crate::deps;
use crate::programs::Programs;
use crate::session::Session;

/// Tools that tests start; a tool that the host lacks is missing in the guest.
const TOOLS: [&str; 8] = [
    "ip",
    "tc",
    "nft",
    "ping",
    "ethtool",
    "curl",
    "xdp-loader",
    "xdp-filter",
];
/// Libraries that programs open at run time, with their BPF programs; by the names in Debian's folder.
const OPENED: &str = "libxdp.so.1";
const OBJECTS: &str = "bpf";
/// Folders of the project whose files tests read.
const PROJECT_FOLDERS: [&str; 3] = ["examples", "tests", "api/openapi"];
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Content of a guest's file system.
pub struct Content<'a> {
    pub session: &'a Session,
    pub kernel: &'a Kernel,
    pub programs: &'a Programs,
}

impl Content<'_> {
    /// Writes the archive. `filter` goes to every test program; a shell runs `command` instead of tests.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn write(&self, image: &Path, filter: Option<&str>, command: Option<&str>) -> Result<()> {
        let file = File::create(image).with_context(|| format!("writing {}", image.display()))?;
        let mut archive = Archive::new(BufWriter::new(file));
        self.base(&mut archive)?;
        self.list(&mut archive, filter.unwrap_or_default())?;
        let command = command.unwrap_or_default();
        archive.file(Path::new("/etc/guest/command"), 0o644, command.as_bytes())?;
        self.programs(&mut archive)?;
        tree(&mut archive, &self.kernel.modules(), Path::new("/"))?;
        for folder in PROJECT_FOLDERS.map(|folder| self.session.root.join(folder)) {
            if folder.is_dir() {
                tree(&mut archive, &folder, &folder)?;
            }
        }
        archive.finish()?;
        Ok(())
    }

    fn base(&self, archive: &mut Archive<impl std::io::Write>) -> Result<()> {
        for (path, mode) in [
            ("/dev", 0o755),
            ("/proc", 0o555),
            ("/sys", 0o555),
            ("/tmp", 0o1777),
        ] {
            archive.folder(Path::new(path), mode)?;
        }
        for path in [
            "/root",
            "/run/netns",
            "/usr/bin",
            "/usr/sbin",
            "/var/lib",
            "/etc",
        ] {
            archive.folder(Path::new(path), 0o755)?;
        }
        let busybox = deps::find_program("busybox").context("busybox is missing")?;
        copy(archive, &busybox, Path::new("/bin/busybox"))?;
        for link in ["/bin/sh", "/sbin/modprobe"] {
            archive.link(Path::new(link), Path::new("/bin/busybox"))?;
        }
        copy(
            archive,
            &self.session.root.join("tests/guest/init"),
            Path::new("/init"),
        )?;
        archive.file(Path::new("/etc/passwd"), 0o644, USERS.as_bytes())?;
        archive.file(Path::new("/etc/group"), 0o644, GROUPS.as_bytes())?;
        archive.file(
            Path::new("/etc/hosts"),
            0o644,
            b"127.0.0.1 localhost\n::1 localhost\n",
        )?;
        Ok(())
    }

    /// Writes init's input: one test program per line, and the environment of all programs.
    fn list(&self, archive: &mut Archive<impl std::io::Write>, filter: &str) -> Result<()> {
        let lines = self
            .programs
            .guest_tests()
            .map(|test| format!("{} {}\n", test.name, test.path.display()));
        archive.file(
            Path::new("/etc/guest/tests"),
            0o644,
            lines.collect::<String>().as_bytes(),
        )?;
        archive.file(Path::new("/etc/guest/filter"), 0o644, filter.as_bytes())?;
        let built = self.session.target.join("debug");
        let folder = self.programs.folder().unwrap_or(&built);
        let settings = [
            ("NFLUID_BIN_DIR", folder.display().to_string()),
            ("NFLUID_GUEST_KERNEL", self.kernel.series.clone()),
            ("PROJECT", self.session.root.display().to_string()),
        ];
        let text: String = settings
            .iter()
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect();
        archive.file(Path::new("/etc/guest/environment"), 0o644, text.as_bytes())?;
        Ok(())
    }

    fn programs(&self, archive: &mut Archive<impl std::io::Write>) -> Result<()> {
        let mut libraries = BTreeSet::new();
        let scratch = tempfile::tempdir_in(self.kernel.folder())?;
        for program in self.programs.guest_tests().chain(&self.programs.others) {
            if archive.contains(&program.path) {
                continue;
            }
            let stripped = scratch.path().join(&program.name);
            let mut strip = self.session.command("strip");
            self.session
                .output(strip.arg("-o").arg(&stripped).arg(&program.path))?;
            copy(archive, &stripped, &program.path)?;
            libraries.extend(self.libraries(&program.path)?);
        }
        for tool in TOOLS {
            match deps::find_program(tool) {
                Some(path) => {
                    let real = fs::canonicalize(&path)?;
                    copy(archive, &real, &Path::new("/usr/sbin").join(tool))?;
                    libraries.extend(self.libraries(&real)?);
                }
                None => println!("{tool} is not installed here: the guest has none"),
            }
        }
        let debian = Path::new("/usr/lib/x86_64-linux-gnu");
        let (opened, objects) = (debian.join(OPENED), debian.join(OBJECTS));
        if opened.exists() {
            libraries.extend(self.libraries(&opened)?);
            libraries.insert(opened);
        }
        if objects.is_dir() {
            tree(archive, &objects, &objects)?;
        }
        let built = self.session.target.join("debug/libnfluid.so");
        if built.exists() {
            libraries.extend(self.libraries(&built)?);
            copy(archive, &built, &built)?;
        }
        for library in libraries {
            copy(archive, &library, &library)?;
        }
        Ok(())
    }

    /// Returns the shared libraries of a program, as its dynamic loader lists them.
    fn libraries(&self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut ldd = self.session.command("ldd");
        match self.session.output(ldd.arg(program)) {
            Ok(text) => linked(&text),
            Err(error) if error.to_string().contains("not a dynamic executable") => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`, `/lib64/ld-linux-x86-64.so.2 (0x...)`
fn linked(ldd: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in ldd.lines() {
        if line.contains("not found") {
            anyhow::bail!("ldd: {}", line.trim());
        }
        libraries.extend(
            line.split_whitespace()
                .find(|word| word.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    Ok(libraries)
}

fn copy(archive: &mut Archive<impl std::io::Write>, from: &Path, to: &Path) -> Result<()> {
    if archive.contains(to) {
        return Ok(());
    }
    let reading = || format!("reading {}", from.display());
    let mode = fs::metadata(from)
        .with_context(reading)?
        .permissions()
        .mode()
        & 0o777;
    archive.file(to, mode, &fs::read(from).with_context(reading)?)?;
    Ok(())
}

/// Adds a folder with its content.
fn tree(archive: &mut Archive<impl std::io::Write>, from: &Path, to: &Path) -> Result<()> {
    archive.folder(to, 0o755)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            tree(archive, &path, &target)?;
        } else if kind.is_symlink() {
            archive.link(&target, &fs::read_link(&path)?)?;
        } else if kind.is_file() {
            copy(archive, &path, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_a_missing_one_is_an_error() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f00)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libelf.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(linked(ldd).unwrap(), expected.map(PathBuf::from));
        assert!(linked("\tlibz.so.1 => not found\n").is_err());
    }

    #[test]
    fn a_tree_keeps_links_and_modes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/run"), "x").unwrap();
        std::os::unix::fs::symlink("deep/run", folder.path().join("link")).unwrap();
        let mut archive = Archive::new(Vec::new());
        tree(&mut archive, folder.path(), Path::new("/to")).unwrap();
        assert!(archive.contains(Path::new("/to/deep/run")));
        assert!(archive.contains(Path::new("/to/link")));
    }
}
