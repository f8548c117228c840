//! The record of a division, written before the division begins: a later daemon continues an unfinished division from
//! it.

use nfluid_ring::flow::{BUCKETS, Buckets, Shares};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A division of flows among members that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Number of members that the division concerns: the first ones.
    pub members: u16,
    /// The owners of the flows before.
    pub before: Shares,
    /// The owners of the flows afterwards.
    pub after: Shares,
    /// True if the gaining members have the state of their flows. Only the forgetting by the former owners is left.
    pub is_given: bool,
}

/// The state that one member gets from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gift {
    /// The member that gets the state.
    pub to: u8,
    /// The flows.
    pub flows: Buckets,
}

/// The format on disk.
#[derive(Serialize, Deserialize)]
struct Written {
    members: u16,
    before: Vec<u8>,
    after: Vec<u8>,
    is_given: bool,
}

impl Note {
    /// Creates the record of a division that is about to begin.
    pub fn new(members: u16, before: Shares, after: Shares) -> Self {
        Note {
            members,
            before,
            after,
            is_given: false,
        }
    }

    /// Writes the record.
    ///
    /// # Errors
    /// The file cannot be written; the previous file stays.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let written = Written {
            members: self.members,
            before: self.before.members().to_vec(),
            after: self.after.members().to_vec(),
            is_given: self.is_given,
        };
        nfluid_records::save(&written, path)
    }

    /// Reads the record.
    ///
    /// # Errors
    /// The file does not exist, or its content is invalid.
    pub fn load(path: &Path) -> io::Result<Self> {
        let written: Written = nfluid_records::load(path)?;
        let shares = |members: Vec<u8>| {
            let members: [u8; BUCKETS] = members
                .try_into()
                .map_err(|_| io::Error::other("not a member for each bucket"))?;
            Ok::<_, io::Error>(Shares::of(members))
        };
        Ok(Note {
            members: written.members,
            before: shares(written.before)?,
            after: shares(written.after)?,
            is_given: written.is_given,
        })
    }

    /// Returns the flows that a member gains.
    pub fn gains(&self, member: u8) -> Buckets {
        let had = self.before.buckets_of(member);
        self.after.buckets_of(member).without(&had)
    }

    /// Returns the flows that a member loses.
    pub fn losses(&self, member: u8) -> Buckets {
        let has = self.after.buckets_of(member);
        self.before.buckets_of(member).without(&has)
    }

    /// Returns the parts of `giver`'s state for those of `takers` that get any.
    pub fn gifts(&self, giver: u8, takers: impl Iterator<Item = u8>) -> Vec<Gift> {
        let had = self.before.buckets_of(giver);
        let gifts = takers.map(|to| Gift {
            to,
            flows: had.within(&self.gains(to)),
        });
        gifts.filter(|gift| !gift.flows.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(old: u8, new: u8) -> Note {
        let before = Shares::ONE.among(old);
        Note::new(u16::from(old.max(new)), before, before.among(new))
    }

    #[test]
    fn a_note_is_read_back_and_a_damaged_note_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fw.json");
        let mut note = note(2, 3);
        for is_given in [false, true] {
            note.is_given = is_given;
            note.save(&path).expect("room");
            assert_eq!(Note::load(&path).expect("it is there"), note);
        }
        let short = r#"{"members":2,"before":[0],"after":[0],"is_given":false}"#;
        for wrong in ["", "{}", short] {
            std::fs::write(&path, wrong).expect("room");
            Note::load(&path).expect_err(wrong);
        }
    }

    // promise: 7.39
    #[test]
    fn all_flows_that_a_member_gives_up_are_given_to_somebody() {
        for (old, new) in [(1, 2), (1, 4), (4, 1), (3, 2), (2, 5), (16, 3)] {
            let note = note(old, new);
            let members = 0..old.max(new);
            for giver in members.clone() {
                let takers = members.clone().filter(|to| !note.gains(*to).is_empty());
                let gifts = note.gifts(giver, takers);
                let mut given = Buckets::default();
                for gift in &gifts {
                    assert_eq!(given.within(&gift.flows), Buckets::default());
                    assert_ne!(gift.to, giver);
                    let words = given.0.iter().zip(gift.flows.0);
                    let words: Vec<u64> = words.map(|(one, other)| one | other).collect();
                    given = Buckets(words.try_into().expect("as many"));
                }
                assert_eq!(given, note.losses(giver), "{old} to {new}, {giver}");
            }
        }
    }
}
