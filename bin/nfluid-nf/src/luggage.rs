//! What an instance that leaves has taken out of its rings: more than rings hold, and no more than [`BYTES_MAX`].
//!
//! Frames lie here as they are written to the daemon: port (1 byte), length (2, little-endian), bytes. What does not fit stays
//! in the rings, and who finds these full is told so and counts.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Most bytes: 60,000 of the shortest frames, 2700 of the longest. It is a part of the instance's memory, and gone with the move.
pub const BYTES_MAX: usize = 4 << 20;
/// Fewest: some frames, so that they can be handed on a few at a time.
pub const BYTES_MIN: usize = 64 << 10;
/// Bytes before a frame.
pub const HEAD: usize = 3;
/// No frame: all that was there before it has been written.
pub const MARK: [u8; HEAD] = [0; HEAD];

/// Frames in the order in which they came.
#[derive(Debug)]
pub struct Luggage {
    bytes: VecDeque<u8>,
    /// As many bytes as there may be.
    most: usize,
    /// How many of the first ones are the rest of a frame whose beginning is written.
    cut: usize,
    /// Frames of which nothing is written.
    frames: u64,
}

impl Default for Luggage {
    fn default() -> Self {
        Luggage {
            bytes: VecDeque::new(),
            most: BYTES_MAX,
            cut: 0,
            frames: 0,
        }
    }
}

impl Luggage {
    /// With room for so many bytes, but for no fewer than [`BYTES_MIN`] and no more than [`BYTES_MAX`].
    pub fn of(room: Option<u64>) -> Self {
        let room = room.and_then(|room| usize::try_from(room).ok());
        Luggage {
            most: room.unwrap_or(BYTES_MAX).clamp(BYTES_MIN, BYTES_MAX),
            ..Luggage::default()
        }
    }

    /// Nothing is here.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Frames of which nothing is written.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes for which there is room, heads included.
    pub fn room(&self) -> usize {
        self.most.saturating_sub(self.bytes.len())
    }

    /// Whether half of it is empty.
    pub fn has_much_room(&self) -> bool {
        self.room() > self.most / 2
    }

    /// Puts a frame of a port behind the others; the caller has seen to room.
    pub fn push(&mut self, port: u8, frame: &[u8]) {
        let [low, high] = (frame.len() as u16).to_le_bytes();
        self.bytes.extend([port, low, high]);
        self.bytes.extend(frame);
        self.frames += 1;
    }

    /// Says that all before this is written.
    pub fn push_mark(&mut self) {
        self.bytes.extend(MARK);
    }

    /// The first frame that is whole.
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

    /// Writes as much as the other end takes now.
    ///
    /// # Errors
    /// It has gone.
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

    /// Length of the first frame with its head.
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
        let mut luggage = Luggage::default();
        let mut expected = Vec::new();
        for number in (1..=200u8).cycle().take(2000) {
            let frame = frame(number);
            luggage.push(number % 3, &frame);
            expected.push(number % 3);
            expected.extend((frame.len() as u16).to_le_bytes());
            expected.extend(frame);
        }
        luggage.push_mark();
        expected.extend(MARK);
        let mut heard = Vec::new();
        let mut rounds = 0;
        while !luggage.is_empty() {
            luggage.write(&way).expect("it is there");
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
        let mut luggage = Luggage::default();
        for number in 1..=3 {
            luggage.push(number, &frame(number));
        }
        luggage.push_mark();
        luggage.push(4, &frame(4));
        // The first one, and the beginning of the second.
        assert_eq!(luggage.frames(), 4);
        luggage.forget(HEAD + 61 + 2);
        assert_eq!(luggage.frames(), 2);
        let left: Vec<_> = std::iter::from_fn(|| luggage.pop()).collect();
        assert_eq!(left, [(3, frame(3)), (4, frame(4))]);
        assert!(luggage.is_empty());
        assert_eq!((luggage.room(), luggage.frames()), (BYTES_MAX, 0));
    }

    // promise: 5.35
    #[test]
    fn there_is_as_much_room_as_was_given_and_no_more_than_there_may_be() {
        let rooms = [None, Some(0), Some(1 << 20), Some(u64::MAX)];
        let rooms = rooms.map(|room| Luggage::of(room).room());
        assert_eq!(rooms, [BYTES_MAX, BYTES_MIN, 1 << 20, BYTES_MAX]);
        let mut luggage = Luggage::of(None);
        assert!(luggage.has_much_room());
        while luggage.room() > BYTES_MAX / 2 {
            luggage.push(0, &frame(60));
        }
        assert!(!luggage.has_much_room());
    }

    #[test]
    fn one_that_has_gone_is_told_of() {
        let flags = SocketFlags::CLOEXEC;
        let (way, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        drop(its_end);
        let mut luggage = Luggage::default();
        luggage.push(0, &frame(1));
        luggage.write(&way).expect_err("nobody there");
    }
}
