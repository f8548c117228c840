//! The signature itself: XXH64 (Yann Collet, "xxHash fast digest algorithm", version 0.1.1) with
//! seed 0 over exactly 64 bytes, so that any xxHash tool computes the same value.

/// Bytes of a frame that enter its signature; a shorter frame is padded with zeros.
pub const SIGNED_BYTES: usize = 64;

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;

/// The signature of a frame: XXH64 of its first [`SIGNED_BYTES`] bytes.
#[inline]
pub fn signature(frame: &[u8]) -> u64 {
    match frame.first_chunk() {
        Some(block) => xxh64(block),
        None => {
            let mut padded = [0; SIGNED_BYTES];
            padded[..frame.len()].copy_from_slice(frame);
            xxh64(&padded)
        }
    }
}

/// Four independent lanes of two words each: the multiplications of the lanes overlap.
#[inline]
fn xxh64(block: &[u8; SIGNED_BYTES]) -> u64 {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let seeds = [
        PRIME_1.wrapping_add(PRIME_2),
        PRIME_2,
        0,
        PRIME_1.wrapping_neg(),
    ];
    let lane = |i: usize| round(round(seeds[i], words[i]), words[i + 4]);
    let [a, b, c, d] = [lane(0), lane(1), lane(2), lane(3)];
    let mut hash = a
        .rotate_left(1)
        .wrapping_add(b.rotate_left(7))
        .wrapping_add(c.rotate_left(12))
        .wrapping_add(d.rotate_left(18));
    for lane in [a, b, c, d] {
        hash = (hash ^ round(0, lane))
            .wrapping_mul(PRIME_1)
            .wrapping_add(PRIME_4);
    }
    avalanche(hash.wrapping_add(SIGNED_BYTES as u64))
}

#[inline]
fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2))
        .rotate_left(31)
        .wrapping_mul(PRIME_1)
}

#[inline]
fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}
