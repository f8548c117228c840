//! The certificate of the service, and what it asks of callers' certificates.

use crate::settings::ServiceSettings;
use anyhow::Context;
use nfluid_tls::mutual::{certificates, private_key};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;

/// Returns the service's side of TLS. A caller may show a certificate of the authority, or none.
///
/// # Errors
/// Names the file that is missing or wrong.
pub fn load(settings: &ServiceSettings, node: &str, address: &str) -> anyhow::Result<ServerConfig> {
    let (chain, key) = match &settings.identity {
        Some((certificate, key)) => (certificates(certificate)?, private_key(key)?),
        None => own(node, address).context("making a certificate")?,
    };
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match &settings.client_ca {
        None => config.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .with_context(|| format!("{}: no authority", file.display()))?;
            }
            let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .with_context(|| file.display().to_string())?;
            config.with_client_cert_verifier(callers)
        }
    };
    config
        .with_single_cert(chain, key)
        .context("the certificate and its key")
}

/// Makes a certificate that nobody has signed, as kubelets do: the API server looks at it only if it was told to.
fn own(
    node: &str,
    address: &str,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new([node.to_owned(), address.to_owned()])?.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((vec![certificate.der().clone()], key.into()))
}
