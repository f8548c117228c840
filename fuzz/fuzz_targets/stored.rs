//! The desired state, and journals of changes to it, as somebody else may have left them on the disk: no panic, and what is
//! loaded is kept and loaded as the same. The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::PathBuf;

#[path = "../../lib/control/tests/exercise/stored.rs"]
mod stored;

fuzz_target!(|input: &[u8]| {
    // In memory: each input is three files.
    let folder = PathBuf::from(format!("/dev/shm/nfluid-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("there is room");
    stored::stored(&folder, input);
    fs::remove_dir_all(&folder).expect("it is ours");
});
