//! Keys with their positions.

use crate::block::CacheKey;

/// The position of a key: the number of tokens at its end, if it is known.
pub type Position = Option<u32>;

/// A key and its position.
pub type PositionedKey = (CacheKey, Position);

/// Mixes a key, whose hash is one already unless a test made it.
#[inline]
pub(super) fn hash_of(key: &CacheKey) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let [first, second, third, fourth] = key.hash.0;
    let mixed = u128::from(first ^ third ^ u64::from(key.group) << 48)
        * u128::from(second ^ fourth ^ MULTIPLIER);
    (mixed as u64) ^ (mixed >> 64) as u64
}
