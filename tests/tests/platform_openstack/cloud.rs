//! Two hosts of one cloud.

use nfluid_testbed::openstack::{OpenStack, neutron_config, nova_config, share};
use nfluid_tests::harness::platform::Platform;
use nfluid_tests::harness::skip::skip;
use nfluid_tests::harness::two_hosts::SERVER;
use nfluid_tests::harness::two_platforms::TwoPlatforms;
use serde_json::{Value, json};

/// Names of the hosts in OpenStack.
pub const HOSTS: [&str; 2] = ["node1", "node2"];

/// Two hosts of one cloud.
pub struct Cloud {
    // OpenStack ends before its hosts.
    pub openstack: OpenStack,
    pub two: TwoPlatforms,
    pub flavor: String,
    pub lan: String,
    pub wan: String,
}

impl Cloud {
    /// Starts them; `None`: this host cannot.
    pub fn start(test: &str) -> Option<Self> {
        if let Err(why) = OpenStack::find() {
            skip(test, &why.to_string());
            return None;
        }
        let two = TwoPlatforms::joined(test)?;
        let sockets = [two.a.socket(), two.b.socket()];
        let interfaces = [("lan", "client"), ("wan", "server")];
        let of = |host: usize, address: &str| {
            let at_once = "network_linger=0\n";
            nova_config(HOSTS[host], &sockets[host], &interfaces, address, at_once)
        };
        let (file, mut neutron) =
            neutron_config(&[(HOSTS[0], &sockets[0]), (HOSTS[1], &sockets[1])]);
        neutron += "resync_interval=5\n";
        let config = [
            (file, neutron),
            of(0, &two.a_address),
            of(1, &two.b_address),
        ];
        let mut openstack = OpenStack::start(&HOSTS, &config).expect("OpenStack starts");
        let mut id = |method: &str, arguments: &[Value]| {
            let made = openstack.id(method, arguments, Value::Null);
            made.unwrap_or_else(|why| panic!("{why:#}"))
        };
        let flavor = id("flavor", &[json!("small"), json!(64), share(50)]);
        let mut network = |name: &str| {
            id(
                "network",
                &[json!(name), json!(name), json!("10.0.0.0/24"), json!(false)],
            )
        };
        let [lan, wan] = ["lan", "wan"].map(&mut network);
        Some(Cloud {
            openstack,
            two,
            flavor,
            lan,
            wan,
        })
    }

    pub fn ask(&mut self, method: &str, arguments: &[Value]) -> Value {
        self.named(method, arguments, Value::Null)
    }

    pub fn id(&mut self, method: &str, arguments: &[Value]) -> String {
        self.named_id(method, arguments, Value::Null)
    }

    pub fn named(&mut self, method: &str, arguments: &[Value], named: Value) -> Value {
        let answer = self.openstack.ask_with(method, arguments, named);
        answer.unwrap_or_else(|why| panic!("{why:#}"))
    }

    pub fn named_id(&mut self, method: &str, arguments: &[Value], named: Value) -> String {
        let made = self.openstack.id(method, arguments, named);
        made.unwrap_or_else(|why| panic!("{why:#}"))
    }

    pub fn image(&mut self, name: &str, properties: Value) -> String {
        self.id("image", &[json!(name), properties])
    }

    /// Makes a server on `host`.
    pub fn server(&mut self, image: &str, networks: Value, host: &str, more: Value) -> String {
        let arguments = [
            json!("s"),
            json!(image),
            json!(self.flavor),
            networks,
            json!(host),
        ];
        self.named_id("create", &arguments, more)
    }

    /// Has an action done, after which the server has this status.
    pub fn act(&mut self, server: &str, action: &str, detail: Value, status: &str) {
        self.ask(
            "act",
            &[json!(server), json!(action), detail, json!(status)],
        );
    }

    pub fn status(&mut self, server: &str) -> Value {
        self.ask("show", &[json!(server)])
    }

    pub fn crosses(&self) -> bool {
        self.two.a.pings("client", SERVER)
    }

    /// Nothing of the cloud is left on either host.
    pub fn is_clean(&self) -> bool {
        [&self.two.a, &self.two.b].into_iter().all(is_clean)
    }
}

/// Returns the instances of a host, without guards.
pub fn instances(platform: &Platform) -> Vec<String> {
    let names = platform.pids().into_keys();
    names.filter(|name| !name.contains('@')).collect()
}

pub fn count(platform: &Platform, kind: &str) -> usize {
    let all = platform.ask(&["get", kind]);
    all.as_array().expect("a list").len()
}

/// Nothing of the cloud is left on a host.
pub fn is_clean(platform: &Platform) -> bool {
    ["instances", "switches", "uplinks"]
        .iter()
        .all(|kind| count(platform, kind) == 0)
}
