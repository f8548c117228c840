//! The files that are applied to a cluster.

use nfluid_kubernetes::crds;
use std::path::Path;

// promise: 26.7
#[test]
fn the_definitions_are_those_of_the_program() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/definitions.yaml");
    let kept = std::fs::read_to_string(file).expect("it is there");
    let printed = crds::text().expect("they are text");
    assert!(
        kept == printed,
        "write them anew: nfluid-kubernetes definitions > integrations/kubernetes/deploy/definitions.yaml"
    );
}
