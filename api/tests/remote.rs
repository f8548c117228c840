//! The API over TCP: certificates and roles, with a server in memory.

use nfluid_api::client::{Client, ClientError};
use nfluid_api::server::remote::Listener;
use nfluid_api::server::{Clients, Role};
use nfluid_api::testing::FakeServer;
use nfluid_api::types::{
    ApplyRequest, CreateRequest, DeleteRequest, InstanceStatus, PauseRequest, Problem,
};
use nfluid_tls::mutual::Mutual;
use nfluid_tls::testing::Authority;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::sync::Arc;
use tempfile::TempDir;

/// A daemon on loopback, its authority for clients, and the authority of its own certificate.
struct Daemon {
    server: Arc<FakeServer>,
    address: String,
    clients: Authority,
    hosts: Authority,
    folder: TempDir,
}

/// Both ends' configurations, with a certificate for `names` that `signer` has signed, for ends that accept `trusted`.
fn mutual(
    folder: &TempDir,
    signer: &Authority,
    trusted: &Authority,
    names: &[&str],
    year: i32,
) -> Mutual {
    let written = trusted.write_until(signer, folder.path(), (&names.join("+"), names), year);
    Mutual::load(&written.expect("room").into()).expect("they fit")
}

impl Daemon {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let [clients, hosts] = [(); 2].map(|()| Authority::new().expect("a key"));
        let own = mutual(&folder, &hosts, &clients, &["127.0.0.1"], 4096);
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let listener = Listener {
            socket,
            tls: own.server,
            clients: Clients::new([
                ("grafana".to_owned(), Role::Reader),
                ("nomad".to_owned(), Role::Engine),
                ("admin".to_owned(), Role::Operator),
            ])
            .expect("each once"),
        };
        let server = Arc::new(FakeServer::default());
        tokio::spawn(listener.serve(Arc::clone(&server)));
        Daemon {
            server,
            address,
            clients,
            hosts,
            folder,
        }
    }

    fn client(&self, names: &[&str]) -> Client {
        self.client_signed_by(&self.clients, names, 4096)
    }

    fn client_signed_by(&self, signer: &Authority, names: &[&str], year: i32) -> Client {
        let mutual = mutual(&self.folder, signer, &self.hosts, names, year);
        Client::remote(&self.address, &mutual).expect("an address")
    }

    /// Returns the requests that the server has recorded; requests that only read are not among them.
    fn changes(&self) -> Vec<String> {
        self.server.requests()
    }
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result.expect_err("it is not allowed") {
        ClientError::Problem(problem) => {
            let Problem { status, detail, .. } = *problem;
            assert_eq!(status, 403, "{detail}");
            detail
        }
        other => panic!("not a problem: {other}"),
    }
}

fn bridge(owner: Value) -> CreateRequest {
    CreateRequest {
        instance: json!({ "nf": "bridge", "owner": owner }),
        ..CreateRequest::default()
    }
}

async fn looks(client: &Client) {
    let _: Vec<InstanceStatus> = client.get("/v1/instances").await.expect("it may look");
    client.logs("fw1", 0, None).await.expect("it may look");
    let missing = client.get::<Value>("/v1/nothing").await;
    assert!(matches!(missing, Err(ClientError::Problem(it)) if it.status == 404));
}

// promise: 8.12
#[tokio::test]
async fn a_reader_looks_and_changes_nothing() {
    let daemon = Daemon::new().await;
    let reader = daemon.client(&["grafana"]);
    looks(&reader).await;
    let seen = daemon.changes();
    forbidden(reader.apply(&ApplyRequest::default()).await);
    forbidden(reader.delete(&DeleteRequest::default()).await);
    forbidden(reader.create("x", &bridge(json!("grafana"))).await);
    forbidden(reader.restart("fw1").await);
    forbidden(reader.capture("fw1.in").await);
    forbidden(reader.save("fw1").await);
    forbidden(reader.get::<Value>("/v1/deployment").await);
    assert_eq!(daemon.changes(), seen);
}

// Catches: the owner in the request is not looked at; an instance of nobody is everybody's; a name is escaped in the path.
// promise: 8.12
#[tokio::test]
async fn an_engine_changes_its_own_instances_alone() {
    let daemon = Daemon::new().await;
    let engine = daemon.client(&["nomad"]);
    looks(&engine).await;
    let own = engine.create("x", &bridge(json!("nomad:a/x/1"))).await;
    own.expect("its own");
    let seen = daemon.changes();
    for owner in [json!("nomad2:a"), json!("kube"), json!(7), Value::Null] {
        let why = forbidden(engine.create("x", &bridge(owner)).await);
        assert!(why.contains("begins with 'nomad:'"), "{why}");
    }
    let replacing = CreateRequest {
        replaces: Some("kube:a".to_owned()),
        ..bridge(json!("nomad:b"))
    };
    forbidden(engine.create("x", &replacing).await);
    // 'fw1' is nobody's.
    let why = forbidden(engine.restart("fw1").await);
    assert!(why.contains("'fw1' is not its own"), "{why}");
    forbidden(engine.pause("fw1", &PauseRequest::default()).await);
    forbidden(engine.save("fw1").await);
    forbidden(engine.create("fw1", &bridge(json!("nomad"))).await);
    forbidden(engine.apply(&ApplyRequest::default()).await);
    let mut connection = engine.connection().await.expect("it listens");
    for path in ["/v1/instances/%66w1", "/v1/instances/fw1?with_links=true"] {
        let answer = connection.request("DELETE", path, Vec::new()).await;
        assert_eq!(answer.expect("an answer").status, 403, "{path}");
    }
    assert_eq!(daemon.changes(), seen);
}

// promise: 8.12
#[tokio::test]
async fn an_operator_does_everything() {
    let daemon = Daemon::new().await;
    let operator = daemon.client(&["admin", "admin.example"]);
    looks(&operator).await;
    operator.restart("fw1").await.expect("it may");
    operator.capture("fw1.in").await.expect("it may");
    operator
        .create("x", &bridge(json!("kube")))
        .await
        .expect("it may");
    let _: Value = operator.get("/v1/deployment").await.expect("it may");
}

// promise: 8.11
#[tokio::test]
async fn a_certificate_that_names_no_client_may_not_even_look() {
    let daemon = Daemon::new().await;
    for (names, why) in [
        (&["stranger"][..], "is for stranger, which is no client"),
        (&["10.0.0.1"], "for no DNS name"),
        (&["nomad", "admin"], "two clients"),
        (&["*.nomad"], "no client"),
    ] {
        let client = daemon.client(names);
        let said = forbidden(client.get::<Value>("/v1/version").await);
        assert!(said.contains(why), "{said}");
    }
}

// Catches: an end that accepts any certificate, or one that has expired.
// promise: 8.11
#[tokio::test]
async fn certificates_of_others_and_expired_ones_are_refused_with_the_reason() {
    let daemon = Daemon::new().await;
    let others = Authority::new().expect("a key");
    for (client, reason) in [
        (
            daemon.client_signed_by(&others, &["admin"], 4096),
            "received fatal alert",
        ),
        // The authority of daemons is not that of clients.
        (
            daemon.client_signed_by(&daemon.hosts, &["admin"], 4096),
            "received fatal alert",
        ),
        (
            daemon.client_signed_by(&daemon.clients, &["admin"], 2020),
            "Expired",
        ),
    ] {
        let refused = client.get::<Value>("/v1/version").await;
        let refused = refused.expect_err("it is not known");
        assert!(
            matches!(refused, ClientError::NotTrusted(..)),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    // The client accepts another authority than the daemon's.
    let wrong = mutual(&daemon.folder, &daemon.clients, &others, &["admin"], 4096);
    let client = Client::remote(&daemon.address, &wrong).expect("an address");
    let refused = client.get::<Value>("/v1/version").await;
    assert!(
        matches!(refused, Err(ClientError::NotTrusted(..))),
        "{refused:?}"
    );
    looks(&daemon.client(&["admin"])).await;
}

// Catches: handshakes are made one after the other, or take places of clients that are known.
// promise: 8.11
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_answered_beside_any_number_of_silent_callers() {
    let daemon = Daemon::new().await;
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(&daemon.address).expect("it listens"))
        .collect();
    looks(&daemon.client(&["grafana"])).await;
    drop(silent);
}
