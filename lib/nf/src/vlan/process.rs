//! Processing of a frame.

use super::config::{Rules, TagAction, Unmatched};
use super::metrics::{Counters, DropReason};
use crate::traffic::OnWire;
use alloc::vec;
use nfluid_ring::{Batch, Frame, Offload, Outbox, frame_at};
use nfluid_wire::VlanTag;
use nfluid_wire::ether::{self, EthernetFrame, VLAN_TAG_LEN, VlanStack};

/// The port of the tagged side.
const TRUNK: u8 = 1;
/// Offset of the outermost tag's control information.
const TCI: core::ops::Range<usize> = 14..16;

/// Where a changed frame is.
enum Changed {
    InPlace,
    /// A copy has been sent, and the frame is not needed any more.
    Copied,
}

/// Changes the tags of every frame and sends it to the other port.
pub(super) fn forward(batch: &mut Batch<'_, '_>, rules: &Rules, counters: &mut Counters) {
    let (frames, outbox) = batch.split();
    for at in 0..frames.len() {
        let (frame, mut outbox) = frame_at(frames, at, outbox);
        let (from, arrived) = (frame.in_port() & 1, OnWire::of(frame));
        let to_trunk = from != TRUNK;
        let outcome = match &rules.action {
            TagAction::Push(tag) if to_trunk => push(frame, *tag, &mut outbox),
            TagAction::Push(tag) => pop(frame, *tag),
            TagAction::Translate { trunk, .. } if to_trunk => translate(frame, trunk),
            TagAction::Translate { access, .. } => translate(frame, access),
        };
        frame.send(from ^ 1);
        match outcome {
            Ok(Changed::InPlace) => counters.changed += arrived.packets(),
            Ok(Changed::Copied) => {
                counters.changed += arrived.packets();
                frame.discard();
            }
            Err(DropReason::Unmatched) if rules.unmatched == Unmatched::Pass => {
                counters.unchanged += arrived.packets();
            }
            Err(reason) => {
                counters.dropped(reason, arrived);
                frame.discard();
                continue;
            }
        }
        counters.forwarded.count(from, arrived);
    }
}

fn push(
    frame: &mut Frame<'_>,
    tag: VlanTag,
    outbox: &mut dyn Outbox,
) -> Result<Changed, DropReason> {
    let moved = frame.offload().moved(VLAN_TAG_LEN as isize);
    let moved = moved.ok_or(DropReason::TooLong)?;
    let len = frame.len();
    if !frame.resize(len + VLAN_TAG_LEN) {
        return send_tagged_copy(frame, tag, moved, outbox);
    }
    frame.set_offload(moved);
    ether::push_tag(frame.bytes_mut(), len, tag)
        .map(|_| Changed::InPlace)
        .ok_or(DropReason::TooLong)
}

/// Sends a frame with its tag from another place, since it fills the slots in which it arrived: a super-frame that is
/// dropped for its length comes again with the same length.
#[cold]
fn send_tagged_copy(
    frame: &Frame<'_>,
    tag: VlanTag,
    offload: Offload,
    outbox: &mut dyn Outbox,
) -> Result<Changed, DropReason> {
    let len = frame.len();
    let mut copy = vec![0; len + VLAN_TAG_LEN];
    copy[..len].copy_from_slice(frame.bytes());
    ether::push_tag(&mut copy, len, tag)
        .filter(|_| outbox.emit_offload(TRUNK, &copy, offload))
        .map(|_| Changed::Copied)
        .ok_or(DropReason::TooLong)
}

/// Removes the outermost tag if it is the one that [`push`] adds, whatever its priority.
fn pop(frame: &mut Frame<'_>, tag: VlanTag) -> Result<Changed, DropReason> {
    let outer = VlanStack::peek(frame.bytes())
        .map_err(|_| DropReason::Malformed)?
        .outer();
    let ours = outer.is_some_and(|outer| (outer.tpid, outer.vid) == (tag.tpid, tag.vid));
    if !ours {
        return Err(DropReason::Unmatched);
    }
    let moved = frame.offload().moved(-(VLAN_TAG_LEN as isize));
    frame.set_offload(moved.ok_or(DropReason::Malformed)?);
    let len = frame.len();
    let (_, shorter) = ether::pop_tag(frame.bytes_mut(), len).ok_or(DropReason::Malformed)?;
    if frame.resize(shorter) {
        Ok(Changed::InPlace)
    } else {
        Err(DropReason::Malformed)
    }
}

/// Replaces the outermost identifier; kind, priority and drop eligibility stay.
fn translate(frame: &mut Frame<'_>, table: &[u16]) -> Result<Changed, DropReason> {
    if !EthernetFrame::new_unchecked(frame.bytes())
        .ethertype()
        .is_vlan()
    {
        return Err(DropReason::Unmatched);
    }
    let tci = frame
        .bytes_mut()
        .get_mut(TCI)
        .ok_or(DropReason::Malformed)?;
    let old = u16::from_be_bytes([tci[0], tci[1]]);
    match table.get(usize::from(old & 0xfff)) {
        None | Some(0) => Err(DropReason::Unmatched),
        Some(id) => {
            tci.copy_from_slice(&(old & 0xf000 | id).to_be_bytes());
            Ok(Changed::InPlace)
        }
    }
}
