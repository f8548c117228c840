//! Builds the guest images: all network functions, which the monitor has in itself, and the servers.

fn main() {
    for (name, variable) in [
        ("functions", "NFLUID_GUEST_IMAGE"),
        ("daytime", "NFLUID_DAYTIME_IMAGE"),
        ("http", "NFLUID_HTTP_IMAGE"),
    ] {
        let image = nfluid_guest_build::image(name);
        println!("cargo::rustc-env={variable}={}", image.display());
    }
}
