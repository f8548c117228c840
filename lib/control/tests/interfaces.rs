//! Ports of kind `interface`: what is read, and what is refused.

mod support;

use nfluid_control::access::StopSignal;
use nfluid_control::spec::{InstanceSpec, port_specs};
use nfluid_control::tier::Tier;
use support::{check, lines};

fn document(instance: &str) -> String {
    format!("version: 1\ninstances:\n  web: {{ program: /bin/sh, {instance} }}\n")
}

// promise: 19.1
#[test]
fn an_interface_has_addresses_and_routes_and_decides_the_tier() {
    let text = document(
        "args: [-c], volumes: [/srv/web], capabilities: [NET_RAW], ports: { eth0: { kind: interface, mtu: 1400, \
         addresses: [192.0.2.2/24, '2001:db8::2/64'], dns: [192.0.2.53, '2001:db8::53'], routes: [{ to: default, via: 192.0.2.1 }, { to: default, via: 'fe80::1' }, { to: 203.0.113.0/24 }] } }",
    );
    let checked = check(&text).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    let instance = checked.deployment.instances.get("web").expect("there");
    assert_eq!(instance.tier, Tier::STACK);
    let ports = port_specs("web", instance);
    let interface = ports[0].interface.as_ref().expect("one");
    assert_eq!(interface.addresses.len(), 2);
    let routes: Vec<_> = interface
        .routes
        .iter()
        .map(|route| route.to.to_string())
        .collect();
    assert_eq!(routes, ["0.0.0.0/0", "::/0", "203.0.113.0/24"]);
    let spec = InstanceSpec::resolve(&checked.deployment, "web", instance);
    let [volume] = &spec.access.expect("it is asked for").volumes[..] else {
        panic!("there is one volume");
    };
    assert_eq!((volume.place(), volume.is_writable), ("/srv/web", false));
    assert_eq!(interface.dns.len(), 2);
}

// promise: 20.5
#[test]
fn an_image_has_what_its_document_says_and_is_refused_otherwise() {
    let image = |keys: &str| {
        format!(
            "version: 1\ninstances:\n  web: {{ image: 'oci:/srv/web:1', {keys}, ports: {{ eth0: {{ kind: interface }} }} }}\n"
        )
    };
    let text = image(
        "entrypoint: [sh], args: [-c, ls], environment: [A=b=c], user: 'web:7', directory: /srv, writable: 1MiB, stop: { signal: 3, wait: 2s }, \
         volumes: [{ from: /srv/data, at: /lib/data, write: true }]",
    );
    let checked = check(&text).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    let instance = checked.deployment.instances.get("web").expect("there");
    assert_eq!(instance.tier, Tier::STACK);
    let access = instance.access.clone().expect("it is said");
    assert_eq!(access.volumes[0].place(), "/lib/data");
    let stop = access.stop.expect("it is said");
    assert_eq!(stop.signal.map(StopSignal::number), Some(3));
    for (keys, expected) in [
        ("nf: bridge", "has one of 'nf', 'program' and 'image'"),
        ("program: /bin/sh", "has one of 'nf', 'program' and 'image'"),
        ("config: { a: 1 }", "gets no 'config'"),
        ("environment: [A]", "environment[0]: 'A' is no variable"),
        ("environment: ['=a']", "is no variable"),
        ("directory: srv", "is no working directory"),
        ("directory: /srv/../etc", "is no working directory"),
        ("stop: { signal: SIGKIL }", "did you mean 'SIGKILL'?"),
        ("stop: { wait: 2m }", "write at most"),
        ("stop: { grace: 2s }", "unknown key 'grace'"),
        ("volumes: [{ at: /data }]", "'from' is missing"),
        (
            "volumes: [{ from: /srv, at: /proc/x }]",
            "nothing of the host's '/proc'",
        ),
        ("volumes: [{ from: /srv, at: data }]", "not absolute"),
        ("writable: much", "writable"),
    ] {
        let errors = check(&image(keys)).expect_err(keys);
        let found = lines(&errors);
        assert!(found.contains(expected), "{keys}: {found}");
    }
    for (instance, expected) in [
        ("image: web, ports: { eth0: { kind: interface } }", "image"),
        (
            "image: 'oci:/web'",
            "the ports of an instance with an image are interfaces",
        ),
        (
            "program: /bin/sh, entrypoint: [a], ports: { eth0: { kind: interface } }",
            "only an image has an entrypoint",
        ),
        (
            "program: /bin/sh, user: web, ports: { eth0: { kind: interface } }",
            "a program of the host has no 'user'",
        ),
        (
            "program: /bin/sh, volumes: [{ from: /srv, at: /usr/lib/x }], ports: { eth0: { kind: interface } }",
            "has the host's libraries",
        ),
        (
            "nf: bridge, entrypoint: [a]",
            "only an image has an entrypoint",
        ),
        (
            "program: /bin/sh, ports: { eth0: { dns: [192.0.2.1] } }",
            "add 'kind: interface'",
        ),
        (
            "program: /bin/sh, ports: { eth0: { kind: interface, dns: [web] } }",
            "is no address of a name server",
        ),
    ] {
        let errors = check(&format!(
            "version: 1\ninstances:\n  web: {{ {instance} }}\n"
        ))
        .expect_err(instance);
        let found = lines(&errors);
        assert!(found.contains(expected), "{instance}: {found}");
    }
}

// promise: 19.1
#[test]
fn what_an_interface_cannot_be_is_refused_with_its_key() {
    let port = |settings: &str| format!("ports: {{ eth0: {{ kind: interface, {settings} }} }}");
    for (instance, expected) in [
        (
            port("addresses: [192.0.2.2]"),
            "addresses[0]: '192.0.2.2' is no address of a host",
        ),
        (port("addresses: [0.0.0.0/0]"), "is no address of a host"),
        (port("addresses: ['ff02::1/64']"), "is no address of a host"),
        (port("addresses: [127.0.0.1/8]"), "is no address of a host"),
        (
            port("addresses: [192.0.2.2/24, 192.0.2.2/25]"),
            "'web.eth0' has the address 192.0.2.2 already",
        ),
        (
            port("addresses: [192.0.2.2/24], routes: [{ to: default, via: 198.51.100.1 }]"),
            "routes[0].via: 198.51.100.1 is on no network",
        ),
        (
            port("routes: [{ to: 192.0.2.1/24 }]"),
            "is an address within a network",
        ),
        (
            port("routes: [{ to: '2001:db8::/32', via: 192.0.2.1 }]"),
            "of another family than its router",
        ),
        (port("routes: [{ via: 'fe80::1' }]"), "'to' is missing"),
        (port("queues: 2"), "has one thread"),
        (
            "ports: { eth0: { kind: vlan } }".to_owned(),
            "there is no kind 'vlan'",
        ),
        (
            "ports: { eth0: { addresses: [192.0.2.2/24] } }".to_owned(),
            "add 'kind: interface'",
        ),
        (
            "ports: { lo: { kind: interface } }".to_owned(),
            "cannot be called 'lo'",
        ),
        (
            "ports: { a-name-of-sixteen: { kind: interface } }".to_owned(),
            "at most 15 characters",
        ),
        (
            "ports: { eth0: { kind: interface }, out: {} }".to_owned(),
            "ports.out: a port of tier 'stack' is an interface",
        ),
        (
            "tier: process, ports: { eth0: { kind: interface } }".to_owned(),
            "a port of tier 'process' is no interface",
        ),
        (
            "volumes: [/srv]".to_owned(),
            "has no 'volumes', 'capabilities'",
        ),
        (
            "config: { a: 1 }, ports: { eth0: { kind: interface } }".to_owned(),
            "gets no 'config'",
        ),
        (
            "capabilities: [NET_ADMIM], ports: { eth0: { kind: interface } }".to_owned(),
            "did you mean 'NET_ADMIN'?",
        ),
        (
            "capabilities: [SYS_ADMIN], ports: { eth0: { kind: interface } }".to_owned(),
            "cannot be had",
        ),
        (
            "volumes: [/], ports: { eth0: { kind: interface } }".to_owned(),
            "all that there is",
        ),
        (
            "volumes: [/srv/../etc], ports: { eth0: { kind: interface } }".to_owned(),
            "has '..' in it",
        ),
        (
            "volumes: [/proc], ports: { eth0: { kind: interface } }".to_owned(),
            "see nothing of the host's '/proc'",
        ),
    ] {
        let errors = check(&document(&instance)).expect_err(&instance);
        let found = lines(&errors);
        assert!(found.contains(expected), "{instance}: {found}");
    }
    let built_in = "version: 1\ninstances:\n  fw: { nf: bridge, ports: { in: { kind: interface }, out: { kind: interface } } }\n";
    let errors = check(built_in).expect_err("no rings");
    let found = lines(&errors);
    assert!(found.contains("takes frames from rings"), "{found}");
}
