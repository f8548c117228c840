//! Fixture of the data plane's tests: a private platform in each loop form, frames, instances on switches.
#![allow(dead_code, reason = "each test program uses its own part")]

use nfluid_ring::port::{Port, WhenFull};
use nfluid_switch::{Destination, Form};
use nfluid_testbed::scratch::{Scratch, ScratchInstance};
use nfluid_tests::harness::skip;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The loop forms that this kernel must accept. Linux has `may_goto` since 6.9.
fn forms() -> Vec<Form> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok());
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let version = (number(parts.next()), number(parts.next()));
    if version >= (Some(6), Some(9)) {
        vec![Form::Goto, Form::Call]
    } else {
        vec![Form::Call]
    }
}

pub fn for_each_form(label: &str, check: impl Fn(&mut Scratch)) {
    if !skip::is_root(label) {
        return;
    }
    for form in forms() {
        println!("{label}: {form}");
        with_form(label, form, &check);
    }
}

fn with_form(label: &str, form: Form, check: impl Fn(&mut Scratch)) {
    check(&mut Scratch::with_form(label, Some(form)).expect("scratch platform"));
}

/// As [`for_each_form`]; what fails is checked again, a few times, on another platform, if `is_excused` then: the machine
/// stood still for so long that nothing can be said.
pub fn for_each_form_unless(
    is_excused: impl Fn() -> bool,
    label: &str,
    check: impl Fn(&mut Scratch),
) {
    const TRIES: usize = 5;
    if !skip::is_root(label) {
        return;
    }
    for form in forms() {
        for left in (0..TRIES).rev() {
            println!("{label}: {form}");
            let check = AssertUnwindSafe(|| with_form(label, form, &check));
            match catch_unwind(check) {
                Ok(()) => break,
                Err(_) if left > 0 && is_excused() => {}
                Err(failure) => resume_unwind(failure),
            }
        }
    }
}

pub fn frame(dst: [u8; 6], src: [u8; 6], len: usize, fill: u8) -> Vec<u8> {
    let mut bytes = vec![fill; len];
    bytes[..6].copy_from_slice(&dst);
    bytes[6..12].copy_from_slice(&src);
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes
}

/// Puts a VLAN tag behind a frame's addresses: four bytes more.
pub fn tagged(frame: &[u8], protocol: u16, control: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let tag = [protocol.to_be_bytes(), control.to_be_bytes()].concat();
    [addresses, &tag, rest].concat()
}

pub fn send(port: &mut Port, frame: &[u8]) {
    let queued = port.send(|slot| {
        slot[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert!(queued, "no room for a frame of {} bytes", frame.len());
}

pub fn received(port: &mut Port) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    port.receive(usize::MAX, |bytes| frames.push(bytes.to_vec()));
    frames
}

/// A switch with `count` pinned ports, one instance each, and the instances' ports.
pub fn bridge(
    scratch: &mut Scratch,
    switch: u32,
    count: usize,
) -> (Vec<ScratchInstance>, Vec<Port>) {
    let mut members = Members::default();
    members.join(scratch, switch, count, 64);
    (members.instances, members.ports)
}

/// Instances with one port each.
#[derive(Default)]
pub struct Members {
    pub instances: Vec<ScratchInstance>,
    pub ports: Vec<Port>,
}

impl Members {
    /// Members of one switch.
    pub fn of_switch(scratch: &mut Scratch, switch: u32, count: usize) -> Self {
        let mut members = Members::default();
        members.join(scratch, switch, count, 64);
        members
    }

    /// Adds `count` members of a switch, pinned to their own addresses, with rings of `slots`.
    pub fn join(&mut self, scratch: &mut Scratch, switch: u32, count: usize, slots: u32) {
        for _ in 0..count {
            let instance = scratch.instance(1, slots, slots).expect("instance");
            let (id, mac) = (instance.id(0), instance.mac(0));
            scratch
                .switch
                .connect(id, Destination::Switch(switch))
                .expect("connect");
            scratch.switch.pin_address(switch, 0, mac, id).expect("pin");
            self.add(instance);
        }
    }

    /// Adds two instances that are linked.
    pub fn join_link(&mut self, scratch: &mut Scratch) {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        self.add(a);
        self.add(b);
    }

    fn add(&mut self, instance: ScratchInstance) {
        self.ports
            .append(&mut instance.attach().expect("attach").ports);
        self.instances.push(instance);
    }

    pub fn id(&self, member: usize) -> u32 {
        self.instances[member].id(0)
    }

    pub fn mac(&self, member: usize) -> [u8; 6] {
        self.instances[member].mac(0)
    }

    /// Sends a frame from a member; the members at which it arrives, unchanged and once.
    pub fn switched(&mut self, from: usize, frame: &[u8]) -> Vec<usize> {
        send(&mut self.ports[from], frame);
        let sent = self.ports[from].flush(WhenFull::Drop);
        assert_eq!(sent.expect("the port is up"), 1);
        let mut reached = Vec::new();
        for (member, port) in self.ports.iter_mut().enumerate() {
            for arrived in received(port) {
                assert_eq!(arrived, frame, "from member {from} to member {member}");
                reached.push(member);
            }
        }
        reached
    }
}
