//! Guests that do what they must not: the monitor says what happened, and nothing else does.

use crate::bed::{READ_ONLY, end_of, image_of, pool, ready, start, store};
use nfluid_guest::abi::{DOORBELL, IMAGE, MEMORY, Mailbox, POOL, Reply, STACK, ring};
use nfluid_nf::{Nanos, NetworkFunction};
use nfluid_ring::{Batch, Frame};
use nfluid_vmm::End;
use nfluid_vmm::end::MachineError;
use std::mem::offset_of;

/// Runs code from the start, and returns how the guest ends. `None`: there is no KVM.
fn end_at_start(code: &[u8]) -> Option<End> {
    match start(image_of(code), pool(64))? {
        Err(MachineError::Ended(end)) => Some(end),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the guest goes on"),
    }
}

// promise: 18.4
#[test]
fn a_wild_pointer_is_named() {
    let beyond = MEMORY + crate::bed::MEMORY_BYTES + 0x1000;
    let ends = [
        (store(beyond, 1), beyond),
        (store(POOL + 64 * 2048, 1), POOL + 64 * 2048),
    ];
    for (code, expected) in ends {
        let Some(end) = end_at_start(&code) else {
            return;
        };
        let is_it = matches!(end, End::Wild { address, is_write: true, rip }
            if address == expected && (IMAGE..IMAGE + 64).contains(&rip));
        assert!(is_it, "{end}");
    }
}

// promise: 18.4
#[test]
fn what_the_processor_refuses_ends_the_guest() {
    let codes = [
        ("an invalid instruction", vec![0x0f, 0x0b]),
        ("a null pointer", store(0, 1)),
        ("a write to read-only memory", store(READ_ONLY, 1)),
        ("a write to its own code", store(IMAGE, 1)),
        ("a stack that is too long", store(STACK - 8, 1)),
        ("a privileged instruction", vec![0xf4]),
        ("a system call", vec![0x0f, 0x05]),
        ("an interrupt", vec![0xcd, 0x80]),
        ("a port", vec![0xe6, 0x80]),
        ("code in data", {
            // mov eax, MEMORY; jmp rax
            let mut code = vec![0xb8];
            code.extend_from_slice(&(MEMORY as u32).to_le_bytes());
            code.extend_from_slice(&[0xff, 0xe0]);
            code
        }),
    ];
    for (what, code) in codes {
        let Some(end) = end_at_start(&code) else {
            return;
        };
        println!("{what}: {end}");
        let is_end = matches!(end, End::Exception { .. } | End::Wild { .. } | End::Kvm(_));
        assert!(is_end, "{what}: {end}");
    }
}

// promise: 18.5
#[test]
fn a_guest_that_never_stands_still_is_stopped() {
    nfluid_vmm::watchdog::start().expect("a timer");
    let Some(end) = end_at_start(&[0xeb, 0xfe]) else {
        return;
    };
    assert!(matches!(end, End::Endless(_, IMAGE)), "{end}");
}

// promise: 18.4
#[test]
fn a_ring_for_nothing_ends_the_guest() {
    for ring in [0, 5, u32::MAX] {
        let Some(end) = end_at_start(&store(DOORBELL, ring)) else {
            return;
        };
        assert!(matches!(end, End::Protocol(_)), "{end}");
    }
    let made = end_at_start(&store(DOORBELL, ring::MADE)).expect("KVM");
    assert!(matches!(made, End::Protocol(_)), "{made}");
}

// promise: 18.4
#[test]
fn an_image_of_another_version_is_refused() {
    let Some(end) = end_at_start(&store(DOORBELL, ring::READY)) else {
        return;
    };
    assert!(end.to_string().contains("another version"), "{end}");
}

/// A guest that replies to its first batch with these words in its reply (position, value).
fn reply_to_a_batch(words: &[(usize, u32)]) -> Option<End> {
    let mut code = ready();
    for (at, value) in words {
        let at = offset_of!(Mailbox, reply) + at;
        code.extend(store(MEMORY + at as u64, *value));
    }
    code.extend(store(DOORBELL, ring::READY));
    code.extend_from_slice(&[0xeb, 0xfe]);
    let pool = pool(64);
    let mut guest = start(image_of(&code), pool)?.expect("it starts");
    Some(end_of(|| {
        let mut frames = arrayvec::ArrayVec::new();
        frames.push(Frame::new(&mut pool[..2032], 60, 0));
        let mut outbox = nfluid_nf::testing::Collected::default();
        guest.process(Nanos(1), &mut Batch::new(&mut frames, &mut outbox));
        panic!("the guest goes on");
    }))
}

// promise: 18.4
#[test]
fn a_reply_that_makes_no_sense_ends_the_guest() {
    let made = offset_of!(Reply, made);
    let decided = offset_of!(Reply, decided);
    let status = offset_of!(Reply, status);
    for words in [
        &[(made, 65)][..],
        &[(made, u32::MAX)],
        &[(decided, 2)],
        &[(decided, u32::MAX)],
        &[(status, 1)],
        // A made frame of no length.
        &[(made, 1)],
    ] {
        let Some(end) = reply_to_a_batch(words) else {
            return;
        };
        assert!(matches!(end, End::Protocol(_)), "{words:?}: {end}");
    }
}
