//! Linear evaluation: the plain reference, and the compiled form for short lists.

use super::interval::{Coordinate, Set};
use super::packet::{Addresses, Packet};
use super::rule::{Rule, RuleAction};
use super::space::{self, Region};
use alloc::vec::Vec;

/// The plain reference: rule by rule, in order. Returns the index of the first rule from `start`
/// on whose conditions hold; `check-state` rules have none and are skipped.
pub fn first_match(rules: &[Rule], packet: &Packet, start: usize) -> Option<usize> {
    let rest = rules.get(start..)?;
    rest.iter()
        .position(|rule| rule.action != RuleAction::CheckState && rule.matches(packet))
        .map(|index| start + index)
}

/// Rules compiled for linear evaluation, per IP version.
#[derive(Debug)]
pub struct Linear {
    v4: Vec<Compact<u32>>,
    v6: Vec<Compact<u128>>,
}

impl Linear {
    /// Compiles `rules`.
    pub fn new(rules: &[Rule]) -> Self {
        let mut linear = Linear {
            v4: Vec::new(),
            v6: Vec::new(),
        };
        for (index, rule) in rules.iter().enumerate() {
            if rule.action == RuleAction::CheckState {
                continue;
            }
            let region = Region::of(rule);
            let v4 = Compact::new(index, &region.src_v4, &region.dst_v4, &region);
            let v6 = Compact::new(index, &region.src_v6, &region.dst_v6, &region);
            linear.v4.extend(v4);
            linear.v6.extend(v6);
        }
        linear
    }

    /// As [`first_match`]; `rules` are those it was compiled from.
    #[inline]
    pub fn first_match(&self, rules: &[Rule], packet: &Packet, start: usize) -> Option<usize> {
        let point = Point {
            src_port: space::src_port(packet),
            service: space::service(packet),
            kind: space::kind(packet),
            flags: space::flags(packet),
            vlan: space::vlan(packet),
        };
        match packet.addresses {
            Addresses::V4 { src, dst } => scan(&self.v4, rules, packet, (src, dst), &point, start),
            Addresses::V6 { src, dst } => scan(&self.v6, rules, packet, (src, dst), &point, start),
        }
    }
}

#[inline]
fn scan<A: Coordinate>(
    list: &[Compact<A>],
    rules: &[Rule],
    packet: &Packet,
    (src, dst): (A, A),
    point: &Point,
    start: usize,
) -> Option<usize> {
    for rule in list {
        if rule.admits(src, dst, point) {
            let index = rule.index as usize;
            if index >= start && (rule.exact || rules.get(index)?.matches(packet)) {
                return Some(index);
            }
        }
    }
    None
}

/// A packet but for its addresses.
struct Point {
    src_port: u32,
    service: u32,
    kind: u32,
    flags: u32,
    vlan: u32,
}

/// The smallest box around a rule's region, in one cache line for IPv4.
#[derive(Debug)]
struct Compact<A> {
    src: Span<A>,
    dst: Span<A>,
    src_port: Span<u32>,
    service: Span<u32>,
    kind: Masked,
    flags: Masked,
    vlan: Span<u32>,
    index: u32,
    /// True if the box is the region; else a hit is checked against the rule itself.
    exact: bool,
}

impl<A: Coordinate> Compact<A> {
    /// `None` if no packet with such addresses matches.
    fn new(
        index: usize,
        src: &Option<Set<A>>,
        dst: &Option<Set<A>>,
        region: &Region,
    ) -> Option<Self> {
        let mut exact = true;
        Some(Compact {
            src: Span::around(src, &mut exact)?,
            dst: Span::around(dst, &mut exact)?,
            src_port: Span::around(&region.src_port, &mut exact)?,
            service: Span::around(&region.service, &mut exact)?,
            kind: Masked::around(&region.kind, space::KIND_MAX, &mut exact)?,
            flags: Masked::around(&region.flags, space::FLAGS_MAX, &mut exact)?,
            vlan: Span::around(&region.vlan, &mut exact)?,
            index: index as u32,
            exact,
        })
    }

    /// Without branches: which of the conditions fails is not predictable.
    #[inline(always)]
    fn admits(&self, src: A, dst: A, point: &Point) -> bool {
        self.kind.holds(point.kind)
            & self.dst.holds(dst)
            & self.src.holds(src)
            & self.service.holds(point.service)
            & self.src_port.holds(point.src_port)
            & self.flags.holds(point.flags)
            & self.vlan.holds(point.vlan)
    }
}

/// `low..=low + width`, checked with one comparison.
#[derive(Debug)]
struct Span<C> {
    low: C,
    width: C,
}

impl<C: Coordinate> Span<C> {
    /// The hull of a set; clears `exact` if that is more than the set. `None` if it is empty.
    fn around(set: &Option<Set<C>>, exact: &mut bool) -> Option<Self> {
        let Some(set) = set else {
            let (low, width) = (C::MIN, C::MAX);
            return Some(Span { low, width });
        };
        let ((low, _), (_, high)) = (set.intervals().first()?, set.intervals().last()?);
        *exact &= set.intervals().len() == 1;
        Some(Span {
            low: *low,
            width: high.distance(*low),
        })
    }

    #[inline(always)]
    fn holds(&self, x: C) -> bool {
        x.distance(self.low) <= self.width
    }
}

/// Numbers in some bits of which a value stands.
#[derive(Debug)]
struct Masked {
    mask: u32,
    value: u32,
}

impl Masked {
    /// The bits in which all numbers of a set agree; clears `exact` if others agree too.
    fn around(set: &Option<Set<u32>>, max: u32, exact: &mut bool) -> Option<Self> {
        let Some(set) = set else {
            return Some(Masked { mask: 0, value: 0 });
        };
        let members = || set.intervals().iter().flat_map(|(low, high)| *low..=*high);
        let value = members().next()?;
        let mask = members().fold(u32::MAX, |mask, member| mask & !(member ^ value));
        let masked = Masked {
            mask,
            value: value & mask,
        };
        let admitted = (0..=max).filter(|x| masked.holds(*x)).count();
        *exact &= admitted == members().count();
        Some(masked)
    }

    #[inline(always)]
    fn holds(&self, x: u32) -> bool {
        x & self.mask == self.value
    }
}
