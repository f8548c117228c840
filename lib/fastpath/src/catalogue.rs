//! The XDP network functions by name: the one place that lists them all.

use crate::function::{Entry, FunctionConfig};
use crate::{config, edpi, efw, elb, guard};
use nfluid_control::apply::PlatformError;
use nfluid_control::fast::Attach;
use nfluid_control::host::{NfAttachError, NfConfigError};
use nfluid_control::spec::InstanceSpec;
use serde_json::Value;

/// All XDP network functions, in alphabetical order.
pub const CATALOGUE: Catalogue = Catalogue(&[edpi::ENTRY, efw::ENTRY, elb::ENTRY, guard::ENTRY]);

/// The XDP network functions of a platform.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [Entry]);

impl Catalogue {
    /// Returns the names of all functions.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|entry| entry.name.to_owned()).collect()
    }

    /// Returns the names of functions that can have a slow path other than the kernel's stack.
    pub fn slow_path_names(&self) -> Vec<String> {
        let entries = self.0.iter().filter(|entry| entry.has_slow_path);
        entries.map(|entry| entry.name.to_owned()).collect()
    }

    fn entry(&self, nf: &str) -> Option<&'static Entry> {
        self.0.iter().find(|entry| entry.name == nf)
    }

    /// Checks a configuration.
    ///
    /// # Errors
    /// The first error in the configuration.
    pub fn check_config(&self, nf: &str, config: &Value) -> Result<(), NfConfigError> {
        self.parse(nf, config).map(drop)
    }

    /// Checks whether a network function supports the hook and the direction.
    ///
    /// # Errors
    /// When the function does not support them.
    pub fn check_attach(&self, nf: &str, attach: &Attach) -> Result<(), NfAttachError> {
        match self.entry(nf) {
            Some(entry) => (entry.check_attach)(attach),
            None => Ok(()),
        }
    }

    /// Parses the configuration of a network function.
    ///
    /// # Errors
    /// The first error in the configuration.
    pub fn parse(
        &self,
        nf: &str,
        config: &Value,
    ) -> Result<Box<dyn FunctionConfig>, NfConfigError> {
        let entry = self.entry(nf);
        let entry =
            entry.ok_or_else(|| config::wrong("", format!("the NF '{nf}' has no fast path")))?;
        (entry.parse)(&self.read(config))
    }

    /// Returns a configuration as functions parse it: `{}` if it was left out.
    pub(crate) fn read(&self, config: &Value) -> Value {
        match config {
            Value::Null => Value::Object(serde_json::Map::new()),
            config => config.clone(),
        }
    }

    /// Returns the function of a specification. The specification has been checked, but perhaps by another daemon.
    pub(crate) fn function_of(
        &self,
        spec: &InstanceSpec,
    ) -> Result<Box<dyn FunctionConfig>, PlatformError> {
        let parsed = self.parse(spec.program.name(), &spec.config);
        parsed.map_err(config::refused)
    }
}

#[cfg(test)]
mod tests {
    use super::CATALOGUE;

    #[test]
    fn every_function_reads_a_configuration_that_was_left_out_or_names_the_key() {
        let mut names = CATALOGUE.names();
        names.sort();
        assert_eq!(names, CATALOGUE.names(), "in alphabetical order");
        for name in &names {
            match CATALOGUE.parse(name, &serde_json::Value::Null) {
                Ok(config) => assert!(config.sizes().iter().all(|size| *size > 0), "{name}"),
                Err(error) => assert!(error.message.contains("services"), "{name}: {error:?}"),
            }
        }
        let absent = CATALOGUE.check_config("bridge", &serde_json::Value::Null);
        let message = absent.expect_err("it has none").message;
        assert_eq!(message, "the NF 'bridge' has no fast path");
    }
}
