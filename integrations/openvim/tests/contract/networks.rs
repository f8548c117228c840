//! Networks: tunnels between hosts, and interfaces of hosts.

use crate::fixture::{Fixture, ask, everything, server, text};
use serde_json::{Value, json};

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
        let on = json!({ "hostId": ids[host], "networks": [{ "uuid": networks[network] }] });
        let server = server([&flavor, &image], on);
        let (status, answer) = ask(&fixture.users(), "POST", &path, Some(server)).await;
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
