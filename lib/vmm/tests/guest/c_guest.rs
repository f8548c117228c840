//! Guests in C: the header has the same definitions as Rust's, and the example runs.

use crate::bed::{image_in, pool, start};
use nfluid_guest::abi::{self, Call, Device, FrameWords, MadeWords, Mailbox, Reply};
use nfluid_nf::testing::{Collected, ports};
use nfluid_nf::{Metric, Nanos, NetworkFunction};
use nfluid_ring::{Action, Batch, Frame};
use serde_json::json;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles C for a guest. Returns the path of the result, or the compiler's errors.
fn compile(source: &Path, name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let to = std::env::temp_dir().join(format!("nfluid-guest-{}-{name}", std::process::id()));
    let include = format!("-I{}", root().join("lib/guest/include").display());
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-ffreestanding",
        ])
        .args([
            "-fno-stack-protector",
            "-fno-pic",
            "-fcf-protection=none",
            &include,
        ])
        .args(flags)
        .arg("-o")
        .args([&to, source])
        .output()
        .expect("a C compiler, as the build of libbpf needs one");
    if output.status.success() {
        Ok(to)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

// promise: 18.9
#[test]
fn the_header_says_what_the_monitor_says() {
    let mut text = String::from("#include \"nfluid_guest.h\"\nvoid nfg_main(void) {}\n");
    let mut same = |c: &str, rust: u64| {
        writeln!(text, "_Static_assert({c} == {rust}ull, \"{c}\");").expect("written");
    };
    for (c, rust) in [
        ("NFG_VERSION", u64::from(abi::VERSION)),
        ("NFG_DEVICE", abi::DEVICE),
        ("NFG_MEMORY", abi::MEMORY),
        ("NFG_DOORBELL", abi::DOORBELL),
        ("NFG_BATCH_MAX", abi::BATCH_MAX as u64),
        ("NFG_MADE_MAX", abi::MADE_MAX as u64),
        ("NFG_MADE_BYTES", abi::MADE_BYTES as u64),
        ("NFG_COPY_BYTES", abi::COPY_BYTES as u64),
        ("NFG_REQUEST_BYTES", abi::REQUEST_BYTES as u64),
        ("NFG_FRAME_MAX", nfluid_ring::layout::LONG_MAX as u64),
        ("NFG_FRAME_MIN", nfluid_ring::layout::FRAME_MIN as u64),
        ("NFG_READY", abi::ring::READY.into()),
        ("NFG_MADE", abi::ring::MADE.into()),
        ("NFG_LOG", abi::ring::LOG.into()),
        ("NFG_PANIC", abi::ring::PANIC.into()),
        ("NFG_ROOM", abi::op::ROOM.into()),
        ("NFG_BUILD", abi::op::BUILD.into()),
        ("NFG_PROCESS", abi::op::PROCESS.into()),
        ("NFG_TICK", abi::op::TICK.into()),
        ("NFG_METRICS", abi::op::METRICS.into()),
        ("NFG_COMMAND", abi::op::COMMAND.into()),
        ("NFG_RECONFIGURE", abi::op::RECONFIGURE.into()),
        ("NFG_OK", abi::status::OK.into()),
        ("NFG_FAILED", abi::status::FAILED.into()),
        ("NFG_UNKNOWN", abi::status::UNKNOWN.into()),
        ("sizeof(struct nfg_mailbox)", size_of::<Mailbox>() as u64),
    ] {
        same(c, rust);
    }
    macro_rules! fields {
        ($c:literal, $rust:ty, $($field:ident),*) => {
            $(same(
                concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                offset_of!($rust, $field) as u64,
            );)*
        };
    }
    fields!(
        "nfg_device",
        Device,
        version,
        entropy,
        heap,
        memory_end,
        pool_bytes,
        unix_epoch
    );
    fields!("nfg_call", Call, op, count, now, address, length);
    fields!(
        "nfg_reply",
        Reply,
        status,
        version,
        address,
        length,
        value,
        next_tick,
        made,
        decided
    );
    fields!(
        "nfg_frame",
        FrameWords,
        address,
        capacity,
        length,
        in_port,
        out,
        offload
    );
    fields!("nfg_made", MadeWords, at, length, port, decided, offload);
    fields!(
        "nfg_mailbox",
        Mailbox,
        call,
        reply,
        frames,
        made,
        request,
        bytes,
        copy
    );
    let source = std::env::temp_dir().join(format!("nfluid-guest-{}.c", std::process::id()));
    std::fs::write(&source, text).expect("written");
    let compiled = compile(&source, "same.o", &["-c"]);
    let _ = std::fs::remove_file(&source);
    let _ = std::fs::remove_file(compiled.unwrap_or_else(|why| panic!("{why}")));
}

// promise: 18.9
#[test]
fn the_example_in_c_runs_in_a_guest() {
    let example = root().join("examples/guest-in-c/ttl.c");
    let script = format!("-T{}", root().join("lib/guest/image.ld").display());
    let flags = [
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        &script,
    ];
    let image = compile(&example, "ttl", &flags).unwrap_or_else(|why| panic!("{why}"));
    let bytes = std::fs::read(&image).expect("an image");
    std::fs::remove_file(&image).expect("it is there");
    let slots = pool(64);
    let Some(guest) = start(image_in(&bytes).expect("an image"), slots) else {
        return;
    };
    let mut guest = guest.expect("it starts");
    guest
        .build("ttl", &json!({ "anything": [1, 2] }), &ports(2))
        .expect("it is built");
    // 10.0.0.1 to 10.0.0.2, with TTLs of 64 and 1.
    let mut header = [
        0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0x66, 0xbc, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let sum = |header: &[u8]| {
        let words = header
            .chunks_exact(2)
            .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
        let sum: u32 = words.sum();
        (sum & 0xffff) + (sum >> 16)
    };
    assert_eq!(sum(&header), 0xffff, "the checksum is right");
    let mut frames = arrayvec::ArrayVec::new();
    for (slot, ttl) in slots.chunks_exact_mut(2048).zip([64, 1]) {
        header[8] = ttl;
        slot[12..14].copy_from_slice(&[8, 0]);
        slot[14..34].copy_from_slice(&header);
        frames.push(Frame::new(&mut slot[..2032], 60, 1));
    }
    let mut outbox = Collected::default();
    guest.process(Nanos(1), &mut Batch::new(&mut frames, &mut outbox));
    assert_eq!(frames[0].action(), Action::Send(0));
    assert_eq!(frames[0].bytes()[22], 63);
    assert_eq!(
        sum(&frames[0].bytes()[14..34]),
        0xffff,
        "the checksum is right again"
    );
    assert_eq!(frames[1].action(), Action::Drop);
    let mut counters = Vec::new();
    guest.metrics(&mut |metric: Metric| counters.push((metric.name.into_owned(), metric.value)));
    assert!(
        counters.contains(&("packets_forwarded_total".to_owned(), 1.0)),
        "{counters:?}"
    );
    assert!(
        counters.contains(&("packets_expired_total".to_owned(), 1.0)),
        "{counters:?}"
    );
    guest
        .command(Nanos(1), "any", &[])
        .expect_err("it has no commands");
    assert!(guest.stateful().is_none());
    // A configuration that does not fit into the mailbox.
    let long = json!({ "text": "x".repeat(100_000) });
    guest.reconfigure(&long, &ports(2)).expect("it takes any");
}
