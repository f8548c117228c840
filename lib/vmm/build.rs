//! Builds the guest image of all network functions.

fn main() {
    let image = nfluid_guest_build::image("functions");
    println!("cargo::rustc-env=NFLUID_GUEST_IMAGE={}", image.display());
}
