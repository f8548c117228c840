//! The configuration of a terminator: the key `config` in a deployment.

use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Largest average memory of a connection: TLS records and waiting bytes in both directions.
const CONNECTION_BYTES: u64 = 64 << 10;
/// Memory of a terminator before its first connection.
const OWN_BYTES: u64 = 6 << 20;
/// Connections at once, whatever the memory.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Longest answer of its own in bytes.
pub const ANSWER_MAX: usize = 4096;
/// Longest time-out in seconds: a day.
const SECONDS_MAX: u64 = 86_400;

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// The key.
    pub key: String,
    /// The error, and the remedy.
    pub message: String,
}

impl ConfigError {
    /// About one key.
    pub fn at(key: &str, message: impl Into<String>) -> Self {
        ConfigError {
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

/// Destination of a connection after a successful handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Its bytes go to a TCP server and back.
    Backend {
        /// The server's address.
        address: SocketAddr,
        /// True: the server first gets the client's address, by a line of the PROXY protocol, version 1.
        proxy_protocol: bool,
    },
    /// Each HTTP request is answered with this text.
    Answer(String),
}

/// A terminator's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// File with its certificate, and those between it and an authority's (PEM).
    pub certificate: PathBuf,
    /// File with its key (PEM), which only root may read.
    pub key: PathBuf,
    /// The destination behind the terminator.
    pub behind: Behind,
    /// Protocols that it agrees to (RFC 7301), the most wanted first; none: it does not negotiate.
    pub alpn: Vec<String>,
    /// Connections at once; absent: as many as its memory has room for.
    connections: Option<u32>,
    /// Timeout of a handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a silent connection.
    pub idle_timeout: Duration,
    /// Time that connections may continue after the request to end.
    pub drain: Duration,
}

/// The configuration as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    certificate: PathBuf,
    key: PathBuf,
    backend: Option<SocketAddr>,
    #[serde(default)]
    proxy_protocol: bool,
    answer: Option<String>,
    #[serde(default)]
    alpn: Vec<String>,
    connections: Option<u32>,
    #[serde(default = "handshake_timeout")]
    handshake_timeout_s: u64,
    #[serde(default = "idle_timeout")]
    idle_timeout_s: u64,
    #[serde(default = "drain")]
    drain_s: u64,
}

fn handshake_timeout() -> u64 {
    10
}

fn idle_timeout() -> u64 {
    300
}

fn drain() -> u64 {
    5
}

impl Config {
    /// Reads a configuration. No file is opened.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(value: &Value) -> Result<Self, ConfigError> {
        let written =
            Written::deserialize(value).map_err(|error| ConfigError::at("", format!("{error}")))?;
        for (key, path) in [("certificate", &written.certificate), ("key", &written.key)] {
            if !path.is_absolute() {
                let message = "it is no absolute path: begin it with '/'";
                return Err(ConfigError::at(key, message));
            }
        }
        let seconds = [
            ("handshake_timeout_s", written.handshake_timeout_s, 1),
            ("idle_timeout_s", written.idle_timeout_s, 1),
            ("drain_s", written.drain_s, 0),
        ];
        for (key, value, least) in seconds {
            if !(least..=SECONDS_MAX).contains(&value) {
                let message = format!("it cannot be {value}; write {least} to {SECONDS_MAX}");
                return Err(ConfigError::at(key, message));
            }
        }
        if let Some(count) = written.connections
            && !(1..=CONNECTIONS_MAX).contains(&count)
        {
            let message = format!("it cannot be {count}; write 1 to {CONNECTIONS_MAX}");
            return Err(ConfigError::at("connections", message));
        }
        if let Some(bad) = written
            .alpn
            .iter()
            .find(|name| !(1..=255).contains(&name.len()))
        {
            let message = format!("a protocol's name has 1 to 255 bytes, not {}", bad.len());
            return Err(ConfigError::at("alpn", message));
        }
        Ok(Config {
            behind: behind(&written)?,
            certificate: written.certificate,
            key: written.key,
            alpn: written.alpn,
            connections: written.connections,
            handshake_timeout: Duration::from_secs(written.handshake_timeout_s),
            idle_timeout: Duration::from_secs(written.idle_timeout_s),
            drain: Duration::from_secs(written.drain_s),
        })
    }

    /// Connections that it serves at once with so much memory.
    pub fn connections(&self, memory_bytes: u64) -> u32 {
        let room = memory_bytes.saturating_sub(OWN_BYTES) / CONNECTION_BYTES;
        let room = u32::try_from(room).unwrap_or(CONNECTIONS_MAX);
        self.connections.unwrap_or(room.clamp(8, CONNECTIONS_MAX))
    }

    /// Returns the address of its server, if it has one.
    pub fn backend(&self) -> Option<SocketAddr> {
        match &self.behind {
            Behind::Backend { address, .. } => Some(*address),
            Behind::Answer(_) => None,
        }
    }
}

fn behind(written: &Written) -> Result<Behind, ConfigError> {
    match (written.backend, &written.answer) {
        (Some(address), None) if address.port() == 0 || address.ip().is_unspecified() => Err(
            ConfigError::at("backend", format!("nobody can be called at {address}")),
        ),
        (Some(address), None) => Ok(Behind::Backend {
            address,
            proxy_protocol: written.proxy_protocol,
        }),
        (None, Some(_)) if written.proxy_protocol => Err(ConfigError::at(
            "proxy_protocol",
            "it is for a 'backend'; remove it",
        )),
        (None, Some(answer)) if answer.len() > ANSWER_MAX => Err(ConfigError::at(
            "answer",
            format!("it has {} bytes; it may have {ANSWER_MAX}", answer.len()),
        )),
        (None, Some(answer)) => Ok(Behind::Answer(answer.clone())),
        (None, None) => Err(ConfigError::at(
            "backend",
            "it is missing: write 'backend: ADDRESS:PORT', or 'answer: TEXT'",
        )),
        (Some(_), Some(_)) => Err(ConfigError::at(
            "answer",
            "there is a 'backend' as well; remove one of them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(key: &str, value: Value) -> Result<Config, ConfigError> {
        let mut config = json!({
            "certificate": "/etc/shop.crt", "key": "/etc/shop.key", "backend": "10.0.0.5:80",
        });
        config[key] = value;
        Config::parse(&config)
    }

    #[test]
    fn what_is_left_out_has_a_value() {
        let config = with("alpn", json!(["h2", "http/1.1"])).expect("it is right");
        assert_eq!(config.backend(), "10.0.0.5:80".parse().ok());
        assert_eq!(config.handshake_timeout, Duration::from_secs(10));
        assert_eq!(config.drain, Duration::from_secs(5));
        assert_eq!(config.alpn.len(), 2);
    }

    #[test]
    fn connections_are_as_many_as_memory_has_room_for_unless_they_are_said() {
        let config = with("drain_s", json!(0)).expect("it is right");
        assert_eq!(config.connections(16 << 20), 160);
        assert_eq!(config.connections(1 << 20), 8);
        assert_eq!(config.connections(u64::MAX), CONNECTIONS_MAX);
        let config = with("connections", json!(3)).expect("it is right");
        assert_eq!(config.connections(16 << 20), 3);
    }

    // promise: 17.2
    #[test]
    fn each_error_names_its_key() {
        for (key, value) in [
            ("certificate", json!("shop.crt")),
            ("key", json!("../shop.key")),
            ("backend", json!("0.0.0.0:80")),
            ("backend", json!("10.0.0.5:0")),
            ("backend", Value::Null),
            ("answer", json!("hello")),
            ("connections", json!(0)),
            ("handshake_timeout_s", json!(0)),
            ("idle_timeout_s", json!(100_000)),
            ("alpn", json!([""])),
        ] {
            let error = with(key, value.clone()).expect_err(key);
            assert_eq!(error.key, key, "{value}: {error}");
        }
        let error = with("certificates", json!("x")).expect_err("there is no such key");
        assert!(error.message.contains("certificates"), "{error}");
        assert!(Config::parse(&json!({ "answer": "x" })).is_err());
    }
}
