//! The CPU time promised to an instance, in parts of a core: its own share, or its part of its groups' shares.

use crate::group::{Groups, weight};
use crate::portion::Portion;
use crate::quantity::Share;
use crate::spec::Resources;
use std::collections::BTreeMap;

/// Returns the promise of each instance, by its name. Within a group a share is a proportion: the group's own part is
/// divided by the weights of everything in it. CPU time that is promised to no instance is not distributed here.
pub fn parts<'a>(
    groups: &Groups,
    instances: &[(&'a str, &Resources)],
    cpus: usize,
) -> BTreeMap<&'a str, f64> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for group in groups.values() {
        let weight = weight(group.share, group.guarantee, cpus);
        if let Some(around) = &group.group {
            *sums.entry(around).or_default() += weight;
        }
    }
    for (_, resources) in instances {
        let weight = weight(resources.share, resources.guarantee, cpus);
        if let Some(around) = &resources.group {
            *sums.entry(around).or_default() += weight;
        }
    }
    let promises = Promises { groups, sums, cpus };
    let part = |(name, resources): &(&'a str, &Resources)| {
        let weight = weight(resources.share, resources.guarantee, cpus);
        let around = resources.group.as_deref();
        (*name, promises.divided(weight, around, resources.cap, 0))
    };
    instances.iter().map(part).collect()
}

struct Promises<'a> {
    groups: &'a Groups,
    /// Sums of the weights of all members of a group.
    sums: BTreeMap<&'a str, u64>,
    cpus: usize,
}

impl Promises<'_> {
    /// Returns the part that a member with this weight gets in the group `around`. `depth` is the number of groups that
    /// were followed so far.
    fn divided(
        &self,
        weight: u64,
        around: Option<&str>,
        cap: Option<Portion>,
        depth: usize,
    ) -> f64 {
        let full = f64::from(Share::FULL.hundredths());
        let own = weight as f64;
        let part = match around.and_then(|name| Some((name, self.groups.get(name)?))) {
            Some((name, group)) if depth < crate::group::DEPTH_MAX => {
                let outer = crate::group::weight(group.share, group.guarantee, self.cpus);
                let of = self.divided(outer, group.group.as_deref(), group.cap, depth + 1);
                let sum = self.sums.get(name).copied().unwrap_or(weight).max(1);
                of * own / sum as f64
            }
            _ => own / full,
        };
        let most = cap.map_or(f64::INFINITY, |cap| cap.hundredths(self.cpus) as f64 / full);
        part.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::placement::Placement;
    use crate::quantity::Bytes;

    fn resources(group: Option<&str>, share: &str, cap: Option<&str>) -> Resources {
        let portion = |text: &str| text.parse().ok();
        Resources {
            group: group.map(str::to_owned),
            share: portion(share),
            cap: cap.and_then(portion),
            guarantee: None,
            memory: Bytes::mib(1),
            cpus: Vec::new(),
            placement: Placement::Free,
            slice: None,
        }
    }

    fn group(around: Option<&str>, share: &str) -> Group {
        Group {
            group: around.map(str::to_owned),
            share: share.parse().ok(),
            ..Group::default()
        }
    }

    #[test]
    fn members_divide_what_their_group_was_promised() {
        let groups = Groups::from([
            ("gold".to_owned(), group(None, "40%")),
            ("alice".to_owned(), group(Some("gold"), "100%")),
        ]);
        let own = resources(None, "30%", None);
        let beside = resources(Some("gold"), "300%", None);
        let first = resources(Some("alice"), "100%", None);
        let second = resources(Some("alice"), "300%", Some("5%"));
        let all = [
            ("own", &own),
            ("beside", &beside),
            ("first", &first),
            ("second", &second),
        ];
        let parts = parts(&groups, &all, 2);
        let near = |name: &str, wanted: f64| {
            assert!((parts[name] - wanted).abs() < 1e-9, "{name}: {parts:?}");
        };
        near("own", 0.3);
        near("beside", 0.3);
        near("first", 0.025);
        // Three quarters of a tenth of a core, and its own cap.
        near("second", 0.05);
    }

    #[test]
    fn groups_in_a_circle_end() {
        let groups = Groups::from([
            ("a".to_owned(), group(Some("b"), "40%")),
            ("b".to_owned(), group(Some("a"), "40%")),
        ]);
        let inside = resources(Some("a"), "10%", None);
        let parts = parts(&groups, &[("inside", &inside)], 2);
        assert!(parts["inside"].is_finite());
    }
}
