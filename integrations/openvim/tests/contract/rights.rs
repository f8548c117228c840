//! What users may do, and what is for administrators.

use crate::fixture::{Fixture, ask, text};
use serde_json::json;

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
