//! TLS termination on the kernel's stack: who it is for, what it holds, and what is left of it.

use nfluid_testbed::process::{is_alive, signal};
use nfluid_tests::harness::patience::eventually;
use nfluid_tests::harness::platform::Platform;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// A tenant: certificate, key, and an address that is free.
struct Tenant {
    name: String,
    folder: String,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    secret: String,
}

impl Tenant {
    fn new(platform: &Platform, name: &str) -> Self {
        let folder = platform.directory().to_str().expect("text").to_owned();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["shop".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("signed");
        let write = |ending: &str, text: &str| {
            let path = Path::new(&folder).join(format!("{name}{ending}"));
            fs::write(&path, text).expect("the directory is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        };
        write(".crt", &certificate.pem());
        write(".key", &key.serialize_pem());
        let secret = key.serialize_pem();
        Tenant {
            name: name.to_owned(),
            folder,
            address: free_address(),
            certificate: CertificateDer::from_pem_slice(certificate.pem().as_bytes()).expect("PEM"),
            secret: secret.lines().nth(1).expect("base64").to_owned(),
        }
    }

    /// Its instance, with the key of `other`.
    fn instance(&self, backend: SocketAddr, other: &Tenant) -> String {
        let (folder, name, key) = (&self.folder, &self.name, &other.name);
        format!(
            "  {name}:\n    nf: tls\n    listen: {}\n    flavor: small\n    config:\n      \
             certificate: {folder}/{name}.crt\n      key: {folder}/{key}.key\n      backend: {backend}\n      drain_s: 1\n",
            self.address
        )
    }

    /// A client of it.
    fn client(&self) -> io::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from("shop").expect("a name");
        let client = ClientConnection::new(Arc::new(config), name).expect("a client");
        Ok(StreamOwned::new(client, stream))
    }

    /// Returns the reply to a client's text.
    fn echoes(&self, text: &[u8]) -> io::Result<Vec<u8>> {
        echo(&mut self.client()?, text)
    }

    fn await_echo(&self) {
        eventually("it serves", || {
            self.echoes(b"hello").is_ok_and(|back| back == b"hello")
        });
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn echo(client: &mut Client, text: &[u8]) -> io::Result<Vec<u8>> {
    client.write_all(text)?;
    let mut back = vec![0; text.len()];
    client.read_exact(&mut back)?;
    Ok(back)
}

/// A client in the middle of a conversation hears that it is over: it neither waits nor gets anything that nobody has
/// said.
fn hears_the_end(mut client: Client) {
    let mut rest = Vec::new();
    match client.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(why) => assert!(
            matches!(
                why.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
            ),
            "{why}"
        ),
    }
    assert_eq!(rest, [0; 0]);
}

/// The other process of an instance.
fn connector_of(platform: &Platform, pid: u32) -> u32 {
    let cgroup = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup"));
    let own = cgroup(pid).expect("it runs");
    let all = platform.instance_processes().into_iter();
    let mut others = all.filter(|other| *other != pid && cgroup(*other).is_ok_and(|it| it == own));
    others.next().expect("it has a backend")
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// A server that echoes; it ends with the test.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut copy = stream.try_clone().expect("a descriptor");
                let mut stream = stream;
                io::copy(&mut stream, &mut copy)
            });
        }
    });
    address
}

fn deployment(instances: &[String]) -> String {
    format!("version: 1\ninstances:\n{}", instances.concat())
}

/// All that the platform keeps in files.
fn files_with(folder: &Path, secret: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .flat_map(|path| match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => files_with(&path, secret),
            Ok(found) if found.is_file() => {
                let text = fs::read(&path).unwrap_or_default();
                let has_it = String::from_utf8_lossy(&text).contains(secret);
                let shown = path.display().to_string();
                has_it.then_some(shown).into_iter().collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

// promise: 17.1
#[test]
fn a_tenant_is_served_with_its_own_key_whoever_is_killed() {
    let test = "a_tenant_is_served_with_its_own_key_whoever_is_killed";
    let Some(mut platform) = Platform::new(test) else {
        return;
    };
    let backend = echo_server();
    let shop = Tenant::new(&platform, "shop");
    let bank = Tenant::new(&platform, "bank");
    let both = deployment(&[shop.instance(backend, &shop), bank.instance(backend, &bank)]);
    platform.apply(&both);
    let long: Vec<u8> = (0..200_000u32).map(|i| (i / 5) as u8).collect();
    assert!(shop.echoes(&long).expect("it serves") == long);
    assert!(bank.echoes(b"bank").expect("it serves") == b"bank");
    let handshakes = r#"{instance="shop",metric="handshakes_total"} "#;
    let metrics = platform.page("/metrics");
    assert!(metrics.contains(handshakes), "{metrics}");

    // The kernel's stack is the terminators' only way: they have neither ports nor sockets of their own making, and
    // nobody finds the key where it is not asked for.
    let found = files_with(platform.directory(), &shop.secret);
    assert_eq!(found, [format!("{}/shop.key", shop.folder)]);
    let pid = platform.pids()["shop"];
    for file in ["environ", "cmdline"] {
        let text = fs::read(format!("/proc/{pid}/{file}")).expect("it runs");
        assert!(!String::from_utf8_lossy(&text).contains(&shop.secret));
    }
    let filter = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(filter.contains("Seccomp:\t2"), "{filter}");

    // A terminator or connector that dies is restarted with the other of the pair; its clients notice, others do not.
    let mut others = bank.client().expect("it serves");
    let first = pid;
    let itself = |_: &Platform, pid: u32| pid;
    let both_die: [fn(&Platform, u32) -> u32; 2] = [connector_of, itself];
    for dies in both_die {
        let mut client = shop.client().expect("it serves");
        assert_eq!(echo(&mut client, b"held").expect("it serves"), b"held");
        assert_eq!(echo(&mut others, b"held").expect("it serves"), b"held");
        let pid = platform.pids()["shop"];
        signal(dies(&platform, pid), Signal::KILL);
        hears_the_end(client);
        shop.await_echo();
        assert_ne!(platform.pids()["shop"], pid);
    }
    assert_eq!(echo(&mut others, b"still").expect("it serves"), b"still");
    drop(others);
    let again = platform.pids()["shop"];
    assert_ne!(first, again);
    platform.kill_daemon();
    assert!(shop.echoes(b"alone").expect("it serves") == b"alone");
    platform.start();
    assert_eq!(platform.pids()["shop"], again);
    assert!(platform.apply(&both).is_empty());

    // A removed terminator serves no client, and leaves no process.
    platform.apply(&deployment(&[bank.instance(backend, &bank)]));
    assert!(TcpStream::connect(shop.address).is_err() && !is_alive(again));
    bank.await_echo();
    eventually("the connector is gone", || {
        platform.instance_processes().len() == 2
    });
}

// promise: 17.2
#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let Some(platform) = Platform::new("what_cannot_be_served_is_refused_with_its_reason") else {
        return;
    };
    let backend = echo_server();
    let shop = Tenant::new(&platform, "shop");
    let other = Tenant::new(&platform, "other");
    let refused = |text: &str, reason: &str| {
        let outcome = platform.try_apply(text);
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(
            !outcome.succeeded() && told.contains(reason),
            "{reason}: {outcome:?}"
        );
    };
    let own = deployment(&[shop.instance(backend, &shop)]);
    refused(
        &deployment(&[shop.instance(backend, &other)]),
        "do not go together",
    );
    refused(&own.replace("shop.crt", "none.crt"), "none.crt");
    let twice = own.clone() + &shop.instance(backend, &shop).replace("  shop:", "  twin:");
    refused(&twice, "'shop' listens at");
    let key = format!("{}/shop.key", shop.folder);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("it is ours");
    refused(&own, "chmod 600");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
    let taken = TcpListener::bind(shop.address).expect("nobody has it");
    refused(&own, "somebody listens there already");
    drop(taken);
    refused(
        &own.replace("listen:", "netns: none\n    listen:"),
        "/run/netns/none",
    );
    platform.apply(&own);
    shop.await_echo();
}
