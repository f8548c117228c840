//! Compiles the switch.

fn main() {
    nfluid_bpf_build::compile("switch/switch.bpf.c");
}
