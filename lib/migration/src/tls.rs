//! Certificates: the hosts that can move instances to this host, and the hosts that this one moves them to.
//!
//! Both ends show a certificate, and each accepts the certificates that one authority has signed. A caller without a
//! certificate does not even get an answer. A caller with a certificate may do what `nfluid apply` may: it names the
//! programs and configurations that run here.

use crate::channel::{Channel, Patience, Timed};
use anyhow::{Context, ensure};
use nfluid_sandbox::open_regular;
use nfluid_tls::identity::read_certificates;
use nfluid_tls::key::{Key, KeyError};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest time of an attempt at each address of the other host.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time of a handshake: the caller is not authenticated meanwhile.
const HANDSHAKE: Patience = Patience {
    idle: Duration::from_secs(2),
    whole: Duration::from_secs(5),
};

/// The files with the identity of this host.
#[derive(Clone, Debug)]
pub struct Files {
    /// The host's certificate, and the certificates between it and the authority's.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The certificates of the trusted authorities.
    pub authority: PathBuf,
    /// Lists of the certificates that these authorities have revoked, if there are any.
    pub revoked: Option<PathBuf>,
}

/// Both ends of a conversation.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that is none.
    pub fn load(files: &Files) -> anyhow::Result<Self> {
        let chain = certificates(&files.certificate)?;
        let key = open_regular(&files.key)
            .map_err(KeyError::from)
            .and_then(Key::read)
            .with_context(|| format!("the key {}", files.key.display()))?;
        let key = PrivateKeyDer::from_pem_slice(key.pem())
            .map_err(|why| anyhow::anyhow!("{why}"))
            .with_context(|| format!("{} holds no private key (PEM)", files.key.display()))?;
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
        Ok(Tls {
            client: Arc::new(client),
            server: Arc::new(server(clients, provider, chain, key).with_context(with)?),
        })
    }

    /// Connects to the daemon at `to`, `HOST:PORT`, whose certificate has to be for HOST.
    ///
    /// # Errors
    /// The host does not exist, or another host answers.
    pub fn connect(&self, to: &str) -> anyhow::Result<Channel> {
        let host = host_of(to)?;
        let name = ServerName::try_from(host.to_owned())
            .with_context(|| format!("'{host}' is no name of a host and no address"))?;
        let stream = dial(to)?;
        let mut connection = ClientConnection::new(Arc::clone(&self.client), name)?;
        let mut timed = Timed::new(stream, HANDSHAKE)?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut timed)
                .with_context(|| format!("TLS handshake with {to}"))?;
        }
        let stream = StreamOwned::new(connection, timed);
        Ok(Channel::new(stream, to.to_owned()))
    }

    /// Authenticates a caller.
    ///
    /// # Errors
    /// The caller is not authenticated, or takes too long.
    pub fn accept(&self, stream: TcpStream) -> anyhow::Result<Channel> {
        let peer = stream.peer_addr()?.to_string();
        let mut connection = ServerConnection::new(Arc::clone(&self.server))?;
        let mut timed = Timed::new(stream, HANDSHAKE)?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut timed)
                .with_context(|| format!("TLS handshake with {peer}"))?;
        }
        Ok(Channel::new(StreamOwned::new(connection, timed), peer))
    }
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

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    all_in(path, "certificate (PEM)")
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

/// The host of `HOST:PORT`; an IPv6 address is in brackets.
fn host_of(to: &str) -> anyhow::Result<&str> {
    let (host, port) = to
        .rsplit_once(':')
        .with_context(|| format!("'{to}' has no port: HOST:PORT is expected"))?;
    port.parse::<u16>()
        .with_context(|| format!("'{port}' is no port"))?;
    Ok(host.trim_start_matches('[').trim_end_matches(']'))
}

fn dial(to: &str) -> anyhow::Result<TcpStream> {
    let addresses = to
        .to_socket_addrs()
        .with_context(|| format!("looking up {to}"))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
    anyhow::bail!("connecting to {to}: {why}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nfluid_formats::message::{Message, Taken};
    use nfluid_tls::testing::Authority;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    use std::fs::{Permissions, set_permissions};
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::thread::{self, JoinHandle};
    use tempfile::TempDir;

    pub(crate) const SOON: Patience = Patience {
        idle: Duration::from_secs(60),
        whole: Duration::from_secs(60),
    };

    pub(crate) struct Host {
        pub tls: Tls,
        _folder: TempDir,
    }

    pub(crate) fn authority() -> Authority {
        Authority::new().expect("a key")
    }

    fn files(trusted: &Authority, signer: &Authority, folder: &Path, name: &str) -> Files {
        let written = trusted.write(signer, folder, (name, name)).expect("room");
        Files {
            certificate: written.certificate,
            key: written.key,
            authority: written.authority,
            revoked: None,
        }
    }

    /// A host that accepts certificates that `trusted` has signed, and shows a certificate for `name` that `signer`
    /// has signed.
    pub(crate) fn host(trusted: &Authority, signer: &Authority, name: &str) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(trusted, signer, folder.path(), name);
        Host {
            tls: Tls::load(&files).expect("they fit"),
            _folder: folder,
        }
    }

    /// Answers one call with what it hears.
    fn serve(host: Host) -> (String, JoinHandle<anyhow::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let served = thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            let mut channel = host.tls.accept(stream)?;
            let heard = channel.hear(SOON)?;
            channel.say(&heard, SOON)
        });
        (address, served)
    }

    #[test]
    fn hosts_of_one_authority_talk_to_each_other() {
        let authority = authority();
        let (address, served) = serve(host(&authority, &authority, "127.0.0.1"));
        let caller = host(&authority, &authority, "edge1");
        let mut channel = caller.tls.connect(&address).expect("it is known");
        let state = Message::State((0..3_000_000u32).map(|i| i as u8).collect());
        assert_eq!(channel.ask(&state, SOON).expect("answered"), state);
        served.join().expect("ended").expect("it has answered");
    }

    // promise: 5.37
    #[test]
    fn a_certificate_of_another_authority_gets_no_answer() {
        let (ours, theirs) = (authority(), authority());
        let (address, served) = serve(host(&ours, &ours, "127.0.0.1"));
        // The peer accepts us, and shows a certificate that we do not accept.
        let caller = host(&ours, &theirs, "edge1");
        let asked = caller
            .tls
            .connect(&address)
            .and_then(|mut channel| channel.ask(&Message::Ready(Taken::default()), SOON));
        asked.expect_err("it is not known");
        served.join().expect("ended").expect_err("not answered");
    }

    // Catches: the list is read, but not used to verify callers, or not used to verify the daemons that are called.
    // promise: 5.37
    #[test]
    fn a_host_with_a_revoked_certificate_gets_no_answer() {
        let ours = authority();
        let folder = || tempfile::tempdir().expect("a folder");
        let (own, others) = (folder(), folder());
        // Both certificates are valid for this address.
        let [here, stolen] =
            [&own, &others].map(|folder| files(&ours, &ours, folder.path(), "127.0.0.1"));
        let list = |revoked: &[&Path]| {
            let path = own.path().join(format!("{}.crl", revoked.len()));
            std::fs::write(&path, ours.revoke(revoked).expect("signed")).expect("room");
            Some(path)
        };
        let with = |files: &Files, revoked| {
            let files = Files {
                revoked,
                ..files.clone()
            };
            Host {
                tls: Tls::load(&files).expect("they fit"),
                _folder: folder(),
            }
        };
        let is_answered = |from: Host, to: Host| {
            let (address, served) = serve(to);
            let asked = from.tls.connect(&address);
            let asked = asked.and_then(|mut it| it.ask(&Message::Ready(Taken::default()), SOON));
            let answered = served.join().expect("ended");
            assert_eq!(asked.is_ok(), answered.is_ok());
            answered.is_ok()
        };
        // The control: a list without entries.
        let (none, one) = (list(&[]), list(&[&stolen.certificate]));
        let known = || with(&stolen, None);
        assert!(is_answered(known(), with(&here, none.clone())));
        assert!(!is_answered(known(), with(&here, one.clone())));
        assert!(is_answered(with(&here, none), known()));
        assert!(!is_answered(with(&here, one), known()));
    }

    // promise: 5.37
    #[test]
    fn nothing_is_said_to_who_is_signed_by_another_or_for_another() {
        let (ours, theirs) = (authority(), authority());
        for (signer, name) in [(&theirs, "127.0.0.1"), (&ours, "127.0.0.2")] {
            let (address, served) = serve(host(&ours, signer, name));
            let caller = host(&ours, &ours, "edge1");
            assert!(caller.tls.connect(&address).is_err(), "{name}");
            served.join().expect("ended").expect_err("nothing was said");
        }
    }

    // promise: 5.37
    #[test]
    fn a_caller_without_a_certificate_gets_no_answer() {
        let authority = authority();
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01"] {
            let (address, served) = serve(host(&authority, &authority, "127.0.0.1"));
            let mut stream = TcpStream::connect(&address).expect("it listens");
            stream.write_all(said).expect("it reads");
            drop(stream);
            served.join().expect("ended").expect_err("no handshake");
        }
    }

    // promise: 5.38
    #[test]
    fn a_peer_that_sends_byte_by_byte_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut dripping =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (stream, _) = listener.accept().expect("it called");
        let patience = Patience {
            idle: Duration::from_secs(60),
            whole: Duration::from_millis(200),
        };
        let mut timed = Timed::new(stream, patience).expect("a connection");
        // Without an end, as far as the reader is concerned.
        let drips = thread::spawn(move || while dripping.write_all(&[3]).is_ok() {});
        let mut all = std::io::sink();
        std::io::copy(&mut timed, &mut all).expect_err("it takes too long");
        drop(timed);
        drips.join().expect("ended");
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
            let loaded = thread::spawn(move || Tls::load(&files).map(drop));
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
        let why = |files: Files| match Tls::load(&files) {
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
        Tls::load(&own).expect("nobody else may read it");
        for mode in [0o640, 0o604] {
            set_permissions(&own.key, Permissions::from_mode(mode)).expect("it is ours");
            let Err(why) = Tls::load(&own) else {
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
}
