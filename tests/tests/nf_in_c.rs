//! The promise: the steps of the guide "Write a network function in C" produce a network function. The test builds it
//! by the guide's own commands and places it between two instances; every byte arrives, both ways, and its counters are
//! right.

use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN};
use nfluid_ring::port::WhenFull;
use nfluid_testbed::scratch::Scratch;
use nfluid_tests::harness::skip::{is_root, skip};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const RING: u32 = 64;

fn project() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is in the project").to_owned()
}

/// The folder with `libnfluid.so`: the one that `NFLUID_BIN_DIR` names, or the one of the running test, built if
/// missing.
fn library_folder() -> PathBuf {
    let named = std::env::var_os("NFLUID_BIN_DIR").map(PathBuf::from);
    let test = std::env::current_exe().expect("/proc is mounted");
    let beside = test.ancestors().nth(2).expect("target/debug/deps");
    let folders = [named.as_deref(), Some(beside)];
    let has_library = |folder: &&Path| folder.join("libnfluid.so").is_file();
    if let Some(folder) = folders.into_iter().flatten().find(has_library) {
        return folder.to_owned();
    }
    let target = beside.parent().expect("target");
    let built = Command::new("cargo")
        .args(["build", "-p", "nfluid-capi", "--target-dir"])
        .arg(target)
        .current_dir(project())
        .status();
    assert!(built.expect("cargo runs").success());
    target.join("debug")
}

/// Code blocks of one language in the guide.
fn blocks(guide: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    guide
        .split(&start)
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a first part").to_owned())
        .collect()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A process is in one cgroup, and so in one private platform, at a time.
static PLATFORM: Mutex<()> = Mutex::new(());

/// A folder like the project's for the guide's commands, removed when dropped. Make the platform after it: it lets one
/// test at a time have one.
struct GuideCopy {
    folder: PathBuf,
    library: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl GuideCopy {
    /// Reports the reason and returns `None` if the test cannot run here.
    fn new(test: &str) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        if Command::new("cc").arg("--version").output().is_err() {
            skip(test, "it needs a C compiler (cc)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("nfl-{}-{test}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let copy = Self {
            folder,
            library: library_folder(),
            _turn: PLATFORM.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let examples = copy.folder.join("examples");
        std::os::unix::fs::symlink(project().join("examples"), examples).unwrap();
        Some(copy)
    }

    /// Runs a program or a script with header and library where `make install` would make them be found.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("C_INCLUDE_PATH", project().join("lib/ring/include"))
            .env("LIBRARY_PATH", &self.library)
            .env("LD_LIBRARY_PATH", &self.library);
        command
    }

    fn run(&self, script: &str) {
        let status = self.command("sh").args(["-e", "-c", script]).status();
        assert!(status.unwrap().success(), "{script}");
    }

    fn bridge(&self) -> Command {
        self.command(self.folder.join("my-nf/bridge"))
    }
}

impl Drop for GuideCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running program, ended when dropped.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn new(mut child: Child) -> Self {
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Running { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Asks the program to end; returns its status and its last output.
    fn stop(mut self) -> (ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A frame that no other number gives: header and `number` repeated, of a length that depends on it.
fn frame(number: u16) -> Vec<u8> {
    let len = 14 + usize::from(number) * 7 % 1500;
    let [high, low] = number.to_be_bytes();
    (0..len)
        .map(|at| if at % 2 == 0 { high } else { low } ^ at as u8)
        .collect()
}

/// Sends the frames of `numbers` in batches and receives as many at the other end, comparing each.
fn through(
    from: &mut Attached,
    to: &mut Attached,
    numbers: std::ops::Range<u16>,
    running: &mut Running,
) {
    let numbers: Vec<u16> = numbers.collect();
    for batch in numbers.chunks(RING as usize / 2) {
        let port = &mut from.ports[0];
        for &number in batch {
            let bytes = frame(number);
            let queued = port.send(|slot| {
                slot[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            });
            assert!(queued, "frame {number}");
        }
        assert_eq!(port.flush(WhenFull::Drop).unwrap(), batch.len() as u32);
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        while arrived.len() < batch.len() {
            assert_eq!(running.child.try_wait().unwrap(), None, "the bridge lives");
            to.doorbell.wait(&mut to.ports, None, AGEING).unwrap();
            to.ports[0].receive(batch.len(), |bytes| arrived.push(bytes.to_vec()));
        }
        let sent: Vec<Vec<u8>> = batch.iter().map(|&number| frame(number)).collect();
        assert_eq!(arrived, sent);
    }
}

/// Frames and bytes of a range of numbers.
fn total(numbers: std::ops::Range<u16>) -> (usize, usize) {
    (
        numbers.len(),
        numbers.map(|number| frame(number).len()).sum(),
    )
}

// promise: 11.3
#[test]
fn the_guide_shows_what_is_in_the_files() {
    let guide = read(project().join("docs/guide/nf-in-c.md"));
    let source = read(project().join("examples/nf-in-c/bridge.c"));
    let deployment = read(project().join("examples/nf-in-c/deployment.yaml"));
    let code = blocks(&guide, "c");
    assert!(code.len() >= 4, "{code:?}");
    for block in code {
        assert!(source.contains(&block), "not in bridge.c:\n{block}");
    }
    for block in blocks(&guide, "yaml") {
        assert!(
            deployment.contains(&block),
            "not in deployment.yaml:\n{block}"
        );
    }
}

// promise: 11.3
#[test]
fn the_bridge_of_the_guide_passes_every_frame_both_ways() {
    let test = "the_bridge_of_the_guide_passes_every_frame_both_ways";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    let guide = read(project().join("docs/guide/nf-in-c.md"));
    let commands = blocks(&guide, "sh");
    assert!(!commands.is_empty());
    for block in &commands {
        copy.run(block);
    }
    let alone = copy.bridge().output().unwrap();
    assert_eq!(alone.status.code(), Some(1));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(blocks(&guide, "text"), [said]);

    let mut scratch = Scratch::new("nf-in-c").unwrap();
    let mut left = scratch.instance(1, RING, RING).unwrap();
    let mut bridge = scratch.instance(2, RING, RING).unwrap();
    let mut right = scratch.instance(1, RING, RING).unwrap();
    scratch.link((&mut left, 0), (&mut bridge, 0)).unwrap();
    scratch.link((&mut bridge, 1), (&mut right, 0)).unwrap();
    let child = bridge.spawn(copy.bridge().stdout(Stdio::piped())).unwrap();
    let mut running = Running::new(child);
    assert_eq!(running.line(), "bridge: p0 <-> p1\n");

    let (mut left, mut right) = (left.attach().unwrap(), right.attach().unwrap());
    let (there, back) = (0..500, 500..730);
    through(&mut left, &mut right, there.clone(), &mut running);
    through(&mut right, &mut left, back.clone(), &mut running);

    let (status, said) = running.stop();
    assert!(status.success(), "{status}: {said}");
    let ((sent, sent_bytes), (answered, answered_bytes)) = (total(there), total(back));
    let expected = format!(
        "bridge: p0 received {sent} frames, {sent_bytes} bytes; sent {answered} frames\n\
         bridge: p1 received {answered} frames, {answered_bytes} bytes; sent {sent} frames\n"
    );
    assert_eq!(said, expected);
}

// promise: 11.3
#[test]
fn every_function_does_what_the_header_says() {
    let test = "every_function_does_what_the_header_says";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    let source = project().join("tests/tests/nf_in_c/functions.c");
    let compile = "cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -o functions";
    copy.run(&format!("{compile} '{}' -lnfluid", source.display()));

    let mut scratch = Scratch::new("nf-in-c-functions").unwrap();
    let mut peer = scratch.instance(1, RING, RING).unwrap();
    let mut subject = scratch.instance(2, RING, RING).unwrap();
    scratch.link((&mut peer, 0), (&mut subject, 0)).unwrap();
    let mut program = copy.command(copy.folder.join("functions"));
    let child = subject.spawn(program.stdout(Stdio::piped())).unwrap();
    let mut running = Running::new(child);

    let mut peer = peer.attach().unwrap();
    let mut receive = |peer: &mut Attached, count: usize| -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            assert_eq!(running.child.try_wait().unwrap(), None, "it has failed");
            peer.doorbell.wait(&mut peer.ports, None, AGEING).unwrap();
            peer.ports[0].receive(count, |bytes| frames.push(bytes.to_vec()));
        }
        frames
    };
    let expected = (0..RING as usize).map(|i| match i {
        1 => vec![1; FRAME_MAX],
        _ => vec![i as u8; FRAME_MIN + i],
    });
    assert_eq!(
        receive(&mut peer, RING as usize),
        expected.collect::<Vec<_>>()
    );

    let mut question = frame(77);
    assert!(peer.ports[0].send(|slot| {
        slot[..question.len()].copy_from_slice(&question);
        question.len()
    }));
    assert_eq!(peer.ports[0].flush(WhenFull::Drop).unwrap(), 1);
    assert!(running.child.wait().unwrap().success());
    question[0] ^= 0xff;
    let mut answers = Vec::new();
    peer.ports[0].receive(2, |bytes| answers.push(bytes.to_vec()));
    assert_eq!(answers, [question]);
}
