use super::*;
use crate::requests::{found, remove_own};
use nfluid_api::client::{Client, ClientError};
use nfluid_api::types::Amount;
use serde_json::json;

fn description() -> Description {
    Description {
        size: Size {
            cpus: 1,
            memory_bytes: 1 << 30,
        },
        nfs: vec!["bridge".to_owned()],
        labels: [("site".to_owned(), "lab".to_owned())].into(),
    }
}

fn wanted(nf: &str, share: &str, owner: &str) -> CreateRequest {
    CreateRequest {
        instance: json!({ "nf": nf, "share": share, "memory": "16MiB", "owner": owner }),
        ..CreateRequest::default()
    }
}

// promise: 26.9
#[tokio::test]
async fn a_simulated_host_answers_as_a_daemon_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("host.sock");
    let host = SimulatedHost::new(description()).expect("a host");
    let listener = UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(Arc::new(host).serve(listener));
    let client = Client::new(&socket);

    let before = client.events(0, Duration::ZERO).await.expect("events").next;
    client
        .create("a", &wanted("bridge", "90%", "e:1"))
        .await
        .expect("it fits");
    let instance = client.instance("a").await.expect("it is there");
    assert_eq!(instance.owner.as_deref(), Some("e:1"));
    assert_eq!(instance.state, InstanceState::Running);
    assert_eq!(instance.ports, ["a.in", "a.out"]);
    let first_start = instance.started_ms.expect("it runs");

    // Asked twice.
    client
        .create("a", &wanted("bridge", "90%", "e:1"))
        .await
        .expect("the same");
    let again = client.instance("a").await.expect("it is there");
    assert_eq!(again.started_ms, Some(first_start), "nothing was done");

    // What a daemon refuses.
    for (name, request) in [
        ("b", wanted("bridge", "20%", "e:2")),
        ("b", wanted("unknown", "10%", "e:2")),
        ("a", wanted("bridge", "90%", "e:2")),
    ] {
        let refused = client.create(name, &request).await;
        assert!(matches!(refused, Err(ClientError::Problem(_))), "{name}");
    }
    let capacity: Capacity = client.get("/v1/capacity").await.expect("a capacity");
    assert_eq!(capacity.share_per_mille, Amount::new(1000, 900));
    assert_eq!(capacity.instances.used, 1);
    assert_eq!(capacity.labels["site"], "lab");

    remove_own(&client, "a", "e:2", None).await.expect("asked");
    client.instance("a").await.expect("somebody else's stays");
    remove_own(&client, "a", "e:1", None).await.expect("asked");
    let gone = found(client.instance("a").await).expect("an answer");
    assert!(gone.is_none());

    let page = client.events(before, Duration::ZERO).await.expect("events");
    let kinds: Vec<_> = page
        .events
        .iter()
        .map(|it| (it.kind, it.name.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [(EventKind::Started, "a"), (EventKind::Removed, "a")]
    );

    let refused = client.logs("a", 0, None).await;
    let Err(ClientError::Problem(problem)) = refused else {
        panic!("{refused:?}");
    };
    assert!(problem.detail.starts_with("this host is simulated"));
}
