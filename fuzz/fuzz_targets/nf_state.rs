//! An NF's state from somebody who can make checksums: no panic, no growth beyond the NF's limits, what was taken in can be
//! written out again, and a rehearsal leaves nothing behind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nfluid_nf::Nanos;
use nfluid_nf::catalogue::{ENTRIES, build};
use nfluid_nf::stateful::{export, import, rehearse};
use nfluid_nf::testing::ports;
use serde_json::{Value, json};

fn config(nf: &str) -> Value {
    match nf {
        "firewall" => json!({ "rules": "allow ip from any to any keep-state", "states": { "max": 64 } }),
        "nat" => json!({ "pool": ["192.0.2.1"], "sessions_max": 64 }),
        "limiter" => {
            let per = json!({ "address": "source", "prefixes_max": 64 });
            json!({ "forward": { "cir": 8000, "cbs": 2000, "per": per } })
        }
        "router" => json!({ "addresses": { "p0": ["10.0.0.1/24"], "p1": ["10.0.1.1/24"] } }),
        "vlan" => json!({ "push": { "id": 7 } }),
        _ => Value::Null,
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (which, records) = input;
    let entry = &ENTRIES[usize::from(which) % ENTRIES.len()];
    let Ok(mut nf) = build(entry.name, &config(entry.name), &ports(2)) else {
        return;
    };
    let now = Nanos::from_secs(1000);
    let version = nf.stateful().map_or(1, |stateful| stateful.state_version());
    let Ok(image) = nfluid_nf::stateful::forged(entry.name, version, records) else {
        return;
    };
    let nothing = export(entry.name, &mut *nf, now);
    rehearse(entry.name, &mut *nf, now, &image).expect("an image of this NF");
    assert_eq!(export(entry.name, &mut *nf, now), nothing);
    let _ = import(entry.name, &mut *nf, now, &image);
    export(entry.name, &mut *nf, now).expect("what was taken in can be written");
});
