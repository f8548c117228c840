//! Cutting bytes into their parts.

/// Takes an array from the front of `rest`. Returns `None` if `rest` is shorter.
pub fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

/// Takes `length` bytes from the front of `rest`. Returns `None` if `rest` is shorter.
pub fn part<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (first, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(first)
}
