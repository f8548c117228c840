//! The body that the property test and the fuzz target share: captures with any content.

use nfluid_gen::capture::{Capture, Link, RECORD_MAX};
use std::io::Read;

/// Time, link type, original length, bytes.
type Frame = (u64, Link, usize, Vec<u8>);

/// A reader that gives a few bytes at a time.
struct Drip<'a>(&'a [u8]);

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let few = buffer.len().min(7);
        self.0.read(&mut buffer[..few])
    }
}

/// A capture of any bytes: it is read to its end or an error, with no more frames than it has room for, and as the same
/// in whatever pieces it comes. Returns true if it has a frame.
pub fn capture(bytes: &[u8]) -> bool {
    let (frames, error) = read_all(bytes, bytes.len());
    let dripped = read_all(Drip(bytes), bytes.len());
    assert_eq!((&frames, &error), (&dripped.0, &dripped.1));
    assert!(error.is_none_or(|error| error.contains("any.pcap")));
    !frames.is_empty()
}

fn read_all(source: impl Read, length: usize) -> (Vec<Frame>, Option<String>) {
    let mut frames = Vec::new();
    let mut capture = match Capture::new(source, "any.pcap") {
        Ok(capture) => capture,
        Err(error) => return (frames, Some(error.to_string())),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() <= 2 * RECORD_MAX);
                frames.push((
                    frame.time_ns,
                    frame.link,
                    frame.original_len,
                    frame.bytes.to_vec(),
                ));
            }
            Ok(None) => break,
            Err(error) => {
                assert_eq!(capture.next_frame().expect("nothing follows"), None);
                return (frames, Some(error.to_string()));
            }
        }
        // The shortest record has 16 bytes.
        assert!(frames.len() <= length / 16);
    }
    assert_eq!(capture.packets(), frames.len() as u64);
    (frames, None)
}
