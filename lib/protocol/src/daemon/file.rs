//! Files in memory that are handed over with a request: states, tables, configurations.

use anyhow::Context;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;

/// A file in memory with this content, from its beginning.
///
/// # Errors
/// When the kernel refuses.
pub fn memory_file(name: &str, content: &[u8]) -> anyhow::Result<OwnedFd> {
    let mut file =
        File::from(memfd_create(name, MemfdFlags::CLOEXEC).context("making a memory file")?);
    file.write_all(content)
        .and_then(|()| file.rewind())
        .context("writing a memory file")?;
    Ok(file.into())
}
