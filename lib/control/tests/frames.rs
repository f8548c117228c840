//! The promise: an uplink lets in super-frames where everything takes them that they can reach, at each step of each change;
//! and no instance is made again because its neighbours take others than before.

#[path = "support/random.rs"]
mod random;
mod support;

use nfluid_api::types::{ApplyRequest, DeleteRequest, Kind, ObjectName};
use nfluid_control::action::Action;
use nfluid_control::controller::Controller;
use nfluid_control::frames::{Frames, domains};
use nfluid_control::inventory::Inventory;
use nfluid_control::model::{Deployment, Link, PortRef, Program, SuperFrames};
use nfluid_control::plan::plan;
use nfluid_control::single::proposal::Proposal;
use proptest::prelude::*;
use random::Choices;
use serde_json::json;
use support::{ENVIRONMENT, MemoryStore, ModelPlatform, check, deployment, lines, request};

const CHAIN: &str = "\
version: 1
uplinks: { wan: { interface: eth1 }, lan: { interface: eth2 } }
instances: { fw: { nf: firewall }, nat: { nf: bridge } }
chains: { all: { from: wan, to: lan, via: [fw, nat] } }
";

fn inventory(text: &str) -> Inventory {
    Inventory::of(&deployment(text))
}

// promise: 2.35
#[test]
fn the_level_is_what_everything_takes_and_the_reason_names_who_takes_less() {
    let own = "own: { program: /bin/nf }";
    let two = "[fw, own]";
    let rows = [
        ("nothing is against it", CHAIN.to_owned(), Frames::Super, ""),
        (
            "a program that says nothing",
            CHAIN
                .replace("nat: { nf: bridge }", own)
                .replace("[fw, nat]", two),
            Frames::Plain,
            "instance 'own' takes plain frames: 'frames: super'",
        ),
        (
            "a program that says that it can",
            CHAIN
                .replace(
                    "nat: { nf: bridge }",
                    &own.replace('}', ", frames: super }"),
                )
                .replace("[fw, nat]", two),
            Frames::Super,
            "",
        ),
        (
            "less than all",
            CHAIN.replace("nf: bridge", "nf: bridge, frames: checksums"),
            Frames::Checksums,
            "instance 'nat' takes frames with checksums left to be done",
        ),
        (
            "an uplink far away",
            CHAIN.replace("eth2", "eth2, super: off"),
            Frames::Plain,
            "uplink 'lan' has 'super: off'",
        ),
        (
            "a NIC that classifies",
            CHAIN.replace("eth2", "eth4, steering: hybrid"),
            Frames::Plain,
            "the NIC of uplink 'lan' classifies frames",
        ),
        (
            "XDP is asked for",
            CHAIN.replace("eth2", "eth2, mode: generic"),
            Frames::Plain,
            "uplink 'lan' has a 'mode'",
        ),
        (
            "shared memory",
            CHAIN.replace("nf: bridge", "nf: bridge, trust: us"),
            Frames::Plain,
            "instance 'nat' is in trust group 'us'",
        ),
        (
            "little memory",
            CHAIN.replace("nf: bridge", "nf: bridge, memory: 3MiB, flavor: small"),
            Frames::Plain,
            "the 3MiB of instance 'nat' are too little",
        ),
    ];
    for (what, text, frames, why) in rows {
        let inventory = inventory(&text);
        let found = domains(&[&inventory]);
        assert_eq!(found.len(), 1, "{what}");
        assert_eq!(found[0].frames, frames, "{what}");
        assert!(found[0].why.starts_with(why), "{what}: {}", found[0].why);
        assert_eq!(found[0].why.is_empty(), why.is_empty(), "{what}");
        for uplink in ["wan", "lan"] {
            assert_eq!(inventory.levels.of_uplink(uplink), frames, "{what}");
            assert_eq!(
                inventory.uplinks[uplink].long > 0,
                found[0].slots > 0,
                "{what}"
            );
        }
        assert!(frames == Frames::Plain || found[0].slots > 0, "{what}");
    }
}

// promise: 2.35
#[test]
fn domains_are_told_apart_and_joined_by_switches() {
    let apart = inventory(
        "version: 1\nuplinks: { a: { interface: eth1 }, b: { interface: eth2 }, c: { interface: eth3, switch: s } }\n\
         switches: { s: {} }\ninstances: { x: { program: /bin/nf }, y: { nf: bridge, ports: { p: { switch: s }, q: {} } } }\n\
         links: [[a, x.in], [b, x.out]]\n",
    );
    let level = |uplink| apart.levels.of_uplink(uplink);
    assert_eq!(
        [level("a"), level("b"), level("c")],
        [Frames::Plain, Frames::Plain, Frames::Super]
    );
    let ports = &apart.instances["y"].ports;
    assert_eq!(
        [ports[0].long, ports[1].long],
        [4096, 4096],
        "a port takes what the port before it can hold"
    );
    assert_eq!(apart.uplinks["a"].long, 0, "nobody there takes long frames");

    let alone = inventory("version: 1\nuplinks: { a: { interface: eth1 } }\n");
    assert_eq!(domains(&[&alone])[0].why, "nothing else is connected");
    assert_eq!(alone.uplinks["a"].long, 4096, "for what is connected later");
}

#[test]
fn who_cannot_take_other_frames_may_not_say_that_it_does() {
    let refused = |instance: &str| {
        let text = format!("version: 1\ninstances: {{ x: {{ {instance} }} }}\n");
        let errors = check(&text).expect_err("refused");
        lines(&errors)
    };
    let trusted = refused("nf: bridge, trust: us, frames: super");
    assert!(trusted.contains("instances.x.frames: this instance cannot take frames that are 'super': the memory of a trust group"), "{trusted}");
    let trusted =
        refused("nf: bridge, trust: us, ports: { in: { mtu: 2018 }, out: { mtu: 2019 } }");
    assert!(
        trusted.contains("instances.x.ports.out.mtu: the memory of a trust group"),
        "{trusted}"
    );
    assert!(!trusted.contains("ports.in.mtu"), "{trusted}");
    let unknown = refused("nf: bridge, frames: big");
    assert!(unknown.contains("there is no frames 'big'"), "{unknown}");
    let text = "version: 1\nuplinks: { wan: { interface: eth1, super: on } }\n";
    let unknown = lines(&check(text).expect_err("refused"));
    assert!(unknown.contains("there is no super 'on'"), "{unknown}");
}

#[test]
fn built_in_nfs_take_what_the_catalogue_says() {
    for entry in nfluid_slices::built_in() {
        let nf = entry.name.to_owned();
        let frames = Program::BuiltIn { nf }.frames();
        assert_eq!(frames.number(), entry.frames as u8, "{}", entry.name);
    }
}

// promise: 2.35
#[test]
fn what_a_fast_path_hands_up_is_plain() {
    let inventory = inventory(
        "version: 1\ninstances:\n  rest: { nf: firewall }\n\
         \x20 e: { tier: xdp, nf: efw, interface: eth1, slow: { port: rest.in, back: rest.out } }\n",
    );
    let found = domains(&[&inventory]);
    assert_eq!((found.len(), found[0].frames), (1, Frames::Plain));
    let why = &found[0].why;
    assert!(
        why.ends_with("takes the packets that fast path 'e' hands up"),
        "{why}"
    );
}

// promise: 2.36
#[test]
fn the_memory_for_long_frames_has_bounds() {
    let crowd = |count: usize| {
        let instances: String = (0..count)
            .map(|i| {
                format!("  x{i}: {{ nf: bridge, ports: {{ p: {{ switch: s }}, q: {{}} }} }}\n")
            })
            .collect();
        inventory(&format!(
            "version: 1\nswitches: {{ s: {{}} }}\nuplinks: {{ wan: {{ interface: eth1, switch: s }} }}\ninstances:\n{instances}"
        ))
    };
    let few = crowd(31);
    assert_eq!(few.levels.of_uplink("wan"), Frames::Super);
    assert_eq!(few.uplinks["wan"].long, 512, "63 ports share 64 MiB");
    let many = crowd(32);
    assert_eq!(many.levels.of_uplink("wan"), Frames::Plain);
    assert_eq!(many.uplinks["wan"].long, 0);
    let why = &domains(&[&many])[0].why;
    assert!(why.starts_with("frames can reach 65 ports"), "{why}");

    // Pairs of uplinks: each of few has as much as it can use, each of many a part.
    let pairs = |count: usize| {
        let mut all = deployment(CHAIN);
        let (uplink, instance) = (
            all.uplinks.get("wan").cloned(),
            all.instances.get("fw").cloned(),
        );
        for i in 0..count {
            let name = format!("u{i}");
            all.uplinks
                .insert(&name, uplink.clone().expect("it is there"));
            all.instances
                .insert(format!("i{i}"), instance.clone().expect("it is there"));
            all.links.push(Link(
                PortRef::Uplink(name),
                PortRef::instance(format!("i{i}"), "in"),
            ));
        }
        Inventory::of(&all)
    };
    assert_eq!(pairs(3).uplinks["u0"].long, 4096);
    assert_eq!(pairs(100).uplinks["u0"].long, 512);
    let crowded = pairs(1000);
    assert_eq!(crowded.uplinks["u0"].long, 0);
    assert_eq!(crowded.levels.of_uplink("wan"), Frames::Plain);
    let why = &domains(&[&crowded])[0].why;
    assert!(why.contains("1001 groups of uplinks"), "{why}");
}

// promise: 2.36
#[test]
fn long_packets_have_memory_also_without_super_frames() {
    let text = CHAIN
        .replace(
            "nf: bridge }",
            "nf: bridge, ports: { in: { mtu: 9000 }, out: { mtu: 9000 } } }",
        )
        .replace("eth1", "eth1, super: off");
    let jumbo = inventory(&text);
    assert_eq!(jumbo.levels.of_uplink("lan"), Frames::Plain);
    let long = |name: &str| {
        jumbo.instances[name]
            .ports
            .iter()
            .map(|port| port.long)
            .max()
    };
    assert_eq!((long("nat"), long("fw")), (Some(1024), Some(0)));
    assert_eq!(
        (jumbo.uplinks["wan"].long, jumbo.uplinks["lan"].long),
        (1024, 1024)
    );
}

fn controller(text: &str) -> Controller<ModelPlatform, MemoryStore> {
    let (platform, store) = (ModelPlatform::default(), MemoryStore::default());
    let mut made = Controller::load(platform, store, Inventory::default()).expect("an empty store");
    made.apply(&request(text), ENVIRONMENT).expect("right");
    made.platform_mut().log.clear();
    made
}

// promise: 2.37
#[test]
fn the_level_falls_first_and_rises_last_and_nothing_is_made_again() {
    let mut controller = controller(CHAIN);
    let with_own = CHAIN
        .replace("nat: {", "own: { program: /bin/nf }, nat: {")
        .replace("[fw, nat]", "[fw, own, nat]");
    let log = |controller: &mut Controller<ModelPlatform, MemoryStore>, text: &str| {
        controller
            .apply(&request(text), ENVIRONMENT)
            .expect("right");
        std::mem::take(&mut controller.platform_mut().log)
    };
    let fall = log(&mut controller, &with_own);
    assert_eq!(
        fall[..2],
        ["change which frames uplinks let in", "create instance own"]
    );
    assert_eq!(
        controller.platform().inventory.levels.of_uplink("wan"),
        Frames::Plain
    );
    let rise = log(&mut controller, CHAIN);
    assert_eq!(
        rise.last().map(String::as_str),
        Some("change which frames uplinks let in")
    );
    assert_eq!(
        controller.platform().inventory.levels.of_uplink("wan"),
        Frames::Super
    );
    for step in fall.iter().chain(&rise) {
        let is_about_others = ["fw", "nat", "uplink wan", "uplink lan"]
            .iter()
            .any(|name| step.ends_with(name));
        assert!(
            !is_about_others || step.starts_with("connect port"),
            "{step}"
        );
    }
    let same = log(&mut controller, CHAIN);
    assert_eq!(same, Vec::<String>::new());
}

// promise: 2.37
#[test]
fn an_instance_without_memory_stays_and_is_named() {
    let alone = "version: 1\ninstances: { fw: { nf: firewall }, nat: { nf: bridge } }\nlinks: [[fw.out, nat.in]]\n";
    let mut controller = controller(alone);
    assert_eq!(controller.present().instances["fw"].ports[0].long, 0);
    controller
        .apply(&request(CHAIN), ENVIRONMENT)
        .expect("right");
    let log = std::mem::take(&mut controller.platform_mut().log);
    assert!(
        !log.iter()
            .any(|step| step.starts_with("replace") || step.starts_with("create instance")),
        "{log:?}"
    );
    let present = controller.present();
    assert_eq!(present.levels.of_uplink("wan"), Frames::Plain);
    assert_eq!(
        present.uplinks["wan"].long, 4096,
        "a new uplink is prepared for the day when they are made again"
    );
    let why = &domains(&[present])[0].why;
    assert!(
        why.starts_with("instance 'fw' was made without memory for long frames"),
        "{why}"
    );
    // It is made again.
    let other = CHAIN.replace(
        "fw: { nf: firewall }, nat: { nf: bridge }",
        "fw: { nf: firewall, flavor: large }, nat: { nf: bridge, flavor: large }",
    );
    controller
        .apply(&request(&other), ENVIRONMENT)
        .expect("right");
    assert_eq!(controller.present().levels.of_uplink("wan"), Frames::Super);
}

// promise: 2.37
#[test]
fn an_uplink_whose_last_neighbour_goes_keeps_the_frames_that_it_lets_in() {
    let mut controller = controller(CHAIN);
    let lonely = "version: 1\nuplinks: { lan: { interface: eth1 }, wan: { interface: eth2 } }\n";
    let mut change = |text: &str| {
        controller
            .apply(&request(text), ENVIRONMENT)
            .expect("right");
        let present = controller.present();
        let levels = ["lan", "wan"].map(|name| present.levels.of_uplink(name));
        assert_eq!(plan(present, &inventory(text)), [], "all is as desired");
        // It stays so when others change.
        let beside = format!("{text}switches: {{ beside: {{}} }}\n");
        let names: Vec<String> = plan(present, &inventory(&beside))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names.len(), 1, "{names:?}");
        levels
    };
    let both = |frames| [frames, frames];
    assert_eq!(change(lonely), both(Frames::Super));
    let off = lonely.replace("eth1", "eth1, super: off");
    assert_eq!(change(&off), [Frames::Plain, Frames::Super]);
    assert_eq!(change(lonely), [Frames::Plain, Frames::Super], "made anew");
    assert_eq!(change(CHAIN), both(Frames::Super));
    let own = format!(
        "{lonely}instances: {{ own: {{ program: /bin/nf }} }}\nlinks: [[lan, own.in], [wan, own.out]]\n"
    );
    assert_eq!(change(&own), both(Frames::Plain));
    assert_eq!(
        change(lonely),
        both(Frames::Plain),
        "as the last one left it"
    );
}

// promise: 2.36
#[test]
fn shells_have_memory_where_their_instances_may_need_it() {
    let long = |pool: &str, uplinks: &str| {
        let text =
            format!("version: 1\npool: {{ medium: {{ {pool} }} }}\nuplinks: {{ {uplinks} }}\n");
        inventory(&text).pools["medium"].long
    };
    let wan = "wan: { interface: eth1 }";
    assert_eq!(long("size: 3", wan), 4096);
    assert_eq!(long("size: 64", wan), 256, "128 ports share 64 MiB");
    assert_eq!(long("size: 65", wan), 0, "too little each");
    assert_eq!(long("size: 3", ""), 0, "nothing can come in");
    assert_eq!(long("size: 3", "wan: { interface: eth1, super: off }"), 0);
    assert_eq!(long("size: 3, trust: us", wan), 0);
    assert_eq!(long("size: 3, for: programs", wan), 0);

    let instance = |shell: &str| {
        let text = CHAIN.replace(
            "instances:",
            &format!("pool: {{ medium: {{ {shell} }} }}\ninstances:"),
        );
        let made = inventory(&text);
        made.pools["medium"].misfit(&made.instances["fw"])
    };
    assert_eq!(instance("size: 3"), None);
    let why = instance("size: 65").expect("it needs memory");
    assert!(why.contains("no memory for long frames"), "{why}");
}

// promise: 2.36
#[test]
fn instances_that_can_still_be_wired_to_an_uplink_have_memory() {
    let text =
        "version: 1\nuplinks: { wan: { interface: eth1 } }\ninstances: { fw: { nf: firewall } }\n";
    let mut controller = controller(text);
    assert_eq!(controller.present().instances["fw"].ports[0].long, 4096);
    let linked = format!("{text}links: [[wan, fw.in]]\n");
    controller
        .apply(&request(&linked), ENVIRONMENT)
        .expect("right");
    assert_eq!(controller.present().levels.of_uplink("wan"), Frames::Super);
    let off = inventory(&text.replace("eth1", "eth1, super: off"));
    assert_eq!(off.instances["fw"].ports[0].long, 0);
    let many: String = (0..33)
        .map(|i| format!("fw{i}: {{ nf: firewall }}, "))
        .collect();
    let many = inventory(&text.replace("instances: {", &format!("instances: {{ {many}")));
    assert_eq!(many.instances["fw"].ports[0].long, 0);
}

/// Checks that nothing takes less than what can reach it.
fn check_safe(present: &Inventory, when: &str) {
    for domain in domains(&[present]) {
        let level = |name: &String| present.levels.of_uplink(name);
        let most = domain.uplinks.iter().map(level).max().unwrap_or_default();
        if most == Frames::Plain {
            continue;
        }
        for name in &domain.uplinks {
            let spec = &present.uplinks[name];
            assert_eq!(
                level(name),
                most,
                "{when}: uplink {name} sends to the others"
            );
            assert_eq!(
                spec.super_frames,
                SuperFrames::Auto,
                "{when}: uplink {name}"
            );
            assert!(spec.long > 0, "{when}: uplink {name} has no memory");
        }
        for name in &domain.instances {
            let spec = &present.instances[name];
            assert!(
                spec.frames >= most,
                "{when}: instance {name} takes {}",
                spec.frames
            );
            assert!(
                spec.ports.iter().all(|port| port.long > 0),
                "{when}: instance {name} has no memory"
            );
        }
    }
}

fn follow(present: &mut Inventory, actions: &[Action], what: &str) {
    for (step, action) in actions.iter().enumerate() {
        present.record(action);
        check_safe(present, &format!("{what} {step}: {action}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    // promise: 2.37
    #[test]
    fn at_no_step_anything_takes_less_than_what_can_reach_it((a, b) in any::<(u64, u64)>()) {
        let (a, b) = (random::deployment(a), random::deployment(b));
        let (old, new) = (Inventory::of(&a), Inventory::of(&b));
        let mut present = Inventory::default();
        follow(&mut present, &plan(&Inventory::default(), &old), "first");
        let forward = plan(&present, &new);
        let before = present.clone();
        follow(&mut present, &forward, "change");
        let back: Vec<Action> = forward.iter().rev().map(Action::inverse).collect();
        follow(&mut present, &back, "undo");
        prop_assert_eq!(&present, &before);
    }

    // promise: 5.15
    #[test]
    fn single_additions_and_removals_leave_nothing_to_be_done((seed, choice) in any::<(u64, u64)>()) {
        let mut choices = Choices::new(choice);
        let start = random::deployment(seed);
        let store = MemoryStore { committed: Some(start), ..MemoryStore::default() };
        let mut controller = Controller::load(ModelPlatform::default(), store, Inventory::default()).expect("a store");
        prop_assert!(controller.restore().is_empty());
        for round in 0..3 {
            let name = format!("new{round}");
            let text = addition(&controller.deployment(), &name, &mut choices);
            let request = ApplyRequest { merge: true, ..request(&text) };
            let Some(proposal) = Proposal::of(&request) else { continue };
            if let Some(Ok(_)) = controller.add(proposal, ENVIRONMENT) {
                check_done(&controller, &text);
            }
        }
        let names: Vec<String> = controller.deployment().instances.names().map(str::to_owned).collect();
        for name in names {
            let request = DeleteRequest {
                objects: vec![ObjectName { kind: Kind::Instance, name: name.clone() }],
                with_links: true,
                ..DeleteRequest::default()
            };
            if let Some(Ok(_)) = controller.take_out(&request) {
                check_done(&controller, &name);
            }
        }
    }
}

fn check_done(controller: &Controller<ModelPlatform, MemoryStore>, what: &str) {
    let desired = Inventory::of(&controller.deployment());
    let rest = plan(controller.present(), &desired);
    let rest: Vec<String> = rest.iter().map(Action::to_string).collect();
    assert!(rest.is_empty(), "after {what}: {rest:?}");
    check_safe(controller.present(), what);
}

/// A document with a new instance whose ports are linked to ports of others, or on switches.
fn addition(present: &Deployment, name: &str, choices: &mut Choices) -> String {
    let mut others: Vec<String> = present.uplinks.names().map(str::to_owned).collect();
    for (other, instance) in present.instances.iter() {
        others.extend(instance.ports.names().map(|port| format!("{other}.{port}")));
    }
    let switches: Vec<&str> = present.switches.names().collect();
    let (mut ports, mut links) = (serde_json::Map::new(), Vec::new());
    for port in ["in", "out"] {
        let place = match choices.below(3) {
            0 if !switches.is_empty() => {
                json!({ "switch": switches[choices.below(switches.len())] })
            }
            1 if !others.is_empty() => {
                links.push(json!([
                    format!("{name}.{port}"),
                    others[choices.below(others.len())]
                ]));
                json!({})
            }
            _ => json!({}),
        };
        ports.insert(port.to_owned(), place);
    }
    let program = [json!({ "nf": "bridge" }), json!({ "program": "/bin/nf" })];
    let mut instance = program[choices.below(2)].clone();
    instance["ports"] = ports.into();
    json!({ "version": 1, "instances": { name: instance }, "links": links }).to_string()
}
