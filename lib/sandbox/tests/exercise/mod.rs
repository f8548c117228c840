//! The body that the property test and the fuzz target share: programs with any content.

use nfluid_sandbox::Linkage;
use nfluid_sandbox::elf::{linkage, linkage_of};
use std::cell::Cell;
use std::io::ErrorKind;

/// Most bytes that are read of any file: the header, 128 program headers, the path of a loader.
const READ_MAX: usize = 64 + 128 * 56 + 4096;

/// A file of any bytes, also of one that grows or shrinks while it is read. Returns true if it is a program.
pub fn program(bytes: &[u8]) -> bool {
    let found = linkage_of(bytes);
    for size in [0, bytes.len() as u64, u64::MAX] {
        let read = Cell::new(0);
        let counted = linkage(size, |buffer, at| {
            read.set(read.get() + buffer.len());
            let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
            let found = rest.and_then(|rest| rest.get(..buffer.len()));
            buffer.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        });
        assert!(read.get() <= READ_MAX, "{} bytes are read", read.get());
        // A size that is wrong lets in nothing else.
        assert!(counted.is_err() || counted == found);
    }
    match &found {
        Ok(Linkage::Dynamic { interpreter }) => {
            assert!(interpreter.is_absolute());
            assert!(interpreter.as_os_str().len() < 4096);
        }
        Ok(Linkage::Static) => {}
        Err(why) => assert!(!why.is_empty()),
    }
    found.is_ok()
}
