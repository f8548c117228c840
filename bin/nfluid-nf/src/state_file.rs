//! State and frames as files: `export` writes and `import` reads them.
//!
//! The file has the NF's image, then each packet that waits: port (1 byte), length (2, little-endian), bytes.

use crate::packets;
use anyhow::{Context, bail};
use nfluid_nf::stateful::IMAGE_BYTES_MAX;
use nfluid_protocol::answer::Exported;
use nfluid_ring::port::Port;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Writes an NF's image, and copies of the packets that wait on `ports`. Returns the lengths of both.
pub fn write(file: OwnedFd, image: &[u8], ports: &[Port]) -> anyhow::Result<Exported> {
    let mut waiting = Vec::new();
    let mut frames = 0u64;
    for (number, port) in (0..=u8::MAX).zip(ports) {
        port.peek(|frame, offload| {
            packets::for_each(frame, offload, &mut |packet| {
                waiting.push(number);
                waiting.extend_from_slice(&(packet.len() as u16).to_le_bytes());
                waiting.extend_from_slice(packet);
                frames += 1;
            });
        });
    }
    let mut file = File::from(file);
    file.write_all(image)
        .and_then(|()| file.write_all(&waiting))
        .context("writing the state")?;
    Ok(Exported {
        state_bytes: image.len() as u64,
        waiting_bytes: waiting.len() as u64,
        waiting: frames,
    })
}

/// Reads the first `bytes` of a file into the memory of `buffer`.
pub fn read(mut buffer: Vec<u8>, file: OwnedFd, bytes: u64) -> anyhow::Result<Vec<u8>> {
    if bytes > IMAGE_BYTES_MAX as u64 {
        bail!("{bytes} bytes of state are more than the {IMAGE_BYTES_MAX} that are read");
    }
    buffer.resize(bytes as usize, 0);
    File::from(file)
        .read_exact_at(&mut buffer, 0)
        .context("reading the state")?;
    Ok(buffer)
}
