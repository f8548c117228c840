//! The frames that a departing instance has taken out of its rings: more than rings hold, and at most [`BYTES_MAX`].
//!
//! Frames are stored in the format in which they are written to the daemon: port (1 byte), length (2, little-endian),
//! bytes. Frames without room stay in the rings. The senders see full rings, and count the drops.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Limit in bytes: 60,000 of the shortest frames, 64 of the longest. The packets of one super-frame of each port may exceed
/// it. The memory belongs to the instance, and is freed after the move.
pub const BYTES_MAX: usize = 4 << 20;
/// Smallest capacity in bytes: some frames, so that they can be forwarded a few at a time.
pub const BYTES_MIN: usize = 64 << 10;
/// Bytes in front of a frame.
pub const HEAD: usize = 3;
/// A mark instead of a frame: all frames that waited before it have been written.
pub const MARK: [u8; HEAD] = [0; HEAD];

/// Returns the bytes in front of a frame of a port.
pub fn head(port: u8, frame: &[u8]) -> [u8; HEAD] {
    let [low, high] = (frame.len() as u16).to_le_bytes();
    [port, low, high]
}

/// Frames in the order of their arrival.
#[derive(Debug)]
pub struct WaitingFrames {
    bytes: VecDeque<u8>,
    /// Capacity in bytes.
    most: usize,
    /// Number of the first bytes that are the rest of a frame whose beginning was written.
    cut: usize,
    /// Number of frames of which nothing was written.
    frames: u64,
}

impl Default for WaitingFrames {
    fn default() -> Self {
        WaitingFrames {
            bytes: VecDeque::new(),
            most: BYTES_MAX,
            cut: 0,
            frames: 0,
        }
    }
}

impl WaitingFrames {
    /// Creates an empty store of `room` bytes, limited to [`BYTES_MIN`] and [`BYTES_MAX`].
    pub fn of(room: Option<u64>) -> Self {
        let room = room.and_then(|room| usize::try_from(room).ok());
        WaitingFrames {
            most: room.unwrap_or(BYTES_MAX).clamp(BYTES_MIN, BYTES_MAX),
            ..WaitingFrames::default()
        }
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of frames of which nothing was written.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the free bytes, heads included.
    pub fn room(&self) -> usize {
        self.most.saturating_sub(self.bytes.len())
    }

    /// Returns true if at least half is free.
    pub fn has_much_room(&self) -> bool {
        self.room() > self.most / 2
    }

    /// Appends a frame of a port; the caller has checked the room.
    pub fn push(&mut self, port: u8, frame: &[u8]) {
        self.bytes.extend(head(port, frame));
        self.bytes.extend(frame);
        self.frames += 1;
    }

    /// Appends the mark that all frames before it have been written.
    pub fn push_mark(&mut self) {
        self.bytes.extend(MARK);
    }

    /// Removes and returns the first whole frame.
    pub fn pop(&mut self) -> Option<(u8, Vec<u8>)> {
        self.bytes.drain(..self.cut);
        self.cut = 0;
        loop {
            let length = self.first()?;
            let port = self.bytes.front().copied()?;
            let frame: Vec<u8> = self.bytes.drain(..length).skip(HEAD).collect();
            if !frame.is_empty() {
                self.frames -= 1;
                return Some((port, frame));
            }
        }
    }

    /// Writes as much as the socket takes now.
    ///
    /// # Errors
    /// The other end is closed.
    pub fn write(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        while !self.bytes.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(socket, self.bytes.as_slices().0, flags) {
                Ok(written) => self.forget(written),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the length of the first frame with its head.
    fn first(&self) -> Option<usize> {
        let [low, high] = [*self.bytes.get(1)?, *self.bytes.get(2)?];
        Some(HEAD + usize::from(u16::from_le_bytes([low, high])))
    }

    fn forget(&mut self, mut written: usize) {
        while written > 0 {
            if self.cut == 0 {
                let Some(length) = self.first() else { return };
                self.cut = length;
                self.frames -= u64::from(length > HEAD);
            }
            let now = written.min(self.cut);
            self.bytes.drain(..now);
            self.cut -= now;
            written -= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    fn frame(number: u8) -> Vec<u8> {
        vec![number; 60 + usize::from(number)]
    }

    // promise: 5.35
    #[test]
    fn frames_are_written_in_their_order_however_little_the_other_end_takes() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (way, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        set_socket_send_buffer_size(&way, 0).expect("the least there is");
        let mut waiting_frames = WaitingFrames::default();
        let mut expected = Vec::new();
        for number in (1..=200u8).cycle().take(2000) {
            let frame = frame(number);
            waiting_frames.push(number % 3, &frame);
            expected.push(number % 3);
            expected.extend((frame.len() as u16).to_le_bytes());
            expected.extend(frame);
        }
        waiting_frames.push_mark();
        expected.extend(MARK);
        let mut heard = Vec::new();
        let mut rounds = 0;
        while !waiting_frames.is_empty() {
            waiting_frames.write(&way).expect("it is there");
            let mut buffer = [0; 1000];
            while let Ok((read, _)) = recv(&its_end, &mut buffer, RecvFlags::empty()) {
                heard.extend_from_slice(&buffer[..read]);
            }
            rounds += 1;
        }
        assert!(heard == expected && rounds > 1, "{rounds} rounds");
    }

    #[test]
    fn what_is_not_written_is_taken_out_frame_by_frame() {
        let mut waiting_frames = WaitingFrames::default();
        for number in 1..=3 {
            waiting_frames.push(number, &frame(number));
        }
        waiting_frames.push_mark();
        waiting_frames.push(4, &frame(4));
        // The first frame, and the beginning of the second.
        assert_eq!(waiting_frames.frames(), 4);
        waiting_frames.forget(HEAD + 61 + 2);
        assert_eq!(waiting_frames.frames(), 2);
        let left: Vec<_> = std::iter::from_fn(|| waiting_frames.pop()).collect();
        assert_eq!(left, [(3, frame(3)), (4, frame(4))]);
        assert!(waiting_frames.is_empty());
        assert_eq!(
            (waiting_frames.room(), waiting_frames.frames()),
            (BYTES_MAX, 0)
        );
    }

    // promise: 5.35
    #[test]
    fn there_is_as_much_room_as_was_given_and_no_more_than_there_may_be() {
        let rooms = [None, Some(0), Some(1 << 20), Some(u64::MAX)];
        let rooms = rooms.map(|room| WaitingFrames::of(room).room());
        assert_eq!(rooms, [BYTES_MAX, BYTES_MIN, 1 << 20, BYTES_MAX]);
        let mut waiting_frames = WaitingFrames::of(None);
        assert!(waiting_frames.has_much_room());
        while waiting_frames.room() > BYTES_MAX / 2 {
            waiting_frames.push(0, &frame(60));
        }
        assert!(!waiting_frames.has_much_room());
    }

    #[test]
    fn one_that_has_gone_is_told_of() {
        let flags = SocketFlags::CLOEXEC;
        let (way, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        drop(its_end);
        let mut waiting_frames = WaitingFrames::default();
        waiting_frames.push(0, &frame(1));
        waiting_frames.write(&way).expect_err("nobody there");
    }
}
