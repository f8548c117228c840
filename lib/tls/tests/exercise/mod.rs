//! The body that the property test and the fuzz target share: what a tenant writes about a TLS terminator.

use nfluid_tls::config::{ANSWER_MAX, Behind, CONNECTIONS_MAX, Config};
use nfluid_tls::identity::validity;

/// A configuration (JSON), or a file of certificates (PEM). Returns true if it is one of them.
pub fn configuration_or_certificate(bytes: &[u8]) -> bool {
    let is_configuration = serde_json::from_slice(bytes).is_ok_and(|value| configuration(&value));
    let is_certificate = match validity(bytes) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    is_configuration || is_certificate
}

/// Checks that an accepted configuration has bounds.
fn configuration(value: &serde_json::Value) -> bool {
    let config = match Config::parse(value) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    for memory in [0, 16 << 20, u64::MAX] {
        assert!((1..=CONNECTIONS_MAX).contains(&config.connections(memory)));
    }
    assert!(config.certificate.is_absolute() && config.key.is_absolute());
    assert!(!config.handshake_timeout.is_zero() && !config.idle_timeout.is_zero());
    match &config.behind {
        Behind::Backend { address, .. } => {
            assert_eq!(config.backend(), Some(*address));
            assert!(address.port() > 0);
        }
        Behind::Answer(text) => assert!(text.len() <= ANSWER_MAX),
    }
    true
}
