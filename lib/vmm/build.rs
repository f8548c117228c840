//! Builds the guest images: all network functions, which the monitor has in itself, and the servers, which are installed as
//! files.

fn main() {
    let functions = nfluid_guest_build::image("functions");
    println!(
        "cargo::rustc-env=NFLUID_GUEST_IMAGE={}",
        functions.display()
    );
    for server in ["daytime", "http"] {
        nfluid_guest_build::image(server);
    }
}
