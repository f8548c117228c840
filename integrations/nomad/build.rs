//! Makes Rust of the protocol's messages and services, without a compiler for them on the host.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["base.proto", "driver.proto", "health.proto", "plugin.proto"];
    for file in ["attribute.proto", "hcl_spec.proto"].iter().chain(&files) {
        println!("cargo:rerun-if-changed=proto/{file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
