//! The program that a function executes: the program that was sent, or the interpreter of a script that was sent.

use crate::reserve;
use anyhow::{Context, bail};
use nfluid_ring::layout::SOL_NFLUID;
use nfluid_sandbox::seccomp::{Filter, Policy};
use nfluid_sandbox::{Linkage, Program, Root};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Directories in which the name after `#!/usr/bin/env` is searched.
const SEARCHED: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// Longest first line of a script (BINPRM_BUF_SIZE of the kernel).
const FIRST_LINE_MAX: usize = 256;
/// The script in its folder.
const SCRIPT: &str = "program";

/// The program of a function.
pub struct Code {
    /// The program to execute.
    pub program: Program,
    /// `argv[0]` and, for a script, the arguments before those of the request.
    pub arguments: Vec<CString>,
    script: Option<Script>,
}

/// A script in a folder of its own. Dropping it removes the folder.
struct Script {
    folder: PathBuf,
    /// Directory in which its interpreter's libraries may be.
    libraries: Option<PathBuf>,
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "removing a script");
        }
    }
}

impl Code {
    /// Takes a program that was sent. A script is put into `folder`, which must not exist.
    ///
    /// # Errors
    /// The bytes are neither an ELF program of this machine nor a script for an interpreter that this host has.
    pub fn of(bytes: &[u8], name: &str, folder: &Path) -> anyhow::Result<Self> {
        if let Some(line) = bytes.strip_prefix(b"#!") {
            return Code::script(line, bytes, folder);
        }
        // The last part of a path, unless that is not a file name.
        let origin = Path::new(Path::new(name).file_name().unwrap_or("function".as_ref()));
        let program = Program::of_bytes(bytes, origin)?;
        Ok(Code {
            arguments: vec![CString::new(origin.as_os_str().as_bytes())?],
            program,
            script: None,
        })
    }

    fn script(line: &[u8], bytes: &[u8], folder: &Path) -> anyhow::Result<Self> {
        let line = line.iter().position(|byte| *byte == b'\n');
        let line = line.and_then(|end| bytes.get(2..2 + end));
        let line = line.filter(|line| line.len() <= FIRST_LINE_MAX);
        let line = line.context("its first line, '#!', is too long or never ends")?;
        let line = std::str::from_utf8(line).context("its first line is not UTF-8")?;
        let (interpreter, option) = interpreter(line)?;
        let program = Program::open(&interpreter).context("its interpreter")?;
        if !program.is_roots() {
            // A sealed copy would use the daemon's memory, once for each function.
            bail!(
                "its interpreter {} can be changed by others than root; chown root {0}; chmod go-w {0}",
                interpreter.display()
            );
        }
        make_folder(folder).context("making a folder for it")?;
        let libraries = interpreter.parent().and_then(Path::parent);
        let script = Script {
            folder: folder.to_owned(),
            libraries: libraries
                .filter(|prefix| prefix.parent().is_some())
                .map(|prefix| prefix.join("lib"))
                .filter(|libraries| libraries.is_dir()),
        };
        let file = folder.join(SCRIPT);
        reserve::write(&file, bytes).context("writing it")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).context("writing it")?;
        let own = CString::new(interpreter.as_os_str().as_bytes())?;
        let option = option.map(CString::new).transpose()?;
        let file = CString::new(file.as_os_str().as_bytes())?;
        Ok(Code {
            program,
            arguments: [Some(own), option, Some(file)]
                .into_iter()
                .flatten()
                .collect(),
            script: Some(script),
        })
    }

    /// Returns true for a script in a folder of its own.
    pub fn is_script(&self) -> bool {
        self.script.is_some()
    }

    /// Returns the content of its root directory: nothing; libraries; and the script, if it is a script.
    pub fn root(&self) -> Root {
        match &self.script {
            None => Root::for_linkage(self.program.linkage()),
            Some(script) => {
                let shown = script.libraries.iter().chain([&script.folder]);
                Root::libraries(shown.cloned().collect())
            }
        }
    }
}

/// The filters of functions: those of instances of the same kind, with fork allowed.
pub struct Filters {
    alone: Filter,
    reads_files: Filter,
}

impl Filters {
    /// Compiles the filters.
    ///
    /// # Errors
    /// As [`Policy::compile`].
    pub fn compile() -> anyhow::Result<Self> {
        let filter = |linkage: &Linkage| {
            let policy = Policy::new(linkage, SOL_NFLUID as u32).with_processes();
            policy.compile()
        };
        let dynamic = Linkage::Dynamic {
            interpreter: PathBuf::new(),
        };
        Ok(Filters {
            alone: filter(&Linkage::Static)?,
            reads_files: filter(&dynamic)?,
        })
    }

    /// Returns the filter for this program. An interpreter, however it is linked, needs the filter that allows
    /// reading a script.
    pub fn of(&self, code: &Code) -> &Filter {
        match (&code.script, code.program.linkage()) {
            (None, Linkage::Static) => &self.alone,
            _ => &self.reads_files,
        }
    }
}

/// Returns the interpreter that the first line of a script names, and its one option, parsed as the kernel does
/// (execve(2)).
fn interpreter(line: &str) -> anyhow::Result<(PathBuf, Option<&str>)> {
    let line = line.trim_matches([' ', '\t', '\r']);
    let (path, option) = match line.split_once([' ', '\t']) {
        Some((path, option)) => (path, Some(option.trim_start())),
        None => (line, None),
    };
    if !path.starts_with('/') {
        bail!("its first line names '{path}', which is no absolute path of an interpreter");
    }
    if !path.ends_with("/env") {
        return Ok((PathBuf::from(path), option));
    }
    let name = option.unwrap_or_default();
    if name.is_empty() || name.starts_with('-') || name.contains(['/', ' ', '\t']) {
        bail!("after 'env', its first line must have the name of an interpreter and nothing else");
    }
    let found = SEARCHED.map(|folder| Path::new(folder).join(name));
    let found = found.into_iter().find(|path| path.is_file());
    let found = found.with_context(|| {
        format!(
            "this host has no '{name}' in {}; install it, or send a program that needs none",
            SEARCHED.join(", ")
        )
    })?;
    Ok((found, None))
}

/// Creates a folder that all users may read. Replaces a folder that a killed daemon has left.
///
/// # Errors
/// As the kernel reports them.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::DirBuilder::new().mode(0o755).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 16.1
    #[test]
    fn the_first_line_of_a_script_is_read_as_the_kernel_does() {
        let read = |line| interpreter(line).map(|(path, option)| (path, option.map(str::to_owned)));
        let (path, option) = read(" /bin/sh").unwrap();
        assert_eq!((path.as_path(), option), (Path::new("/bin/sh"), None));
        let (_, option) = read("/usr/bin/python3 -I -B").unwrap();
        assert_eq!(option.as_deref(), Some("-I -B"));
        assert!(read("/usr/bin/env sh").unwrap().0.ends_with("sh"));
        for bad in [
            "",
            "sh",
            "/usr/bin/env",
            "/usr/bin/env -S sh -e",
            "/usr/bin/env ../x",
            "/usr/bin/env no-such-interpreter",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    // promise: 16.1
    #[test]
    fn a_file_that_is_no_program_is_refused_and_leaves_no_folder() {
        let place = std::env::temp_dir().join(format!("nfluid-function-{}", std::process::id()));
        let long = [b"#!/".as_slice(), &[b'x'; 300], b"\n"].concat();
        for bad in [
            b"".as_slice(),
            b"echo hello\n",
            b"#!/bin/sh",
            b"#!/no/such/interpreter\n",
            b"#!/\xff\n",
            &long,
        ] {
            assert!(Code::of(bad, "bad", &place).is_err());
            assert!(!place.exists());
        }
        let code = Code::of(b"#!/bin/sh -e\n", "good", &place).unwrap();
        assert_eq!(code.arguments.len(), 3);
        assert!(place.join(SCRIPT).is_file());
        drop(code);
        assert!(!place.exists());
    }
}
