//! A process that only forwards a byte.

use anyhow::Context;
use rustix::io::{Errno, read, retry_on_intr, write};
use std::io::{stdin, stdout};

/// Forwards each byte of standard input until its end.
pub fn hand_on() -> anyhow::Result<()> {
    let mut byte = [0u8];
    while retry_on_intr(|| read(stdin(), &mut byte)).context("reading a byte")? > 0 {
        match retry_on_intr(|| write(stdout(), &byte)) {
            // The next process of the row has ended.
            Err(Errno::PIPE) => break,
            written => written.context("handing a byte on")?,
        };
    }
    Ok(())
}
