//! Changes from one deployment to another: all of a change is done or none, and nothing unnecessary.

#[path = "support/random.rs"]
mod random;
mod support;

use nfluid_control::action::Action;
use nfluid_control::apply::execute;
use nfluid_control::change::changes;
use nfluid_control::diff::Diff;
use nfluid_control::document::read_unchecked;
use nfluid_control::inventory::Inventory;
use nfluid_control::members::front_of;
use nfluid_control::model::Deployment;
use nfluid_control::plan::plan;
use proptest::prelude::*;
use support::{ModelPlatform, lines, without_long};

fn platform_with(inventory: &Inventory, fail_at: Option<usize>) -> ModelPlatform {
    ModelPlatform {
        inventory: inventory.clone(),
        fail_at,
        ..ModelPlatform::default()
    }
}

/// Returns the instance that an action changes (wires aside).
fn touched(action: &Action) -> Option<&str> {
    match action {
        Action::Instance(Diff { name, .. })
        | Action::Upgrade { name, .. }
        | Action::Set { name, .. }
        | Action::Order { name, .. }
        | Action::Scale { name, .. } => Some(name),
        _ => None,
    }
}

fn pair() -> impl Strategy<Value = (Deployment, Deployment)> {
    (any::<u64>(), any::<u64>()).prop_map(|(a, b)| (random::deployment(a), random::deployment(b)))
}

/// Generates a deployment, and another one that differs in one object.
fn neighbours() -> impl Strategy<Value = (Deployment, Deployment)> {
    pair().prop_map(|(a, b)| {
        let mut changed = a.clone();
        if let (Some((name, _)), Some((_, other))) =
            (a.instances.iter().next(), b.instances.iter().next())
        {
            let instance = changed.instances.get_mut(name).expect("it is there");
            instance.config = other.config.clone();
            instance.share = other.share;
            instance.io = other.io;
            instance.wake = other.wake;
            instance.health = other.health.clone();
        }
        (a, changed)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // promise: 6.4
    #[test]
    fn the_plan_leads_to_what_is_desired((a, b) in pair()) {
        let (old, new) = (Inventory::of(&a), Inventory::of(&b));
        let mut platform = platform_with(&old, None);
        let mut present = old.clone();
        execute(&mut platform, &plan(&old, &new), &mut present).expect("nothing fails");
        prop_assert_eq!(&platform.inventory, &present);
        prop_assert!(plan(&present, &new).is_empty());
        prop_assert!(plan(&new, &new).is_empty());
        prop_assert_eq!(without_long(present), without_long(new));
    }

    // promise: 6.3
    #[test]
    fn a_failure_at_any_step_leaves_everything_as_it_was((a, b) in pair()) {
        let (old, new) = (Inventory::of(&a), Inventory::of(&b));
        let actions = plan(&old, &new);
        for step in 1..=actions.len() {
            let mut platform = platform_with(&old, Some(step));
            let mut present = old.clone();
            let error = execute(&mut platform, &actions, &mut present).expect_err("it fails");
            prop_assert_eq!(error.action, actions[step - 1].to_string());
            prop_assert!(error.not_undone.is_empty());
            prop_assert_eq!(&platform.inventory, &old);
            prop_assert_eq!(&present, &old);
        }
    }

    #[test]
    fn what_cannot_be_undone_is_named_and_remembered((a, b) in pair()) {
        let (old, new) = (Inventory::of(&a), Inventory::of(&b));
        let actions = plan(&old, &new);
        prop_assume!(actions.len() >= 2);
        // The last action fails; the first step back fails as well.
        let mut platform = platform_with(&old, None);
        let mut failing = FailTwice { inner: &mut platform, at: actions.len(), calls: 0 };
        let mut present = old.clone();
        let error = execute(&mut failing, &actions, &mut present).expect_err("it fails");
        prop_assert!(!error.not_undone.is_empty());
        prop_assert_eq!(&platform.inventory, &present);
        prop_assert_ne!(&present, &old);
    }

    // promise: 6.2
    #[test]
    fn what_is_the_same_is_left_alone((a, b) in neighbours()) {
        let actions = plan(&Inventory::of(&a), &Inventory::of(&b));
        let first = a.instances.names().next();
        for action in &actions {
            match touched(action) {
                Some(name) => prop_assert_eq!(Some(front_of(name).unwrap_or(name)), first),
                None => prop_assert!(
                    actions.iter().any(|a| a.replaced().is_some()),
                    "{} without a replaced instance", action
                ),
            }
        }
    }

    #[test]
    fn changes_are_reported_if_and_only_if_something_is_done((a, b) in pair()) {
        let actions = plan(&Inventory::of(&a), &Inventory::of(&b));
        let mut found = changes(&a, &b);
        found.retain(|change| change.kind != nfluid_api::types::Kind::Flavor);
        prop_assert_eq!(actions.is_empty(), found.is_empty(), "{:?}\n{:?}", actions, found);
        prop_assert!(changes(&b, &b).is_empty());
    }

    // promise: 6.11
    #[test]
    fn any_deployment_can_be_written_and_read(seed in any::<u64>()) {
        let deployment = random::deployment(seed);
        let json = serde_json::to_string(&deployment).expect("serializes");
        let read = read_unchecked(&json, None);
        prop_assert_eq!(read.map_err(|errors| lines(&errors)), Ok(deployment));
    }
}

/// A platform that fails at one call and at the next.
struct FailTwice<'a> {
    inner: &'a mut ModelPlatform,
    at: usize,
    calls: usize,
}

/// Counts a call, then forwards it or fails.
macro_rules! hand_on {
    ($($method:ident($($arg:ident: $type:ty),*)),+ $(,)?) => {
        impl nfluid_control::apply::Platform for FailTwice<'_> {
            fn check_stays(&self, instance: &str) -> Result<(), nfluid_control::apply::PlatformError> {
        self.inner.check_stays(instance)
    }

    fn leaving(&self) -> Vec<String> {
        self.inner.leaving()
    }

    fn cpus(&self) -> usize {
                self.inner.cpus()
            }

            fn guarantee(&mut self, hundredths: u64) {
                self.inner.guarantee(hundredths);
            }

            $(fn $method(
                &mut self,
                $($arg: $type),*
            ) -> Result<(), nfluid_control::apply::PlatformError> {
                self.calls += 1;
                if self.calls == self.at || self.calls == self.at + 1 {
                    return Err(nfluid_control::apply::PlatformError::new(
                        nfluid_control::apply::PlatformErrorKind::Failed,
                        "told to fail",
                    ));
                }
                self.inner.$method($($arg),*)
            })+
        }
    };
}

use nfluid_control::group::Group;
use nfluid_control::model::{PortRef, Switch};
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::spec::{InstanceSpec, UplinkSpec};
use nfluid_control::wiring::Destination;

hand_on!(
    group(change: &Diff<Group>),
    switch(change: &Diff<Switch>),
    uplink(change: &Diff<UplinkSpec>),
    instance(change: &Diff<Box<InstanceSpec>>),
    upgrade(name: &str, new: &InstanceSpec),
    set(name: &str, setting: &Setting),
    set_order(name: &str, order: Option<u16>),
    set_platform(setting: &PlatformSetting),
    scale(name: &str, old: u16, new: u16),
    drain(instances: &[String]),
    wire(port: &PortRef, to: Option<&Destination>),
);
