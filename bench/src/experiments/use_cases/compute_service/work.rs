//! The program, and the ways to run it: the daemon, a process, namespaces, containers. All use the host's libraries.

use crate::experiments::instances::creation::peers::{UNSHARE, tool};
use crate::host::platform;
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_testbed::CannotRun;
use nfluid_testbed::api::Api;
use nfluid_testbed::command::output;
use nfluid_testbed::directory::ScratchDirectory;
use nfluid_testbed::platform::Platform;
use nfluid_testbed::program::install;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, the same as in the example.
const PROGRAM: &str = include_str!("../../../../../examples/functions/e.py");
const PYTHON: &str = "/usr/bin/python3";
/// Path of the program in containers.
const INSIDE: &str = "/function/e.py";
/// Placeholder for a unique container name.
const CONTAINER: &str = "@container";
/// Folders of a host's programs and libraries that are in `/usr` on most hosts.
const MERGED: [&str; 3] = ["bin", "lib", "lib64"];

/// A way to run the program.
pub struct Way {
    /// Name in figure ids.
    pub name: &'static str,
    how: How,
}

enum How {
    Command(Vec<String>),
    /// A request to the daemon.
    Function {
        socket: PathBuf,
        request: Value,
    },
}

/// The ways that this host has, and the reasons why others are left out.
pub struct Ways {
    /// The ways that this host has.
    pub found: Vec<Way>,
    /// The missing ways: name and reason.
    pub left_out: Vec<(&'static str, String)>,
    _platform: Platform,
    _folder: ScratchDirectory,
}

impl Ways {
    /// Finds the ways of this host, and starts a daemon.
    ///
    /// # Errors
    /// [`CannotRun`] without Python; also when the daemon does not start.
    pub fn new(decimals: usize) -> anyhow::Result<Self> {
        if !Path::new(PYTHON).is_file() {
            return Err(CannotRun(install("python3")).into());
        }
        let (platform, folder) = (platform::start()?, ScratchDirectory::in_memory()?);
        let script = folder.path("function");
        fs::create_dir(&script).context("a folder for the program")?;
        let file = script.join("e.py");
        fs::write(&file, PROGRAM).context("the program")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        let request = json!({
            "name": "e.py", "program": STANDARD.encode(PROGRAM), "args": [decimals.to_string()],
        });
        let mut ways = Ways {
            found: Vec::new(),
            left_out: Vec::new(),
            _folder: folder,
            _platform: platform,
        };
        let digits = decimals.to_string();
        let (file, script) = (file.display().to_string(), script.display().to_string());
        let program = [PYTHON, &file, &digits].map(str::to_owned).to_vec();
        ways.add("process", Ok(How::Command(program.clone())));
        let how = How::Function {
            socket: ways._platform.socket(),
            request,
        };
        ways.add("nfluid", Ok(how));
        let unshare = tool("unshare", "util-linux");
        ways.add(
            "unshare",
            unshare.map(|tool| command(&tool, &UNSHARE, &program)),
        );
        let inside = [PYTHON, INSIDE, &digits].map(str::to_owned).to_vec();
        let bubblewrap = tool("bwrap", "bubblewrap");
        ways.add(
            "bubblewrap",
            bubblewrap.map(|tool| command(&tool, &bubblewrap_flags(&script), &inside)),
        );
        for name in ["crun", "runc"] {
            let folder = ways._folder.path(name);
            let bundle = tool(name, name).and_then(|tool| bundle(&tool, &folder, &script, &inside));
            ways.add(name, bundle);
        }
        Ok(ways)
    }

    fn add(&mut self, name: &'static str, how: anyhow::Result<How>) {
        let tried = how.and_then(|how| {
            let way = Way { name, how };
            way.run(usize::MAX, "").map(|_| way)
        });
        match tried {
            Ok(way) => self.found.push(way),
            Err(why) => self.left_out.push((name, format!("{why:#}"))),
        }
    }
}

impl Way {
    /// Runs the program and waits for its result, which must begin with `expected`; returns the milliseconds until it
    /// was executed, if known.
    ///
    /// # Errors
    /// The program was not run, or had another result.
    pub fn run(&self, number: usize, expected: &str) -> anyhow::Result<Option<f64>> {
        let (result, created) = match &self.how {
            How::Command(words) => (execute(words, number)?, None),
            How::Function { socket, request } => {
                let report = Api::connect(socket)?.request("POST", "/v1/functions", request)?;
                anyhow::ensure!(report["end"] == json!({ "exited": 0 }), "{}", report["end"]);
                let output = report["output"].as_str().context("no output")?;
                let created = report["created_us"].as_f64().context("no time")?;
                (output.to_owned(), Some(created / 1e3))
            }
        };
        let wanted = match self.how {
            How::Command(_) => expected.to_owned(),
            How::Function { .. } => STANDARD.encode(expected),
        };
        anyhow::ensure!(
            expected.is_empty() || result == wanted,
            "it computes something else: {result:.40}"
        );
        Ok(created)
    }
}

fn execute(words: &[String], number: usize) -> anyhow::Result<String> {
    let (program, arguments) = words.split_first().context("no command")?;
    let id = format!("nfluid-bench-{}-{number}", std::process::id());
    let arguments = arguments.iter().map(|word| word.replace(CONTAINER, &id));
    let mut command = Command::new(program);
    output(command.args(arguments))
}

/// Returns the expected output of the program: e to this many decimals, by the same series.
///
/// # Errors
/// When Python does not run the program.
pub fn e(decimals: usize) -> anyhow::Result<String> {
    let mut command = Command::new(PYTHON);
    output(command.args(["-c", PROGRAM, &decimals.to_string()]))
}

fn command(tool: &Path, flags: &[&str], program: &[String]) -> How {
    let words = flags.iter().map(|flag| (*flag).to_owned());
    let words = [tool.display().to_string()].into_iter().chain(words);
    How::Command(words.chain(program.iter().cloned()).collect())
}

fn bubblewrap_flags(script: &str) -> Vec<&str> {
    let mut flags = vec![
        "--unshare-all",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/usr",
        "/usr",
    ];
    for name in MERGED {
        flags.extend(match name {
            "bin" => ["--symlink", "usr/bin", "/bin"],
            "lib" => ["--symlink", "usr/lib", "/lib"],
            _ => ["--symlink", "usr/lib64", "/lib64"],
        });
    }
    flags.extend(["--ro-bind", script, "/function"]);
    flags
}

/// Makes a folder for a container run-time, with the configuration that the run-time writes, and the host's `/usr`.
fn bundle(tool: &Path, folder: &Path, script: &str, program: &[String]) -> anyhow::Result<How> {
    let rootfs = folder.join("rootfs");
    for name in ["usr", "function", "proc", "dev", "sys"] {
        fs::create_dir_all(rootfs.join(name)).context("a root file system")?;
    }
    for name in MERGED {
        symlink(format!("usr/{name}"), rootfs.join(name)).context("a root file system")?;
    }
    output(Command::new(tool).arg("spec").current_dir(folder))?;
    let file = folder.join("config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&file)?)?;
    spec["process"]["args"] = json!(program);
    spec["process"]["terminal"] = json!(false);
    spec["root"] = json!({ "path": "rootfs", "readonly": true });
    let mounts = spec["mounts"].as_array_mut().context("no mounts")?;
    for (source, destination) in [("/usr", "/usr"), (script, "/function")] {
        mounts.push(json!({
            "destination": destination, "source": source, "type": "none", "options": ["rbind", "ro"],
        }));
    }
    fs::write(&file, spec.to_string())?;
    let bundle = folder.display().to_string();
    Ok(command(tool, &["run", "--bundle", &bundle, CONTAINER], &[]))
}
