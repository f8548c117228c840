//! The options of an IPv4 header (RFC 791 section 3.1).

pub(crate) const END_OF_LIST: u8 = 0;
pub(crate) const NO_OPERATION: u8 = 1;

/// Calls `visit` with each option of a checked list, type and length included, up to the end of the list.
pub(crate) fn for_each(mut options: &mut [u8], mut visit: impl FnMut(&mut [u8])) {
    while let Some((&kind, rest)) = options.split_first() {
        let length = match kind {
            END_OF_LIST => return,
            NO_OPERATION => 1,
            _ => rest.first().map_or(1, |length| usize::from(*length).max(1)),
        };
        let (option, rest) = options.split_at_mut(length.min(options.len()));
        visit(option);
        options = rest;
    }
}
