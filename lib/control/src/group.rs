//! Groups of tenants: instances that share the resources of their group. A group can be a member of another group.

use crate::portion::Portion;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting depth of groups.
pub const DEPTH_MAX: usize = 4;

/// The resources that instances and groups share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The group that this group is a member of; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Weight among the other members of its group, or among all at the top level; absent: its guarantee, else the
    /// least weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Portion>,
    /// Maximum CPU share, also if more is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Portion>,
    /// Guaranteed CPU share, independent of the load of the neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
}

/// Returns the weight of an instance or group among its neighbours, in hundredths of a percent of a core: its share, or
/// its guarantee if that is more; without either, the least weight that the kernel distinguishes, so that promises
/// hold.
pub fn weight(share: Option<Portion>, guarantee: Option<Portion>, cpus: usize) -> u64 {
    let hundredths = |portion: Option<Portion>| portion.map_or(0, |it| it.hundredths(cpus));
    hundredths(share).max(hundredths(guarantee)).max(LEAST)
}

/// The least weight: a thousandth of a core.
const LEAST: u64 = 10;

/// The groups, by name.
pub type Groups = BTreeMap<String, Group>;

/// Returns the groups that a member of `group` belongs to, the outermost first. If a document has a cycle, which
/// validation refuses, each group is listed once.
pub fn path<'a>(groups: &'a Groups, group: Option<&'a str>) -> Vec<&'a str> {
    let mut path = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = group;
    while let Some(name) = next {
        if !seen.insert(name) {
            break;
        }
        path.push(name);
        next = groups.get(name).and_then(|group| group.group.as_deref());
    }
    path.reverse();
    path
}

/// Returns true if a group can be created or moved as `group` says: the group that it joins must exist, and must not be
/// within it.
pub fn has_place(groups: &Groups, name: &str, group: &Group) -> bool {
    group.group.as_deref().is_none_or(|parent| {
        groups.contains_key(parent) && !path(groups, Some(parent)).contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(all: &[(&str, Option<&str>)]) -> Groups {
        let group = |parent: Option<&str>| Group {
            group: parent.map(str::to_owned),
            ..Group::default()
        };
        let all = all.iter();
        all.map(|(name, parent)| ((*name).to_owned(), group(*parent)))
            .collect()
    }

    #[test]
    fn a_path_begins_outside() {
        let all = groups(&[("a", None), ("b", Some("a")), ("c", Some("b"))]);
        assert_eq!(path(&all, Some("c")), ["a", "b", "c"]);
        assert_eq!(path(&all, None), [""; 0]);
    }

    #[test]
    fn a_cycle_ends() {
        let all = groups(&[("a", Some("b")), ("b", Some("a"))]);
        assert_eq!(path(&all, Some("a")), ["b", "a"]);
    }

    #[test]
    fn nothing_goes_into_itself() {
        let all = groups(&[("a", None), ("b", Some("a"))]);
        let into = |parent: &str| Group {
            group: Some(parent.into()),
            ..Group::default()
        };
        assert!(!has_place(&all, "a", &into("b")));
        assert!(!has_place(&all, "a", &into("a")));
        assert!(!has_place(&all, "c", &into("x")));
        assert!(has_place(&all, "c", &into("b")));
    }

    #[test]
    fn an_instance_without_a_promise_has_the_least_weight() {
        let portion = |text: &str| text.parse().ok();
        assert_eq!(weight(None, None, 4), 10);
        assert_eq!(weight(portion("30%"), None, 4), 3000);
        assert_eq!(weight(portion("30%"), portion("50%"), 4), 5000);
        assert_eq!(weight(portion("30% of platform"), None, 4), 12_000);
    }
}
