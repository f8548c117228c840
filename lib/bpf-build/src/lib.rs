//! Compiles the eBPF programs of `bpf/` with clang. For build scripts.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const CLANGS: [&str; 6] = [
    "clang", "clang-14", "clang-16", "clang-19", "clang-17", "clang-18",
];

/// Compiles `source`, a file below `bpf/`, to a file of the same name ending in `.o` in the build script's `OUT_DIR`.
///
/// # Panics
/// When there is no clang, or it refuses: that ends the build with a reason.
pub fn compile(source: &str) {
    let name = Path::new(source).file_name().expect("it is a file");
    let object = Path::new(name).with_extension("o");
    compile_as(source, &object.to_string_lossy(), &[]);
}

/// Compiles `source`, a file below `bpf/`, with these options to the file `object` in the build script's `OUT_DIR`.
///
/// # Panics
/// When there is no clang, or it refuses: that ends the build with a reason.
pub fn compile_as(source: &str, object: &str, options: &[&str]) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    // Another version of it, for `cargo xtask mutants`.
    println!("cargo:rerun-if-env-changed=NFLUID_BPF");
    let bpf = env::var_os("NFLUID_BPF").map_or(own, PathBuf::from);
    println!("cargo:rerun-if-changed={}", bpf.display());
    println!("cargo:rerun-if-env-changed=NFLUID_CLANG");
    let clang = env::var("NFLUID_CLANG").ok().or_else(|| {
        CLANGS
            .iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok())
            .map(|s| (*s).to_owned())
    });
    let Some(clang) = clang else {
        panic!(
            "no clang found: install it (apt-get install clang) or set NFLUID_CLANG to its path"
        );
    };
    let source = bpf.join(source);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out.join(object);
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it")
        ))
        .args(options)
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap_or_else(|error| panic!("running {clang}: {error}"));
    assert!(
        status.success(),
        "{clang} could not compile {} (libbpf-dev installed?)",
        source.display()
    );
}
