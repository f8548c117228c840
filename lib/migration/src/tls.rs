//! Certificates: the hosts that can move instances to this host, and the hosts that this one moves them to.
//!
//! Both ends show a certificate, and each accepts the certificates that one authority has signed. A caller without a
//! certificate does not even get an answer. A caller with a certificate may do what `nfluid apply` may: it names the
//! programs and configurations that run here.

use crate::channel::{Channel, Patience, Timed};
use anyhow::Context;
use nfluid_tls::mutual::{Mutual, server_name};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// Longest time of an attempt at each address of the other host.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time of a handshake: the caller is not authenticated meanwhile.
const HANDSHAKE: Patience = Patience {
    idle: Duration::from_secs(2),
    whole: Duration::from_secs(5),
};

/// Both ends of a conversation.
#[derive(Clone, Debug)]
pub struct Tls(Mutual);

impl From<Mutual> for Tls {
    fn from(mutual: Mutual) -> Self {
        Tls(mutual)
    }
}

impl Tls {
    /// Connects to the daemon at `to`, `HOST:PORT`, whose certificate has to be for HOST.
    ///
    /// # Errors
    /// The host does not exist, or another host answers.
    pub fn connect(&self, to: &str) -> anyhow::Result<Channel> {
        let name = server_name(to)?;
        let stream = dial(to)?;
        let mut connection = ClientConnection::new(Arc::clone(&self.0.client), name)?;
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
        let mut connection = ServerConnection::new(Arc::clone(&self.0.server))?;
        let mut timed = Timed::new(stream, HANDSHAKE)?;
        while connection.is_handshaking() {
            connection
                .complete_io(&mut timed)
                .with_context(|| format!("TLS handshake with {peer}"))?;
        }
        Ok(Channel::new(StreamOwned::new(connection, timed), peer))
    }
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
    use nfluid_tls::mutual::Files;
    use nfluid_tls::testing::Authority;
    use std::io::Write;
    use std::net::TcpListener;
    use std::path::Path;
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
        let written = trusted.write(signer, folder, (name, name));
        written.expect("room").into()
    }

    /// A host that accepts certificates that `trusted` has signed, and shows a certificate for `name` that `signer`
    /// has signed.
    pub(crate) fn host(trusted: &Authority, signer: &Authority, name: &str) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(trusted, signer, folder.path(), name);
        Host {
            tls: Mutual::load(&files).expect("they fit").into(),
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
                tls: Mutual::load(&files).expect("they fit").into(),
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
}
