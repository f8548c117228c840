//! The promise: who does what the guide "Write your own NF in Rust" says has a network function. Its code and its
//! commands are carried out in a copy of the project; the platform that is built there runs its deployment.

use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::{is_root, skip};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable: the test program runs the guide's deployment, with the programs of `NFLUID_BIN_DIR`.
const DEPLOYING: &str = "NFLUID_TEST_GUIDE_DEPLOYMENT";

fn project() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is in the project").to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The guide, by the numbers of its sections.
struct Guide(String);

impl Guide {
    fn read() -> Self {
        Guide(read(project().join("docs/guide/nf-in-rust.md")))
    }

    fn section(&self, number: usize) -> &str {
        let start = format!("\n## {number}. ");
        let (_, section) = self.0.split_once(&start).expect("a section");
        section.split("\n## ").next().expect("a first part")
    }

    /// The code of one language in a section.
    fn blocks(&self, number: usize, language: &str) -> Vec<&str> {
        let start = format!("```{language}\n");
        let rest = self.section(number).split(start.as_str()).skip(1);
        rest.map(|rest| rest.split("```").next().expect("a first part"))
            .collect()
    }

    /// Returns the file in a section's title, and the content that the section gives for it.
    fn file(&self, number: usize) -> (&str, &str) {
        let title = self.section(number).lines().next().expect("a title");
        let name = title.split('`').nth(1).expect("a file's name");
        let [content] = self.blocks(number, "rust")[..] else {
            panic!("section {number} is about one file");
        };
        (name, content)
    }
}

/// A copy of the project, removed when dropped; files that the guide does not change are links. Its path is always the
/// same, because programs built there contain it.
struct GuideCopy {
    folder: PathBuf,
    _turn: File,
}

impl GuideCopy {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nf-in-rust");
        fs::create_dir_all(folder.parent().expect("it is in another")).unwrap();
        let turn = File::create(folder.with_extension("lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        let _of_one_that_was_killed = fs::remove_dir_all(&folder);
        let copy = GuideCopy {
            folder,
            _turn: turn,
        };
        let (from, to) = (project(), copy.project());
        fs::create_dir_all(to.join("lib")).unwrap();
        link_all(&from, &to, &["target", "lib", "Cargo.toml", "Cargo.lock"]);
        link_all(&from.join("lib"), &to.join("lib"), &["nf"]);
        let captures = from.join("../shared");
        if captures.is_dir() {
            symlink(captures, copy.folder.join("shared")).unwrap();
        }
        fs::copy(from.join("Cargo.lock"), to.join("Cargo.lock")).unwrap();
        // Another version, so that what is built is not taken for the project's own.
        let manifest = read(from.join("Cargo.toml"));
        let version = manifest.split_once("\nversion = \"").expect("a version").1;
        let version = version.split('"').next().expect("its end");
        let other = manifest.replacen(
            &format!("\nversion = \"{version}\""),
            &format!("\nversion = \"{version}-nf-in-rust\""),
            1,
        );
        fs::write(to.join("Cargo.toml"), other).unwrap();
        let mut copying = Command::new("cp");
        copying
            .arg("-r")
            .arg(from.join("lib/nf"))
            .arg(to.join("lib"));
        assert!(copying.status().unwrap().success());
        copy
    }

    fn project(&self) -> PathBuf {
        self.folder.join("project")
    }

    /// Runs a command of the guide; returns its output. Uses the project's builds of external crates.
    fn run(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .current_dir(self.project())
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .stdin(Stdio::null());
        // In what cargo says of this test's package, ring's build script sees a change: all that depends on ring would be built again, in the
        // folder that other tests use meanwhile.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|of_package| text.starts_with(of_package))
            {
                command.env_remove(&name);
            }
        }
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let built = built.expect("target/tmp");
        if built.join("CACHEDIR.TAG").is_file() {
            command.env("CARGO_BUILD_BUILD_DIR", built);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}{said}{complaints}");
        said
    }

    /// Puts `addition` before the place in a file of the network functions.
    fn insert(&self, file: &str, place: &str, addition: &str) {
        let path = self.project().join(file);
        let content = read(&path);
        assert_eq!(content.matches(place).count(), 1, "{place} in {file}");
        let content = content.replace(place, &format!("{addition}{place}"));
        fs::write(path, content).unwrap();
    }
}

impl Drop for GuideCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Links what is in a folder, hidden files excepted.
fn link_all(from: &Path, to: &Path, except: &[&str]) {
    for entry in fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        let text = name.to_str().expect("names of ours are text");
        if !text.starts_with('.') && !except.contains(&text) {
            symlink(from.join(text), to.join(text)).unwrap();
        }
    }
}

/// Sections 1 to 6, up to the tests of 7: the network function is written and registered.
fn write_and_register(guide: &Guide, copy: &GuideCopy) {
    for script in guide.blocks(1, "sh") {
        copy.run(script);
    }
    let folder = copy.project().join("lib/nf/src/maxlen");
    for number in [2, 3, 4, 5, 7] {
        let (name, content) = guide.file(number);
        fs::write(folder.join(name), content).unwrap();
    }
    let registering = guide.section(6);
    let module = "pub mod maxlen;";
    assert!(registering.contains(module));
    let module = format!("{module}\n");
    copy.insert("lib/nf/src/lib.rs", "pub mod mirror;", &module);
    let [entry, case] = guide.blocks(6, "rust")[..] else {
        panic!("a row of the catalogue and one of the captures");
    };
    let catalogue = "lib/nf/src/catalogue.rs";
    copy.insert(catalogue, "mirror, nat", "maxlen, ");
    let next = "    Entry {\n        name: \"mirror\"";
    copy.insert(catalogue, next, entry);
    let next = "    Case {\n        nf: \"mirror\"";
    copy.insert("lib/nf/tests/captures.rs", next, case);
}

// promise: 10.20
#[test]
fn who_follows_the_guide_has_a_network_function() {
    let test = "who_follows_the_guide_has_a_network_function";
    let guide = Guide::read();
    let copy = GuideCopy::new();
    write_and_register(&guide, &copy);
    let [commands] = guide.blocks(7, "sh")[..] else {
        panic!("one block of commands");
    };
    let said = copy.run(commands);
    for test in [
        "maxlen::tests::what_is_too_long_is_dropped_and_counted",
        "maxlen::tests::a_new_configuration_takes_effect_and_a_wrong_one_does_not",
        "captures_cross_every_network_function",
        "every_network_function_has_a_case",
    ] {
        assert!(said.contains(&format!("test {test} ... ok")), "{said}");
    }

    if !is_root(test) {
        return;
    }
    // Of what `make install` installs. Chosen among all packages: the features of the crates of others are those of the
    // project's own build, which need not be built again.
    copy.run("cargo build --workspace --bin nfluidd --bin nfluid --bin nfluid-nf");
    let mut deploying = Command::new(std::env::current_exe().unwrap());
    deploying
        .args(["--exact", "the_guides_deployment", "--nocapture"])
        .env("NFLUID_BIN_DIR", copy.folder.join("target/debug"))
        .env(DEPLOYING, "");
    let deployed = deploying.output().unwrap();
    let said = String::from_utf8_lossy(&deployed.stdout);
    assert!(deployed.status.success(), "{deployed:#?}");
    let skipped = said.lines().find(|line| line.starts_with("SKIPPED "));
    if let Some((_, why)) = skipped.and_then(|line| line.split_once(": ")) {
        skip(test, why);
    }
}

/// Runs the guide's deployment when this program was started to do so; otherwise does nothing.
#[test]
fn the_guides_deployment() {
    if std::env::var_os(DEPLOYING).is_none() {
        return;
    }
    let guide = Guide::read();
    let Some(mut platform) = Platform::new("the_guides_deployment") else {
        return;
    };
    platform.host("nf-left", "192.0.2.1/24");
    platform.host("nf-right", "192.0.2.2/24");
    let [deployment] = guide.blocks(8, "yaml")[..] else {
        panic!("one deployment");
    };
    // The interfaces of a test are not in the host's own namespace.
    let mut deployment = deployment.to_owned();
    for interface in ["interface: nf-left", "interface: nf-right"] {
        assert!(deployment.contains(interface), "{deployment}");
        deployment = deployment.replace(interface, &format!("{interface}, netns: EDGE"));
    }
    platform.apply(&deployment);
    eventually("a ping crosses", || platform.pings("nf-left", "192.0.2.2"));
    // Ethernet, IP and ICMP headers are 42 bytes: 600 pass, 601 do not.
    let ping = |size: u32| {
        let line = format!("ping -n -c 1 -W 1 -s {size} 192.0.2.2");
        platform.on("nf-left", &line).succeeded()
    };
    assert!(ping(558), "a frame of 600 bytes");
    assert!(!ping(559), "a frame of 601 bytes");

    let [commands] = guide.blocks(8, "sh")[..] else {
        panic!("one block of commands");
    };
    let line = commands
        .lines()
        .find(|line| line.starts_with("nfluid stats"));
    let (_, promised) = line.expect("it shows counters").split_once('#').unwrap();
    let promised = promised.trim().trim_end_matches(" ...");
    let stats = platform.nfluid(&["stats"]);
    let counter = stats.stdout.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ").strip_prefix(promised).map(str::to_owned)
    });
    let counted = counter.unwrap_or_else(|| panic!("no {promised} in {stats:?}"));
    assert_eq!(counted.trim(), "1");
}
