//! The body that the property test and the fuzz target share: documents of untrusted users.

#[path = "../support/built_in.rs"]
mod built_in;

use built_in::BuiltIn;
use nfluid_api::types::{ApplyRequest, Diagnostic};
use nfluid_control::action::Action;
use nfluid_control::change::changes;
use nfluid_control::document::{read, read_unchecked};
use nfluid_control::host::{Host, InterfaceFact};
use nfluid_control::inventory::Inventory;
use nfluid_control::model::Deployment;
use nfluid_control::plan::plan;
use nfluid_control::validate::Environment;

/// A host that has every object that it is asked for.
struct AnyHost;

impl Host for AnyHost {
    fn cpus(&self) -> Vec<u32> {
        vec![0, 1]
    }

    fn memory_bytes(&self) -> u64 {
        1 << 40
    }

    fn interface(&self, _: &str, _: Option<&str>) -> InterfaceFact {
        InterfaceFact::Present
    }

    fn image(&self, name: &str) -> Result<(), String> {
        match name.starts_with("oci:/") {
            true => Ok(()),
            false => Err(format!("'{name}' names no image")),
        }
    }

    fn program(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

const ENVIRONMENT: Environment<'static> = Environment {
    host: &AnyHost,
    catalogue: &BuiltIn,
};

/// Checks a text of an untrusted user: the text is refused with reasons, or it is a deployment that is printed as the
/// same deployment, and that a plan reaches and leaves by possible steps. Returns true if the text is a deployment.
pub fn document(text: &str) -> bool {
    match read_unchecked(text, None) {
        Err(errors) => refused(&errors),
        Ok(deployment) => {
            let printed = serde_json::to_string(&deployment).expect("a deployment serializes");
            assert_eq!(read_unchecked(&printed, None), Ok(deployment), "{printed}");
        }
    }
    let mut is_deployment = false;
    for merge in [false, true] {
        let request = ApplyRequest {
            text: text.to_owned(),
            merge,
            ..ApplyRequest::default()
        };
        match read(&request, &Deployment::default(), ENVIRONMENT) {
            Err(errors) => refused(&errors),
            Ok(checked) => {
                carried_out(&checked.deployment);
                is_deployment = true;
            }
        }
    }
    is_deployment
}

fn refused(errors: &[Diagnostic]) {
    assert!(!errors.is_empty(), "refused without a reason");
    for error in errors {
        assert!(!error.message.is_empty(), "{error:?}");
        assert!(!error.to_string().is_empty());
    }
}

fn carried_out(deployment: &Deployment) {
    let nothing = Deployment::default();
    let (empty, full) = (Inventory::of(&nothing), Inventory::of(deployment));
    for (from, to) in [(&empty, &full), (&full, &empty)] {
        let mut present = from.clone();
        for action in plan(from, to) {
            step(&mut present, &action);
        }
        assert_eq!(&present, to);
    }
    assert!(changes(deployment, deployment).is_empty());
}

fn step(present: &mut Inventory, action: &Action) {
    assert!(
        present.allows(action),
        "the plan asks for what cannot be: {action}"
    );
    present.record(action);
}
