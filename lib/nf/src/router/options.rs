//! IPv4 options in packets that are forwarded or answered (RFC 791 section 3.1, RFC 1812 sections 4.3.3.6 and 5.2.4).
//!
//! Record route and timestamp are filled in, source routes are reported to the caller, all others
//! pass as they are.

use crate::function::Nanos;
use crate::ipv4_options::{self, END_OF_LIST, NO_OPERATION};
use core::net::Ipv4Addr;

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// Low four bits of a timestamp option's fourth byte: addresses precede the timestamps.
const FLAG_WITH_ADDRESS: u8 = 1;
/// The addresses are given; only their owners fill in.
const FLAG_PRESPECIFIED: u8 = 3;
/// The router has no clock of the day: RFC 791 then asks for this bit in the timestamp.
const NOT_UNIVERSAL_TIME: u32 = 1 << 31;

/// The reason why a packet's options prevent its forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionError {
    /// The list cannot be read on from this byte of it.
    Malformed {
        /// Offset from the start of the list.
        at: usize,
    },
    /// The packet has a source route.
    SourceRoute {
        /// No hop is left of it: the packet's destination is where it is to end.
        is_done: bool,
    },
}

/// Checks an option list, the bytes between the fixed header and the payload.
pub(super) fn check(options: &[u8]) -> Result<(), OptionError> {
    let mut at = 0;
    let mut source_route = None;
    while at < options.len() {
        let kind = options[at];
        match kind {
            END_OF_LIST => break,
            NO_OPERATION => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let malformed = Err(OptionError::Malformed { at });
        let Some(length) = options.get(at + 1).map(|length| usize::from(*length)) else {
            return malformed;
        };
        if length < 2 || at + length > options.len() {
            return Err(OptionError::Malformed { at: at + 1 });
        }
        let option = &options[at..at + length];
        let pointer = option.get(2).map_or(0, |pointer| usize::from(*pointer));
        let fields_wrong = match kind {
            RECORD_ROUTE => length < 3 || pointer < 4 || pointer <= length && pointer + 3 > length,
            TIMESTAMP => length < 4 || pointer < 5,
            _ => false,
        };
        if fields_wrong {
            return Err(OptionError::Malformed { at: at + 2 });
        }
        if matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE) {
            source_route = Some(pointer > length);
        }
        at += length;
    }
    match source_route {
        Some(is_done) => Err(OptionError::SourceRoute { is_done }),
        None => Ok(()),
    }
}

/// Blanks all of a checked list but what an echo reply repeats: record route and timestamp (RFC 1122 section 3.2.2.6).
/// Returns whether there is any.
pub(super) fn keep_records(options: &mut [u8]) -> bool {
    let mut any = false;
    ipv4_options::for_each(options, |option| match option[0] {
        RECORD_ROUTE | TIMESTAMP => any = true,
        _ => option.fill(NO_OPERATION),
    });
    any
}

/// Fills in record route and timestamp options of a checked list: `own` is the address of the port
/// on which the packet leaves.
pub(super) fn record(options: &mut [u8], own: Ipv4Addr, now: Nanos) {
    ipv4_options::for_each(options, |option| match option[0] {
        RECORD_ROUTE => record_route(option, own),
        TIMESTAMP => record_time(option, own, now),
        _ => {}
    });
}

/// The bytes at the option's pointer, which counts from 1, moved on by `N`.
fn advance<const N: usize>(option: &mut [u8]) -> Option<&mut [u8; N]> {
    let start = usize::from(*option.get(2)?).checked_sub(1)?;
    let next = u8::try_from(start + N + 1).ok()?;
    if option.len() < start + N {
        return None;
    }
    option[2] = next;
    option[start..].first_chunk_mut::<N>()
}

fn record_route(option: &mut [u8], own: Ipv4Addr) {
    if let Some(place) = advance::<4>(option) {
        *place = own.octets();
    }
}

fn record_time(option: &mut [u8], own: Ipv4Addr, now: Nanos) {
    let Some(flags) = option.get(3).map(|byte| byte & 0xf) else {
        return;
    };
    let millis = (now.0 / 1_000_000) as u32 & !NOT_UNIVERSAL_TIME;
    let time = (millis | NOT_UNIVERSAL_TIME).to_be_bytes();
    let done = match flags {
        FLAG_WITH_ADDRESS => advance::<8>(option).map(|place| {
            place[..4].copy_from_slice(&own.octets());
            place[4..].copy_from_slice(&time);
        }),
        FLAG_PRESPECIFIED => {
            let start = usize::from(option[2]).saturating_sub(1);
            if option.get(start..start + 4) != Some(&own.octets()) {
                return;
            }
            advance::<8>(option).map(|place| place[4..].copy_from_slice(&time))
        }
        _ => advance::<4>(option).map(|place| *place = time),
    };
    if done.is_none() {
        // Counts another host that found no room.
        option[3] = option[3].saturating_add(0x10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    #[test]
    fn record_route_takes_the_next_place() {
        let mut options = [7, 11, 4, 0, 0, 0, 0, 9, 9, 9, 9, 0];
        assert_eq!(check(&options), Ok(()));
        record(&mut options, OWN, Nanos(0));
        assert_eq!(options, [7, 11, 8, 192, 0, 2, 1, 9, 9, 9, 9, 0]);
        record(&mut options, OWN, Nanos(0));
        record(&mut options, OWN, Nanos(0));
        assert_eq!(options, [7, 11, 12, 192, 0, 2, 1, 192, 0, 2, 1, 0]);
    }

    #[test]
    fn a_timestamp_without_room_counts_the_overflow() {
        let mut options = [68, 8, 5, 0, 0, 0, 0, 0];
        record(&mut options, OWN, Nanos(3_000_000));
        assert_eq!(options, [68, 8, 9, 0, 0x80, 0, 0, 3]);
        record(&mut options, OWN, Nanos(3_000_000));
        assert_eq!(options, [68, 8, 9, 0x10, 0x80, 0, 0, 3]);
    }

    #[test]
    fn source_routes_and_bad_lists_are_distinguished() {
        let route = |is_done| Err(OptionError::SourceRoute { is_done });
        assert_eq!(check(&[131, 3, 4, 0]), route(true));
        assert_eq!(check(&[1, 137, 3, 4]), route(true));
        assert_eq!(check(&[131, 7, 4, 10, 0, 0, 1, 0]), route(false));
        assert_eq!(check(&[7, 0, 0, 0]), Err(OptionError::Malformed { at: 1 }));
        assert_eq!(check(&[7, 3, 1, 0]), Err(OptionError::Malformed { at: 2 }));
        assert_eq!(check(&[1, 1, 1, 7]), Err(OptionError::Malformed { at: 3 }));
        assert_eq!(check(&[148, 4, 0, 0]), Ok(()));
    }

    proptest! {
        #[test]
        fn any_list_is_survived(mut options in prop::collection::vec(any::<u8>(), 0..40)) {
            let readable = check(&options).is_ok();
            let before: Vec<u8> = options.clone();
            record(&mut options, OWN, Nanos(1));
            prop_assert_eq!(options.len(), before.len());
            if readable {
                let stays_readable = !matches!(check(&options), Err(OptionError::SourceRoute { .. }));
                prop_assert!(stays_readable);
            }
        }
    }
}
