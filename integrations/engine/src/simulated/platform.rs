//! A simulated host has three parts: facts that are always favourable, a platform that does nothing, and a store that keeps nothing. What there is
//! to know of its objects is in the controller above them.

use crate::names::TUNNELS;
use nfluid_control::apply::{Platform, PlatformError};
use nfluid_control::diff::Diff;
use nfluid_control::group::Group;
use nfluid_control::host::{Catalogue, Host, InterfaceFact, NfConfigError};
use nfluid_control::model::{Deployment, PortRef, Switch};
use nfluid_control::setting::{PlatformSetting, Setting};
use nfluid_control::single::step::Step;
use nfluid_control::spec::{InstanceSpec, PortSpec, UplinkSpec};
use nfluid_control::state::journal::Durable;
use nfluid_control::state::{StateError, Store};
use nfluid_control::wiring::Destination;
use serde_json::Value;

/// Most ports of an instance.
const PORTS_MAX: usize = 64;

/// The size of a simulated host.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Its CPUs.
    pub cpus: u32,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

impl Host for Size {
    fn cpus(&self) -> Vec<u32> {
        (0..self.cpus).collect()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn interface(&self, name: &str, _netns: Option<&str>) -> InterfaceFact {
        if name.starts_with(TUNNELS) {
            return InterfaceFact::Missing(Vec::new());
        }
        InterfaceFact::Present
    }

    fn program(&self, _path: &str) -> Result<(), String> {
        Ok(())
    }

    fn image(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The functions that the operator has named, with any number of ports and any configuration.
#[derive(Debug)]
pub struct Named(pub Vec<String>);

impl Catalogue for Named {
    fn names(&self) -> Vec<String> {
        self.0.clone()
    }

    fn ports(&self, nf: &str) -> Option<(usize, usize)> {
        self.0.iter().any(|it| it == nf).then_some((0, PORTS_MAX))
    }

    fn validate(&self, _: &str, _: &Value, _: &[PortSpec]) -> Result<(), NfConfigError> {
        Ok(())
    }
}

/// A platform on which each action succeeds at once.
#[derive(Debug)]
pub struct Nothing {
    /// CPUs of the simulated host.
    pub cpus: usize,
}

impl Platform for Nothing {
    fn check_stays(&self, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn leaving(&self) -> Vec<String> {
        Vec::new()
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn guarantee(&mut self, _: u64) {}

    fn group(&mut self, _: &Diff<Group>) -> Result<(), PlatformError> {
        Ok(())
    }

    fn switch(&mut self, _: &Diff<Switch>) -> Result<(), PlatformError> {
        Ok(())
    }

    fn uplink(&mut self, _: &Diff<UplinkSpec>) -> Result<(), PlatformError> {
        Ok(())
    }

    fn instance(&mut self, _: &Diff<Box<InstanceSpec>>) -> Result<(), PlatformError> {
        Ok(())
    }

    fn upgrade(&mut self, _: &str, _: &InstanceSpec) -> Result<(), PlatformError> {
        Ok(())
    }

    fn set(&mut self, _: &str, _: &Setting) -> Result<(), PlatformError> {
        Ok(())
    }

    fn set_order(&mut self, _: &str, _: Option<u16>) -> Result<(), PlatformError> {
        Ok(())
    }

    fn set_platform(&mut self, _: &PlatformSetting) -> Result<(), PlatformError> {
        Ok(())
    }

    fn scale(&mut self, _: &str, _: u16, _: u16) -> Result<(), PlatformError> {
        Ok(())
    }

    fn drain(&mut self, _: &[String]) -> Result<(), PlatformError> {
        Ok(())
    }

    fn wire(&mut self, _: &PortRef, _: Option<&Destination>) -> Result<(), PlatformError> {
        Ok(())
    }
}

/// A store from which nothing comes back: a simulated host that ends is gone.
#[derive(Debug)]
pub struct Forgetful;

impl Store for Forgetful {
    fn load(&mut self) -> Result<Option<Deployment>, StateError> {
        Ok(None)
    }

    fn stage(&mut self, _: &Deployment) -> Result<(), StateError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StateError> {
        Ok(())
    }

    fn discard(&mut self) {}

    fn stage_step(&mut self, _: &Step<'_>) -> Result<(), StateError> {
        Ok(())
    }

    fn commit_step(&mut self) -> Result<Durable, StateError> {
        Ok(Durable::default())
    }

    fn discard_step(&mut self) {}
}
