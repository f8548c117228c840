//! Requests that make no sense.

use crate::fixture::{Fixture, ask, everything, server, text, the_one};
use serde_json::{Value, json};

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
    let server = |change: Value| server([&flavor, &image], change);
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
