//! The chain of block hashes of a token sequence.
//!
//! The bytes are those of vLLM's `sha256_cbor` and `xxhash_cbor`: the digest of the canonical CBOR
//! (RFC 8949, section 4.2) of the array (parent hash, tokens, extra keys or null), so that hashes
//! can be compared with those of other processes and languages.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::block::BlockHash;

/// How a block hash is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-256, 32 bytes.
    Sha256Cbor,
    /// XXH3 of 128 bits, 16 bytes. Not collision resistant.
    XxhashCbor,
}

impl HashAlgorithm {
    /// Every algorithm with its name.
    pub const ALL: [(&'static str, Self); 2] =
        [("sha256_cbor", Self::Sha256Cbor), ("xxhash_cbor", Self::XxhashCbor)];

    /// Bytes of a hash.
    pub fn hash_len(self) -> usize {
        match self {
            Self::Sha256Cbor => 32,
            Self::XxhashCbor => 16,
        }
    }

    fn digest(self, bytes: &[u8]) -> BlockHash {
        let mut padded = [0; BlockHash::MAX_LEN];
        match self {
            Self::Sha256Cbor => padded.copy_from_slice(&Sha256::digest(bytes)),
            Self::XxhashCbor => padded[..16].copy_from_slice(&xxh3_128(bytes).to_be_bytes()),
        }
        BlockHash::from_bytes(padded)
    }
}

/// Text that sets the KV of equal tokens apart, beside the tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraKeys {
    /// Name and path of the LoRA adapter; part of every block.
    pub lora: Option<(String, String)>,
    /// Isolates the caches of tenants; part of the first block, and so of the whole chain.
    pub cache_salt: Option<String>,
}

impl ExtraKeys {
    /// The keys of the block that starts at a token, as vLLM tags them.
    pub fn of_block(&self, start_token: usize) -> Vec<Vec<&str>> {
        let lora = self.lora.iter().map(|(name, path)| vec!["lora", name, path]);
        let salt = self.cache_salt.iter().filter(|salt| start_token == 0 && !salt.is_empty());
        lora.chain(salt.map(|salt| vec!["cache_salt", salt.as_str()])).collect()
    }
}

/// Computes block hashes.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    algorithm: HashAlgorithm,
    block_size: usize,
    root: BlockHash,
}

impl BlockHasher {
    /// The seed of vLLM's collision-resistant algorithms.
    pub const DEFAULT_SEED: &'static str = "vllm-none-hash";

    /// A hasher of blocks of `block_size` tokens, whose chains start at the hash of `seed`.
    pub fn new(algorithm: HashAlgorithm, block_size: usize, seed: &str) -> Self {
        let mut encoder = Encoder::default();
        encoder.text(seed);
        Self { algorithm, block_size, root: algorithm.digest(&encoder.bytes) }
    }

    /// Tokens per hash.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The algorithm.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Adds the hashes of the full blocks of `tokens` that `hashes` lacks.
    pub fn extend(&self, hashes: &mut Vec<BlockHash>, tokens: &[i64], extra_keys: &ExtraKeys) {
        let mut encoder = Encoder::default();
        let first = hashes.len();
        let blocks = tokens.chunks_exact(self.block_size).enumerate().skip(first);
        hashes.reserve(blocks.len());
        for (i, block) in blocks {
            let parent = hashes.last().copied().unwrap_or(self.root);
            encoder.bytes.clear();
            encoder.header(ARRAY, 3);
            encoder.byte_string(&parent.to_bytes()[..self.algorithm.hash_len()]);
            encoder.header(ARRAY, block.len() as u64);
            block.iter().for_each(|&token| encoder.integer(token));
            encoder.extra_keys(&extra_keys.of_block(i * self.block_size));
            hashes.push(self.algorithm.digest(&encoder.bytes));
        }
    }
}

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

/// Writes canonical CBOR.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// A major type with its argument in the fewest bytes.
    fn header(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        match argument {
            0..24 => self.bytes.push(major | argument as u8),
            24..0x100 => self.bytes.extend([major | 24, argument as u8]),
            0x100..0x1_0000 => {
                self.bytes.push(major | 25);
                self.bytes.extend((argument as u16).to_be_bytes());
            }
            0x1_0000..0x1_0000_0000 => {
                self.bytes.push(major | 26);
                self.bytes.extend((argument as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(major | 27);
                self.bytes.extend(argument.to_be_bytes());
            }
        }
    }

    fn integer(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.header(UNSIGNED, value),
            Err(_) => self.header(NEGATIVE, !value as u64),
        }
    }

    fn byte_string(&mut self, bytes: &[u8]) {
        self.header(BYTES, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.header(TEXT, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn extra_keys(&mut self, keys: &[Vec<&str>]) {
        if keys.is_empty() {
            self.bytes.push(NULL);
            return;
        }
        self.header(ARRAY, keys.len() as u64);
        for key in keys {
            self.header(ARRAY, key.len() as u64);
            key.iter().for_each(|text| self.text(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl Fn(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::default();
        write(&mut encoder);
        encoder.bytes
    }

    #[test]
    fn integers_take_the_fewest_bytes() {
        for (value, expected) in [
            (0, &[0x00][..]),
            (23, &[0x17]),
            (24, &[0x18, 24]),
            (255, &[0x18, 255]),
            (256, &[0x19, 1, 0]),
            (65_535, &[0x19, 255, 255]),
            (65_536, &[0x1a, 0, 1, 0, 0]),
            (1 << 32, &[0x1b, 0, 0, 0, 1, 0, 0, 0, 0]),
            (-1, &[0x20]),
            (-500, &[0x39, 1, 0xf3]),
        ] {
            assert_eq!(encoded(|e| e.integer(value)), expected, "{value}");
        }
    }

    #[test]
    fn extending_in_steps_gives_the_hashes_of_extending_at_once() {
        let tokens: Vec<i64> = (0..100).map(|t| t * 1_000).collect();
        let keys =
            ExtraKeys { lora: Some(("a".into(), "b".into())), cache_salt: Some("tenant".into()) };
        for (_, algorithm) in HashAlgorithm::ALL {
            let hasher = BlockHasher::new(algorithm, 16, BlockHasher::DEFAULT_SEED);
            let (mut once, mut steps) = (Vec::new(), Vec::new());
            hasher.extend(&mut once, &tokens, &keys);
            for end in [5, 40, 41, 100] {
                hasher.extend(&mut steps, &tokens[..end], &keys);
            }
            assert_eq!(once, steps);
            assert_eq!(once.len(), 6);
        }
    }

    #[test]
    fn salt_and_adapter_set_chains_apart() {
        let hasher = BlockHasher::new(HashAlgorithm::Sha256Cbor, 4, BlockHasher::DEFAULT_SEED);
        let hash = |keys: &ExtraKeys| {
            let mut hashes = Vec::new();
            hasher.extend(&mut hashes, &[1; 8], keys);
            hashes
        };
        let plain = hash(&ExtraKeys::default());
        let salted = hash(&ExtraKeys { cache_salt: Some("x".into()), ..Default::default() });
        let unsalted = hash(&ExtraKeys { cache_salt: Some("".into()), ..Default::default() });
        assert_eq!(plain, unsalted);
        assert!(plain.iter().zip(&salted).all(|(a, b)| a != b));
    }
}
