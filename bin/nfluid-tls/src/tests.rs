//! A terminator and its clients, over the loopback interface.

use crate::alone;
use crate::counts::{Counts, Failure};
use crate::server::Server;
use nfluid_tls::listening;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(5);
const GET: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// A terminator that the test drives step by step.
struct Site {
    server: Server,
    address: SocketAddr,
    client: Arc<ClientConfig>,
    _folder: TempDir,
}

impl Site {
    fn new(more: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["shop".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("signed").pem();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("it is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
            path
        };
        let mut config = json!({
            "certificate": write("certificate", &certificate),
            "key": write("key", &key.serialize_pem()),
        });
        let keys = more.as_object().expect("a mapping").clone();
        config.as_object_mut().expect("a mapping").extend(keys);
        let file = write("config", &config.to_string());
        // Another process could take the port in between, but only by chance.
        let free = listening::open("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = TcpListener::from(free).local_addr().expect("an address");
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        roots.add(own).expect("it is one");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Site {
            server: alone::server(address, &file).expect("it is right"),
            address,
            client: Arc::new(client),
            _folder: folder,
        }
    }

    /// Serves while `client` runs.
    fn serve<T: Send>(
        &mut self,
        client: impl FnOnce(&dyn Fn() -> StreamOwned<ClientConnection, TcpStream>) -> T + Send,
    ) -> T {
        let (address, config) = (self.address, Arc::clone(&self.client));
        let dial = move || {
            let stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time");
            let name = ServerName::try_from("shop").expect("a name");
            let tls = ClientConnection::new(Arc::clone(&config), name).expect("a client");
            StreamOwned::new(tls, stream)
        };
        let server = &mut self.server;
        thread::scope(|scope| {
            let client = scope.spawn(move || client(&dial));
            let mut events = Vec::with_capacity(16);
            while !client.is_finished() {
                server.step(&mut events, Some(STEP)).expect("it serves");
            }
            client.join().expect("it has not panicked")
        })
    }

    fn serve_until(&mut self, is_so: impl Fn(&Counts) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut events = Vec::with_capacity(16);
        while !is_so(self.server.counts()) {
            assert!(Instant::now() < end, "{:?}", self.server.counts());
            self.server
                .step(&mut events, Some(STEP))
                .expect("it serves");
        }
    }
}

fn answer(stream: &mut impl Read) -> String {
    let mut read = Vec::new();
    let mut piece = [0; 512];
    while !read.ends_with(b"hello") {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => read.extend_from_slice(&piece[..count]),
            other => panic!("{other:?} after {read:?}"),
        }
    }
    String::from_utf8(read).expect("text")
}

#[test]
fn requests_are_answered_and_who_comes_back_needs_no_full_handshake() {
    let mut site = Site::new(&json!({ "answer": "hello" }));
    site.serve(|dial| {
        for _ in 0..2 {
            let mut stream = dial();
            for _ in 0..3 {
                stream.write_all(GET).expect("it reads");
                assert!(answer(&mut stream).starts_with("HTTP/1.1 200 OK"));
            }
        }
    });
    let counts = site.server.counts();
    let told = (counts.handshakes, counts.resumed, counts.answered);
    assert_eq!(told, (2, 1, 6), "{counts:?}");
    assert_eq!(counts.received_bytes, 6 * GET.len() as u64);
}

// promise: 17.3
#[test]
fn bytes_go_to_the_backend_and_back_whatever_their_number() {
    const BYTES: usize = 3 << 20;
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = backend.local_addr().expect("an address");
    let served = thread::spawn(move || {
        let (mut stream, _) = backend.accept().expect("it is called");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a line");
            head.push(byte[0]);
        }
        let mut copy = stream.try_clone().expect("a descriptor");
        std::io::copy(&mut stream, &mut copy).expect("until the client is done");
        String::from_utf8(head).expect("text")
    });
    let mut site = Site::new(&json!({ "backend": address, "proxy_protocol": true }));
    let from = site.serve(|dial| {
        let mut stream = dial();
        let sent: Vec<u8> = (0..BYTES).map(|i| (i / 7) as u8).collect();
        let mut read = vec![0; BYTES];
        // Less than the buffers on the way hold, so that neither side waits for the other.
        for (out, back) in sent.chunks(8 << 10).zip(read.chunks_mut(8 << 10)) {
            stream.write_all(out).expect("it reads");
            stream.read_exact(back).expect("it comes back");
        }
        assert!(read == sent);
        stream.conn.send_close_notify();
        stream.flush().expect("it reads");
        assert_eq!(stream.read(&mut [0]).expect("it closes as it should"), 0);
        stream.sock.local_addr().expect("an address")
    });
    let head = served.join().expect("it has served");
    let (port, own) = (from.port(), site.address.port());
    assert_eq!(
        head,
        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {own}\r\n")
    );
    let counts = site.server.counts();
    assert_eq!(counts.received_bytes, BYTES as u64);
    assert_eq!(counts.sent_bytes, BYTES as u64);
    site.serve_until(|counts| counts.broken == 0);
}

// promise: 17.3
#[test]
fn without_a_backend_the_client_is_told_and_it_is_counted() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let mut site = Site::new(&json!({ "backend": address }));
    site.serve(|dial| {
        let mut stream = dial();
        stream.write_all(GET).expect("it reads");
        assert_eq!(stream.read(&mut [0]).expect("it closes as it should"), 0);
    });
    let report = site.server.counts().report();
    assert_eq!(report["backend_failures_total{reason=\"refused\"}"], 1);
}

// promise: 17.4
#[test]
fn who_speaks_no_tls_says_nothing_or_leaves_is_counted_and_let_go() {
    let mut site = Site::new(&json!({ "answer": "hello", "handshake_timeout_s": 1 }));
    let address = site.address;
    let silent = TcpStream::connect(address).expect("it listens");
    drop(TcpStream::connect(address).expect("it listens"));
    let mut wrong = TcpStream::connect(address).expect("it listens");
    wrong
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it reads");
    site.serve_until(|counts| {
        let failed = [Failure::Timeout, Failure::Left, Failure::NotTls];
        failed.into_iter().all(|why| counts.failures(why) == 1)
    });
    assert_eq!(site.server.open(), 0);
    drop((silent, wrong));
}

// promise: 17.4
#[test]
fn beyond_the_limit_nobody_is_served_until_somebody_leaves() {
    let mut site = Site::new(&json!({ "answer": "hello", "connections": 1 }));
    site.serve(|dial| {
        let mut first = dial();
        first.write_all(GET).expect("it reads");
        answer(&mut first);
        let mut second = dial();
        let refused = second.write_all(GET).and_then(|()| second.read(&mut [0]));
        assert!(!matches!(refused, Ok(1..)), "{refused:?}");
    });
    site.serve_until(|counts| counts.over_limit == 1);
    site.serve(|dial| {
        loop {
            let mut third = dial();
            let served = third.write_all(GET).and_then(|()| third.read(&mut [0]));
            if matches!(served, Ok(1)) {
                break;
            }
        }
    });
}

// promise: 17.5
#[test]
fn one_that_is_to_end_accepts_nobody_and_lets_the_silent_go() {
    let mut site = Site::new(&json!({ "answer": "hello" }));
    let mut open = site.serve(|dial| {
        let mut stream = dial();
        stream.write_all(GET).expect("it reads");
        answer(&mut stream);
        stream
    });
    assert_eq!(site.server.open(), 1);
    site.server.drain();
    assert!(TcpStream::connect(site.address).is_err(), "nobody listens");
    site.serve_until(|counts| counts.idle == 1);
    assert_eq!(site.server.open(), 0);
    assert!(!matches!(open.read(&mut [0]), Ok(1..)));
}
