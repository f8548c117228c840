//! Processing of a frame.

use super::config::{Rules, TagAction, Unmatched};
use super::metrics::{Counters, DropReason};
use crate::traffic::OnWire;
use nfluid_ring::Frame;
use nfluid_wire::VlanTag;
use nfluid_wire::ether::{self, EthernetFrame, VLAN_TAG_LEN, VlanStack};

/// The port of the tagged side.
const TRUNK: u8 = 1;
/// Offset of the outermost tag's control information.
const TCI: core::ops::Range<usize> = 14..16;

/// Changes the tags of every frame and sends it to the other port.
pub(super) fn forward(frames: &mut [Frame<'_>], rules: &Rules, counters: &mut Counters) {
    for frame in frames {
        let (from, arrived) = (frame.in_port() & 1, OnWire::of(frame));
        let to_trunk = from != TRUNK;
        let outcome = match &rules.action {
            TagAction::Push(tag) if to_trunk => push(frame, *tag),
            TagAction::Push(tag) => pop(frame, *tag),
            TagAction::Translate { trunk, .. } if to_trunk => translate(frame, trunk),
            TagAction::Translate { access, .. } => translate(frame, access),
        };
        match outcome {
            Ok(()) => counters.changed += arrived.packets,
            Err(DropReason::Unmatched) if rules.unmatched == Unmatched::Pass => {
                counters.unchanged += arrived.packets;
            }
            Err(reason) => {
                counters.dropped(reason, arrived);
                frame.discard();
                continue;
            }
        }
        counters.forwarded.count(from, arrived);
        frame.send(from ^ 1);
    }
}

fn push(frame: &mut Frame<'_>, tag: VlanTag) -> Result<(), DropReason> {
    let moved = frame.offload().moved(VLAN_TAG_LEN as isize);
    let moved = moved.ok_or(DropReason::TooLong)?;
    let len = frame.len();
    if !frame.resize(len + VLAN_TAG_LEN) {
        return Err(DropReason::TooLong);
    }
    frame.set_offload(moved);
    ether::push_tag(frame.bytes_mut(), len, tag)
        .map(|_| ())
        .ok_or(DropReason::TooLong)
}

/// Removes the outermost tag if it is the one that [`push`] adds, whatever its priority.
fn pop(frame: &mut Frame<'_>, tag: VlanTag) -> Result<(), DropReason> {
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
        Ok(())
    } else {
        Err(DropReason::Malformed)
    }
}

/// Replaces the outermost identifier; kind, priority and drop eligibility stay.
fn translate(frame: &mut Frame<'_>, table: &[u16]) -> Result<(), DropReason> {
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
            Ok(())
        }
    }
}
