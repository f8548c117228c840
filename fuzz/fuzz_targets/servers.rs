//! Frames for a server of a guest: no panic, and it makes no more frames than frames can be answered with.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nfluid_nf::Nanos;
use nfluid_nf::testing::{Collected, ports, run};
use nfluid_server::Surroundings;
use nfluid_server::service::UnixTime;
use serde_json::json;

/// Most frames that a server sends for one that it is given: all sockets at once have something to send again.
const FRAMES_MAX: usize = 64;

fuzz_target!(|input: &[u8]| {
    let config = json!({ "addresses": ["10.9.0.1/24", "fd09::1/64"], "connections": 4 });
    let surroundings = Surroundings {
        seed: 7,
        time_of_day: |now| UnixTime(now.0),
    };
    let built = nfluid_server::http::build(&config, &ports(1), surroundings);
    let mut server = built.ok().expect("a server");
    let (mut now, mut rest) = (Nanos(0), input);
    // A frame is its length, the time since the frame before in 100 ms, and its bytes.
    while let [length, more, time, bytes @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*length, *more])).min(bytes.len());
        let (frame, behind) = bytes.split_at(length);
        rest = behind;
        now = Nanos(now.0 + u64::from(*time) * 100_000_000);
        if !(14..=2032).contains(&length) {
            continue;
        }
        let sent = run(server.as_mut(), now, &[(0, frame.to_vec())]);
        let mut outbox = Collected::default();
        server.tick(now, &mut outbox);
        assert!(sent.len() + outbox.plain().len() <= FRAMES_MAX);
    }
});
