//! Options as IPv4 (RFC 791) and TCP (RFC 9293) write them: kind 0 ends the list, kind 1 is one
//! byte of padding, all others are kind, length, data with the length counting all three.

/// An option with data; padding is skipped and never seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvOption<'a> {
    /// Option kind (TCP) or type (IPv4); never 0 or 1.
    pub kind: u8,
    /// Offset of `data` from the start of the option list, in bytes.
    pub data_offset: usize,
    /// The data after kind and length.
    pub data: &'a [u8],
}

/// Iterator over an option list.
///
/// The iterator ends at kind 0, at the end of the list, or at an option whose length is below 2 or beyond the list:
/// the rest cannot be read. [`TlvOptions::is_malformed`] distinguishes that case.
#[derive(Clone, Debug)]
pub struct TlvOptions<'a> {
    list: &'a [u8],
    at: usize,
    malformed: bool,
}

impl<'a> TlvOptions<'a> {
    /// Iterates over `list`, the bytes between the fixed header and the payload.
    #[inline]
    #[must_use]
    pub const fn new(list: &'a [u8]) -> Self {
        Self {
            list,
            at: 0,
            malformed: false,
        }
    }

    /// True once iteration has stopped at an unreadable option.
    #[inline]
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        self.malformed
    }

    fn stop(&mut self, malformed: bool) -> Option<TlvOption<'a>> {
        self.at = self.list.len();
        self.malformed |= malformed;
        None
    }
}

impl<'a> Iterator for TlvOptions<'a> {
    type Item = TlvOption<'a>;

    fn next(&mut self) -> Option<TlvOption<'a>> {
        loop {
            match *self.list.get(self.at..)? {
                [] | [0, ..] => return self.stop(false),
                [1, ..] => self.at += 1,
                [kind, length, ..] => {
                    let end = self.at + usize::from(length);
                    let data_offset = self.at + 2;
                    let Some(data) = self.list.get(data_offset..end) else {
                        return self.stop(true);
                    };
                    self.at = end;
                    return Some(TlvOption {
                        kind,
                        data_offset,
                        data,
                    });
                }
                [_] => return self.stop(true),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn kinds(list: &[u8]) -> (Vec<u8>, bool) {
        let mut options = TlvOptions::new(list);
        let kinds = options.by_ref().map(|option| option.kind).collect();
        (kinds, options.is_malformed())
    }

    #[test]
    fn padding_and_end_are_not_options() {
        assert_eq!(kinds(&[]), (Vec::new(), false));
        assert_eq!(
            kinds(&[1, 1, 2, 4, 0, 0, 1, 3, 3, 7, 0, 8, 0]),
            ([2, 3].to_vec(), false)
        );
    }

    #[test]
    fn unreadable_options_end_the_list() {
        for rest in [&[5][..], &[5, 0], &[5, 1], &[5, 4, 0], &[5, 255]] {
            let list = [&[2, 2][..], rest].concat();
            assert_eq!(kinds(&list), ([2].to_vec(), true), "{rest:?}");
        }
    }
}
