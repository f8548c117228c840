//! A server of Nova is paused, rebooted, moved, resized and rebuilt.

use crate::cloud::{Cloud, HOSTS, instances, is_clean};
use nfluid_testbed::openstack::share;
use nfluid_tests::harness::conversation::Conversation;
use nfluid_tests::harness::patience::eventually;
use serde_json::{Value, json};

/// A server is what Nova says, and passes traffic.
pub fn is_what_nova_says(cloud: &mut Cloud) {
    let firewall = cloud.image("fw", json!({ "nfluid_nf": "firewall" }));
    let networks = json!([cloud.lan, cloud.wan]);
    let rules = json!({ "user_data": "allow ip from any to any keep-state" });
    let server = cloud.server(&firewall, networks.clone(), HOSTS[0], rules);
    eventually("the first echo comes", || cloud.crosses());
    assert_eq!(instances(&cloud.two.a), [server.as_str()]);

    cloud.act(&server, "pause", Value::Null, "PAUSED");
    assert!(!cloud.crosses());
    cloud.act(&server, "unpause", Value::Null, "ACTIVE");
    eventually("it goes on", || cloud.crosses());

    cloud.act(&server, "suspend", Value::Null, "SUSPENDED");
    assert!(!cloud.crosses() && instances(&cloud.two.a).is_empty());
    cloud.act(&server, "resume", Value::Null, "ACTIVE");
    eventually("it goes on with its states", || cloud.crosses());

    for reboot in ["SOFT", "HARD"] {
        let before = cloud.two.a.pids();
        cloud.act(&server, "reboot", json!({ "type": reboot }), "ACTIVE");
        eventually("it is another process", || {
            cloud.crosses() && cloud.two.a.pids() != before
        });
    }

    cloud.act(&server, "os-stop", Value::Null, "SHUTOFF");
    assert_eq!(cloud.status(&server)["power"], 4);
    assert!(!cloud.crosses() && instances(&cloud.two.a).is_empty());
    cloud.act(&server, "os-start", Value::Null, "ACTIVE");
    eventually("it is back", || cloud.crosses());

    let console = cloud.ask("console", &[json!(server)]);
    assert!(console.as_str().is_some_and(|log| !log.is_empty()));

    // Live, to and fro: nothing is lost.
    let conversation = Conversation::unhurried(&cloud.two.a);
    conversation.has_answers(50, "before");
    for host in [HOSTS[1], HOSTS[0]] {
        let moved = cloud.ask("live_migrate", &[json!(server), json!(host)]);
        assert_eq!(moved["host"], host, "{moved}");
        assert_eq!(moved["migration"], "completed", "{moved}");
    }
    conversation.has_answers(50, "after");
    let books = conversation.end();
    assert_eq!((books.lost, books.answered_twice), (0, 0), "{books:?}");
    assert!(is_clean(&cloud.two.b), "nothing stays behind");

    // Cold, with another flavor; back, and for good.
    let large = cloud.id("flavor", &[json!("large"), json!(128), share(300)]);
    let resize = json!({ "flavorRef": large });
    cloud.act(&server, "resize", resize.clone(), "VERIFY_RESIZE");
    eventually("it passes traffic", || cloud.crosses());
    cloud.act(&server, "revertResize", Value::Null, "ACTIVE");
    eventually("it is as it was", || cloud.crosses());
    cloud.act(&server, "resize", resize, "VERIFY_RESIZE");
    cloud.act(&server, "confirmResize", Value::Null, "ACTIVE");
    eventually("it passes traffic", || cloud.crosses());
    let host = cloud.status(&server)["host"].clone();
    let (here, there) = match host == HOSTS[0] {
        true => (&cloud.two.a, &cloud.two.b),
        false => (&cloud.two.b, &cloud.two.a),
    };
    assert_eq!(here.instance(&server)["share_percent"], 30.0);
    assert!(is_clean(there), "nothing stays behind");

    // An image of it, and a server of that.
    let image = cloud.ask("snapshot", &[json!(server), json!("saved")]);
    let other = cloud.image(
        "other",
        json!({ "nfluid_nf": "firewall", "nfluid_tier": "process" }),
    );
    cloud.act(&server, "rebuild", json!({ "imageRef": other }), "ACTIVE");
    eventually("the other image passes traffic", || cloud.crosses());
    cloud.act(&server, "rebuild", json!({ "imageRef": image }), "ACTIVE");
    eventually("the saved one passes traffic", || cloud.crosses());

    cloud.ask("delete", &[json!(server)]);
    assert!(!cloud.crosses());
    assert!(cloud.is_clean(), "nothing stays behind");
}
