//! The desired state, and journals of changes to it, as somebody else may have left them on the disk: no panic, and what is
//! loaded is kept and loaded as the same. The body is that of the property test.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

#[path = "../../lib/control/tests/exercise/stored.rs"]
mod stored;

/// In memory: each input is three files.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PathBuf::from(format!("/dev/shm/nfluid-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room");
    folder
});

fuzz_target!(|input: &[u8]| {
    stored::stored(&FOLDER, input);
});
