//! Builds the guest image that does nothing.

fn main() {
    let image = nfluid_guest_build::image("noop");
    println!("cargo::rustc-env=NFLUID_NOOP_IMAGE={}", image.display());
}
