//! Certificates of hosts that know each other by one authority, for tests and experiments.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Who signs.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// The files of a host: PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// The certificate of the authority that it trusts.
    pub authority: PathBuf,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// No key can be made.
    pub fn new() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.pem();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// Writes the files `name` of a host that is reached as `host`, a name or an address. It trusts this authority, and is signed by
    /// `signer`.
    ///
    /// # Errors
    /// They cannot be written, or `host` is neither.
    pub fn write(
        &self,
        signer: &Authority,
        folder: &Path,
        (name, host): (&str, &str),
    ) -> io::Result<Files> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = CertificateParams::new(vec![host.to_owned()]).map_err(io::Error::other)?;
        let signed = params.signed_by(&key, &signer.issuer);
        let certificate = signed.map_err(io::Error::other)?.pem();
        let write = |ending: &str, text: &str| {
            let path = folder.join(format!("{name}{ending}"));
            fs::write(&path, text).map(|()| path)
        };
        let key = write(".key", &key.serialize_pem())?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        Ok(Files {
            certificate: write(".crt", &certificate)?,
            key,
            authority: write(".ca", &self.certificate)?,
        })
    }
}

impl Files {
    /// What a daemon is started with that has them, and listens at `address` for others that move instances to it.
    pub fn arguments(&self, address: &str) -> Vec<String> {
        let mut arguments = vec!["--migrate-listen".to_owned(), address.to_owned()];
        for (option, path) in [
            ("--migrate-cert", &self.certificate),
            ("--migrate-key", &self.key),
            ("--migrate-ca", &self.authority),
        ] {
            arguments.extend([option.to_owned(), path.display().to_string()]);
        }
        arguments
    }
}
