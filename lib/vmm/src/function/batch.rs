//! Batches of frames: handed to the guest where they lie, and taken back with its decisions.

use super::await_reply;
use crate::end::End;
use crate::machine::{Machine, PoolMemory};
use crate::watchdog::PATIENCE_S;
use nfluid_guest::abi::{
    Call, FrameWords, MADE_MAX, MEMORY, Mailbox, OFFLOAD_BYTES, POOL, Reply, op, status,
};
use nfluid_nf::Nanos;
use nfluid_ring::layout::{FRAME_MIN, LONG_MAX};
use nfluid_ring::{Batch, Frame, Offload, Outbox};
use std::mem::offset_of;

/// The end of a call with frames.
#[derive(Default)]
pub struct Done {
    /// Time at which the next tick has work.
    pub next_tick: u64,
    /// Frames that the guest has made and for which a port had no room.
    pub unsent: u64,
}

/// Has the guest handle a batch.
pub fn process(machine: &mut Machine, now: Nanos, batch: &mut Batch<'_, '_>) -> Result<Done, End> {
    let (frames, outbox) = batch.split();
    // A frame that lies in no slot of the pool, as after a move, is handed over by itself through the mailbox.
    let pool = machine.pool();
    let in_pool = |frame: &Frame<'_>| place_in_pool(pool, frame).is_some();
    if !frames.iter().all(in_pool) {
        return process_copies(machine, now, frames, outbox);
    }
    let mailbox = machine.memory().mailbox();
    for (words, frame) in mailbox.frames.iter_mut().zip(frames.iter()) {
        let address = place_in_pool(pool, frame).unwrap_or_default();
        *words = words_of(frame, address);
    }
    run(machine, op::PROCESS, now, frames, outbox)
}

/// Has the guest do the work that time drives.
pub fn tick(machine: &mut Machine, now: Nanos, outbox: &mut dyn Outbox) -> Result<Done, End> {
    run(machine, op::TICK, now, &mut [], outbox)
}

/// Hands over frames one by one, each as a copy in the mailbox.
fn process_copies(
    machine: &mut Machine,
    now: Nanos,
    frames: &mut [Frame<'_>],
    outbox: &mut dyn Outbox,
) -> Result<Done, End> {
    let mut all = Done::default();
    for at in 0..frames.len() {
        let (decided, rest) = frames.split_at_mut(at);
        outbox.commit(decided);
        let frame = &mut rest[..1];
        let mailbox = machine.memory().mailbox();
        mailbox.frames[0] = words_of(&frame[0], MEMORY + offset_of!(Mailbox, copy) as u64);
        mailbox.copy[..frame[0].len()].copy_from_slice(frame[0].bytes());
        let done = run(machine, op::PROCESS, now, frame, outbox)?;
        let length = frame[0].len();
        let changed = &machine.memory().mailbox().copy[..length];
        frame[0].bytes_mut().copy_from_slice(changed);
        all.next_tick = done.next_tick;
        all.unsent += done.unsent;
    }
    Ok(all)
}

/// Makes a call that may make frames, and carries out what the guest has decided.
fn run(
    machine: &mut Machine,
    op: u32,
    now: Nanos,
    frames: &mut [Frame<'_>],
    outbox: &mut dyn Outbox,
) -> Result<Done, End> {
    machine.follow_clock(now.0);
    machine.memory().put_call(Call {
        op,
        count: frames.len() as u32,
        now: now.0,
        ..Call::default()
    });
    machine.begin_call(PATIENCE_S);
    let mut decisions = Decisions {
        frames,
        outbox,
        decided: 0,
        unsent: 0,
    };
    let reply = await_reply(machine, &mut |machine| {
        let reply = machine.memory_ref().reply();
        decisions.take(machine, &reply)
    })?;
    if reply.status != status::OK {
        return Err(End::Protocol("it refuses frames"));
    }
    decisions.take(machine, &reply)?;
    Ok(Done {
        next_tick: reply.next_tick,
        unsent: decisions.unsent,
    })
}

/// The decisions of a guest about a batch.
struct Decisions<'a, 'f> {
    frames: &'a mut [Frame<'f>],
    outbox: &'a mut dyn Outbox,
    /// Frames about which it has decided.
    decided: usize,
    unsent: u64,
}

impl Decisions<'_, '_> {
    /// Carries out what is in the mailbox: frames that were made, in their place between those of the batch.
    fn take(&mut self, machine: &mut Machine, reply: &Reply) -> Result<(), End> {
        let mailbox = &*machine.memory().mailbox();
        if reply.made as usize > MADE_MAX || reply.decided as usize > self.frames.len() {
            return Err(End::Protocol(
                "it makes or decides about more frames than there can be",
            ));
        }
        for made in &mailbox.made[..reply.made as usize] {
            self.decide_to(usize::from(made.decided), mailbox)?;
            let from = made.at as usize;
            let length = usize::from(made.length);
            let bytes = mailbox.bytes.get(from..from.saturating_add(length));
            let bytes = bytes.filter(|bytes| (FRAME_MIN..=LONG_MAX).contains(&bytes.len()));
            let bytes = bytes.ok_or(End::Protocol("it makes a frame that is none"))?;
            let offload = offload_of(made.offload, length)?;
            self.unsent += u64::from(!self.outbox.emit_offload(made.port, bytes, offload));
        }
        self.decide_to(reply.decided as usize, mailbox)
    }

    /// Carries out the decisions about the frames before `decided`.
    fn decide_to(&mut self, decided: usize, mailbox: &Mailbox) -> Result<(), End> {
        if decided < self.decided || decided > self.frames.len() {
            return Err(End::Protocol("it decides about frames in a wrong order"));
        }
        if decided == self.decided {
            return Ok(());
        }
        let frames = self.frames[self.decided..decided].iter_mut();
        for (frame, words) in frames.zip(&mailbox.frames[self.decided..decided]) {
            if !frame.resize(usize::from(words.length)) {
                return Err(End::Protocol("it gives a frame a length that does not fit"));
            }
            frame.set_offload(offload_of(words.offload, usize::from(words.length))?);
            match words.out.checked_sub(1) {
                Some(port) => frame.send(port),
                None => frame.discard(),
            }
        }
        self.decided = decided;
        self.outbox.commit(&self.frames[..decided]);
        Ok(())
    }
}

/// Returns the words of a frame that lies at an address of the guest.
fn words_of(frame: &Frame<'_>, address: u64) -> FrameWords {
    FrameWords {
        address,
        capacity: frame.capacity() as u32,
        length: frame.len() as u16,
        in_port: frame.in_port(),
        out: 0,
        offload: if frame.offload().is_none() {
            [0; OFFLOAD_BYTES]
        } else {
            frame.offload().words(frame.len())
        },
    }
}

/// Checks what a guest says is still to be done to a frame.
fn offload_of(words: [u8; OFFLOAD_BYTES], length: usize) -> Result<Offload, End> {
    if words == [0; OFFLOAD_BYTES] {
        return Ok(Offload::NONE);
    }
    Offload::check(words, length).map_err(|_| End::Protocol("it leaves impossible work to others"))
}

/// Returns the address in the guest of a frame that lies in its pool.
fn place_in_pool(pool: PoolMemory, frame: &Frame<'_>) -> Option<u64> {
    let at = (frame.bytes().as_ptr() as u64).checked_sub(pool.start)?;
    (at.checked_add(frame.capacity() as u64)? <= pool.bytes).then_some(POOL + at)
}
