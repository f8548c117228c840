//! A container image with busybox, and instances of it.

use super::patience::eventually;
use super::platform::Platform;
use super::skip::skip;
use nfluid_testbed::image::{Layer, Layout};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tar::EntryType;

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";
const TOOLS: [&str; 21] = [
    "chmod", "sh", "ls", "cat", "id", "env", "echo", "touch", "sleep", "httpd", "ping", "dd",
    "mount", "chown", "stat", "rm", "kill", "test", "mkdir", "hostname", "nslookup",
];
/// The entrypoint: a script, whose interpreter is in the image.
const ENTRY: &str = "#!/bin/sh -e
echo \"entry $* as $(id -u):$(id -g) in $(pwd) A=$A B=$B\"
exec \"$@\"
";

/// A host with an uplink, and a directory for images; `None`: the test is skipped.
pub fn host(test: &str) -> Option<(Platform, PathBuf)> {
    if !Path::new("/bin/busybox").is_file() {
        skip(test, "it needs busybox-static");
        return None;
    }
    let mut platform = Platform::new(test)?;
    platform.host("client", &format!("{CLIENT}/24"));
    let folder = platform.directory().join("oci");
    Some((platform, folder))
}

/// busybox, a user, and files that an upper layer hides.
fn layers() -> Vec<Vec<u8>> {
    let mut lower = Layer::default();
    let busybox = fs::read("/bin/busybox").expect("busybox");
    let passwd = b"root:x:0:0:root:/root:/bin/sh\nweb:x:101:102::/var/web:/bin/false\n";
    for (path, mode, owner, content) in [
        ("bin/busybox", 0o755, (0, 0), &busybox[..]),
        ("etc/passwd", 0o644, (0, 0), passwd),
        ("etc/group", 0o644, (0, 0), b"root:x:0:\nweb:x:102:\n"),
        ("srv/hidden", 0o644, (0, 0), b"hidden"),
        ("srv/index.html", 0o644, (0, 0), b"lower"),
        ("root/secret", 0o600, (0, 0), b"of root"),
        ("var/web/own", 0o600, (101, 102), b"of web"),
    ] {
        lower.file(path, mode, owner, content).expect("an entry");
    }
    for tool in TOOLS {
        let path = format!("bin/{tool}");
        lower
            .entry(EntryType::Symlink, &path, 0o777, (0, 0), "busybox", b"")
            .expect("an entry");
    }
    lower
        .entry(EntryType::Directory, "root", 0o700, (0, 0), "", b"")
        .expect("an entry");
    lower
        .entry(EntryType::Directory, "var/web", 0o700, (101, 102), "", b"")
        .expect("an entry");
    lower
        .entry(EntryType::Directory, "tmp", 0o1777, (0, 0), "", b"")
        .expect("an entry");
    let mut upper = Layer::default();
    upper
        .file("entry.sh", 0o755, (0, 0), ENTRY.as_bytes())
        .expect("an entry");
    upper
        .file("srv/.wh.hidden", 0o644, (0, 0), b"")
        .expect("an entry");
    upper
        .file("srv/index.html", 0o644, (0, 0), b"upper")
        .expect("an entry");
    [lower, upper]
        .map(|layer| layer.finish().expect("a layer"))
        .into()
}

/// Writes the image with this configuration.
pub fn write(folder: &Path, config: Value) {
    let _ = fs::remove_dir_all(folder);
    Layout::new(folder, config)
        .write_plain(&layers())
        .expect("an image");
}

/// A web server that says how it was started.
pub fn usual() -> Value {
    json!({
        "Entrypoint": ["/entry.sh"],
        "Cmd": ["httpd", "-f", "-v", "-p", "8080", "-h", "/srv"],
        "Env": ["A=1", "B=2"],
        "WorkingDir": "/srv/made",
        "StopSignal": "SIGQUIT",
    })
}

/// An instance of the image, with these keys.
pub fn web(folder: &Path, keys: &str) -> String {
    let folder = folder.display();
    format!("{{ image: 'oci:{folder}', memory: 64MiB, {keys} }}")
}

/// One interface, with these keys.
pub fn ports(keys: &str) -> String {
    format!("ports: {{ eth0: {{ kind: interface, addresses: [{SERVER}/24], {keys} }} }}")
}

/// An instance that the host `client` is linked to.
pub fn deployment(instance: &str) -> String {
    format!(
        "version: 1\nuplinks:\n  lan: {{ interface: client, netns: EDGE }}\ninstances:\n  web: {instance}\nlinks: [[lan, web.eth0]]\n"
    )
}

/// Returns what the instance has said.
pub fn log(platform: &Platform) -> String {
    let log = platform.log("web");
    // The monitor says this beside the program, at any point of what the program says.
    log.replace("nfluid-vmm: running on 1 ports, 1 queues each\n", "")
}

/// Applies a deployment and returns what its instance says until it is done. What an earlier one has said stays in the log.
pub fn said(platform: &Platform, deployment: &str) -> String {
    let before = log(platform).len();
    let since = || log(platform).split_off(before);
    platform.apply(deployment);
    eventually("it is done", || since().contains("done\n"));
    since()
}

/// Returns what its web server serves, empty if there is no answer.
pub fn get(platform: &Platform) -> String {
    let got = platform.directory().join("got");
    let _ = fs::remove_file(&got);
    let get = format!(
        "curl --silent --fail --max-time 20 --output {} http://{SERVER}:8080/index.html",
        got.display()
    );
    platform.on("client", &get);
    fs::read_to_string(&got).unwrap_or_default()
}

/// Runs `nfluid image`. Returns whether it succeeded, and what it said.
pub fn image(platform: &Platform, command: &[&str]) -> (bool, String) {
    let directory = platform.directory().join("state/images");
    let directory = directory.to_str().expect("a text");
    let words = [&["image"], command, &["--image-dir", directory]].concat();
    let outcome = platform.nfluid(&words);
    (
        outcome.succeeded(),
        format!("{}{}", outcome.stdout, outcome.stderr),
    )
}
