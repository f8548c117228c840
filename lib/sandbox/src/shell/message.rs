//! Messages between parent and set-up, over a SOCK_SEQPACKET pair that only the two have.
//!
//! The set-up reports in eight bytes: kind, step, two of padding, errno. The parent answers with a `Go` after it has
//! written the user map, and later with one launch message: the limit of descriptors (64 bits), seven 32-bit counts, then
//! that many of each in this order: descriptor numbers (32 bits each), filter instructions (8 bytes each), and the
//! strings of argv, environment and working directory, each with its NUL. Native byte order: both ends are the same process image. The
//! descriptors themselves come with the message (SCM_RIGHTS): the program, the Landlock ruleset if there is one, and the
//! inherited ones in the order of their numbers' list.

use crate::error::Errno;
use crate::sys::FilterInstruction;

/// The largest launch message: strings, a filter of the largest size the kernel takes, and small change.
pub(crate) const LAUNCH_BYTES_MAX: usize =
    crate::launch::Launch::STRING_BYTES_MAX + 8 * crate::seccomp::Filter::INSTRUCTIONS_MAX + 8192;

/// The parent's answer when the user map is written.
pub(crate) const GO: [u8; 1] = *b"G";

/// A report of the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// In its user namespace; waits for the map.
    WantsMap,
    /// Everything is ready but the program.
    Ready,
    /// The root directory is ready, by moving a mount instead of pivot_root: the host's root is the initramfs.
    ReadyMovedRoot,
    /// About to execute. If the socket closes after this, it did.
    Executing,
    /// Failed; it is gone.
    Failed { step: u8, errno: Errno },
}

impl Report {
    pub const BYTES: usize = 8;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let (kind, step, errno) = match self {
            Self::WantsMap => (1, 0, 0),
            Self::Ready => (2, 0, 0),
            Self::ReadyMovedRoot => (3, 0, 0),
            Self::Executing => (4, 0, 0),
            Self::Failed { step, errno } => (5, step, errno.raw_os_error()),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        [kind, step, 0, 0, a, b, c, d]
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().ok()?;
        let [kind, step, _, _, a, b, c, d] = bytes;
        let errno = i32::from_ne_bytes([a, b, c, d]);
        Some(match kind {
            1 => Self::WantsMap,
            2 => Self::Ready,
            3 => Self::ReadyMovedRoot,
            4 => Self::Executing,
            5 => Self::Failed {
                step,
                errno: Errno::from_raw_os_error(errno),
            },
            _ => return None,
        })
    }
}

/// Number of each kind of part in a launch message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub descriptors: u32,
    pub instructions: u32,
    pub argv: u32,
    pub env: u32,
    pub has_ruleset: u32,
    pub has_filter: u32,
    pub ends_with_parent: u32,
}

impl Counts {
    pub fn encode(self) -> [u32; 7] {
        [
            self.descriptors,
            self.instructions,
            self.argv,
            self.env,
            self.has_ruleset,
            self.has_filter,
            self.ends_with_parent,
        ]
    }
}

/// Reads a launch message front to back. The reader neither allocates nor panics: it runs between fork and exec.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub fn counts(&mut self) -> Option<Counts> {
        Some(Counts {
            descriptors: self.u32()?,
            instructions: self.u32()?,
            argv: self.u32()?,
            env: self.u32()?,
            has_ruleset: self.u32()?,
            has_filter: self.u32()?,
            ends_with_parent: self.u32()?,
        })
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub fn instruction(&mut self) -> Option<FilterInstruction> {
        let [a, b, jt, jf, c, d, e, f] = self.array()?;
        Some(FilterInstruction {
            code: u16::from_ne_bytes([a, b]),
            jt,
            jf,
            k: u32::from_ne_bytes([c, d, e, f]),
        })
    }

    /// The next string, with its NUL.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self
            .rest
            .iter()
            .position(|byte| *byte == 0)?
            .checked_add(1)?;
        let (string, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(string)
    }

    /// The next string, for a system call.
    pub fn c_string(&mut self) -> Option<&'a std::ffi::CStr> {
        std::ffi::CStr::from_bytes_with_nul(self.string()?).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }
}

/// Appends a list of strings, each with its NUL, after their number.
pub(crate) fn push_strings(message: &mut Vec<u8>, list: &[&std::ffi::CStr]) {
    let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    message.extend_from_slice(&count.to_ne_bytes());
    for string in list {
        message.extend_from_slice(string.to_bytes_with_nul());
    }
}

pub(crate) fn push_instruction(message: &mut Vec<u8>, instruction: (u16, u8, u8, u32)) {
    let (code, jt, jf, k) = instruction;
    message.extend_from_slice(&code.to_ne_bytes());
    message.extend_from_slice(&[jt, jf]);
    message.extend_from_slice(&k.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reports_survive_the_wire() {
        let failed = Report::Failed {
            step: 7,
            errno: Errno::NOSPC,
        };
        for report in [
            Report::WantsMap,
            Report::Ready,
            Report::ReadyMovedRoot,
            Report::Executing,
            failed,
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        assert_eq!(Report::decode(&[9; 8]), None);
        assert_eq!(Report::decode(&[1; 7]), None);
    }

    proptest! {
        #[test]
        fn any_message_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut cursor = Cursor::new(&bytes);
            cursor.counts();
            while cursor.string().is_some() {}
            cursor.instruction();
            cursor.u64();
        }
    }
}
