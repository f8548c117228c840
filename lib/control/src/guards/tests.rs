use super::*;
use crate::document::read_unchecked;
use crate::inventory::Inventory;
use crate::wiring::Destination;
use crate::yaml::to_text;
use serde_json::Value;

const DOCUMENT: &str = "
version: 1
switches: { lan: {} }
security_groups:
  web:
    rules:
      - { direction: in, protocol: tcp, ports: 80-81 }
      - { direction: in, protocol: icmp, icmp: 8/0, remote: 10.0.0.0/8 }
      - { direction: egress, family: ipv6 }
      - { direction: in, family: ipv4, protocol: tcp, ports: 443, remote_group: empty }
      - { direction: out, protocol: tcp, ports: 5432, remote_group: store }
  store:
    owner: nova
    rules: [{ direction: ingress, protocol: tcp, ports: 5432, remote_group: web }]
  empty: { members: [192.0.2.7, 'fd00:1::/64'] }
  vip: { allowed_addresses: [10.0.0.100, 'fd00::/64'] }
instances:
  a:
    nf: bridge
    ports:
      eth0: { switch: lan, mac: 02:00:00:00:00:0a, security_groups: [web], allowed_addresses: [10.0.0.5, '2001:db8::5'] }
      eth1: { switch: lan }
  b:
    nf: bridge
    ports:
      eth0: { switch: lan, security_groups: [store, web], allowed_addresses: [10.0.0.6] }
      eth1: { switch: lan, security_groups: [] }
      eth2: { switch: lan, mac: 02:00:00:00:00:0b, security_groups: [vip], allowed_addresses: [10.0.0.7] }
";

fn deployment() -> Deployment {
    read_unchecked(DOCUMENT, None).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn rules_of(deployment: &Deployment, guard: &str) -> Vec<String> {
    let whole = with_guards(deployment);
    let guard = whole.instances.get(guard).expect("a guard");
    let rules = guard.config["rules"].as_array().expect("rules");
    let text = |rule: &Value| rule.as_str().expect("a line").to_owned();
    rules.iter().map(text).collect()
}

// promise: 33.1
#[test]
fn a_deployment_with_security_groups_is_read_back_as_it_was() {
    let deployment = deployment();
    let text = to_text(&serde_json::to_value(&deployment).expect("serialisable"));
    let again = read_unchecked(&text, None).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    assert_eq!(again, deployment);
}

// promise: 33.1
#[test]
fn a_guard_stands_between_its_port_and_the_switch() {
    let deployment = deployment();
    let inventory = Inventory::of(&deployment);
    let names: Vec<&str> = inventory.instances.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "a",
            "a@guard-eth0",
            "b",
            "b@guard-eth0",
            "b@guard-eth1",
            "b@guard-eth2"
        ]
    );
    let port = |name: &str| {
        let (instance, port) = name.split_once('.').expect("a port");
        PortRef::instance(instance, port)
    };
    let leads = |from: &str| inventory.wires.get(&port(from)).cloned();
    assert_eq!(
        leads("a.eth0"),
        Some(Destination::Port(port("a@guard-eth0.inside")))
    );
    assert_eq!(
        leads("a@guard-eth0.inside"),
        Some(Destination::Port(port("a.eth0")))
    );
    let at_switch = leads("a@guard-eth0.outside");
    assert_eq!(
        at_switch.as_ref().and_then(Destination::switch),
        Some("lan")
    );
    let outside = &inventory.instances["a@guard-eth0"].ports[1];
    assert_eq!(outside.mac, inventory.instances["a"].ports[0].mac);
    assert_eq!(
        leads("a.eth1").as_ref().and_then(Destination::switch),
        Some("lan"),
        "a port without groups has no guard"
    );
    assert_eq!(guarded_by("a@guard-eth0"), Some(port("a.eth0")));
    assert_eq!(guarded_by("a@r1"), None);
    assert!(crate::model::check_name("a@guard-eth0").is_err());
}

// promise: 33.2
#[test]
fn a_guards_rules_are_those_of_the_ports_groups() {
    let deployment = deployment();
    let rules = rules_of(&deployment, "b@guard-eth0");
    let state = rules
        .iter()
        .position(|rule| rule == "check-state")
        .expect("states");
    assert_eq!(
        rules[state + 1..],
        [
            "allow 1 from 10.0.0.0/8 to any icmptypes 8/0 in keep-state",
            "allow 6 from 10.0.0.5/32,10.0.0.6/32,2001:db8::5/128 to any 5432 in keep-state",
            "allow 6 from 192.0.2.7/32 to any 443 in keep-state",
            "allow 6 from any to 10.0.0.6/32 5432 out keep-state",
            "allow 6 from any to any 80-81 in keep-state",
            "allow ip from ::/0 to ::/0 out keep-state",
        ]
    );
    let bare = rules_of(&deployment, "b@guard-eth1");
    assert_eq!(
        bare.last().map(String::as_str),
        Some("check-state"),
        "{bare:?}"
    );
}

// promise: 33.3
#[test]
fn a_port_speaks_for_its_own_addresses_only() {
    let deployment = deployment();
    let whole = with_guards(&deployment);
    let guard = whole.instances.get("a@guard-eth0").expect("a guard");
    assert_eq!(
        guard.config["own_addresses"],
        serde_json::json!(["10.0.0.5/32", "2001:db8::5/128", "fe80::ff:fe00:a/128"])
    );
    let rules = rules_of(&deployment, "a@guard-eth0");
    let wrong = "deny ip from not 10.0.0.5/32,2001:db8::5/128,fe80::ff:fe00:a/128 to any out";
    let state = rules.iter().position(|rule| rule == "check-state");
    assert!(
        rules.iter().position(|rule| rule == wrong) < state,
        "{rules:?}"
    );
    let of_group = whole.instances.get("b@guard-eth2").expect("a guard");
    assert_eq!(
        of_group.config["own_addresses"],
        serde_json::json!([
            "10.0.0.7/32",
            "10.0.0.100/32",
            "fd00::/64",
            "fe80::ff:fe00:b/128"
        ])
    );
    let free = whole.instances.get("b@guard-eth1").expect("a guard");
    assert_eq!(free.config.get("own_addresses"), None);
}

// promise: 33.5
#[test]
fn a_rule_for_a_group_of_thousands_is_a_few_lines() {
    let mut deployment = deployment();
    let group = deployment
        .security_groups
        .get_mut("empty")
        .expect("it is there");
    let address = |at: u32| IpNet::from(std::net::IpAddr::from((0x0a00_0000 + at).to_be_bytes()));
    group.members = (0..3000).map(address).collect();
    let rules = rules_of(&deployment, "a@guard-eth0");
    let of_group: Vec<_> = rules
        .iter()
        .filter(|rule| rule.contains("any 443 in"))
        .collect();
    assert_eq!(of_group.len(), 3);
    let commas: usize = of_group.iter().map(|rule| rule.matches(',').count()).sum();
    assert_eq!(commas, 3000 - 3);
}

// promise: 33.5
#[test]
fn a_rule_for_a_group_without_addresses_permits_nobody() {
    let mut deployment = deployment();
    let store = deployment.instances.get_mut("b").expect("b");
    store
        .ports
        .get_mut("eth0")
        .expect("a port")
        .allowed_addresses
        .clear();
    let rules = rules_of(&deployment, "a@guard-eth0");
    assert!(!rules.iter().any(|rule| rule.contains("5432")), "{rules:?}");
}

#[test]
fn the_status_tells_who_is_in_a_group() {
    let statuses = statuses(&deployment());
    let web = statuses.iter().find(|it| it.name == "web").expect("web");
    assert_eq!(web.ports, ["a.eth0", "b.eth0"]);
    assert_eq!(web.rules, 5);
    assert_eq!(web.addresses.len(), 3);
    let store = statuses
        .iter()
        .find(|it| it.name == "store")
        .expect("store");
    assert_eq!(store.owner.as_deref(), Some("nova"));
}
