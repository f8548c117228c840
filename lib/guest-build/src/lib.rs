//! Builds the guest images of `lib/guest`, for build scripts: a cargo within cargo, for another target.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of guests: no operating system, and no registers of the floating-point unit.
pub const TARGET: &str = "x86_64-unknown-none";
/// Folders whose code is in guests.
const SOURCES: [&str; 6] = [
    "lib/guest",
    "lib/nf/src",
    "lib/ring/src",
    "lib/server/src",
    "lib/wire/src",
    "Cargo.lock",
];

/// Builds the image `name` of `lib/guest/src/bin` and returns its path. For a build script, which runs again when the
/// code of guests changes.
///
/// # Panics
/// If the image cannot be built: the output of the compiler is above the message.
pub fn image(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the root of the repository");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let target_dir = target_dir();
    let script = root.join("lib/guest/image.ld");
    let flags = [
        "-Crelocation-model=static".to_owned(),
        "-Clink-arg=--no-pie".to_owned(),
        format!("-Clink-arg=-T{}", script.display()),
    ];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(&root)
        .args(["build", "--quiet", "--package", "nfluid-guest"])
        .args(["--features", "image", "--bin", name])
        .args(["--target", TARGET, "--profile", "guest", "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // What the outer cargo was told is not for guests: a linter, a linker, a profile's settings.
    for (key, _) in std::env::vars_os() {
        let text = key.to_string_lossy();
        let is_outer = ["RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "RUSTFLAGS"]
            .iter()
            .any(|outer| text == *outer)
            || text.starts_with("CARGO_PROFILE_")
            || text.starts_with("CARGO_TARGET_");
        if is_outer {
            command.env_remove(key);
        }
    }
    let built = command.status().expect("running cargo");
    assert!(
        built.success(),
        "building the guest image '{name}' failed; 'rustup target add {TARGET}' installs what it needs"
    );
    target_dir.join(TARGET).join("guest").join(name)
}

/// Returns a folder that all builds of guests share, beside the folders of the outer build's profiles.
fn target_dir() -> PathBuf {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("a build script"));
    // TARGET_DIR/[TRIPLE/]PROFILE/build/PACKAGE-HASH/out
    let profile = out.ancestors().nth(3).unwrap_or(&out);
    let root = profile
        .ancestors()
        .skip(1)
        .find(|folder| folder.join("CACHEDIR.TAG").exists());
    root.unwrap_or(profile).join("guests")
}
