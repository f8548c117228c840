//! The examples of the guide are valid, for the built-in NFs too.

#[path = "support/built_in.rs"]
mod built_in;
mod support;

use built_in::BuiltIn;
use nfluid_api::types::ApplyRequest;
use nfluid_control::document::read;
use nfluid_control::model::Deployment;
use nfluid_control::validate::Environment;
use support::{TestHost, lines};

const GUIDES: [&str; 4] = [
    include_str!("../../../docs/guide/deployment.md"),
    include_str!("../../../docs/guide/cni.md"),
    include_str!("../../../docs/guide/security-groups.md"),
    include_str!("../../../docs/guide/slices.md"),
];

const ENVIRONMENT: Environment<'static> = Environment {
    host: &TestHost,
    catalogue: &BuiltIn,
};

fn errors(text: &str, rules: &str) -> String {
    let request = ApplyRequest {
        text: text.into(),
        file: Some("deployment.md".into()),
        attachments: [("fw.rules".to_owned(), rules.to_owned())].into(),
        ..ApplyRequest::default()
    };
    match read(&request, &Deployment::default(), ENVIRONMENT) {
        Ok(_) => String::new(),
        Err(errors) => lines(&errors),
    }
}

// promise: 6.12
#[test]
fn every_example_is_a_deployment() {
    let mut examples = 0;
    let blocks = GUIDES
        .iter()
        .flat_map(|guide| guide.split("```yaml\n").skip(1));
    for block in blocks {
        let text = block.split("```").next().unwrap_or_default();
        if text.starts_with("apiVersion:") {
            // It is Kubernetes'.
            continue;
        }
        let found = errors(text, "");
        assert!(found.is_empty(), "{found}\n{text}");
        examples += 1;
    }
    assert!(examples >= 5, "only {examples} examples were found");
}

// promise: 6.10
#[test]
fn a_bad_line_5000_of_a_real_firewall_is_named() {
    let text =
        "version: 1\ninstances:\n  fw1: { nf: firewall, config: { rules_file: fw.rules } }\n";
    let good = "allow tcp from 10.0.0.0/8 to any 80\n".repeat(4_999);
    assert_eq!(errors(text, &good), "");
    let found = errors(text, &format!("{good}allow tcp form any to any\n"));
    assert!(found.starts_with("fw.rules:5000: error: "), "{found}");
    let inline = "version: 1\ninstances:\n  fw1:\n    nf: firewall\n    config:\n      rules: |\n\
                  \x20       allow ip from any to any\n        alow ip from any to any\n";
    let found = errors(inline, "");
    assert!(
        found.starts_with("deployment.md:8:1: error: instances.fw1.config.rules: "),
        "{found}"
    );
}
