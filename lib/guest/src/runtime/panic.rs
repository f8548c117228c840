//! The report of a panic. The monitor writes it to the instance's log, and ends the guest.

use super::mailbox;
use crate::abi;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

/// A text of bounded length: after a panic there may be no heap.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(place) = self.bytes.get_mut(self.length) else {
                return Ok(());
            };
            *place = byte;
            self.length += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = Text {
        bytes: [0; 512],
        length: 0,
    };
    let _ = write!(text, "{info}");
    let text = text.bytes.get(..text.length).unwrap_or_default();
    loop {
        mailbox::say(
            abi::ring::PANIC,
            core::str::from_utf8(text).unwrap_or("a panic whose text was cut"),
        );
    }
}
