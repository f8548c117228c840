//! Compiles the fast paths.

fn main() {
    for program in ["balancer", "firewall", "inspector"] {
        nfluid_bpf_build::compile(&format!("evnf/{program}.bpf.c"));
    }
}
