//! Compiles the shim against the nDPI headers of this machine, if it has some. The library itself is opened when it is
//! needed.

/// The version of nDPI that this is written for: later ones have other calls.
const SINCE: &str = "4.2";
const BEFORE: &str = "4.4";

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    // The header of Debian's libndpi-dev: after its installation, a build without nDPI is repeated.
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let packages = format!("/usr/lib/{arch}-linux-gnu/pkgconfig");
    if std::path::Path::new(&packages).is_dir() {
        println!("cargo:rerun-if-changed={packages}");
    }
    let headers = pkg_config::Config::new()
        .cargo_metadata(false)
        .print_system_cflags(true)
        .range_version(SINCE..BEFORE)
        .probe("libndpi");
    let mut shim = cc::Build::new();
    shim.std("gnu11").warnings(true).extra_warnings(true);
    match headers {
        Ok(headers) => {
            shim.file("shim/shim.c");
            for folder in headers.include_paths {
                shim.flag(format!("-isystem{}", folder.display()));
            }
        }
        Err(_) => {
            shim.file("shim/absent.c");
        }
    }
    shim.compile("nfluid_dpi_shim");
}
