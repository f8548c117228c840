//! The pseudo-random sequence that scrambles bits (TS 36.211, section 7.2): a Gold sequence of length 31.

/// Steps of both registers before the first bit.
const WARM_UP: usize = 1600;

/// The first `length` bits of the sequence with this initial value, one per byte.
pub fn sequence(initial: u32, length: usize) -> Vec<u8> {
    let (mut first, mut second) = (1_u32, initial & 0x7fff_ffff);
    let mut step = || {
        let bit = (first ^ second) & 1;
        let next = (first ^ first >> 3) & 1;
        first = first >> 1 | next << 30;
        let next = (second ^ second >> 1 ^ second >> 2 ^ second >> 3) & 1;
        second = second >> 1 | next << 30;
        bit as u8
    };
    for _ in 0..WARM_UP {
        step();
    }
    (0..length).map(|_| step()).collect()
}

/// The initial value for a user (radio network temporary identifier), a codeword, a subframe (0 to 9) and a cell: section
/// 5.3.1. The standard has two codewords; a layer here is a codeword, so that users' identifiers are even to keep apart.
pub fn initial(user: u16, codeword: usize, subframe: usize, cell: u16) -> u32 {
    (u32::from(user) << 14)
        .wrapping_add((codeword as u32) << 13)
        .wrapping_add((subframe as u32 % 10) << 9)
        .wrapping_add(u32::from(cell))
}
