//! Configuration of a service's load measurement: how agents are queried, and how weights follow the load.

use super::law::Law;
use crate::config::wrong;
use nfluid_control::host::NfConfigError;
use nfluid_control::quantity::Millis;
use serde::Deserialize;
use std::time::Duration;

/// Default port of agents.
const PORT: u16 = 161;
/// Largest number of values whose mean is a load: those of a server's cores.
const OIDS_MAX: usize = 128;
/// Shortest password (RFC 3414, 11.2).
const PASSWORD_MIN: usize = 8;

/// The key `load` of a service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// The OIDs of the load; the load is the mean of their values.
    oid: Oids,
    /// The value of a fully loaded server.
    full: f64,
    #[serde(default)]
    port: Option<u16>,
    /// The community of SNMPv2c.
    #[serde(default)]
    community: Option<String>,
    /// The user of SNMPv3.
    #[serde(default)]
    user: Option<UserConfig>,
    #[serde(default = "five_seconds")]
    interval: String,
    #[serde(default = "second")]
    timeout: String,
    /// Least weight of a server, in percent of its configured weight.
    #[serde(default = "ten")]
    least: u32,
    /// Weight of a new value in percent; the rest is the former estimate.
    #[serde(default = "thirty")]
    smoothing: u32,
    /// Least change of a weight, in percent; smaller changes are not applied.
    #[serde(default = "ten")]
    step: u32,
    /// Failures in a row after which a server gets its configured weight.
    #[serde(default = "three")]
    fall: u32,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Oids {
    One(String),
    Some(Vec<String>),
}

/// A user of SNMPv3.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// Its name.
    pub name: String,
    /// The digest that authenticates messages.
    pub auth: Digest,
    /// The password for authentication.
    pub password: String,
    /// The cipher that encrypts messages; absent: no encryption.
    #[serde(default)]
    pub privacy: Option<Cipher>,
    /// The password for encryption; absent: `password`.
    #[serde(default)]
    pub privacy_password: Option<String>,
}

/// A digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Digest {
    Sha1,
    Sha256,
    Sha512,
}

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cipher {
    Aes128,
    Aes256,
}

fn five_seconds() -> String {
    "5s".to_owned()
}

fn second() -> String {
    "1s".to_owned()
}

fn three() -> u32 {
    3
}

fn ten() -> u32 {
    10
}

fn thirty() -> u32 {
    30
}

fn time(text: &str) -> Duration {
    let time = text.parse().unwrap_or(Millis::secs(1));
    Duration::from_millis(time.0)
}

impl LoadConfig {
    /// Returns the port of agents.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// Returns the interval of queries to an agent.
    pub fn interval(&self) -> Duration {
        time(&self.interval)
    }

    /// Returns the timeout of a query.
    pub fn timeout(&self) -> Duration {
        time(&self.timeout)
    }

    /// Returns the OIDs as numbers.
    pub fn oids(&self) -> Vec<Vec<u64>> {
        self.texts()
            .iter()
            .filter_map(|text| numbers(text))
            .collect()
    }

    /// Returns the user of SNMPv3, or the community of SNMPv2c.
    pub fn credentials(&self) -> Result<&UserConfig, &str> {
        let community = self.community.as_deref().unwrap_or_default();
        self.user.as_ref().ok_or(community)
    }

    /// Returns the law by which weights follow the load.
    pub fn law(&self) -> Law {
        Law {
            full: self.full,
            least: self.least,
            smoothing: f64::from(self.smoothing) / 100.0,
            step: self.step,
            fall: self.fall,
        }
    }

    fn texts(&self) -> &[String] {
        match &self.oid {
            Oids::One(one) => std::slice::from_ref(one),
            Oids::Some(all) => all,
        }
    }

    /// Checks the constraints that the types do not express.
    ///
    /// # Errors
    /// The first error; `path` is the path of this configuration.
    pub fn check(&self, path: &str) -> Result<(), NfConfigError> {
        let at = |key: &str| format!("{path}.{key}");
        let oids = self.texts();
        if !(1..=OIDS_MAX).contains(&oids.len()) {
            let message = format!("{} values; name 1 to {OIDS_MAX}", oids.len());
            return Err(wrong(at("oid"), message));
        }
        if let Some(text) = oids.iter().find(|text| numbers(text).is_none()) {
            let message = format!(
                "'{text}' is no object of an agent; write numbers, as 1.3.6.1.4.1.2021.10.1.5.1"
            );
            return Err(wrong(at("oid"), message));
        }
        if !self.full.is_finite() || self.full <= 0.0 {
            let message = "write the value of a server that has no more to give, above 0";
            return Err(wrong(at("full"), message));
        }
        for (key, text) in [("interval", &self.interval), ("timeout", &self.timeout)] {
            let time: Millis = text.parse().map_err(|error| wrong(at(key), error))?;
            if !(10..=3_600_000).contains(&time.0) {
                return Err(wrong(at(key), format!("{time}; write 10ms to 1h")));
            }
        }
        for (key, number, most) in [
            ("least", self.least, 100),
            ("smoothing", self.smoothing, 100),
            ("step", self.step, 100),
            ("fall", self.fall, 1000),
        ] {
            if !(1..=most).contains(&number) {
                return Err(wrong(at(key), format!("{number}; write 1 to {most}")));
            }
        }
        if self.port == Some(0) {
            return Err(wrong(at("port"), "there is no port 0"));
        }
        match (&self.community, &self.user) {
            (Some(_), None) => Ok(()),
            (None, Some(user)) => user.check(&at("user")),
            _ => Err(wrong(
                path,
                "write 'community' (SNMPv2c) or 'user' (SNMPv3)",
            )),
        }
    }
}

impl UserConfig {
    /// Returns the password for encryption.
    pub fn privacy_password(&self) -> &str {
        self.privacy_password.as_ref().unwrap_or(&self.password)
    }

    fn check(&self, path: &str) -> Result<(), NfConfigError> {
        for (key, password) in [
            ("password", self.password.as_str()),
            ("privacy_password", self.privacy_password()),
        ] {
            if password.len() < PASSWORD_MIN {
                let message = format!("a password has {PASSWORD_MIN} characters at least");
                return Err(wrong(format!("{path}.{key}"), message));
            }
        }
        // Agents extend a short digest to a long key in different ways.
        if (self.auth, self.privacy) == (Digest::Sha1, Some(Cipher::Aes256)) {
            let message = "aes256 needs more than sha1 gives; write 'auth: sha256'";
            return Err(wrong(format!("{path}.auth"), message));
        }
        Ok(())
    }
}

/// Returns the numbers of an OID; `None` if the text is not an OID.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let parts = text.strip_prefix('.').unwrap_or(text).split('.');
    let numbers: Vec<u64> = parts
        .map(|part| part.parse::<u32>().ok().map(u64::from))
        .collect::<Option<_>>()?;
    let is_one = (2..=128).contains(&numbers.len()) && numbers[0] <= 2 && numbers[1] < 40;
    is_one.then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<LoadConfig, NfConfigError> {
        let config: LoadConfig = serde_json::from_value(value).map_err(|e| wrong("load", e))?;
        config.check("load").map(|()| config)
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let config = json!({ "oid": ".1.3.6.1.4.1.2021.10.1.5.1", "full": 400, "community": "c" });
        let config = read(config).expect("it is right");
        assert_eq!(config.oids(), [[1, 3, 6, 1, 4, 1, 2021, 10, 1, 5, 1]]);
        assert_eq!((config.port(), config.credentials()), (161, Err("c")));
        assert_eq!(config.interval(), Duration::from_secs(5));
        let law = config.law();
        assert_eq!((law.least, law.step, law.fall), (10, 10, 3));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let user = |auth: &str, privacy: &str, password: &str| json!({ "name": "n", "auth": auth, "privacy": privacy, "password": password });
        for (key, value, path) in [
            ("oid", json!("laLoad.1"), "load.oid"),
            ("oid", json!([]), "load.oid"),
            ("oid", json!("3.1"), "load.oid"),
            ("full", json!(0), "load.full"),
            ("interval", json!("1ms"), "load.interval"),
            ("least", json!(0), "load.least"),
            ("smoothing", json!(101), "load.smoothing"),
            ("port", json!(0), "load.port"),
            ("user", user("sha1", "aes128", "long enough"), "load"),
        ] {
            let mut config = json!({ "oid": "1.3.6.1", "full": 100, "community": "c" });
            config[key] = value;
            let error = read(config.clone()).expect_err("it is wrong");
            assert_eq!(error.path, path, "{config}: {}", error.message);
        }
        for (user, path) in [
            (user("sha1", "aes128", "short"), "load.user.password"),
            (user("sha1", "aes256", "long enough"), "load.user.auth"),
        ] {
            let config = json!({ "oid": "1.3.6.1", "full": 100, "user": user });
            assert_eq!(read(config).expect_err("it is wrong").path, path);
        }
    }
}
