//! The router and the client, over a real socket, with a server in memory.

use nfluid_api::client::{Client, ClientError};
use nfluid_api::testing::{FakeServer, PCAP};
use nfluid_api::types::{
    ApplyRequest, CommandRequest, DeleteRequest, EventKind, FunctionEnd, FunctionLimits,
    FunctionRequest, InstanceStatus, Kind, MigrateRequest, ObjectName, PauseRequest, PausedTraffic,
    Problem, RestoreRequest, Stats, Version,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Daemon {
    server: Arc<FakeServer>,
    client: Client,
    directory: TempDir,
}

async fn daemon() -> Daemon {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let server = Arc::new(FakeServer::default());
    server.clone().listen(&socket).await.expect("listens");
    Daemon {
        server,
        client: Client::new(socket),
        directory,
    }
}

/// Sends raw bytes and returns the status line, headers and body of the response.
async fn raw(daemon: &Daemon, request: String) -> String {
    let socket = daemon.directory.path().join("socket");
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(socket).expect("connects");
        // A server that refuses a body may close before all of it is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    })
    .await
    .expect("no panic")
}

fn problem(error: ClientError) -> Problem {
    match error {
        ClientError::Problem(problem) => *problem,
        other => panic!("not a problem: {other}"),
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

fn post(path: &str, kind: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn lists_and_single_objects() {
    let daemon = daemon().await;
    let version: Version = daemon.client.get("/v1/version").await.expect("answers");
    assert_eq!(version.api, "v1");
    let all: Vec<InstanceStatus> = daemon.client.get("/v1/instances").await.expect("answers");
    let one: InstanceStatus = daemon
        .client
        .get("/v1/instances/fw1")
        .await
        .expect("answers");
    assert_eq!(all, [one]);
    for path in [
        "/v1/health",
        "/v1/deployment",
        "/v1/ports/fw1.in",
        "/v1/switches/lan",
        "/v1/links/fw1.out--nat1.in",
        "/v1/chains/web",
        "/v1/uplinks/wan",
        "/v1/doctor",
    ] {
        let _: serde_json::Value = daemon.client.get(path).await.expect(path);
    }
    let error = daemon
        .client
        .get::<InstanceStatus>("/v1/instances/nobody")
        .await;
    let problem = problem(error.expect_err("there is none"));
    assert_eq!(problem.status, 404);
    assert_eq!(
        problem.detail,
        "there is nothing named 'nobody' among the instances"
    );
}

#[tokio::test]
async fn a_connection_has_an_answer_for_each_of_many_requests() {
    let daemon = daemon().await;
    let mut connection = daemon.client.connection().await.expect("it listens");
    for _ in 0..3 {
        for (path, status, text) in [
            ("/v1/version", 200, "\"v1\""),
            (
                "/v1/instances/nobody",
                404,
                "there is nothing named 'nobody'",
            ),
            ("/metrics", 200, "# TYPE nfluid_"),
        ] {
            let answer = connection.request("GET", path, Vec::new()).await;
            let answer = answer.expect("an answer");
            let body = String::from_utf8_lossy(&answer.body);
            assert_eq!(answer.status, status, "{path}");
            assert!(body.contains(text), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn an_apply_arrives_whole_and_its_errors_come_back() {
    let daemon = daemon().await;
    let request = ApplyRequest {
        text: "version: 1".into(),
        file: Some("a.yaml".into()),
        attachments: [("fw.rules".to_owned(), "allow".to_owned())].into(),
        dry_run: true,
        merge: false,
        ..ApplyRequest::default()
    };
    let response = daemon.client.apply(&request).await.expect("right");
    assert!(response.dry_run);
    assert_eq!(
        daemon.server.requests(),
        ["apply a.yaml dry_run=true merge=false attachments=[\"fw.rules\"]"]
    );
    let wrong = ApplyRequest {
        text: "wrong".into(),
        ..request
    };
    let problem = problem(daemon.client.apply(&wrong).await.expect_err("wrong"));
    assert_eq!(problem.status, 422);
    assert_eq!(
        problem.errors[0].to_string(),
        "a.yaml:3:5: error: instances.fw1.nf: unknown NF 'wrong'\n  help: there are: bridge"
    );
}

#[tokio::test]
async fn deletes_by_path_and_by_body() {
    let daemon = daemon().await;
    let request =
        "DELETE /v1/instances/fw1?dry_run=true HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(
        raw(&daemon, request.into())
            .await
            .starts_with("HTTP/1.1 200")
    );
    let request = DeleteRequest {
        objects: vec![ObjectName {
            kind: Kind::Instance,
            name: "fw1".into(),
        }],
        ..DeleteRequest::default()
    };
    daemon.client.delete(&request).await.expect("right");
    let request = "DELETE /v1/deployment HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(
        raw(&daemon, request.into())
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(
        daemon.server.requests(),
        [
            "delete [\"instance fw1\"] text=false everything=false dry_run=true",
            "delete [\"instance fw1\"] text=false everything=false dry_run=false",
            "delete [] text=false everything=true dry_run=false",
        ]
    );
}

#[tokio::test]
async fn commands_logs_restarts() {
    let daemon = daemon().await;
    let request = CommandRequest {
        name: "top-talkers".into(),
        args: vec!["3".into()],
    };
    let answer = daemon
        .client
        .command("fw1", &request)
        .await
        .expect("answers");
    assert_eq!(answer.output["args"][0], "3");
    let logs = daemon
        .client
        .logs("fw1", 0, Some(2))
        .await
        .expect("answers");
    assert_eq!(logs.lines, ["line 3", "line 4"]);
    daemon.client.restart("fw1").await.expect("restarts");
    assert_eq!(daemon.server.requests(), ["restart fw1"]);
    let error = daemon.client.restart("../x y").await.expect_err("no such");
    assert_eq!(problem(error).detail, "there is no instance '../x y'");
}

#[tokio::test]
async fn pauses_upgrades_saves_restores() {
    let daemon = daemon().await;
    let client = &daemon.client;
    let how = PauseRequest {
        traffic: PausedTraffic::Drop,
    };
    client.pause("fw1", &how).await.expect("pauses");
    client.unpause("fw1").await.expect("goes on");
    assert_eq!(
        client.upgrade("fw1").await.expect("upgrades").state_taken,
        1000
    );
    let mut to = MigrateRequest {
        to: Some("edge2:7443".into()),
        keep: false,
    };
    let moved = client.migrate("fw1", &to).await.expect("moves");
    assert_eq!(moved.frames, 190);
    to.to = None;
    let error = client.migrate("fw1", &to).await.expect_err("settled");
    assert_eq!(problem(error).detail, "no move waits for an answer");
    let saved = client.save("fw1").await.expect("saves");
    let mut request = RestoreRequest {
        image: saved.image,
        name: Some("fw2".into()),
        paused: true,
        ..RestoreRequest::default()
    };
    assert_eq!(
        client.restore(&request).await.expect("restores").name,
        "fw2"
    );
    request.image = "nonsense".into();
    let error = client.restore(&request).await.expect_err("refused");
    assert_eq!(problem(error).detail, "this is no saved instance");
    let requests = daemon.server.requests();
    let expected = [
        "pause fw1 drop",
        "unpause fw1",
        "upgrade fw1",
        "migrate fw1 to edge2:7443",
        "restore fw2 paused=true",
    ];
    assert_eq!(requests, expected);
}

#[tokio::test]
async fn a_capture_is_a_stream() {
    let daemon = daemon().await;
    let mut capture = daemon.client.capture("fw1.in").await.expect("starts");
    let mut bytes = Vec::new();
    while let Some(piece) = capture.next().await.expect("arrives") {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(bytes, PCAP);
    let error = daemon.client.capture("nowhere").await.expect_err("no such");
    assert_eq!(problem(error).status, 404);
}

#[tokio::test]
async fn an_event_wakes_who_waits_for_it() {
    let daemon = daemon().await;
    let first = daemon
        .client
        .events(0, Duration::ZERO)
        .await
        .expect("answers");
    assert_eq!((first.events.len(), first.next), (1, 1));
    let client = daemon.client.clone();
    let waiting = tokio::spawn(async move { client.events(1, Duration::from_secs(60)).await });
    daemon.server.happen(EventKind::Crashed, "fw1 was killed");
    let page = waiting.await.expect("no panic").expect("answers");
    assert_eq!(page.events[0].message, "fw1 was killed");
    let none = daemon
        .client
        .events(2, Duration::ZERO)
        .await
        .expect("answers");
    assert!(none.events.is_empty());
}

// promise: 8.3
#[tokio::test]
async fn metrics_are_text() {
    let daemon = daemon().await;
    let answer = raw(&daemon, get("/metrics")).await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"));
    assert!(answer.contains("nfluid_port_drops_total{port=\"wan\",reason=\"ring_full\"} 3\n"));
    let stats: Stats = daemon.client.get("/v1/stats").await.expect("answers");
    assert_eq!(stats.ports.len(), 3);
}

// promise: 8.2
#[tokio::test]
async fn every_error_is_a_problem_document() {
    let daemon = daemon().await;
    let json = "application/json";
    for (request, status) in [
        (get("/v1/nothing"), "404"),
        (get("/v1/apply"), "405"),
        (get("/v1/events?since=x"), "400"),
        (get("/v1/events?colour=red"), "400"),
        (get("/v1/events?wait_ms=60001"), "400"),
        (get("/v1/instances/fw1/logs?tail=10001"), "400"),
        (
            get("/v1/instances/fw1/logs?since=9223372036854775808"),
            "400",
        ),
        (get("/v1/events?since=9223372036854775808"), "400"),
        (get("/v1/instances/%ff"), "400"),
        (post("/v1/apply", json, "{"), "400"),
        (post("/v1/apply", json, "{\"text\": 1}"), "422"),
        (
            post("/v1/apply", json, "{\"text\": \"\", \"colour\": 1}"),
            "422",
        ),
        (post("/v1/apply", "text/plain", "{}"), "415"),
        (
            post("/v1/instances/fw1/command", json, "{\"name\": \"boom\"}"),
            "500",
        ),
        (
            post("/v1/instances/fw1/command", json, &" ".repeat(2 << 20)),
            "413",
        ),
    ] {
        let line = request.lines().next().unwrap_or_default().to_owned();
        let answer = raw(&daemon, request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line}: {answer}"
        );
        assert!(
            answer.contains("content-type: application/problem+json"),
            "{line}: {answer}"
        );
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let problem: Problem = serde_json::from_str(body).expect(&line);
        assert_eq!(problem.status.to_string(), status, "{line}");
        assert!(
            !problem.detail.is_empty() && !problem.title.is_empty(),
            "{line}"
        );
    }
    // The panic of 'boom' did not hurt the daemon.
    assert!(
        raw(&daemon, get("/v1/version"))
            .await
            .starts_with("HTTP/1.1 200")
    );
}

// promise: 8.2
#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_unread() {
    let daemon = daemon().await;
    let request = "POST /v1/apply HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                   content-length: 104857600\r\n\r\n{";
    assert!(
        raw(&daemon, request.into())
            .await
            .starts_with("HTTP/1.1 413")
    );
}

#[tokio::test]
async fn the_reasons_why_a_daemon_cannot_be_reached_are_distinguished() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let client = Client::new(&socket);
    let missing = client.get::<Version>("/v1/version").await;
    assert!(matches!(missing, Err(ClientError::NotRunning(_))));
    // A socket whose daemon has died.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
    let dead = client.get::<Version>("/v1/version").await;
    assert!(matches!(dead, Err(ClientError::NotRunning(_))));
    // A server that does not speak HTTP.
    let other = directory.path().join("other");
    let listener = std::os::unix::net::UnixListener::bind(&other).expect("binds");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        let _ = stream.write_all(b"220 smtp.example.net\r\n");
    });
    let strange = Client::new(&other).get::<Version>("/v1/version").await;
    assert!(
        matches!(strange, Err(ClientError::Broken(_))),
        "{strange:?}"
    );
    thread.join().expect("no panic");
}

// promise: 16.1
#[tokio::test]
async fn a_function_is_run_or_refused() {
    let daemon = daemon().await;
    let mut request = FunctionRequest {
        name: "f".into(),
        program: "IyEvYmluL3NoCg==".into(),
        args: Vec::new(),
        input: "aGk=".into(),
        limits: FunctionLimits::default(),
    };
    let report = daemon.client.run_function(&request).await.expect("it runs");
    assert_eq!(
        (report.end, report.output.as_str()),
        (FunctionEnd::Exited(7), "aGk=")
    );
    request.program.clear();
    let refused = daemon.client.run_function(&request).await;
    assert_eq!(problem(refused.expect_err("no program")).status, 400);
    let long = "POST /v1/functions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 99999999\r\n\r\n";
    let answer = raw(&daemon, long.to_owned()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("8 MiB each"), "{answer}");
    let unknown = post(
        "/v1/functions",
        "application/json",
        r#"{"name":"f","program":"","cores":1}"#,
    );
    let answer = raw(&daemon, unknown).await;
    assert!(answer.contains("unknown field"), "{answer}");
}
