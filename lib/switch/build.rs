//! Compiles the eBPF programs of `bpf/` with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const CLANGS: [&str; 6] = [
    "clang", "clang-14", "clang-16", "clang-19", "clang-17", "clang-18",
];

fn main() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
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
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("switch.bpf.o");
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it")
        ))
        .arg("-c")
        .arg(bpf.join("switch/switch.bpf.c"))
        .arg("-o")
        .arg(&out)
        .status()
        .unwrap_or_else(|error| panic!("running {clang}: {error}"));
    assert!(
        status.success(),
        "{clang} could not compile bpf/switch/switch.bpf.c (libbpf-dev installed?)"
    );
}
