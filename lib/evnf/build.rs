//! Compiles the fast paths.

fn main() {
    for program in ["balancer", "firewall", "guard", "inspector"] {
        nfluid_bpf_build::compile(&format!("evnf/{program}.bpf.c"));
    }
    for program in ["back", "balancer", "firewall", "inspector"] {
        let object = format!("{program}.tc.bpf.o");
        nfluid_bpf_build::compile_as(&format!("evnf/{program}.bpf.c"), &object, &["-DEVNF_TC"]);
    }
    nfluid_bpf_build::compile_as(
        "evnf/firewall.bpf.c",
        "firewall.egress.bpf.o",
        &["-DEVNF_TC", "-DEVNF_EGRESS"],
    );
}
