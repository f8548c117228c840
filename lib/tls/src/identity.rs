//! The identity of a terminator: its certificates and the key that belongs to them.

use crate::key::{FILE_BYTES_MAX, Key, KeyError};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, ServerConfig};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use zeroize::Zeroize;

/// The reason why an identity is invalid.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file of certificates cannot be read.
    #[error("reading certificates: {0}")]
    Io(#[from] io::Error),
    /// The file contains no certificate.
    #[error("there is no certificate in it (PEM)")]
    NoCertificate,
    /// The first of them cannot be read.
    #[error("its first certificate cannot be read: {0}")]
    BadCertificate(String),
    /// The key file cannot be used.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// The key file has no key.
    #[error("there is no private key in it (PEM: PKCS#8, PKCS#1 or SEC1; without a password)")]
    NoKey,
    /// The key is of another certificate, or of a kind that is not served.
    #[error("key and certificate do not go together: {0}")]
    NoPair(#[source] rustls::Error),
    /// The kernel has no random numbers.
    #[error("preparing session tickets: {0}")]
    Tickets(#[source] rustls::Error),
}

impl IdentityError {
    /// The key of the configuration that it is about.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Key(_) | Self::NoKey | Self::NoPair(_) => "key",
            Self::Io(_) | Self::NoCertificate | Self::BadCertificate(_) | Self::Tickets(_) => {
                "certificate"
            }
        }
    }
}

/// For how long a certificate is good: seconds since 1970, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub until: i64,
}

/// Reads a file of certificates (PEM). The caller opens it, as for [`Key::read`].
///
/// # Errors
/// The file cannot be read, or is too long.
pub fn read_certificates(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(text)
}

/// For how long the first certificate is good.
///
/// # Errors
/// [`IdentityError::NoCertificate`], [`IdentityError::BadCertificate`].
pub fn validity(certificates: &[u8]) -> Result<Validity, IdentityError> {
    let chain = chain(certificates)?;
    let first = chain.first().ok_or(IdentityError::NoCertificate)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(first)
        .map_err(|error| IdentityError::BadCertificate(error.to_string()))?;
    let validity = parsed.validity();
    Ok(Validity {
        from: validity.not_before.timestamp(),
        until: validity.not_after.timestamp(),
    })
}

/// Returns the TLS configuration for clients: TLS 1.2 and 1.3, with this certificate.
///
/// # Errors
/// [`IdentityError`].
pub fn server(
    certificates: &[u8],
    key: &Key,
    alpn: &[String],
) -> Result<ServerConfig, IdentityError> {
    let pair = pair(chain(certificates)?, key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(IdentityError::NoPair)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    // Session tickets: returning clients carry the state.
    config.ticketer = Ticketer::new().map_err(IdentityError::Tickets)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// Returns the certificates and the key that signs for them. Of the key's bytes only those needed for signing are kept.
fn pair(chain: Vec<CertificateDer<'static>>, key: &Key) -> Result<CertifiedKey, IdentityError> {
    let mut bytes = PrivateKeyDer::from_pem_slice(key.pem()).map_err(|_| IdentityError::NoKey)?;
    let signing = any_supported_type(&bytes);
    bytes.zeroize();
    let pair = CertifiedKey::new(chain, signing.map_err(IdentityError::NoPair)?);
    match pair.keys_match() {
        // A kind of key that cannot be compared with its certificate: clients will detect a mismatch.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
        Err(error) => Err(IdentityError::NoPair(error)),
    }
}

fn chain(certificates: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| IdentityError::BadCertificate(format!("{error:?}")))?;
    if chain.is_empty() {
        return Err(IdentityError::NoCertificate);
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["shop".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2001, 2, 3);
        params.not_after = date_time_ymd(2002, 2, 3);
        let certificate = params.self_signed(&key).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    fn key(text: &str) -> Key {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        write(&path, text).expect("it is ours");
        set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        Key::read(File::open(path).expect("it is ours")).expect("it is ours alone")
    }

    #[test]
    fn a_pair_is_served_until_it_expires() {
        let (certificate, secret) = pair();
        let config = server(certificate.as_bytes(), &key(&secret), &["h2".to_owned()]);
        assert_eq!(config.expect("they fit").alpn_protocols, [b"h2"]);
        let validity = validity(certificate.as_bytes()).expect("it has one");
        assert_eq!(
            (validity.from, validity.until),
            (981_158_400, 1_012_694_400)
        );
    }

    // promise: 17.2
    #[test]
    fn what_does_not_go_together_is_said_of_the_file_that_it_is_about() {
        let ((certificate, secret), (_, other)) = (pair(), pair());
        let broken = certificate.replacen("MII", "AAA", 1);
        let why = |certificate: &str, secret: &str| {
            let made = server(certificate.as_bytes(), &key(secret), &[]);
            made.expect_err("they do not fit")
        };
        let no_pair = why(&certificate, &other);
        assert!(matches!(no_pair, IdentityError::NoPair(_)), "{no_pair}");
        assert_eq!(no_pair.key(), "key");
        assert_eq!(why(&certificate, "").key(), "key");
        assert_eq!(why(&secret, &secret).key(), "certificate");
        assert!(validity(broken.as_bytes()).is_err());
        for error in [no_pair, why(&certificate, &certificate)] {
            assert!(!format!("{error} {error:?}").contains(&secret[40..80]));
        }
    }
}
