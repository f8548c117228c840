//! CRC-24A, which protects a transport block (TS 36.212, section 5.1.1).

/// Bits of the checksum.
pub const CRC_BITS: usize = 24;
/// D^24 + D^23 + D^18 + D^17 + D^14 + D^11 + D^10 + D^7 + D^6 + D^5 + D^4 + D^3 + D + 1, without D^24.
const POLYNOMIAL: u32 = 0x86_4cfb;
const MASK: u32 = 0xff_ffff;

/// Checksums of the bytes 0 to 255.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            rest = rest << 1 ^ if rest & 0x80_0000 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = rest & MASK;
        byte += 1;
    }
    table
};

/// The checksum of bits, one per byte, the first sent first.
pub fn crc24a(bits: &[u8]) -> u32 {
    let (bytes, rest) = bits.as_chunks::<8>();
    let whole = bytes.iter().fold(0_u32, |crc, bits| {
        let byte = bits
            .iter()
            .fold(0, |byte, bit| byte << 1 | u32::from(bit & 1));
        (crc << 8 & MASK) ^ TABLE[((crc >> 16) ^ byte) as usize & 0xff]
    });
    rest.iter().fold(whole, |crc, bit| {
        let carry = (crc >> 23 ^ u32::from(bit & 1)) & 1;
        (crc << 1 & MASK) ^ if carry == 1 { POLYNOMIAL } else { 0 }
    })
}

/// Appends the checksum to a block's bits.
pub fn attach(bits: &mut Vec<u8>) {
    let crc = crc24a(bits);
    bits.extend((0..CRC_BITS).rev().map(|bit| (crc >> bit & 1) as u8));
}

/// Returns true if the bits end with the checksum of those before.
pub fn is_right(bits: &[u8]) -> bool {
    // The remainder of a block with its own checksum is zero; an empty block proves nothing.
    bits.len() > CRC_BITS && crc24a(bits) == 0
}
