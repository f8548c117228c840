//! Big-endian fields by named byte range. Callers have checked the length; a range outside the
//! slice is a bug of ours and panics.

use core::ops::Range;

#[inline]
pub(crate) fn get_u16(data: &[u8], field: Range<usize>) -> u16 {
    u16::from_be_bytes(get_array(data, field))
}

#[inline]
pub(crate) fn get_u32(data: &[u8], field: Range<usize>) -> u32 {
    u32::from_be_bytes(get_array(data, field))
}

#[inline]
pub(crate) fn get_array<const N: usize>(data: &[u8], field: Range<usize>) -> [u8; N] {
    debug_assert_eq!(field.len(), N, "field range and type disagree");
    let mut out = [0; N];
    out.copy_from_slice(&data[field.start..field.start + N]);
    out
}

#[inline]
pub(crate) fn set_u16(data: &mut [u8], field: Range<usize>, value: u16) {
    data[field].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn set_u32(data: &mut [u8], field: Range<usize>, value: u32) {
    data[field].copy_from_slice(&value.to_be_bytes());
}

/// First `N` bytes from `at` on, or `None` if the slice ends before: the checked form for the
/// one-pass parser, which has no view to check lengths beforehand.
#[inline(always)]
pub(crate) fn chunk_at<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk::<N>()
}
