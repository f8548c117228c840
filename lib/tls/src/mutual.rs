//! Mutual TLS: both ends show a certificate, and each accepts the certificates that one authority has signed. A caller
//! without a certificate does not even get an answer.

use crate::identity::read_certificates;
use crate::key::{Key, KeyError};
use anyhow::{Context, ensure};
use nfluid_sandbox::open_regular;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::extensions::GeneralName;

/// The files with the identity of this end.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its certificate, and the certificates between it and the authority's.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The certificates of the trusted authorities.
    pub authority: PathBuf,
    /// Lists of the certificates that these authorities have revoked, if there are any.
    pub revoked: Option<PathBuf>,
}

/// The configurations of both roles that an end can have.
#[derive(Clone, Debug)]
pub struct Mutual {
    /// For connections that this end opens.
    pub client: Arc<ClientConfig>,
    /// For connections that this end accepts.
    pub server: Arc<ServerConfig>,
}

impl Mutual {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that is none.
    pub fn load(files: &Files) -> anyhow::Result<Self> {
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authority)? {
            roots
                .add(certificate)
                .with_context(|| format!("{}: no authority", files.authority.display()))?;
        }
        let revoked = files.revoked.as_deref().map(revocations).transpose()?;
        let revoked = revoked.unwrap_or_default();
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let with = || {
            format!(
                "{} does not fit {}",
                files.key.display(),
                files.certificate.display()
            )
        };
        let unlisted = || match &files.revoked {
            Some(path) => format!("{}", path.display()),
            None => files.authority.display().to_string(),
        };
        let with_provider = WebPkiServerVerifier::builder_with_provider;
        let servers = with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation();
        let with_provider = WebPkiClientVerifier::builder_with_provider;
        let clients = with_provider(roots, Arc::clone(&provider))
            .with_crls(revoked)
            .only_check_end_entity_revocation();
        let clients = clients.build().with_context(unlisted)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers.build().with_context(unlisted)?)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .with_context(with)?;
        Ok(Mutual {
            client: Arc::new(client),
            server: Arc::new(server(clients, provider, chain, key).with_context(with)?),
        })
    }
}

/// Returns the name that the certificate of the server at `to`, `HOST:PORT`, has to be for.
///
/// # Errors
/// There is no port, or HOST is neither a name nor an address.
pub fn server_name(to: &str) -> anyhow::Result<ServerName<'static>> {
    let host = host_of(to)?;
    ServerName::try_from(host.to_owned())
        .with_context(|| format!("'{host}' is no name of a host and no address"))
}

/// Returns the DNS names that a certificate is for (RFC 5280, section 4.2.1.6), in lower case. A certificate that cannot
/// be read is for none.
pub fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    let dns = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    dns.collect()
}

fn server(
    clients: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    // No caller returns soon enough for a ticket.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    open_regular(path)
        .and_then(read_certificates)
        .with_context(|| format!("reading {}", path.display()))
}

/// Reads a file of certificates, PEM; a file without any is refused.
///
/// # Errors
/// Names the file, and what it is not.
pub fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    all_in(path, "certificate (PEM)")
}

/// Reads a private key, PEM, that nobody but its owner may read.
///
/// # Errors
/// Names the file, and what is wrong with it.
pub fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let key = open_regular(path)
        .map_err(KeyError::from)
        .and_then(Key::read)
        .with_context(|| format!("the key {}", path.display()))?;
    let key = PrivateKeyDer::from_pem_slice(key.pem())
        .map_err(|why| anyhow::anyhow!("{why}"))
        .with_context(|| format!("{} holds no private key (PEM)", path.display()))?;
    Ok(key.clone_key())
}

/// Reads lists of revoked certificates, PEM (RFC 5280, section 5). If any list is given, an authority that trusts its
/// own list needs a list here: certificates of an authority without a list are not accepted any more.
fn revocations(path: &Path) -> anyhow::Result<Vec<CertificateRevocationListDer<'static>>> {
    all_in(path, "list of revoked certificates (PEM, 'X509 CRL')")
}

/// All objects of a kind in a PEM file; a file without any is refused.
fn all_in<T: PemObject>(path: &Path, kind: &str) -> anyhow::Result<Vec<T>> {
    let text = read(path)?;
    let all = T::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all
        .map_err(|why| anyhow::anyhow!("{why}"))
        .with_context(|| format!("reading {}", path.display()))?;
    ensure!(!all.is_empty(), "{} holds no {kind}", path.display());
    Ok(all)
}

/// Returns the host of `HOST:PORT`; an IPv6 address is in brackets there.
///
/// # Errors
/// There is no port.
pub fn host_of(to: &str) -> anyhow::Result<&str> {
    let (host, port) = to
        .rsplit_once(':')
        .with_context(|| format!("'{to}' has no port: HOST:PORT is expected"))?;
    port.parse::<u16>()
        .with_context(|| format!("'{port}' is no port"))?;
    Ok(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    fn authority() -> Authority {
        Authority::new().expect("a key")
    }

    fn files(trusted: &Authority, signer: &Authority, folder: &Path, name: &str) -> Files {
        let written = trusted.write(signer, folder, (name, name));
        written.expect("room").into()
    }

    // Catches: a file is opened before its type is checked; the open waits for a writer, as the test itself is once a
    // reader waits.
    // promise: 3.18
    #[test]
    fn a_fifo_is_refused_without_waiting_for_a_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = authority();
        let own = files(&authority, &authority, folder.path(), "edge1");
        let fifo = folder.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &fifo, FileType::Fifo, mode, 0).expect("room");
        type Change = fn(&mut Files, PathBuf);
        let changes: [Change; 4] = [
            |it, fifo| it.certificate = fifo,
            |it, fifo| it.key = fifo,
            |it, fifo| it.authority = fifo,
            |it, fifo| it.revoked = Some(fifo),
        ];
        for change in changes {
            let mut files = own.clone();
            change(&mut files, fifo.clone());
            let loaded = thread::spawn(move || Mutual::load(&files).map(drop));
            while !loaded.is_finished() {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let reader = rustix::fs::open(&fifo, flags, Mode::empty());
                reader.expect_err("it is open for reading");
                thread::yield_now();
            }
            let why = loaded.join().expect("ended").expect_err("no file");
            assert!(format!("{why:#}").contains("regular"), "{why:#}");
        }
    }

    #[test]
    fn files_that_are_none_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = authority();
        let own = files(&authority, &authority, folder.path(), "edge1");
        let other = files(&authority, &authority, folder.path(), "edge2");
        let why = |files: Files| match Mutual::load(&files) {
            Ok(_) => panic!("accepted"),
            Err(why) => format!("{why:#}"),
        };
        let missing = folder.path().join("none");
        let no_key = folder.path().join("public");
        std::fs::copy(&own.certificate, &no_key).expect("it is there");
        set_permissions(&no_key, Permissions::from_mode(0o600)).expect("it is ours");
        assert!(
            why(Files {
                key: missing.clone(),
                ..own.clone()
            })
            .contains("none")
        );
        assert!(
            why(Files {
                certificate: missing,
                ..own.clone()
            })
            .contains("none")
        );
        assert!(
            why(Files {
                key: other.key,
                ..own.clone()
            })
            .contains("does not fit")
        );
        assert!(why(Files { key: no_key, ..own }).contains("private key"));
    }

    #[test]
    fn a_key_that_others_may_read_is_named_with_its_mode_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = authority();
        let own = files(&authority, &authority, folder.path(), "edge1");
        Mutual::load(&own).expect("nobody else may read it");
        for mode in [0o640, 0o604] {
            set_permissions(&own.key, Permissions::from_mode(mode)).expect("it is ours");
            let Err(why) = Mutual::load(&own) else {
                panic!("accepted with mode {mode:o}");
            };
            let why = format!("{why:#}");
            let path = own.key.display().to_string();
            for part in [path, format!("mode {mode:04o}"), "chmod 600".to_owned()] {
                assert!(why.contains(&part), "{why}");
            }
        }
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        assert_eq!(host_of("edge2:7443").expect("both"), "edge2");
        assert_eq!(host_of("[fd00::1]:7443").expect("both"), "fd00::1");
        for wrong in ["edge2", "edge2:", "edge2:http", "edge2:70000"] {
            host_of(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_certificate_is_for_its_dns_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = authority();
        let names = |name: &str| {
            let files = files(&authority, &authority, folder.path(), name);
            let all = certificates(&files.certificate).expect("ours");
            names_of(&all[0])
        };
        assert_eq!(names("Nomad"), ["nomad"]);
        assert!(names("10.0.0.1").is_empty());
        assert!(names_of(&CertificateDer::from(vec![0x30, 0x82])).is_empty());
    }
}
