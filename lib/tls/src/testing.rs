//! Certificates of hosts that know each other by one authority, for tests and experiments.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A certificate authority for tests.
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
        // OpenSSL takes a certificate whose issuer has its own name for self-signed.
        let name = "authority of tests";
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.pem();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// Returns a revocation list (PEM) of this authority with the certificates in these files.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn revoke(&self, certificates: &[&Path]) -> io::Result<String> {
        let day = |year| rcgen::date_time_ymd(year, 1, 1);
        let revoked = |path: &&Path| {
            let text = fs::read(path)?;
            let (_, pem) = x509_parser::pem::parse_x509_pem(&text).map_err(io::Error::other)?;
            let parsed = pem.parse_x509().map_err(io::Error::other)?;
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(parsed.raw_serial()),
                revocation_time: day(2020),
                reason_code: None,
                invalidity_date: None,
            })
        };
        let revoked = certificates.iter().map(revoked);
        let list = CertificateRevocationListParams {
            this_update: day(2020),
            next_update: day(2100),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<io::Result<_>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = list.signed_by(&self.issuer).map_err(io::Error::other)?;
        signed.pem().map_err(io::Error::other)
    }

    /// Writes the files `name` of a host with the name or address `host`. The host trusts this authority, and `signer`
    /// signs its certificate.
    ///
    /// # Errors
    /// The files cannot be written, or `host` is neither a name nor an address.
    pub fn write(
        &self,
        signer: &Authority,
        folder: &Path,
        (name, host): (&str, &str),
    ) -> io::Result<Files> {
        self.write_until(signer, folder, (name, &[host]), 4096)
    }

    /// As [`Authority::write`], with several names or addresses; the certificate is valid until the beginning of a year.
    ///
    /// # Errors
    /// As for [`Authority::write`].
    pub fn write_until(
        &self,
        signer: &Authority,
        folder: &Path,
        (name, hosts): (&str, &[&str]),
        year: i32,
    ) -> io::Result<Files> {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let params = CertificateParams::new(hosts).map_err(io::Error::other)?;
        self.sign(signer, folder, name, params, year)
    }

    /// Writes the files of a user as Kubernetes knows users: a common name, and a group as organization.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn write_user(&self, folder: &Path, user: &str, group: &str) -> io::Result<Files> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        self.sign(self, folder, user, params, 4096)
    }

    fn sign(
        &self,
        signer: &Authority,
        folder: &Path,
        name: &str,
        mut params: CertificateParams,
        year: i32,
    ) -> io::Result<Files> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        params.use_authority_key_identifier_extension = true;
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
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

#[cfg(feature = "mutual")]
impl From<Files> for crate::mutual::Files {
    fn from(files: Files) -> Self {
        crate::mutual::Files {
            certificate: files.certificate,
            key: files.key,
            authority: files.authority,
            revoked: None,
        }
    }
}

impl Files {
    /// Returns the daemon's arguments for these files and a listening address. `of` begins the options: `migrate` for other
    /// daemons, `api` for clients.
    pub fn arguments(&self, of: &str, address: &str) -> Vec<String> {
        let mut arguments = vec![format!("--{of}-listen"), address.to_owned()];
        for (option, path) in [
            ("cert", &self.certificate),
            ("key", &self.key),
            ("ca", &self.authority),
        ] {
            arguments.extend([format!("--{of}-{option}"), path.display().to_string()]);
        }
        arguments
    }
}
