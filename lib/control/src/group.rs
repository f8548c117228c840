//! Groups of tenants: instances that share what their group gets. A group may be in another one.

use crate::portion::Portion;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// So many groups may be one in another.
pub const DEPTH_MAX: usize = 4;

/// What instances, and groups, get together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The group that it is in; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its proportion among those beside it, in its group or at the top; absent: its guarantee, else as little as
    /// there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Portion>,
    /// Most that it gets, also when there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Portion>,
    /// What it gets whatever those beside it do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Portion>,
}

/// The weight of an instance or group among those beside it, in hundredths of a percent of a core: its share, or its
/// guarantee if that is more; without either, as little as the kernel can tell apart, so that promises hold.
pub fn weight(share: Option<Portion>, guarantee: Option<Portion>, cpus: usize) -> u64 {
    let hundredths = |portion: Option<Portion>| portion.map_or(0, |it| it.hundredths(cpus));
    hundredths(share).max(hundredths(guarantee)).max(LEAST)
}

/// The least weight: a thousandth of a core.
const LEAST: u64 = 10;

/// The groups by name.
pub type Groups = BTreeMap<String, Group>;

/// The groups that something in `group` is in, the outermost first. Where a document has a cycle, which validation
/// refuses, each is named once.
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

/// Whether a group can be made or moved where it shall be: into a group that is there and not within itself.
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
    fn who_was_promised_nothing_weighs_least() {
        let portion = |text: &str| text.parse().ok();
        assert_eq!(weight(None, None, 4), 10);
        assert_eq!(weight(portion("30%"), None, 4), 3000);
        assert_eq!(weight(portion("30%"), portion("50%"), 4), 5000);
        assert_eq!(weight(portion("30% of platform"), None, 4), 12_000);
    }
}
