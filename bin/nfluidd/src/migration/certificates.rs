//! Certificates for tests.

use super::tls::Files;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;

/// Who signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed").pem();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// The files of a host that accepts those whom `self` has signed, and is signed by `signer`.
    pub fn files(&self, signer: &Authority, folder: &Path, host: &str) -> Files {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &signer.issuer).expect("signed");
        let write = |ending: &str, text: &str| {
            let path = folder.join(format!("{host}{ending}"));
            fs::write(&path, text).expect("the folder is ours");
            path
        };
        Files {
            certificate: write(".crt", &certificate.pem()),
            key: write(".key", &key.serialize_pem()),
            authority: write(".ca", &self.certificate),
        }
    }
}
