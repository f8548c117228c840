//! The body that the property test and the fuzz target share: the files of a store at the start of the daemon.

use nfluid_control::state::journal::name_of;
use nfluid_control::state::{FileStore, Store};
use std::fs;
use std::path::Path;

/// Loads a store from the parts of an input, which are separated by zero bytes: a saved state, the changes of its
/// journal, and those of the following journal. An empty part is no file. The heads of the journals are valid: without
/// them their changes would be ignored. A loaded state can be saved, and is loaded again as the same state. Returns
/// true if a state is loaded. `folder` is for the files.
pub fn stored(folder: &Path, bytes: &[u8]) -> bool {
    let path = folder.join("state.json");
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().filter(|part| !part.is_empty());
    let state = part();
    let name = name_of(state);
    put(&path, state.map(<[u8]>::to_vec));
    let after = |head: String| move |lines: &[u8]| [head.as_bytes(), lines].concat();
    let first = part().map(after(format!("{{\"base\":\"{name:016x}\"}}\n")));
    put(&folder.join("state.json.journal"), first);
    let head = format!("{{\"after\":\"{name:016x}\",\"then\":\"{:016x}\"}}\n", 0);
    put(
        &folder.join("state.json.journal.next"),
        part().map(after(head)),
    );
    let mut store = FileStore::new(&path);
    let found = match store.load() {
        Ok(found) => found,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let Some(deployment) = found else {
        return false;
    };
    store.stage(&deployment).expect("there is room");
    store.commit().expect("there is room");
    let again = FileStore::new(&path).load().expect("what was kept");
    assert_eq!(again, Some(deployment));
    true
}

fn put(path: &Path, bytes: Option<Vec<u8>>) {
    match bytes {
        Some(bytes) => fs::write(path, bytes).expect("there is room"),
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        },
    }
}
