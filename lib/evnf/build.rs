//! Compiles the fast paths.

fn main() {
    for program in ["balancer", "firewall", "guard", "inspector"] {
        nfluid_bpf_build::compile(&format!("evnf/{program}.bpf.c"));
    }
    for program in ["balancer", "firewall"] {
        let object = format!("{program}.tc.bpf.o");
        nfluid_bpf_build::compile_as(&format!("evnf/{program}.bpf.c"), &object, &["-DEVNF_TC"]);
    }
}
