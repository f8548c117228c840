//! Compiles the part of libxdp's dispatcher that goes to a row of fast paths.

fn main() {
    nfluid_bpf_build::compile("evnf/component.bpf.c");
}
