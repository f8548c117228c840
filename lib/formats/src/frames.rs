//! Frames one behind the other: port (1 byte), length (2, little-endian), bytes. An instance that stands still writes them,
//! and the daemon hands them on to another host and into images.

use crate::cut::{array, part};

/// Longest and shortest frame in bytes.
const FRAME: std::ops::RangeInclusive<usize> =
    nfluid_ring::layout::FRAME_MIN..=nfluid_ring::layout::LONG_MAX;

/// Reason for which bytes are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// No frame has this length.
    #[error("a frame of {0} bytes is none")]
    Length(usize),
    /// The last frame is cut.
    #[error("it is not whole")]
    Cut,
}

/// All frames, copied.
///
/// # Errors
/// [`FramesError`].
pub fn frames(bytes: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, FramesError> {
    let frames = frames_in(bytes)?.into_iter();
    Ok(frames.map(|(port, frame)| (port, frame.to_vec())).collect())
}

/// As [`frames`], where they lie.
///
/// # Errors
/// [`FramesError`].
pub fn frames_in(mut bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, FramesError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let [port] = array(&mut bytes).ok_or(FramesError::Cut)?;
        let length = array(&mut bytes).ok_or(FramesError::Cut)?;
        let length = usize::from(u16::from_le_bytes(length));
        if !FRAME.contains(&length) {
            return Err(FramesError::Length(length));
        }
        let frame = part(&mut bytes, length as u64).ok_or(FramesError::Cut)?;
        all.push((port, frame));
    }
    Ok(all)
}

/// The end of the frames that a leaving instance writes: a head with length 0, which no frame has.
pub const MARK: [u8; 3] = [0; 3];

/// Returns how many of the first bytes are whole frames, as an instance writes them; at most as far as bytes that are
/// no frame, as a [`MARK`].
pub fn whole_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(length) = length_at(bytes, whole) {
        let end = whole + MARK.len() + length;
        if !FRAME.contains(&length) || end > bytes.len() {
            break;
        }
        whole = end;
    }
    whole
}

/// Checks that these bytes can be the beginning of a frame, so that more bytes are worth waiting for.
///
/// # Errors
/// [`FramesError::Length`]: no frame has the length in the head.
pub fn check_beginning(bytes: &[u8]) -> Result<(), FramesError> {
    match length_at(bytes, 0) {
        Some(length) if !FRAME.contains(&length) => Err(FramesError::Length(length)),
        _ => Ok(()),
    }
}

/// The length that a frame has by its head, once that is there.
fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at + 1..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_are_cut_or_too_short_are_refused() {
        assert_eq!(frames(&[0, 13, 0]), Err(FramesError::Length(13)));
        assert_eq!(frames(&[0, 60, 0, 1, 2, 3]), Err(FramesError::Cut));
        assert_eq!(frames(&[0, 60]), Err(FramesError::Cut));
    }

    #[test]
    fn a_stream_is_cut_between_frames() {
        let one = [&[0, 60, 0][..], &[1; 60]].concat();
        let both = [one.as_slice(), &[1, 20, 0], &[2; 20]].concat();
        for cut in 0..both.len() {
            let expected = if cut < one.len() { 0 } else { one.len() };
            assert_eq!(whole_frames(&both[..cut]), expected, "{cut}");
        }
        assert_eq!(whole_frames(&both), both.len());
    }

    #[test]
    fn a_message_that_never_becomes_a_frame_is_refused_by_its_head() {
        for may_be in [
            &[][..],
            &[0],
            &[0, 60],
            &[9, 60, 0, 1],
            &[0, 0xf0, 7],
            &[0, 0xf0, 0xff],
        ] {
            check_beginning(may_be).expect("it may");
        }
        let too_long = FRAME.end() + 1;
        let [low, high] = (too_long as u16).to_le_bytes();
        for never in [[1, 0, 0], [0, 13, 0], [0, low, high], [0, 0xff, 0xff]] {
            check_beginning(&never).expect_err("never");
            let stream = [never.as_slice(), &[0; 70_000]].concat();
            assert_eq!(whole_frames(&stream), 0, "{never:?}");
        }
    }
}
