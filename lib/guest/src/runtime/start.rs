//! The first instructions of a guest. The monitor has set the stack pointer; all memory that is not the image is zero.

use core::arch::global_asm;

global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "call nfluid_guest_main",
    "ud2",
    options(att_syntax)
);
