//! Ids of blocks and groups, block hashes, and the keys of the prefix cache.

/// The index of a block in the pool.
pub type BlockId = u32;

/// The index of a KV cache group.
pub type GroupId = u16;

/// The null block: tables have it at positions without a block. It is never allocated or cached.
pub const NULL_BLOCK: BlockId = 0;

/// The largest number of blocks in a pool. In the index, larger ids belong to alias keys.
pub const MAX_BLOCKS: usize = 1 << 31;

/// The chained hash of a prefix that ends at a hash-block boundary: up to 32 bytes. A shorter hash
/// is padded with zeros, and the last byte holds its length. All hashes of one manager have the
/// same length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BlockHash(pub [u64; 4]);

impl BlockHash {
    /// The length of the longest hash, in bytes.
    pub const MAX_LEN: usize = 32;

    /// Returns the hash with these bytes; `None` for no bytes or more than [`Self::MAX_LEN`] bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let fits = !bytes.is_empty() && bytes.len() <= Self::MAX_LEN;
        fits.then(|| Self::padded(bytes))
    }

    /// Returns the hash with these bytes, at most [`Self::MAX_LEN`].
    pub(crate) fn padded(bytes: &[u8]) -> Self {
        let mut padded = [0; Self::MAX_LEN];
        padded[Self::MAX_LEN - 1] = bytes.len() as u8;
        padded[..bytes.len()].copy_from_slice(bytes);
        Self::from_bytes(padded)
    }

    /// Returns the hash's length before padding, if the caller knows that it was below
    /// [`Self::MAX_LEN`] bytes.
    pub fn padded_len(&self) -> usize {
        usize::from(self.to_bytes()[Self::MAX_LEN - 1]).min(Self::MAX_LEN - 1)
    }

    /// Returns the hash with these 32 bytes, which include the padding.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Self([word(0), word(1), word(2), word(3)])
    }

    /// Returns the padded bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl std::fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_bytes()[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key of the prefix cache: a block hash in one KV cache group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheKey {
    /// The hash of the prefix that ends with the block.
    pub hash: BlockHash,
    /// The group whose KV the block holds.
    pub group: GroupId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_its_bytes_zeros_and_their_number() {
        let bytes: Vec<u8> = (1..=33).collect();
        for len in [1, 16, 31, 32] {
            let hash = BlockHash::from_slice(&bytes[..len]).expect("a length that fits");
            assert_eq!(hash.to_bytes()[..len], bytes[..len]);
            if len < 32 {
                assert!(hash.to_bytes()[len..31].iter().all(|&byte| byte == 0));
                assert_eq!(hash.padded_len(), len);
            }
            assert_eq!(BlockHash::from_bytes(hash.to_bytes()), hash);
        }
        assert_eq!(BlockHash::from_slice(&[]), None);
        assert_eq!(BlockHash::from_slice(&bytes), None);
        assert_eq!(
            format!("{:?}", BlockHash([0x0807_0605_0403_0201, 0, 0, 0])),
            "0102030405060708"
        );
    }
}
