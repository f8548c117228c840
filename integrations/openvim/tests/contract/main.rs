//! The interface of OpenVIM, as its clients use it, over hosts in memory.

mod fixture;

use axum::body::Body;
use axum::http::Request;
use fixture::{Fixture, ask, everything, instances, send, the_one};
use nfluid_api::types::InstanceStatus;
use serde_json::{Value, json};
use std::time::Duration;

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

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
    for hidden in ["wanted", "is_settled", "ports", "last_error"] {
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

// promise: 32.2
#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new();
    let host = fixture.start("a", 1);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let other = fixture
        .made("tenants", "tenant", json!({ "name": "other" }))
        .await;
    let network = json!({ "name": "n", "type": "ptp", "tenant_id": tenant });
    let network = fixture.made("networks", "network", network).await;
    let large =
        json!({ "name": "large", "extended": { "nfluid": { "share": "100%" }, "numas": [] } });
    let large = fixture
        .made(&format!("{tenant}/flavors"), "flavor", large)
        .await;
    let strange = json!({ "name": "strange", "path": "/nf/nobody" });
    let strange = fixture
        .made(&format!("{tenant}/images"), "image", strange)
        .await;
    let private = json!({ "name": "private", "path": "/nf/bridge" });
    let private = fixture
        .made(&format!("{other}/images"), "image", private)
        .await;
    let server = |change: Value| {
        let mut server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image });
        for (key, value) in change.as_object().expect("keys") {
            server[key] = value.clone();
        }
        json!({ "server": server })
    };
    let nobody = "00000000-0000-4000-8000-000000000000";
    let ports = |count: usize| vec![json!({ "uuid": network }); count];
    let servers = format!("{tenant}/servers");
    let wrong: Vec<(&str, Value, u16)> = vec![
        (&servers, json!({}), 400),
        (&servers, json!([1]), 400),
        (&servers, json!({ "server": 1 }), 400),
        (&servers, server(json!({ "name": "" })), 400),
        (&servers, server(json!({ "name": "a\nb" })), 400),
        (&servers, server(json!({ "flavorRef": nobody })), 404),
        (&servers, server(json!({ "flavorRef": "x" })), 400),
        (&servers, server(json!({ "imageRef": private })), 404),
        (&servers, server(json!({ "imageRef": strange })), 400),
        (&servers, server(json!({ "hostId": nobody })), 404),
        (&servers, server(json!({ "start": "perhaps" })), 400),
        (&servers, server(json!({ "networks": 7 })), 400),
        (
            &servers,
            server(json!({ "networks": [{ "uuid": nobody }] })),
            404,
        ),
        (
            &servers,
            server(json!({ "networks": [{ "uuid": network, "type": "PF" }] })),
            400,
        ),
        (
            &servers,
            server(json!({ "networks": [{ "uuid": network, "mac_address": "02:0" }] })),
            400,
        ),
        (
            &servers,
            server(json!({ "networks": [{ "uuid": network, "name": "no name" }] })),
            400,
        ),
        (
            &servers,
            server(
                json!({ "networks": [{ "uuid": network, "name": "x" }, { "uuid": network, "name": "x" }] }),
            ),
            400,
        ),
        (&servers, server(json!({ "networks": ports(3) })), 409),
        (
            &servers,
            server(json!({ "extended": { "nfluid": 1 } })),
            400,
        ),
        (
            &servers,
            server(json!({ "extended": { "nfluid": { "share": "900%" } } })),
            400,
        ),
        (
            &servers,
            server(json!({ "extended": { "devices": [{ "type": "disk" }] } })),
            400,
        ),
        ("any/servers", server(json!({})), 400),
        (
            "networks",
            json!({ "network": { "name": "n", "type": "ring" } }),
            400,
        ),
        (
            "networks",
            json!({ "network": { "name": "n", "provider:physical": "bridge:br0" } }),
            400,
        ),
        (
            "networks",
            json!({ "network": { "name": "n", "provider:vlan": 7 } }),
            400,
        ),
        (
            "networks",
            json!({ "network": { "name": "n", "enable_dhcp": true } }),
            400,
        ),
        (
            "networks",
            json!({ "network": { "name": "n", "tenant_id": nobody } }),
            404,
        ),
        (
            "ports",
            json!({ "port": { "name": "p", "network_id": network } }),
            400,
        ),
        (
            "ports",
            json!({ "port": { "name": "p", "binding:switch_port": "nobody:eth1" } }),
            404,
        ),
        (
            "hosts",
            json!({ "host": { "name": "b", "user": "x" } }),
            400,
        ),
        (
            "hosts",
            json!({ "host": { "name": "b", "user": "x", "ip_name": "far.example" } }),
            400,
        ),
        (
            "hosts",
            json!({ "host": { "name": "a", "user": "x", "ip_name": "/tmp/x" } }),
            409,
        ),
    ];
    let administrators = fixture.administrators();
    for (path, content, expected) in &wrong {
        let (status, answer) = ask(&administrators, "POST", path, Some(content.clone())).await;
        assert_eq!(status, *expected, "{path} {content}: {answer}");
        let error = the_one(&answer, "error");
        assert_eq!(error["code"], *expected);
        assert!(text(&error["type"]).starts_with(&expected.to_string()));
        assert!(!text(&error["description"]).is_empty());
    }
    let flavors = format!("{tenant}/flavors");
    for extended in [
        json!({ "numas": [{ "cores": 2 }] }),
        json!({ "numas": [{ "cores": 1, "threads": 1 }] }),
        json!({ "numas": [{}, {}] }),
        json!({ "numas": [{ "interfaces": [{ "name": "xe0" }] }] }),
        json!({ "numas": 1 }),
        json!({ "nfluid": [] }),
    ] {
        let flavor = json!({ "flavor": { "name": "f", "extended": extended } });
        let (status, answer) = ask(&administrators, "POST", &flavors, Some(flavor)).await;
        assert_eq!(status, 400, "{extended}: {answer}");
    }
    // It fits once.
    let fits = server(json!({ "flavorRef": large }));
    let (status, answer) = ask(&administrators, "POST", &servers, Some(fits.clone())).await;
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = ask(&administrators, "POST", &servers, Some(fits)).await;
    assert!(matches!(status, 400 | 409), "{answer}");
    assert!(
        text(&answer["error"]["description"]).starts_with("host a: "),
        "{answer}"
    );
    assert_eq!(everything(&host).await.len(), 1);
    let (_, answer) = ask(&administrators, "GET", &servers, None).await;
    assert_eq!(answer["servers"].as_array().map(Vec::len), Some(1));
    let (_, answer) = ask(&administrators, "GET", "ports", None).await;
    assert_eq!(answer["ports"], json!([]));
}

// Catches: a value of another kind than expected, in any place, ends a request without an answer.
// promise: 32.2
#[tokio::test(flavor = "multi_thread")]
async fn no_content_of_a_request_is_too_strange_for_an_answer() {
    let fixture = Fixture::new();
    fixture.start("a", 2);
    let host = fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let network = fixture
        .made("networks", "network", json!({ "name": "n" }))
        .await;
    let administrators = fixture.administrators();
    let server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image, "networks": [{ "uuid": network }] });
    let path = format!("{tenant}/servers");
    let (_, answer) = ask(
        &administrators,
        "POST",
        &path,
        Some(json!({ "server": server })),
    )
    .await;
    let id = text(&answer["server"]["id"]);
    let port = text(&answer["server"]["networks"][0]["iface_id"]);
    let strange = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}\u{202e}"),
        json!("x".repeat(70_000)),
        json!([]),
        json!([null, [1]]),
        json!({}),
        json!({ "": {} }),
        json!({ "nfluid": [] }),
    ];
    let keys = [
        "id",
        "name",
        "description",
        "enabled",
        "ram",
        "vcpus",
        "extended",
        "public",
        "path",
        "metadata",
        "type",
        "shared",
        "tenant_id",
        "admin_state_up",
        "provider:vlan",
        "provider:physical",
        "cidr",
        "enable_dhcp",
        "network_id",
        "mac_address",
        "bandwidth",
        "binding:switch_port",
        "binding:vlan",
        "ip_name",
        "tunnel_address",
        "user",
        "ranking",
        "flavorRef",
        "imageRef",
        "hostId",
        "start",
        "networks",
    ];
    let places = [
        ("POST", "tenants".to_owned(), "tenant"),
        ("PUT", format!("tenants/{tenant}"), "tenant"),
        ("POST", format!("{tenant}/flavors"), "flavor"),
        ("PUT", format!("{tenant}/flavors/{flavor}"), "flavor"),
        ("POST", format!("{tenant}/images"), "image"),
        ("PUT", format!("{tenant}/images/{image}"), "image"),
        ("POST", "networks".to_owned(), "network"),
        ("PUT", format!("networks/{network}"), "network"),
        ("POST", "ports".to_owned(), "port"),
        ("PUT", format!("ports/{port}"), "port"),
        ("POST", path.clone(), "server"),
        ("POST", format!("{path}/{id}/action"), "start"),
        ("POST", "hosts".to_owned(), "host"),
        ("PUT", format!("hosts/{host}"), "host"),
    ];
    for (method, path, word) in &places {
        let mut contents: Vec<Value> = strange.to_vec();
        contents.extend(strange.iter().map(|it| json!({ *word: it })));
        for key in keys {
            // What makes the host itself unreachable is another test's.
            if *word == "host" && *method == "PUT" {
                break;
            }
            for value in &strange {
                let mut object =
                    json!({ "name": "x", "path": "/nf/bridge", "ip_name": "/tmp/x", "user": "x" });
                object[key] = value.clone();
                contents.push(json!({ *word: object }));
            }
        }
        for content in contents {
            let (status, answer) = ask(&administrators, method, path, Some(content.clone())).await;
            let content: String = content.to_string().chars().take(200).collect();
            let is_answered = matches!(status, 200 | 400 | 401 | 404 | 405 | 409);
            assert!(is_answered, "{method} {path} {content}: {status} {answer}");
        }
    }
    for action in [
        "reboot",
        "rebuild",
        "createImage",
        "pause",
        "forceOff",
        "nothing",
    ] {
        for value in &strange {
            let action = json!({ action: value });
            let (status, answer) = ask(
                &administrators,
                "POST",
                &format!("{path}/{id}/action"),
                Some(action),
            )
            .await;
            assert!(matches!(status, 200 | 400 | 404 | 405), "{status} {answer}");
        }
    }
}

// promise: 32.3
#[tokio::test(flavor = "multi_thread")]
async fn users_have_fewer_rights_than_administrators() {
    let fixture = Fixture::new();
    fixture.start("a", 2);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let other = fixture
        .made("tenants", "tenant", json!({ "name": "other" }))
        .await;
    let server = json!({ "server": { "name": "s", "flavorRef": flavor, "imageRef": image } });
    let users = fixture.users();
    let (_, answer) = ask(&users, "POST", &format!("{tenant}/servers"), Some(server)).await;
    let id = text(&answer["server"]["id"]);
    for (method, path) in [
        ("POST", "tenants".to_owned()),
        ("DELETE", format!("tenants/{other}")),
        ("POST", "hosts".to_owned()),
        ("POST", "ports".to_owned()),
        ("GET", "any/servers".to_owned()),
        ("GET", "any/flavors".to_owned()),
    ] {
        let (status, answer) = ask(&users, method, &path, Some(json!({}))).await;
        assert_eq!(status, 401, "{method} {path}: {answer}");
    }
    let physical = json!({ "network": { "name": "n", "provider:physical": "macvtap:eth1" } });
    let (status, _) = ask(&users, "POST", "networks", Some(physical)).await;
    assert_eq!(status, 401);
    // Another tenant's.
    for (method, path) in [
        ("GET", format!("{other}/servers/{id}")),
        ("DELETE", format!("{other}/servers/{id}")),
        ("GET", format!("{other}/flavors/{flavor}")),
        ("POST", format!("{other}/flavors/{flavor}/attach")),
        ("PUT", format!("{other}/images/{image}")),
    ] {
        let change = json!({ "image": { "name": "mine" } });
        let (status, answer) = ask(&users, method, &path, Some(change)).await;
        assert_eq!(status, 404, "{method} {path}: {answer}");
    }
    // A public one is seen by all, and changed by its own tenants; what a server is made of stays as it is.
    let own_image = format!("{tenant}/images/{image}");
    for (change, expected) in [
        (json!({ "public": "yes", "name": "of all" }), 200),
        (json!({ "path": "/nf/router" }), 409),
        (
            json!({ "metadata": { "nfluid": { "tier": "microvm" } } }),
            409,
        ),
        (json!({ "status": "ERROR" }), 400),
        (json!({}), 400),
    ] {
        let change = json!({ "image": change });
        let (status, answer) = ask(&users, "PUT", &own_image, Some(change)).await;
        assert_eq!(status, expected, "{answer}");
    }
    let public = format!("{other}/images/{image}");
    assert_eq!(ask(&users, "GET", &public, None).await.0, 200);
    let rename = json!({ "image": { "name": "mine" } });
    assert_eq!(ask(&users, "PUT", &public, Some(rename)).await.0, 401);
    assert_eq!(ask(&users, "DELETE", &public, None).await.0, 401);
    assert_eq!(ask(&users, "GET", &own_image, None).await.0, 200);

    let administrators = fixture.administrators();
    let (status, answer) = ask(&administrators, "GET", "any/servers", None).await;
    assert_eq!(
        (status, answer["servers"].as_array().map(Vec::len)),
        (200, Some(1))
    );
    let attach = format!("{other}/flavors/{flavor}/attach");
    assert_eq!(ask(&administrators, "POST", &attach, None).await.0, 200);
    let path = format!("{other}/flavors/{flavor}");
    assert_eq!(ask(&users, "GET", &path, None).await.0, 200);
    // Others have a server of the public image: it stays until that is gone.
    let of_others = json!({ "server": { "name": "t", "flavorRef": flavor, "imageRef": image } });
    let servers = format!("{other}/servers");
    let (_, answer) = ask(&users, "POST", &servers, Some(of_others)).await;
    let of_others = format!("{servers}/{}", text(&answer["server"]["id"]));
    let own = format!("{tenant}/servers/{id}");
    assert_eq!(ask(&users, "DELETE", &own, None).await.0, 200);
    assert_eq!(ask(&users, "DELETE", &own_image, None).await.0, 409);
    assert_eq!(ask(&users, "DELETE", &of_others, None).await.0, 200);
    assert_eq!(ask(&users, "DELETE", &own_image, None).await.0, 200);
    assert_eq!(ask(&users, "DELETE", &path, None).await.0, 200);
    assert_eq!(ask(&users, "GET", &path, None).await.0, 404);
    let own = format!("{tenant}/flavors/{flavor}");
    assert_eq!(
        ask(&users, "GET", &own, None).await.0,
        200,
        "the other tenant's goes alone"
    );
}

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
        let mut server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image });
        for (key, value) in extra.as_object().expect("keys") {
            server[key] = value.clone();
        }
        ask(
            &fixture.users(),
            "POST",
            &path,
            Some(json!({ "server": server })),
        )
        .await
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

// Catches: a network with two ways between two hosts, a tunnel without an end, the hub goes before the others.
// promise: 32.13
#[tokio::test(flavor = "multi_thread")]
async fn a_network_reaches_from_host_to_host_by_tunnels() {
    let fixture = Fixture::new();
    let names = ["a", "b", "c"];
    let hosts = names.map(|name| fixture.start(name, 2));
    let mut ids = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let address = format!("192.0.2.{}", index + 1);
        let host = json!({ "name": name, "ip_name": fixture.socket(name), "user": "nobody", "tunnel_address": address });
        ids.push(fixture.made("hosts", "host", host).await);
    }
    let [tenant, flavor, image] = fixture.tenant().await;
    let mut networks = Vec::new();
    for name in ["n", "m"] {
        networks.push(
            fixture
                .made("networks", "network", json!({ "name": name }))
                .await,
        );
    }
    let path = format!("{tenant}/servers");
    let make = async |host: usize, network: usize| {
        let server = json!({ "name": "s", "flavorRef": flavor, "imageRef": image, "hostId": ids[host], "networks": [{ "uuid": networks[network] }] });
        let (status, answer) = ask(
            &fixture.users(),
            "POST",
            &path,
            Some(json!({ "server": server })),
        )
        .await;
        assert_eq!(
            (status, &answer["server"]["status"]),
            (200, &json!("ACTIVE")),
            "{answer}"
        );
        format!("{path}/{}", text(&answer["server"]["id"]))
    };
    let tunnels = async |host: usize| {
        let deployment: Value = hosts[host].get("/v1/deployment").await.expect("an answer");
        let uplinks = deployment["uplinks"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let tunnels = uplinks.values().map(|it| {
            let tunnel = &it["tunnel"];
            (
                text(&tunnel["remote"]),
                tunnel["vni"].as_u64().expect("a number"),
            )
        });
        let mut tunnels: Vec<_> = tunnels.collect();
        tunnels.sort();
        tunnels
    };
    // The first host is the hub, whatever the order of their ids.
    let mut servers = vec![make(1, 0).await];
    assert_eq!(tunnels(1).await, []);
    servers.push(make(0, 0).await);
    servers.push(make(2, 0).await);
    servers.push(make(2, 0).await);
    let ends = [tunnels(0).await, tunnels(1).await, tunnels(2).await];
    let remotes = ends
        .each_ref()
        .map(|all| all.iter().map(|it| it.0.clone()).collect::<Vec<_>>());
    assert_eq!(
        remotes,
        [
            vec!["192.0.2.2"],
            vec!["192.0.2.1", "192.0.2.3"],
            vec!["192.0.2.2"]
        ]
    );
    assert_eq!(ends[0][0].1, ends[1][0].1);
    assert_eq!(ends[2][0].1, ends[1][1].1);
    // Another network has tunnels of its own.
    servers.push(make(0, 1).await);
    servers.push(make(1, 1).await);
    let all = tunnels(1).await;
    let mut numbers: Vec<_> = all.iter().map(|it| it.1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{all:?}");

    // The hub stays while others are there, also without a server of its own.
    let remove = async |server: &String| {
        let (status, answer) = ask(&fixture.users(), "DELETE", server, None).await;
        assert_eq!(status, 200, "{answer}");
    };
    remove(&servers[0]).await;
    assert_eq!(tunnels(1).await.len(), 3);
    remove(&servers[2]).await;
    assert_eq!(tunnels(2).await.len(), 1, "it has another server there");
    remove(&servers[3]).await;
    assert_eq!(
        (tunnels(1).await.len(), everything(&hosts[2]).await.len()),
        (2, 0)
    );
    for server in [1, 4, 5] {
        remove(&servers[server]).await;
    }
    for host in &hosts {
        let rest = everything(host).await;
        assert!(rest.is_empty(), "{rest:?}");
    }
    // A host without an address is out of reach.
    let host = json!({ "host": { "tunnel_address": null } });
    let path_of_host = format!("hosts/{}", ids[2]);
    let administrators = fixture.administrators();
    assert_eq!(
        ask(&administrators, "PUT", &path_of_host, Some(host))
            .await
            .0,
        200
    );
    let _first = make(0, 0).await;
    let server = json!({ "server": { "name": "s", "flavorRef": flavor, "imageRef": image, "hostId": ids[2], "networks": [{ "uuid": networks[0] }] } });
    let (status, answer) = ask(&administrators, "POST", &path, Some(server)).await;
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

// promise: 32.7
#[tokio::test(flavor = "multi_thread")]
async fn external_ports_and_physical_networks_are_uplinks() {
    let fixture = Fixture::new();
    let host = fixture.start("a", 2);
    fixture.add_host("a").await;
    let [tenant, flavor, image] = fixture.tenant().await;
    let administrators = fixture.administrators();
    let network = fixture
        .made(
            "networks",
            "network",
            json!({ "name": "n", "type": "data" }),
        )
        .await;
    let port = json!({ "name": "p", "network_id": network, "binding:switch_port": "a:eth7" });
    let port = fixture.made("ports", "port", port).await;
    let deployment: Value = host.get("/v1/deployment").await.expect("an answer");
    let uplinks = deployment["uplinks"].as_object().expect("uplinks");
    let uplink = uplinks.values().next().expect("one");
    assert_eq!(uplink["interface"], "eth7");
    assert!(text(&uplink["switch"]).starts_with("net-"));
    // The same interface twice: nothing half made.
    let twice = json!({ "port": { "name": "q", "binding:switch_port": "eth7" } });
    let (status, answer) = ask(&administrators, "POST", "ports", Some(twice)).await;
    assert_eq!(status, 400, "{answer}");
    let (_, answer) = ask(&administrators, "GET", "ports", None).await;
    assert_eq!(answer["ports"].as_array().map(Vec::len), Some(1));
    let path = format!("ports/{port}");
    let away = json!({ "port": { "network_id": null } });
    assert_eq!(ask(&administrators, "PUT", &path, Some(away)).await.0, 200);
    assert_eq!(everything(&host).await.len(), 1, "the uplink, on no switch");
    assert_eq!(ask(&administrators, "DELETE", &path, None).await.0, 200);
    assert!(everything(&host).await.is_empty());

    let physical = json!({ "name": "wan", "provider:physical": "macvtap:eth8" });
    let physical = fixture.made("networks", "network", physical).await;
    let server = json!({ "server": { "name": "s", "flavorRef": flavor, "imageRef": image, "networks": [{ "uuid": physical }] } });
    let path = format!("{tenant}/servers");
    let (_, answer) = ask(&administrators, "POST", &path, Some(server)).await;
    let id = text(&answer["server"]["id"]);
    assert_eq!(everything(&host).await.len(), 3);
    assert_eq!(
        ask(&administrators, "DELETE", &format!("{path}/{id}"), None)
            .await
            .0,
        200
    );
    assert!(everything(&host).await.is_empty());
}

// promise: 32.8
#[tokio::test(flavor = "multi_thread")]
async fn answers_and_requests_are_json_or_yaml() {
    let fixture = Fixture::new();
    let users = fixture.administrators();
    let request = |kind: &str, body: String| {
        Request::builder()
            .method("POST")
            .uri("/openvim/tenants")
            .header("Accept", "application/yaml")
            .header("Content-Type", kind)
            .body(Body::from(body))
            .expect("a request")
    };
    let yaml = "tenant:\n  name: acme\n  description: 'of two'\n".to_owned();
    let (status, text) = send(&users, request("application/yaml", yaml)).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.starts_with("tenant:\n"), "{text}");
    for (kind, body, expected) in [
        ("application/xml", "<tenant/>".to_owned(), 406),
        ("application/json", "{".to_owned(), 400),
        ("application/yaml", "a: [".to_owned(), 400),
        ("application/json", " ".repeat(2 << 20), 400),
        ("application/json", "[".repeat(100_000), 400),
    ] {
        let (status, text) = send(&users, request(kind, body)).await;
        assert_eq!(status, expected, "{kind}: {text}");
        assert!(text.starts_with("error:\n"), "{text}");
    }
    for (method, path, expected) in [
        ("GET", "nothing", 404),
        ("GET", "tenants/not-an-id", 404),
        ("PATCH", "tenants", 405),
        ("GET", "networks/all/openflow", 200),
        ("GET", "networks/openflow/ports", 200),
        ("DELETE", "networks/openflow/clear", 200),
    ] {
        let (status, answer) = ask(&users, method, path, None).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
}
