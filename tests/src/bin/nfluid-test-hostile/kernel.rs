//! Bare system calls.

/// Result of a system call: a value, or an error number.
pub type Answer = Result<i64, Errno>;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Makes a system call with all six arguments.
pub fn call(number: i64, a: [usize; 6]) -> Answer {
    // SAFETY: only this program's own memory is affected; the arguments of the attempts outlive the call.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        Err(Errno(errno.unwrap_or(0)))
    } else {
        Ok(result)
    }
}

/// The address of a value, for a system call.
pub fn at<T: ?Sized>(value: &T) -> usize {
    (&raw const *value).cast::<u8>() as usize
}

/// The address of a value that the system call writes to.
pub fn at_mut<T: ?Sized>(value: &mut T) -> usize {
    (&raw mut *value).cast::<u8>() as usize
}

/// Returns a string with a terminating NUL.
pub fn path(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Parses an argument as a number, decimal or with 0x.
pub fn number(arguments: &[&str], index: usize) -> usize {
    let text = arguments.get(index).copied().unwrap_or("0");
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => usize::from_str_radix(hex, 16),
        None => text.parse::<i64>().map(|number| number as usize),
    };
    parsed.unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Makes a system call without arguments by the 32-bit entry.
#[cfg(target_arch = "x86_64")]
pub fn call_32_bit(number: u32) -> Result<i32, Errno> {
    let result: i32;
    // SAFETY: the interrupt changes the registers named here and, for a call without arguments, no memory.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") number => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) {
        Err(Errno(-result))
    } else {
        Ok(result)
    }
}
