//! Servers: what they are, and what is left of them.

use crate::fixture::{Fixture, ask, everything, instances, text, the_one};
use nfluid_api::types::InstanceStatus;
use serde_json::{Value, json};

// promise: 32.1
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_an_instance_on_its_networks() {
    let fixture = Fixture::new();
    let host = fixture.start("a", 2);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let users = fixture.users();
    assert_eq!(ask(&users, "GET", "", None).await, (200, "works".into()));

    let mut networks = Vec::new();
    for kind in ["bridge_man", "data"] {
        let network = json!({ "network": { "name": kind, "type": kind, "shared": true } });
        let (status, answer) = ask(&users, "POST", "networks", Some(network)).await;
        assert_eq!(status, 200, "{answer}");
        let network = the_one(&answer, "network");
        assert_eq!(network["status"], "ACTIVE");
        networks.push(text(&network["id"]));
    }
    let path = format!("{tenant}/servers");
    let server = json!({ "server": {
        "name": "edge 1", "flavorRef": flavor, "imageRef": image,
        "networks": [{ "uuid": networks[0], "mac_address": "02:00:00:00:00:01" }, { "uuid": networks[1], "bandwidth": "10 Gbps" }],
    } });
    let (status, answer) = ask(&users, "POST", &path, Some(server)).await;
    assert_eq!(status, 200, "{answer}");
    let server = the_one(&answer, "server").clone();
    let id = text(&server["id"]);
    assert_eq!(server["status"], "ACTIVE", "{server}");
    assert_eq!(server["image"]["id"], image.as_str());
    let link = &server["flavor"]["links"][0]["href"];
    assert_eq!(
        *link,
        format!("http://vim.example:9080/openvim/{tenant}/flavors/{flavor}")
    );
    let ports = server["networks"].as_array().expect("ports");
    assert_eq!(ports[0]["name"], "in");
    assert_eq!(ports[0]["mac_address"], "02:00:00:00:00:01");
    assert_eq!(ports[0]["type"], "instance:bridge");
    assert_eq!(ports[1]["name"], "out");
    assert_eq!(ports[1]["bandwidth"], "10 Gbps");
    assert_eq!(ports[1]["type"], "instance:data");
    for hidden in ["wanted", "told", "ports", "last_error"] {
        assert_eq!(server[hidden], Value::Null, "{hidden}");
    }

    let all = everything(&host).await;
    assert_eq!(all.len(), 3, "{all:?}");
    let instance: InstanceStatus = host.instance(&all[0]).await.expect("it is there");
    assert!(all[0].starts_with("edge-1-"), "{all:?}");
    assert_eq!(instance.owner.as_deref(), Some("openvim"));
    assert_eq!(instance.nf, "bridge");
    assert_eq!(instance.memory_limit_bytes, 64 << 20);
    let deployment: Value = host.get("/v1/deployment").await.expect("an answer");
    let port = &deployment["instances"][&all[0]]["ports"]["out"];
    assert_eq!(port["learn"], true, "{deployment:#}");
    assert!(text(&port["switch"]).starts_with("net-"));

    // What clients list, and by what they find one.
    for (query, count) in [
        ("", 1),
        ("?name=edge%201&status=ACTIVE", 1),
        ("?status=PAUSED", 0),
        ("?description=null", 1),
        ("?limit=0", 0),
    ] {
        let (status, answer) = ask(&users, "GET", &format!("{path}{query}"), None).await;
        let rows = the_one(&answer, "servers").as_array().expect("rows").len();
        assert_eq!((status, rows), (200, count), "{query}");
    }
    let (_, answer) = ask(&users, "GET", &format!("{path}?field=name"), None).await;
    let row = answer["servers"][0].as_object().expect("a row");
    assert_eq!(row.keys().collect::<Vec<_>>(), ["name", "links"]);
    let (status, _) = ask(&users, "GET", &format!("{path}?colour=red"), None).await;
    assert_eq!(status, 400);
    let (_, answer) = ask(&users, "GET", "ports?device_owner=instance:data", None).await;
    assert_eq!(answer["ports"].as_array().map(Vec::len), Some(1));

    // Another network, and none, while it runs.
    let port = text(&server["networks"][1]["iface_id"]);
    for (network, count) in [
        (json!(networks[0]), 2),
        (Value::Null, 2),
        (json!(networks[1]), 3),
    ] {
        let change = json!({ "port": { "network_id": network } });
        let (status, answer) = ask(&users, "PUT", &format!("ports/{port}"), Some(change)).await;
        assert_eq!(status, 200, "{answer}");
        let all = everything(&host).await;
        assert_eq!(
            all.len(),
            count,
            "a switch without ports is removed: {all:?}"
        );
    }
    let path_of_network = format!("networks/{}", networks[1]);
    for (is_up, status_of) in [(false, "DOWN"), (true, "ACTIVE")] {
        let change = json!({ "network": { "admin_state_up": is_up } });
        let (status, answer) = ask(&users, "PUT", &path_of_network, Some(change)).await;
        assert_eq!(
            (status, &answer["network"]["status"]),
            (200, &json!(status_of))
        );
        let deployment: Value = host.get("/v1/deployment").await.expect("an answer");
        let port = &deployment["instances"][&all[0]]["ports"]["out"];
        assert_eq!(port["switch"].is_string(), is_up, "{port}");
    }

    let path_of_server = format!("{path}/{id}");
    let act = |word: &str| json!({ word: null });
    let off = ask(
        &users,
        "POST",
        &format!("{path_of_server}/action"),
        Some(act("shutoff")),
    )
    .await;
    assert_eq!(off, (200, json!({ "result": "in process" })));
    assert!(instances(&host).await.is_empty());
    let (_, answer) = ask(&users, "GET", &path_of_server, None).await;
    assert_eq!(answer["server"]["status"], "INACTIVE");
    for wrong in [act("pause"), act("resume"), act("reboot")] {
        let (status, answer) = ask(
            &users,
            "POST",
            &format!("{path_of_server}/action"),
            Some(wrong),
        )
        .await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (405, &json!(405)),
            "{answer}"
        );
    }
    let on = ask(
        &users,
        "POST",
        &format!("{path_of_server}/action"),
        Some(act("start")),
    )
    .await;
    assert_eq!(on.0, 200);
    assert_eq!(instances(&host).await, [all[0].clone()]);

    // Somebody else removes it.
    host.remove_instance(&all[0], None).await.expect("it goes");
    let (_, answer) = ask(&users, "GET", &path_of_server, None).await;
    assert_eq!(answer["server"]["status"], "ERROR");
    let again = ask(
        &users,
        "POST",
        &format!("{path_of_server}/action"),
        Some(act("rebuild")),
    )
    .await;
    assert_eq!(again.0, 200, "{}", again.1);
    let (_, answer) = ask(&users, "GET", &path_of_server, None).await;
    assert_eq!(answer["server"]["status"], "ACTIVE", "{answer}");

    // In use.
    for path in [
        path_of_network.clone(),
        format!("{tenant}/flavors/{flavor}"),
        format!("{tenant}/images/{image}"),
    ] {
        let (status, answer) = ask(&users, "DELETE", &path, None).await;
        assert_eq!(status, 409, "{path}: {answer}");
    }
    let (status, _) = ask(&users, "DELETE", &path_of_server, None).await;
    assert_eq!(status, 200);
    assert!(everything(&host).await.is_empty());
    for path in [
        path_of_network,
        format!("networks/{}", networks[0]),
        format!("{tenant}/flavors/{flavor}"),
        format!("{tenant}/images/{image}"),
    ] {
        let (status, answer) = ask(&users, "DELETE", &path, None).await;
        assert_eq!(status, 200, "{path}: {answer}");
        let (status, _) = ask(&users, "GET", &path, None).await;
        assert_eq!(status, 404, "{path}");
    }
}

// Catches: a switch is removed under a server that is being made, or stays without one.
// promise: 32.6
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_come_and_go_at_once_leave_nothing() {
    let fixture = Fixture::new();
    let host = fixture.start("a", 4);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let network = fixture
        .made("networks", "network", json!({ "name": "n" }))
        .await;
    let path = format!("{tenant}/servers");
    let clients = (0..4).map(|client| {
        let (users, path) = (fixture.users(), path.clone());
        let server = json!({ "server": { "name": format!("s{client}"), "flavorRef": flavor, "imageRef": image, "networks": [{ "uuid": network }] } });
        tokio::spawn(async move {
            for _ in 0..20 {
                let (status, answer) = ask(&users, "POST", &path, Some(server.clone())).await;
                assert_eq!(status, 200, "{answer}");
                assert_eq!(answer["server"]["status"], "ACTIVE", "{answer}");
                let id = text(&answer["server"]["id"]);
                let (status, answer) = ask(&users, "DELETE", &format!("{path}/{id}"), None).await;
                assert_eq!(status, 200, "{answer}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("all is answered");
    }
    let rest = everything(&host).await;
    assert!(rest.is_empty(), "{rest:?}");
    let (_, answer) = ask(&fixture.users(), "GET", "ports", None).await;
    assert_eq!(answer["ports"], json!([]));
}
