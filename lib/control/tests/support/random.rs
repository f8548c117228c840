//! Random valid deployments with few names, so that two of them overlap.
#![allow(dead_code)] // each test binary uses its own part

use nfluid_control::access::{Access, Stop, StopSignal, Volume};
use nfluid_control::congestion::{Congestion, Law};
use nfluid_control::frames::Frames;
use nfluid_control::group::Group;
use nfluid_control::health::{Check, Health, Remedy};
use nfluid_control::interface::{Interface, Route};
use nfluid_control::io::{Io, IoIdle, IoModel, IoSettings};
use nfluid_control::matching::{MatchRule, PortRange, Protocol};
use nfluid_control::model::{
    Attachment, Backoff, Chain, Deployment, Direction, Family, Flavor, Hop, Instance, Link, Port,
    PortApi, PortRef, Program, Remote, Restart, RestartPolicy, SecurityGroup, SecurityRule,
    Steering, SuperFrames, Switch, Uplink, UplinkKind, XdpMode,
};
use nfluid_control::placement::Placement;
use nfluid_control::portion::Portion;
use nfluid_control::quantity::{Bytes, Mac, Micros, Millis, Share};
use nfluid_control::report::Report;
use nfluid_control::table::Table;
use nfluid_control::tier::Tier;
use nfluid_control::validate::validate_structure;
use nfluid_control::wake::Wake;
use serde_json::json;
use std::net::IpAddr;

/// A source of choices: xorshift64*, seeded.
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Returns a deployment with a valid structure.
pub fn deployment(seed: u64) -> Deployment {
    let mut choices = Choices::new(seed);
    let mut made = Deployment {
        overcommit: choices.chance(4),
        io: choices.chance(2).then(|| io(&mut choices)),
        congestion: choices.chance(2).then(|| congestion(&mut choices)),
        ..Deployment::default()
    };
    for name in ["tiny", "huge"] {
        if choices.chance(2) {
            let ring = choices.pick(&[64, 128, 512]);
            let memory = Bytes::mib(choices.pick(&[32, 100]));
            made.flavors.insert(name, Flavor { ring, memory });
        }
    }
    for name in ["s0", "s1"] {
        if choices.chance(2) {
            let ageing = Millis::secs(choices.pick(&[60, 300]));
            let addresses = choices.pick(&[64, 4096]);
            made.switches.insert(
                name,
                Switch {
                    ageing,
                    addresses,
                    owner: None,
                },
            );
        }
    }
    for name in ["sg0", "sg1"] {
        if choices.chance(2) {
            let rules = (0..choices.below(3)).map(|_| security_rule(&mut choices));
            let rules = rules.collect();
            let group = SecurityGroup {
                rules,
                allowed_addresses: choices
                    .chance(3)
                    .then(|| "192.0.2.0/24".parse().expect("a prefix"))
                    .into_iter()
                    .collect(),
                members: choices
                    .chance(3)
                    .then(|| "fd00::7".parse::<IpAddr>().expect("an address").into())
                    .into_iter()
                    .collect(),
                owner: None,
            };
            made.security_groups.insert(name, group);
        }
    }
    forget_missing_groups(&mut made);
    uplinks(&mut choices, &mut made);
    groups(&mut choices, &mut made);
    instances(&mut choices, &mut made);
    connect(&mut choices, &mut made);
    let mut report = Report::new(None, None);
    validate_structure(&made, &mut report);
    if !report.is_clean() {
        // The random links closed a loop.
        made.links.clear();
    }
    made
}

fn uplinks(choices: &mut Choices, made: &mut Deployment) {
    let mut interfaces = ["eth1", "eth2", "eth3", "eth4"];
    choices.shuffle(&mut interfaces);
    for (name, interface) in ["u0", "u1", "u2"].into_iter().zip(interfaces) {
        if choices.chance(4) {
            continue;
        }
        let uplink = Uplink {
            interface: interface.into(),
            netns: choices.chance(4).then(|| "blue".into()),
            kind: UplinkKind::Xdp,
            tunnel: None,
            mode: choices.pick(&[XdpMode::Auto, XdpMode::Generic]),
            steering: if interface == "eth4" {
                choices.pick(&[Steering::Nic, Steering::Hybrid])
            } else {
                Steering::Xdp
            },
            mac: choices.chance(4).then_some(Mac([2, 0, 0, 0, 9, 9])),
            super_frames: choices.pick(&[SuperFrames::Auto, SuperFrames::Auto, SuperFrames::Off]),
            ring: choices.chance(4).then_some(128),
            attachment: None,
            owner: None,
        };
        made.uplinks.insert(name, uplink);
    }
}

/// Returns groups of three names in random order, each at the top level or in an earlier one.
fn groups(choices: &mut Choices, made: &mut Deployment) {
    let mut names = ["g0", "g1", "g2"];
    choices.shuffle(&mut names);
    for name in names {
        if choices.chance(2) {
            continue;
        }
        let group = Group {
            group: group(choices, made),
            share: choices.chance(2).then(|| Portion::of_core(share(choices))),
            cap: choices.chance(3).then(|| "90%".parse().expect("a portion")),
            guarantee: None,
        };
        made.groups.insert(name, group);
    }
}

fn group(choices: &mut Choices, made: &Deployment) -> Option<String> {
    let names: Vec<String> = made.groups.names().map(str::to_owned).collect();
    (!names.is_empty() && choices.chance(2)).then(|| choices.pick(&names))
}

fn instances(choices: &mut Choices, made: &mut Deployment) {
    let mut flavors = vec!["small".to_owned(), "medium".into()];
    flavors.extend(made.flavors.names().map(str::to_owned));
    let mut names = ["i0", "i1", "i2", "i3", "i4"];
    if choices.chance(3) {
        choices.shuffle(&mut names);
    }
    for name in names {
        if choices.chance(3) {
            continue;
        }
        let program = if choices.chance(4) {
            let args = vec!["-v".to_owned(); choices.below(2)];
            Program::Path {
                program: "/bin/nf".into(),
                args,
                api: choices.pick(&[PortApi::Library, PortApi::Dpdk, PortApi::Netmap]),
            }
        } else {
            let nf = choices.pick(&["bridge", "firewall"]).to_owned();
            Program::BuiltIn { nf }
        };
        let count = 2 + choices.below(2);
        let ports = ["in", "out", "aux"].into_iter().take(count);
        let mut instance = Instance {
            owner: None,
            program,
            config: choices.pick(&[
                json!(null),
                json!({"rules": ["a"]}),
                json!({"rules": ["a", "b"], "n": -1.5, "text": "x: [y\n\"z'"}),
            ]),
            ports: ports
                .map(|name| (name.to_owned(), Port::default()))
                .collect(),
            flavor: choices.pick(&flavors),
            group: group(choices, made),
            share: choices.chance(2).then(|| Portion::of_core(share(choices))),
            cap: None,
            guarantee: None,
            memory: choices.chance(3).then_some(Bytes::mib(64)),
            cpus: if choices.chance(3) { vec![1] } else { vec![] },
            placement: choices.chance(3).then_some(Placement::Spread),
            slice: choices.chance(3).then_some(Micros(500)),
            frames: if choices.chance(3) {
                Some(choices.pick(&[Frames::Plain, Frames::Checksums, Frames::Super]))
            } else {
                None
            },
            restart: Restart {
                policy: choices.pick(&[RestartPolicy::Always, RestartPolicy::OnFailure]),
                backoff: Backoff {
                    shortest: Millis(50),
                    longest: Millis(choices.pick(&[50, 5_000])),
                },
                max: choices.chance(2).then_some(3),
                healthy: Millis::secs(30),
            },
            tier: Tier::PROCESS,
            attach: None,
            stack: None,
            access: None,
            io: choices.chance(3).then(|| model(choices)),
            trust: choices.chance(3).then(|| "friends".to_owned()),
            wake: choices.chance(3).then(|| wake(choices)),
            health: choices.chance(3).then(|| health(choices)),
            replicas: choices.chance(3).then(|| 1 + choices.below(3) as u16),
        };
        if matches!(instance.program, Program::Path { .. }) && choices.chance(2) {
            on_own_stack(&mut instance, choices);
        }
        made.instances.insert(name, instance);
    }
}

/// Makes the ports interfaces.
fn on_own_stack(instance: &mut Instance, choices: &mut Choices) {
    if let Program::Path { api, .. } = &mut instance.program {
        *api = PortApi::Library;
    }
    let address = |number: usize| format!("192.0.2.{number}/24").parse().expect("an address");
    let route = |to: &str, via: Option<&str>| Route {
        to: to.parse().expect("a network"),
        via: via.map(|via| via.parse().expect("an address")),
    };
    let names: Vec<String> = instance.ports.names().map(str::to_owned).collect();
    instance.ports = (1..)
        .zip(names)
        .map(|(number, name)| {
            let interface = Interface {
                addresses: choices
                    .chance(2)
                    .then(|| address(number))
                    .into_iter()
                    .collect(),
                routes: match choices.below(3) {
                    0 => vec![],
                    1 => vec![route("203.0.113.0/24", None)],
                    _ => vec![
                        route("::/0", Some("fe80::1")),
                        route("2001:db8::/32", Some("fe80::2")),
                    ],
                },
                dns: vec!["192.0.2.53".parse().expect("an address"); choices.below(3)],
            };
            let port = Port {
                interface: Some(interface),
                ..Port::default()
            };
            (name, port)
        })
        .collect();
    let is_image = choices.chance(2);
    if is_image {
        instance.program = Program::Image {
            image: choices
                .pick(&["oci:/a", "docker-archive:/a b:c/d:e"])
                .to_owned(),
            entrypoint: vec!["#".to_owned(); choices.below(2)],
            args: vec!["-c: x".to_owned(); choices.below(2)],
        };
    }
    let access = access(choices, is_image);
    instance.access = (access != Access::default()).then_some(access);
    instance.tier = Tier::STACK;
    instance.config = json!(null);
    instance.frames = None;
    instance.trust = None;
    instance.replicas = None;
}

fn access(choices: &mut Choices, is_image: bool) -> Access {
    let plain = Volume {
        from: "/srv/a: b".to_owned(),
        at: None,
        is_writable: false,
    };
    let other = Volume {
        at: Some("/data".to_owned()),
        is_writable: choices.chance(2),
        ..plain.clone()
    };
    let stop = Stop {
        signal: choices
            .chance(2)
            .then(|| StopSignal::find("QUIT").expect("a signal")),
        wait: choices.chance(2).then(|| Millis::secs(3)),
    };
    Access {
        volumes: [plain, other].into_iter().take(choices.below(3)).collect(),
        capabilities: vec!["NET_RAW".to_owned(); choices.below(2)],
        environment: vec!["A= b: c".to_owned(); choices.below(2)],
        user: (is_image && choices.chance(2)).then(|| "101:102".to_owned()),
        directory: choices.chance(2).then(|| "/srv".to_owned()),
        writable: (is_image && choices.chance(2)).then_some(Bytes(1 << 20)),
        forwarding: choices.chance(2),
        stop: choices.chance(2).then_some(stop),
    }
}

fn io(choices: &mut Choices) -> Io {
    Io {
        model: model(choices),
        settings: IoSettings {
            cores: if choices.chance(3) { vec![1] } else { vec![] },
            idle: choices.pick(&[IoIdle::Sleep, IoIdle::Poll]),
            cap: choices.chance(3).then(|| share(choices)),
        },
    }
}

fn congestion(choices: &mut Choices) -> Congestion {
    Congestion {
        law: law(choices),
        cores: if choices.chance(2) {
            [(1, law(choices))].into()
        } else {
            [].into()
        },
        backpressure: choices.chance(2),
    }
}

fn law(choices: &mut Choices) -> Law {
    let red4 = Law::Red4 {
        min: 64,
        max: choices.pick(&[65, 256]),
        probability: share(choices),
        average: Micros(choices.pick(&[0, 10_000])),
    };
    let target = Micros(choices.pick(&[10, 1_000, 1_500]));
    choices.pick(&[Law::Off, Law::SelfTuning { target }, red4])
}

fn model(choices: &mut Choices) -> IoModel {
    choices.pick(&IoModel::WORDS).1
}

fn health(choices: &mut Choices) -> Health {
    Health {
        checks: choices.pick(&[vec![], vec![Check::Progress]]),
        interval: choices.pick(&[Millis(200), Millis::secs(1)]),
        action: choices.pick(&[Remedy::Restart, Remedy::Report]),
        ..Health::default()
    }
}

fn wake(choices: &mut Choices) -> Wake {
    Wake {
        frames: choices.pick(&[2, 20, 32]),
        after: choices.pick(&[Micros(1), Micros(2_000)]),
    }
}

fn share(choices: &mut Choices) -> Share {
    let hundredths = choices.pick(&[1, 50, 1000, 1250]);
    Share::from_hundredths(hundredths).expect("in range")
}

fn connect(choices: &mut Choices, made: &mut Deployment) {
    let mut free: Vec<PortRef> = Vec::new();
    for (name, instance) in made.instances.iter() {
        free.extend(
            instance
                .ports
                .names()
                .map(|port| PortRef::instance(name, port)),
        );
    }
    let mut ends: Vec<PortRef> = Vec::new();
    let switches: Vec<String> = made.switches.names().map(str::to_owned).collect();
    let mut uplinks = Table::new();
    for (name, uplink) in made.uplinks.iter() {
        let mut uplink = uplink.clone();
        if !switches.is_empty() && choices.chance(3) {
            uplink.attachment = Some(attachment(choices, &switches));
        } else {
            ends.push(PortRef::Uplink(name.into()));
        }
        uplinks.insert(name, uplink);
    }
    made.uplinks = uplinks;
    chains(choices, made, &ends, &mut free);
    choices.shuffle(&mut free);
    while let Some(port) = free.pop() {
        match choices.below(3) {
            0 if !switches.is_empty() => {
                let PortRef::Instance { instance, port } = port else {
                    continue;
                };
                let place = attachment(choices, &switches);
                let groups: Vec<String> = made.security_groups.names().map(str::to_owned).collect();
                let owner = made.instances.get_mut(&instance).expect("it is there");
                let is_trusted = owner.trust.is_some();
                let port = owner.ports.get_mut(&port).expect("it is there");
                port.attachment = Some(place);
                if !is_trusted && choices.chance(2) {
                    let in_groups = groups.into_iter().filter(|_| choices.chance(2)).collect();
                    port.security_groups = Some(in_groups);
                    let address = format!("10.0.0.{}", choices.below(4));
                    let address = address.parse::<IpAddr>().expect("an address");
                    port.allowed_addresses = choices
                        .chance(2)
                        .then(|| address.into())
                        .into_iter()
                        .collect();
                }
            }
            1 => {
                if let Some(other) = free.pop() {
                    made.links.push(Link(port, other));
                }
            }
            _ => {}
        }
    }
}

fn security_rule(choices: &mut Choices) -> SecurityRule {
    let is_tcp = choices.chance(2);
    SecurityRule {
        direction: choices.pick(&[Direction::In, Direction::Out]),
        family: choices.chance(3).then_some(Family::Ipv4),
        protocol: is_tcp.then_some(Protocol(6)),
        ports: (is_tcp && choices.chance(2)).then_some(PortRange {
            first: 80,
            last: 81,
        }),
        source_ports: None,
        icmp: None,
        remote: match choices.below(3) {
            0 => Remote::Anybody {},
            1 => Remote::Prefix {
                remote: "10.0.0.0/8".parse().expect("a prefix"),
            },
            _ => Remote::Group {
                remote_group: choices.pick(&["sg0", "sg1"]).to_owned(),
            },
        },
    }
}

/// Removes the rules about groups that there are not.
fn forget_missing_groups(made: &mut Deployment) {
    let names: Vec<String> = made.security_groups.names().map(str::to_owned).collect();
    for name in &names {
        let group = made.security_groups.get_mut(name).expect("it is there");
        group.rules.retain(|rule| match &rule.remote {
            Remote::Group { remote_group } => names.contains(remote_group),
            _ => true,
        });
    }
}

fn attachment(choices: &mut Choices, switches: &[String]) -> Attachment {
    Attachment {
        switch: choices.pick(switches),
        vlan: choices.chance(3).then_some(10),
        learn: choices.chance(4).then_some(true),
    }
}

fn chains(choices: &mut Choices, made: &mut Deployment, ends: &[PortRef], free: &mut Vec<PortRef>) {
    if ends.len() < 2 {
        return;
    }
    let mut names = ["c0", "c1", "c2"];
    choices.shuffle(&mut names);
    for name in names {
        if choices.chance(3) {
            continue;
        }
        let from = choices.below(ends.len());
        let to = (from + 1 + choices.below(ends.len() - 1)) % ends.len();
        let mut via = Vec::new();
        for _ in 0..choices.below(3) {
            let instances: Vec<String> = made.instances.names().map(str::to_owned).collect();
            if instances.is_empty() {
                break;
            }
            let instance = choices.pick(&instances);
            let hop = Hop {
                instance,
                input: "in".into(),
                output: "out".into(),
            };
            let ports = [hop.input_port(), hop.output_port()];
            if ports.iter().all(|port| free.contains(port)) {
                free.retain(|port| !ports.contains(port));
                via.push(hop);
            }
        }
        let chain = Chain {
            from: ends[from].clone(),
            to: ends[to].clone(),
            via,
            rules: (0..choices.below(3)).map(|_| rule(choices)).collect(),
            return_rules: choices.chance(3).then(Vec::new),
        };
        made.chains.insert(name, chain);
    }
}

fn rule(choices: &mut Choices) -> MatchRule {
    let first = choices.pick(&[80, 443]);
    MatchRule {
        vlan: Some(1 + choices.below(3) as u16),
        src: choices
            .chance(2)
            .then(|| "10.0.0.0/8".parse().expect("valid")),
        proto: Some(Protocol(6)),
        dport: Some(PortRange { first, last: 500 }),
        ..MatchRule::default()
    }
}
