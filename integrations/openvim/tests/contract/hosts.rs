//! Hosts: where servers go, and hosts that are away.

use crate::fixture::{Fixture, ask, everything, instances, server, text};
use serde_json::{Value, json};
use std::time::Duration;

// promise: 32.4
#[tokio::test(flavor = "multi_thread")]
async fn servers_go_where_there_is_room_and_where_their_networks_are() {
    let fixture = Fixture::new();
    let (small, large) = (fixture.start("small", 1), fixture.start("large", 4));
    let ids = [
        fixture.add_host("small").await,
        fixture.add_host("large").await,
    ];
    // A host that is down gets none, and is in nobody's way.
    fixture.add_host("down").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let network = json!({ "name": "n", "shared": true });
    let network = fixture.made("networks", "network", network).await;
    let path = format!("{tenant}/servers");
    let make = async |extra: Value| {
        let server = server([&flavor, &image], extra);
        ask(&fixture.users(), "POST", &path, Some(server)).await
    };
    let (_, answer) = make(json!({})).await;
    assert_eq!(
        answer["server"]["hostId"],
        ids[1].as_str(),
        "most is free there"
    );
    let on_small = json!({ "hostId": ids[0], "networks": [{ "uuid": network }] });
    let (_, answer) = make(on_small).await;
    assert_eq!(answer["server"]["hostId"], ids[0].as_str());
    let (_, answer) = make(json!({ "networks": [{ "uuid": network }] })).await;
    assert_eq!(
        answer["server"]["hostId"],
        ids[0].as_str(),
        "its network is there"
    );
    let elsewhere = json!({ "hostId": ids[1], "networks": [{ "uuid": network }] });
    let (status, answer) = make(elsewhere).await;
    assert_eq!(status, 409, "{answer}");
    // The first host refuses, and the next one takes it.
    let taken = json!({ "extended": { "nfluid": { "share": "100%" } } });
    for _ in 0..3 {
        let (status, answer) = make(taken.clone()).await;
        assert_eq!(
            (status, &answer["server"]["hostId"]),
            (200, &json!(ids[1])),
            "{answer}"
        );
    }
    let (status, answer) = make(taken).await;
    assert!(matches!(status, 400 | 409), "{answer}");
    assert_eq!(instances(&small).await.len(), 2);
    assert_eq!(instances(&large).await.len(), 4);

    let administrators = fixture.administrators();
    let (_, answer) = ask(&administrators, "GET", "hosts", None).await;
    let hosts = answer["hosts"].as_array().expect("hosts");
    let status = |name: &str| {
        let host = hosts.iter().find(|host| host["name"] == name);
        text(&host.expect("it is there")["status"])
    };
    assert_eq!(
        (status("large"), status("down")),
        ("ok".to_owned(), "error".to_owned())
    );
    let (status, _) = ask(
        &administrators,
        "DELETE",
        &format!("hosts/{}", ids[0]),
        None,
    )
    .await;
    assert_eq!(status, 409, "it has servers");
    let closed = json!({ "host": { "admin_state_up": false } });
    let (status, answer) = ask(
        &administrators,
        "PUT",
        &format!("hosts/{}", ids[0]),
        Some(closed),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = make(json!({ "networks": [{ "uuid": network }] })).await;
    assert_eq!(status, 409, "{answer}");
}

// promise: 32.5
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_answer_is_told_later_also_by_the_next_process() {
    let fixture = Fixture::new();
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let network = fixture
        .made("networks", "network", json!({ "name": "n" }))
        .await;
    let path = format!("{tenant}/servers");
    let server = json!({ "server": { "name": "s", "flavorRef": flavor, "imageRef": image, "networks": [{ "uuid": network }] } });
    let (status, answer) = ask(&fixture.users(), "POST", &path, Some(server.clone())).await;
    assert_eq!(status, 200, "{answer}");
    let id = text(&answer["server"]["id"]);
    assert_eq!(answer["server"]["status"], "ERROR");
    let why = text(&answer["server"]["last_error"]);
    assert!(why.contains("the daemon is not running"), "{why}");

    let fixture = fixture.restarted();
    let host = fixture.start("a", 2);
    let vim = std::sync::Arc::clone(&fixture.vim);
    let keeping = tokio::spawn(async move { vim.keep_up().await });
    let of_server = format!("{path}/{id}");
    let status_is = async |wanted: &str| {
        loop {
            let (code, answer) = ask(&fixture.users(), "GET", &of_server, None).await;
            if answer["server"]["status"] == wanted || wanted == "gone" && code == 404 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    status_is("ACTIVE").await;
    assert_eq!(everything(&host).await.len(), 2);
    keeping.abort();
    let _aborted = keeping.await;

    // It is removed while its host is away: the socket leads nowhere.
    let socket = fixture.socket("a");
    let away = socket.with_extension("away");
    std::fs::rename(&socket, &away).expect("ours");
    let (status, answer) = ask(&fixture.users(), "DELETE", &of_server, None).await;
    assert_eq!(status, 200, "{answer}");
    let (_, answer) = ask(&fixture.users(), "GET", &of_server, None).await;
    assert_eq!(answer["server"]["status"], "DELETING");
    std::fs::rename(&away, &socket).expect("ours");
    let fixture = fixture.restarted();
    let vim = std::sync::Arc::clone(&fixture.vim);
    tokio::spawn(async move { vim.keep_up().await });
    let of_server = format!("{path}/{id}");
    while ask(&fixture.users(), "GET", &of_server, None).await.0 != 404 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while !everything(&host).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // It is gone for good.
    let (_, answer) = ask(&fixture.users(), "POST", &path, Some(server)).await;
    let of_server = format!("{path}/{}", text(&answer["server"]["id"]));
    let administrators = fixture.administrators();
    let (_, answer) = ask(&administrators, "GET", "hosts", None).await;
    let of_host = format!("hosts/{}", text(&answer["hosts"][0]["id"]));
    std::fs::remove_file(&socket).expect("ours");
    let (status, _) = ask(&administrators, "DELETE", &of_host, None).await;
    assert_eq!(status, 409, "its server is not deleted");
    assert_eq!(
        ask(&administrators, "DELETE", &of_server, None).await.0,
        200
    );
    let (status, answer) = ask(&administrators, "DELETE", &of_host, None).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(ask(&administrators, "GET", &of_server, None).await.0, 404);
    let of_network = format!("networks/{network}");
    assert_eq!(
        ask(&administrators, "DELETE", &of_network, None).await.0,
        200
    );
}

// promise: 32.5
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_network_is_told_later_also_to_external_ports() {
    let fixture = Fixture::new();
    let host = fixture.start("a", 2);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let network = json!({ "name": "n", "type": "data" });
    let network = fixture.made("networks", "network", network).await;
    let port = json!({ "name": "p", "network_id": network, "binding:switch_port": "a:eth7" });
    fixture.made("ports", "port", port).await;
    let server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image, "networks": [{ "uuid": network }] });
    fixture
        .made(&format!("{tenant}/servers"), "server", server)
        .await;
    let on_switches = async || {
        let all: Value = host.get("/v1/deployment").await.expect("an answer");
        all.to_string().matches("\"switch\":").count()
    };
    assert_eq!(on_switches().await, 2);

    let of_network = format!("networks/{network}");
    let socket = fixture.socket("a");
    let away = socket.with_extension("away");
    std::fs::rename(&socket, &away).expect("ours");
    let down = json!({ "network": { "admin_state_up": false } });
    let (status, answer) = ask(&fixture.administrators(), "PUT", &of_network, Some(down)).await;
    assert_eq!(
        (status, &answer["network"]["status"]),
        (200, &json!("ERROR"))
    );
    std::fs::rename(&away, &socket).expect("ours");
    let fixture = fixture.restarted();
    let vim = std::sync::Arc::clone(&fixture.vim);
    tokio::spawn(async move { vim.keep_up().await });
    while on_switches().await != 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // The client goes away as soon as it has asked.
    let up = json!({ "network": { "admin_state_up": true } });
    let administrators = fixture.administrators();
    let asked = ask(&administrators, "PUT", &of_network, Some(up));
    let gone = tokio::time::timeout(Duration::ZERO, asked).await;
    assert!(gone.is_err(), "it has waited for the answer");
    while on_switches().await != 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
