//! A host, a catalogue, a platform and a store in memory.
#![allow(dead_code)] // each test binary uses its own part

use nfluid_api::types::{ApplyRequest, Diagnostic};
use nfluid_control::action::Action;
use nfluid_control::apply::{Platform, PlatformError, PlatformErrorKind};
use nfluid_control::desired::Desired;
use nfluid_control::diff::Diff;
use nfluid_control::document::{Checked, read};
use nfluid_control::fast::{Attach, Direction};
use nfluid_control::group::Group;
use nfluid_control::host::{Catalogue, Host, InterfaceFact, NfAttachError, NfConfigError};
use nfluid_control::inventory::Inventory;
use nfluid_control::model::{Deployment, PortRef, Switch};
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::single::step::{Step, replay};
use nfluid_control::spec::{InstanceSpec, PortSpec, UplinkSpec};
use nfluid_control::state::journal::Durable;
use nfluid_control::state::{StateError, Store};
use nfluid_control::validate::Environment;
use nfluid_control::wiring::Destination;
use serde_json::Value;

/// Returns an inventory without the slots for long frames, and without the levels, which depend on them: objects keep the
/// slots that they were made with. `frames.rs` checks both.
pub fn without_long(mut inventory: Inventory) -> Inventory {
    inventory.levels = Default::default();
    for spec in inventory.uplinks.values_mut() {
        spec.long = 0;
    }
    for spec in inventory.instances.values_mut() {
        spec.ports.iter_mut().for_each(|port| port.long = 0);
    }
    inventory
}

/// Two CPUs, 4 GiB, some interfaces.
pub struct TestHost;

impl Host for TestHost {
    fn cpus(&self) -> Vec<u32> {
        vec![0, 1]
    }

    fn memory_bytes(&self) -> u64 {
        4 << 30
    }

    fn interface(&self, name: &str, netns: Option<&str>) -> InterfaceFact {
        match (name, netns) {
            (_, Some("gone")) => InterfaceFact::NoNamespace,
            ("eth1" | "eth2" | "eth3" | "eth4", _) => InterfaceFact::Present,
            ("busy0", _) => InterfaceFact::Busy("xdp_filter (id 7)".into()),
            ("veth9", None) => InterfaceFact::Elsewhere("blue".into()),
            _ => InterfaceFact::Missing(vec!["eth1".into(), "eth2".into()]),
        }
    }

    fn steering(&self, name: &str, _: Option<&str>) -> Result<(), String> {
        if name == "eth4" {
            return Ok(());
        }
        Err(format!(
            "{name} cannot steer flows to queues: its driver has no 'rx-ntuple-filter'"
        ))
    }

    fn image(&self, name: &str) -> Result<(), String> {
        match name.starts_with("oci:/") {
            true => Ok(()),
            false => Err(format!("'{name}' names no image")),
        }
    }

    fn program(&self, path: &str) -> Result<(), String> {
        if path.contains("missing") {
            Err("no such file".into())
        } else {
            Ok(())
        }
    }
}

/// `bridge` and `firewall` with two ports, `router` with two to eight. A firewall refuses the rule
/// `bad`, in `rules` by its line, in `rules` by its index.
pub struct TestCatalogue;

impl Catalogue for TestCatalogue {
    fn names(&self) -> Vec<String> {
        vec!["bridge".into(), "firewall".into(), "router".into()]
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        match nf {
            "bridge" | "firewall" => Some((2, 2)),
            "router" => Some((2, 8)),
            // On the kernel's stack. The name is not listed: a misspelled name of another NF should not suggest it.
            "tls" => Some((0, 0)),
            _ => None,
        }
    }

    fn validate(&self, nf: &str, config: &Value, _: &[PortSpec]) -> Result<(), NfConfigError> {
        if nf != "firewall" {
            return Ok(());
        }
        if let Some(text) = config.get("rules").and_then(Value::as_str)
            && let Some(line) = text.lines().position(|line| line == "bad")
        {
            return Err(NfConfigError {
                path: "rules".into(),
                line: u32::try_from(line + 1).ok(),
                message: "'bad' is not a rule".into(),
            });
        }
        let rules = config.get("rules").and_then(Value::as_array);
        let bad = rules.and_then(|rules| rules.iter().position(|rule| rule == "bad"));
        match bad {
            Some(index) => Err(NfConfigError {
                path: format!("rules[{index}]"),
                line: None,
                message: "'bad' is not a rule".into(),
            }),
            None => Ok(()),
        }
    }

    fn fast_names(&self) -> Vec<String> {
        vec!["efw".into(), "elb".into()]
    }

    fn slow_path_names(&self) -> Vec<String> {
        vec!["efw".into()]
    }

    fn validate_fast(&self, nf: &str, config: &Value) -> Result<(), NfConfigError> {
        match (nf, config.get("services")) {
            ("elb", None) => Err(NfConfigError {
                message: "it has no 'services'".into(),
                ..NfConfigError::default()
            }),
            _ => Ok(()),
        }
    }

    fn validate_attach(&self, nf: &str, attach: &Attach) -> Result<(), NfAttachError> {
        match (nf, attach.direction) {
            ("elb", Direction::Egress) => Err(NfAttachError {
                key: "direction",
                message: "'elb' has no form for what goes out".into(),
                remedy: "remove it".into(),
            }),
            _ => Ok(()),
        }
    }

    fn queues(&self, nf: &str, _: &Value, _: &[PortSpec]) -> Result<(), String> {
        match nf {
            "router" => Err("its neighbours are one table".into()),
            _ => Ok(()),
        }
    }
}

/// The host and the catalogue of the tests.
pub const ENVIRONMENT: Environment<'static> = Environment {
    host: &TestHost,
    catalogue: &TestCatalogue,
};

pub fn request(text: &str) -> ApplyRequest {
    ApplyRequest {
        text: text.into(),
        file: Some("test.yaml".into()),
        ..ApplyRequest::default()
    }
}

/// Reads and checks a document.
pub fn check(text: &str) -> Result<Checked, Vec<Diagnostic>> {
    read(&request(text), &Deployment::default(), ENVIRONMENT)
}

/// Reads a document that has no errors.
pub fn deployment(text: &str) -> Deployment {
    match check(text) {
        Ok(checked) => checked.deployment,
        Err(errors) => panic!("{}", lines(&errors)),
    }
}

/// Returns diagnostics in the form for users.
pub fn lines(found: &[Diagnostic]) -> String {
    let lines: Vec<String> = found.iter().map(Diagnostic::to_string).collect();
    lines.join("\n")
}

/// A platform that holds an [`Inventory`] and refuses the same actions as a real one. It can be set to fail at the n-th
/// call.
#[derive(Debug, Default)]
pub struct ModelPlatform {
    pub inventory: Inventory,
    pub calls: usize,
    pub fail_at: Option<usize>,
    pub log: Vec<String>,
    /// A reader of the desired state during each step.
    pub reader: Option<Desired>,
    pub read: Vec<Deployment>,
    /// The instance that is moved to another host.
    pub moving: Option<String>,
    /// The share that guarantees need, as the controller has told it, in hundredths of a percent of a core.
    pub guaranteed: u64,
}

impl ModelPlatform {
    fn step(&mut self, action: Action) -> Result<(), PlatformError> {
        self.calls += 1;
        self.read
            .extend(self.reader.iter().map(|it| it.read().clone()));
        if self.fail_at == Some(self.calls) {
            return Err(PlatformError::new(PlatformErrorKind::Busy, "told to fail")
                .with_remedy("do not tell it to"));
        }
        assert!(
            self.inventory.allows(&action),
            "the plan asks for what cannot be: {action}"
        );
        self.log.push(action.to_string());
        self.inventory.record(&action);
        Ok(())
    }

    fn spec(&self, name: &str) -> InstanceSpec {
        self.inventory.instances[name].clone()
    }
}

impl Platform for ModelPlatform {
    fn check_stays(&self, instance: &str) -> Result<(), PlatformError> {
        match self.moving.as_deref() == Some(instance) {
            true => Err(PlatformError::new(
                PlatformErrorKind::Refused,
                "it is moved",
            )),
            false => Ok(()),
        }
    }

    fn leaving(&self) -> Vec<String> {
        self.moving.iter().cloned().collect()
    }

    fn cpus(&self) -> usize {
        TestHost.cpus().len()
    }

    fn guarantee(&mut self, hundredths: u64) {
        self.guaranteed = hundredths;
    }

    fn group(&mut self, change: &Diff<Group>) -> Result<(), PlatformError> {
        self.step(Action::Group(change.clone()))
    }

    fn switch(&mut self, change: &Diff<Switch>) -> Result<(), PlatformError> {
        self.step(Action::Switch(change.clone()))
    }

    fn uplink(&mut self, change: &Diff<UplinkSpec>) -> Result<(), PlatformError> {
        self.step(Action::Uplink(change.clone()))
    }

    fn instance(&mut self, change: &Diff<Box<InstanceSpec>>) -> Result<(), PlatformError> {
        if let Some(old) = &change.old {
            assert_eq!(self.spec(&change.name), **old);
        }
        self.step(Action::Instance(change.clone()))
    }

    fn upgrade(&mut self, name: &str, new: &InstanceSpec) -> Result<(), PlatformError> {
        let old = Box::new(self.spec(name));
        self.step(Action::Upgrade {
            name: name.into(),
            old,
            new: Box::new(new.clone()),
        })
    }

    fn set(&mut self, name: &str, setting: &Setting) -> Result<(), PlatformError> {
        let old = setting.as_in(&self.spec(name));
        self.step(Action::Set {
            name: name.into(),
            old,
            new: setting.clone(),
        })
    }

    fn set_order(&mut self, name: &str, order: Option<u16>) -> Result<(), PlatformError> {
        let old = self.spec(name).order();
        self.step(Action::Order {
            name: name.into(),
            old,
            new: order,
        })
    }

    fn set_platform(&mut self, setting: &PlatformSetting) -> Result<(), PlatformError> {
        let old = setting.as_in(&self.inventory);
        let new = setting.clone();
        self.step(Action::Platform { old, new })
    }

    fn scale(&mut self, name: &str, old: u16, new: u16) -> Result<(), PlatformError> {
        assert_eq!(self.inventory.member_count(name), old);
        let name = name.into();
        self.step(Action::Scale { name, old, new })
    }

    fn drain(&mut self, instances: &[String]) -> Result<(), PlatformError> {
        let instances = instances.to_vec();
        self.step(Action::Drain { instances })
    }

    fn wire(&mut self, port: &PortRef, to: Option<&Destination>) -> Result<(), PlatformError> {
        let old = self.inventory.wires.get(port).cloned();
        self.step(Action::Wire {
            port: port.clone(),
            old,
            new: to.cloned(),
        })
    }
}

/// A store in memory that can be set to be full, or to fail at a commit.
#[derive(Debug, Default)]
pub struct MemoryStore {
    pub committed: Option<Deployment>,
    pub staged: Option<Deployment>,
    pub staged_step: Option<String>,
    pub is_full: bool,
    pub commits_fail: bool,
}

fn io(kind: std::io::ErrorKind) -> StateError {
    StateError::Io {
        action: "write",
        path: "/state".into(),
        cause: kind.into(),
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Option<Deployment>, StateError> {
        Ok(self.committed.clone())
    }

    fn stage(&mut self, deployment: &Deployment) -> Result<(), StateError> {
        if self.is_full {
            return Err(io(std::io::ErrorKind::StorageFull));
        }
        self.staged = Some(deployment.clone());
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StateError> {
        if self.commits_fail {
            return Err(io(std::io::ErrorKind::Other));
        }
        self.committed = self.staged.take();
        Ok(())
    }

    fn discard(&mut self) {
        self.staged = None;
    }

    fn stage_step(&mut self, step: &Step<'_>) -> Result<(), StateError> {
        if self.is_full {
            return Err(io(std::io::ErrorKind::StorageFull));
        }
        self.staged_step = Some(serde_json::to_string(step)?);
        Ok(())
    }

    fn commit_step(&mut self) -> Result<Durable, StateError> {
        if self.commits_fail {
            return Err(io(std::io::ErrorKind::Other));
        }
        let line = self.staged_step.take().unwrap_or_default();
        replay(self.committed.get_or_insert_default(), &line).expect("what was written is read");
        Ok(Durable::default())
    }

    fn discard_step(&mut self) {
        self.staged_step = None;
    }
}
