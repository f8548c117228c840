//! A line on a UNIX socket, with descriptors (`SCM_RIGHTS`, unix(7)).

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Most descriptors of a message: the kernel's SCM_MAX_FD.
pub const FDS_MAX: usize = 253;

/// Room for them.
const SPACE: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// Sends a line, which ends with a newline, and descriptors.
///
/// # Errors
/// When there are more descriptors than a message can have, and as the kernel reports them.
pub fn send_line(mut stream: &UnixStream, line: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.is_empty() {
        return stream.write_all(line);
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        let what = format!("{} descriptors are more than {FDS_MAX}", fds.len());
        return Err(io::Error::other(what));
    }
    let sent = sendmsg(
        stream,
        &[IoSlice::new(line)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    // The descriptors went with the first byte.
    stream.write_all(line.get(sent..).unwrap_or_default())
}

/// Receives a line of at most `most` bytes, and the descriptors that come with it.
///
/// # Errors
/// When the line is longer or has no end, and as the kernel reports them.
pub fn receive_line(stream: &UnixStream, most: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut line = Vec::new();
    let mut fds = Vec::new();
    let mut part = [0u8; 4096];
    while !line.ends_with(b"\n") {
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut part)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes == 0 || line.len() + received.bytes > most || fds.len() > FDS_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.extend_from_slice(part.get(..received.bytes).unwrap_or_default());
    }
    Ok((line, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    #[test]
    fn a_line_arrives_with_its_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut file =
            File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.write_all(b"content").unwrap();
        file.rewind().unwrap();
        let long = [b"x".repeat(9000), b"\n".to_vec()].concat();
        send_line(&ours, &long, &[file.as_fd(), ours.as_fd()]).unwrap();
        let (line, fds) = receive_line(&theirs, 10_000).unwrap();
        assert_eq!((line, fds.len()), (long, 2));
        let mut text = String::new();
        let mut received = File::from(fds.into_iter().next().unwrap());
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
    }

    #[test]
    fn what_has_no_end_or_is_too_long_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_line(&ours, &b"x".repeat(100), &[]).unwrap();
        assert!(receive_line(&theirs, 99).is_err());
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_line(&ours, b"half", &[]).unwrap();
        drop(ours);
        assert!(receive_line(&theirs, 99).is_err());
    }

    #[test]
    fn more_descriptors_than_a_message_can_have() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let many = vec![ours.as_fd(); FDS_MAX + 1];
        assert!(send_line(&ours, b"\n", &many).is_err());
    }
}
