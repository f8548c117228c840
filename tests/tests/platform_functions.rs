//! Functions: their results return, hostile functions are ended, and neither leaves anything.

use nfluid_testbed::process::signal;
use nfluid_tests::harness::command::Outcome;
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/functions");
    folder.join(name).to_str().expect("text").to_owned()
}

/// A platform on a host that has Python, or that the test is skipped.
fn platform(test: &str) -> Option<Platform> {
    if !Path::new("/usr/bin/python3").is_file() {
        skip(test, "it needs /usr/bin/python3: apt-get install python3");
        return None;
    }
    Platform::new(test)
}

fn script(platform: &Platform, name: &str, text: &str) -> String {
    let path = platform.directory().join(name);
    fs::write(&path, format!("#!/usr/bin/python3\n{text}\n")).expect("the directory is ours");
    path.to_str().expect("text").to_owned()
}

fn start(platform: &Platform, arguments: &[&str]) -> Child {
    let mut command = platform.nfluid_command();
    command
        .arg("run-function")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("it can be started")
}

fn call(platform: &Platform, arguments: &[&str], input: &str) -> Outcome {
    let mut child = start(platform, arguments);
    let mut stdin = child.stdin.take().expect("it was asked for");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A script of this text with these limits.
fn hostile(platform: &Platform, text: &str, limits: &[&str]) -> Outcome {
    let path = script(platform, "hostile.py", text);
    call(platform, &[limits, &[path.as_str()]].concat(), "")
}

/// Cgroups of functions, and their scripts.
fn left(platform: &Platform) -> Vec<PathBuf> {
    let cgroups = platform.cgroups().into_iter();
    let folders = cgroups.map(|folder| folder.join("functions"));
    let folders = folders.chain([platform.run_dir().join("functions")]);
    let inside = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let paths = inside.map(|entry| entry.path());
    paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("f-"))
        })
        .collect()
}

/// Mount namespaces that the daemon keeps for instances.
fn kept_mounts(platform: &Platform) -> usize {
    let folder = format!("/proc/{}/fd", platform.daemon_pid());
    let entries = fs::read_dir(folder).expect("it runs").flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("mnt:["))
        .count()
}

// promise: 16.1
#[test]
fn a_function_computes_and_nothing_of_it_is_left() {
    let Some(platform) = platform("a_function_computes_and_nothing_of_it_is_left") else {
        return;
    };
    let kept = kept_mounts(&platform);
    let e = call(&platform, &[&example("e.py"), "30"], "");
    assert_eq!(e.stdout, "2.718281828459045235360287471352\n", "{e:?}");
    assert_eq!(e.code, Some(0), "{e:?}");
    let words = call(
        &platform,
        &[&example("words.py"), "1"],
        "to be or not to be to",
    );
    assert_eq!(words.stdout.trim(), "3 to", "{words:?}");
    let none = call(&platform, &[&example("words.py")], " ");
    assert_eq!(none.code, Some(1), "{none:?}");
    assert_eq!(none.stderr, "there are no words in the input\n");
    assert_eq!(kept_mounts(&platform), kept, "a script's is gone with it");

    // A program without an interpreter, and more input than a pipe holds.
    let long = "0123456789abcdef".repeat(20_000);
    let cat = call(&platform, &["--verbose", "/bin/cat"], &long);
    assert!(cat.succeeded() && cat.stdout == long, "{:?}", cat.stderr);
    assert!(cat.stderr.contains("created in"), "{:?}", cat.stderr);

    let refused = |arguments: &[&str], reason: &str| {
        let outcome = call(&platform, arguments, "");
        assert_eq!(outcome.code, Some(125), "{arguments:?}: {outcome:?}");
        assert!(
            outcome.stderr.contains(reason),
            "{arguments:?}: {outcome:?}"
        );
    };
    let text = platform.directory().join("text");
    fs::write(&text, "not a program").expect("the directory is ours");
    let text = text.to_str().expect("text");
    refused(&[text], "not an ELF executable");
    refused(&["/no/such/program"], "reading /no/such/program");
    refused(&["--memory", "1KiB", "/bin/cat"], "memory_bytes is 1024");
    fs::write(text, "#!/usr/bin/env no-such-interpreter\n").expect("the directory is ours");
    refused(&[text], "no 'no-such-interpreter'");
    fs::write(text, vec![b'x'; (8 << 20) + 1]).expect("the directory is ours");
    refused(&[text], "longer than the 8.0MiB");
    assert_eq!(left(&platform), Vec::<PathBuf>::new());
}

// promise: 16.2
#[test]
fn a_hostile_function_is_ended_and_reaches_nothing() {
    let Some(platform) = platform("a_hostile_function_is_ended_and_reaches_nothing") else {
        return;
    };
    let ended = |text: &str, limits: &[&str], code: i32, reason: &str| {
        let outcome = hostile(&platform, text, limits);
        assert_eq!(outcome.code, Some(code), "{text}: {outcome:?}");
        assert!(outcome.stderr.contains(reason), "{text}: {outcome:?}");
    };
    ended(
        "while True: pass",
        &["--cpu-time", "200ms"],
        124,
        "of CPU time",
    );
    ended(
        "import time; time.sleep(99)",
        &["--timeout", "300ms"],
        124,
        "--timeout",
    );
    let hog = "held = []\nwhile True: held.append(bytearray(b'x') * (1 << 20))";
    ended(
        hog,
        &["--memory", "32MiB"],
        137,
        "more than 32.0MiB of memory",
    );
    let flood = "while True: print('x' * 1000)";
    ended(
        flood,
        &["--max-output", "64KiB"],
        126,
        "wrote more than 64.0KiB",
    );
    let bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass";
    // Sixteen interpreters need 8 MiB each, more or less: 128 MiB may end them first.
    let limits = ["--cpu-time", "500ms", "--tasks", "16", "--memory", "512MiB"];
    ended(bomb, &limits, 124, "of CPU time");
    // Not even the end of its first process lets the others live on.
    let orphans =
        "import os, time\nfor _ in range(5):\n  if os.fork() == 0: time.sleep(99)\nos._exit(3)";
    ended(orphans, &[], 3, "");
    // The loader with another program: by a path beside the flag for an empty one (catches: the filter tests the flag
    // alone).
    let loader = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
argv = (ctypes.c_char_p * 3)(b'ld', b'/usr/lib/x86_64-linux-gnu/libc.so.6', None)
done = libc.execveat(-100, b'/lib64/ld-linux-x86-64.so.2', argv, argv, 0x1000)
os._exit(ctypes.get_errno())";
    ended(loader, &[], 1, "");
    ended(
        "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
        &[],
        128 + 31,
        "signal 31",
    );

    // All of it in one function: none of it may end it.
    let attempts = [
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "open('/etc/passwd')",
        "open('/proc/1/environ')",
        "open('/function', 'w')",
        "open('/usr/lib/x', 'w')",
        "os.mkdir('/tmp')",
        "os.listdir('/')",
        "subprocess.run(['/bin/ls'])",
        "os.kill(2, 9)",
        "os.setpriority(os.PRIO_PROCESS, 0, -5)",
    ];
    let mut text = "import os, socket, subprocess\n".to_owned();
    for attempt in attempts {
        text += &format!("try: print('DONE', {attempt})\nexcept OSError: print('refused')\n");
    }
    text += "print(os.getpid(), os.getuid())";
    let outcome = hostile(&platform, &text, &[]);
    let said: Vec<&str> = outcome.stdout.lines().collect();
    let (last, said) = said.split_last().expect("it says something");
    for (attempt, answer) in attempts.into_iter().zip(said) {
        assert_eq!(*answer, "refused", "{attempt}");
    }
    assert_eq!(
        (said.len(), *last),
        (attempts.len(), "1 1000"),
        "{outcome:?}"
    );
    assert_eq!(left(&platform), Vec::<PathBuf>::new());
}

/// The interpreter in `#!` or in an ELF file is checked, and not opened.
///
/// Catches: a landlock rule or `Program::open` opens it for reading: then this call does not end before its time.
// promise: 3.18, 16.2
#[test]
fn what_a_function_names_is_not_opened() {
    let Some(platform) = platform("what_a_function_names_is_not_opened") else {
        return;
    };
    let fifo = platform.directory().join("fifo");
    let mode = Mode::from_raw_mode(0o777);
    mknodat(CWD, &fifo, FileType::Fifo, mode, 0).expect("the directory is ours");
    let path = fifo.to_str().expect("text");
    let file = platform.directory().join("function");
    let run = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("the directory is ours");
        let child = start(&platform, &[file.to_str().expect("text")]);
        let waited = thread::spawn(move || child.wait_with_output().expect("it ends"));
        while !waited.is_finished() {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&fifo, flags, Mode::empty());
            opened.expect_err("the daemon has it open");
            thread::yield_now();
        }
        waited.join().expect("no panic").status.code()
    };
    assert_eq!(run(format!("#!{path}\n").as_bytes()), Some(125));
    // The same program with another loader of a path as long.
    let program = fs::read("/bin/cat").expect("every host has it");
    let loader = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = program
        .windows(loader.len())
        .position(|part| part == loader);
    let Some(at) = at else {
        skip(
            "what_a_function_names_is_not_opened",
            "/bin/cat has another loader",
        );
        return;
    };
    let link = PathBuf::from(format!("/tmp/nfl-{:018}", std::process::id()));
    assert_eq!(link.as_os_str().len() + 1, loader.len());
    let _left = Link(link.clone());
    let _old = fs::remove_file(&link);
    symlink(&fifo, &link).expect("/tmp is there");
    let name = format!("{}\0", link.display());
    let mut other = program.clone();
    other[at..at + loader.len()].copy_from_slice(name.as_bytes());
    assert_eq!(run(&other), Some(125));
    assert!(call(&platform, &[&example("e.py")], "").succeeded());
}

/// A link that is removed when the test ends.
struct Link(PathBuf);

impl Drop for Link {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

// Catches: the cgroup of all functions is left without a limit of memory or of tasks.
// promise: 16.2
#[test]
fn all_functions_together_have_a_limit() {
    let Some(platform) = platform("all_functions_together_have_a_limit") else {
        return;
    };
    let limit = |file: &str| {
        let folders = platform.cgroups();
        let files = folders
            .iter()
            .map(|folder| folder.join("functions").join(file));
        let mut texts = files.filter_map(|file| fs::read_to_string(file).ok());
        texts.next_back().map(|text| text.trim().to_owned())
    };
    let memory = limit("memory.max").or_else(|| limit("memory.limit_in_bytes"));
    let memory: u64 = memory.expect("a limit").parse().expect("not 'max'");
    let host = rustix::system::sysinfo();
    assert_eq!(
        memory / 4096,
        host.totalram * u64::from(host.mem_unit) / 2 / 4096
    );
    assert_eq!(limit("pids.max").as_deref(), Some("4096"));
    // A process that reaches the limit ends alone: the kernel may end all processes of a function, and not all
    // functions.
    assert_ne!(limit("memory.oom.group").as_deref(), Some("1"));
}

// promise: 16.3
#[test]
fn a_function_ends_with_its_client_and_with_the_daemon() {
    let Some(mut platform) = platform("a_function_ends_with_its_client_and_with_the_daemon") else {
        return;
    };
    let sleeper = script(&platform, "sleeper.py", "import time; time.sleep(99)");
    let begin = |platform: &Platform| {
        let mut child = start(platform, &["--timeout", "90s", &sleeper]);
        drop(child.stdin.take());
        eventually("it runs", || !platform.function_processes().is_empty());
        child
    };
    let mut client = begin(&platform);
    signal(client.id(), Signal::KILL);
    client.wait().expect("it is our child");
    eventually("nothing is left of it", || left(&platform).is_empty());
    assert!(platform.function_processes().is_empty());

    let mut client = begin(&platform);
    platform.kill_daemon();
    assert_eq!(client.wait().expect("it is our child").code(), Some(125));
    eventually("the kernel ends it", || {
        platform.function_processes().is_empty()
    });
    platform.start();
    assert_eq!(left(&platform), Vec::<PathBuf>::new());
    assert!(call(&platform, &[&example("e.py")], "").succeeded());

    let mut client = begin(&platform);
    platform.terminate_daemon();
    assert_eq!(client.wait().expect("it is our child").code(), Some(125));
    assert!(platform.function_processes().is_empty());
    assert_eq!(left(&platform), Vec::<PathBuf>::new());
}
