//! State and frames as files: `export` writes and `import` reads them.
//!
//! The file has the NF's image, then each packet that waits: port (1 byte), length (2, little-endian), bytes.

use crate::packets;
use crate::waiting_frames::{HEAD, head};
use anyhow::{Context, bail};
use nfluid_nf::stateful::IMAGE_BYTES_MAX;
use nfluid_protocol::answer::Exported;
use nfluid_ring::port::Port;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Most bytes of packets in a file. Super-frames become more bytes than they are, as each packet has headers of its own.
const WAITING_MAX: u64 = 32 << 20;

/// Writes an NF's image, and copies of the packets that wait on `ports`. Returns the lengths of both.
pub fn write(file: OwnedFd, image: &[u8], ports: &[Port]) -> anyhow::Result<Exported> {
    let mut file = BufWriter::with_capacity(1 << 16, File::from(file));
    let mut written = file.write_all(image);
    let (mut waiting, mut bytes, mut left_out) = (0, 0, 0u64);
    for (number, port) in (0..=u8::MAX).zip(ports) {
        port.peek(|frame, offload| {
            packets::for_each(frame, offload, &mut |packet| {
                let end = bytes + (HEAD + packet.len()) as u64;
                if written.is_err() || end > WAITING_MAX {
                    left_out += 1;
                    return;
                }
                written = file
                    .write_all(&head(number, packet))
                    .and_then(|()| file.write_all(packet));
                (waiting, bytes) = (waiting + 1, end);
            });
        });
    }
    written
        .and_then(|()| file.flush())
        .context("writing the state")?;
    if left_out > 0 {
        eprintln!("nfluid: {left_out} packets that wait have no room in the state");
    }
    Ok(Exported {
        state_bytes: image.len() as u64,
        waiting_bytes: bytes,
        waiting,
        ..Exported::default()
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
