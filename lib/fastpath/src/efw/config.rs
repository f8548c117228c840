//! The configuration of `nf: efw`.

use super::Efw;
use crate::config::read;
use crate::function::{FastFunction, FunctionConfig, Site};
use crate::record::Numbers;
use nfluid_control::apply::PlatformError;
use nfluid_control::host::NfConfigError;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirewallText {
    #[serde(default)]
    rules: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rules {
    Host,
}

/// The host's own rules, split; there are no options.
#[derive(Debug)]
pub struct FirewallConfig;

/// Parses a configuration.
///
/// # Errors
/// The first error in the configuration.
pub fn parse(config: &Value) -> Result<FirewallConfig, NfConfigError> {
    let text: FirewallText = read("", config)?;
    match text.rules.map(|rules| read::<Rules>("rules", &rules)) {
        Some(Err(error)) => Err(error),
        Some(Ok(Rules::Host)) | None => Ok(FirewallConfig),
    }
}

impl FunctionConfig for FirewallConfig {
    fn load(
        &self,
        site: &Site<'_>,
        _: &mut Numbers,
    ) -> Result<Box<dyn FastFunction>, PlatformError> {
        Ok(Box::new(Efw::load(site)?))
    }

    fn load_unread(&self, site: &Site<'_>) -> Option<Box<dyn FastFunction>> {
        Some(Box::new(Efw::unread(site)))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use serde_json::json;

    #[test]
    fn only_the_hosts_rules_can_be_asked_for() {
        assert!(parse(&json!({})).is_ok());
        assert!(parse(&json!({ "rules": "host" })).is_ok());
        let wrong = parse(&json!({ "rules": "mine" })).expect_err("there is but one word");
        assert!(wrong.message.contains("host"), "{}", wrong.message);
        assert_eq!(wrong.path, "rules");
    }
}
