//! Computes block hashes of a token sequence. Each hash is chained to the one before it.
//!
//! The hashes are the same as from vLLM's four algorithms: the digest of the tuple (parent hash,
//! tokens, extra keys or none). The tuple is written as by Python's pickler ([`pickle`]) or as
//! canonical CBOR ([`cbor`]).

mod buffer;
mod cbor;
mod key;
mod pickle;

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::block::BlockHash;
use cbor::CborEncoder;
use pickle::PickleEncoder;

pub use key::{Identity, Key};

/// An algorithm that computes block hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-256 of a pickle, 32 bytes.
    Sha256,
    /// SHA-256 of CBOR, 32 bytes.
    Sha256Cbor,
    /// The 128-bit XXH3 of a pickle, 16 bytes. Not collision resistant.
    Xxhash,
    /// The 128-bit XXH3 of CBOR, 16 bytes. Not collision resistant.
    XxhashCbor,
}

impl HashAlgorithm {
    /// All algorithms with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("sha256", Self::Sha256),
        ("sha256_cbor", Self::Sha256Cbor),
        ("xxhash", Self::Xxhash),
        ("xxhash_cbor", Self::XxhashCbor),
    ];

    /// Returns the algorithm with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    /// Returns the name of the algorithm.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Returns the length of a hash, in bytes.
    pub fn hash_len(self) -> usize {
        match self {
            Self::Sha256 | Self::Sha256Cbor => 32,
            Self::Xxhash | Self::XxhashCbor => 16,
        }
    }

    /// Returns the hash of a text. Chains begin with such a hash.
    pub(crate) fn hash_text(self, text: &str) -> BlockHash {
        match self {
            Self::Sha256 | Self::Xxhash => self.digest(PickleEncoder::default().text(text)),
            Self::Sha256Cbor | Self::XxhashCbor => self.digest(CborEncoder::default().text(text)),
        }
    }

    fn digest(self, bytes: &[u8]) -> BlockHash {
        match self {
            Self::Sha256 | Self::Sha256Cbor => BlockHash::from_bytes(Sha256::digest(bytes).into()),
            Self::Xxhash | Self::XxhashCbor => BlockHash::padded(&xxh3_128(bytes).to_be_bytes()),
        }
    }
}

/// Consecutive blocks to hash.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// The hash of the block before the first one, or the root of all chains.
    pub parent: &'a [u8],
    /// The tokens of the blocks, then the lookahead tokens of the last block. A block that lacks
    /// one of its lookahead tokens is not hashed.
    pub tokens: &'a [i64],
    /// Tokens per block, at least 1.
    pub block_size: usize,
    /// The number of tokens after a block that the block's hash covers too.
    pub num_lookahead_tokens: usize,
    /// The extra keys of each block. The last item holds for all further blocks, too.
    pub keys: &'a [Key],
}

impl<'a> Chain<'a> {
    /// Returns the hashes of the blocks, in order.
    pub fn hash(&self, algorithm: HashAlgorithm) -> Vec<BlockHash> {
        match algorithm {
            HashAlgorithm::Sha256 | HashAlgorithm::Xxhash => {
                self.hash_encoded(algorithm, PickleEncoder::default())
            }
            HashAlgorithm::Sha256Cbor | HashAlgorithm::XxhashCbor => {
                self.hash_encoded(algorithm, CborEncoder::default())
            }
        }
    }

    fn hash_encoded(&self, algorithm: HashAlgorithm, mut encoder: impl Encoder) -> Vec<BlockHash> {
        let mut hashes: Vec<BlockHash> = Vec::with_capacity(self.num_blocks());
        let mut parent = [0; BlockHash::MAX_LEN];
        for i in 0..self.num_blocks() {
            let block = Block {
                parent: if i == 0 { self.parent } else { &parent[..algorithm.hash_len()] },
                ..self.block(i)
            };
            let hash = algorithm.digest(encoder.block(&block));
            parent = hash.to_bytes();
            hashes.push(hash);
        }
        hashes
    }

    fn num_blocks(&self) -> usize {
        self.tokens.len().saturating_sub(self.num_lookahead_tokens) / self.block_size
    }

    fn block(&self, i: usize) -> Block<'a> {
        let behind = &self.tokens[i * self.block_size..];
        let (tokens, behind) = behind.split_at(self.block_size);
        let last = self.keys.len().saturating_sub(1);
        Block {
            parent: self.parent,
            tokens,
            key: self.keys.get(i.min(last)).unwrap_or(&Key::None),
            repeats_key: i > last,
            lookahead: &behind[..self.num_lookahead_tokens],
        }
    }
}

/// The tuple that a hash covers: (parent, tokens, key), or with lookahead tokens (parent, tokens,
/// (key, lookahead token, ...)).
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    parent: &'a [u8],
    tokens: &'a [i64],
    key: &'a Key,
    /// Whether the block encoded before this one has the same key.
    repeats_key: bool,
    lookahead: &'a [i64],
}

/// Encodes the input of a hash.
trait Encoder {
    /// Returns the encoding of a block.
    fn block(&mut self, block: &Block<'_>) -> &[u8];

    /// Returns the encoding of a text.
    fn text(&mut self, text: &str) -> &[u8];
}

/// Extra keys of blocks. They give different hashes to equal tokens whose KV differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraKeys {
    /// The name and path of the LoRA adapter. They are keys of every block.
    pub lora: Option<(String, String)>,
    /// A salt that isolates the caches of tenants. It is a key of the first block only, whose hash
    /// all other hashes of the chain depend on.
    pub cache_salt: Option<String>,
}

impl ExtraKeys {
    /// Returns the keys of the block that starts at a token, with vLLM's tags.
    pub fn of_block(&self, start_token: usize) -> Vec<Vec<&str>> {
        let lora = self.lora.iter().map(|(name, path)| vec!["lora", name, path]);
        let salt = self.cache_salt.iter().filter(|salt| start_token == 0 && !salt.is_empty());
        lora.chain(salt.map(|salt| vec!["cache_salt", salt.as_str()])).collect()
    }

    /// Returns the keys of the block that starts at a token, then the keys of all further blocks.
    fn of_chain(&self, start_token: usize) -> [Key; 2] {
        [start_token, start_token + 1].map(|token| {
            let keys = self
                .of_block(token)
                .into_iter()
                .map(|texts| Key::tuple(texts.into_iter().map(Key::text).collect()));
            let keys: Vec<Key> = keys.collect();
            if keys.is_empty() { Key::None } else { Key::tuple(keys) }
        })
    }
}

/// Hashes blocks.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    algorithm: HashAlgorithm,
    block_size: usize,
    root: BlockHash,
}

impl BlockHasher {
    /// The seed of vLLM's collision-resistant algorithms.
    pub const DEFAULT_SEED: &'static str = "vllm-none-hash";

    /// Creates a hasher of blocks of `block_size` tokens. Its chains start at the hash of `seed`.
    pub fn new(algorithm: HashAlgorithm, block_size: usize, seed: &str) -> Self {
        Self { algorithm, block_size, root: algorithm.hash_text(seed) }
    }

    /// Returns the tokens per hash.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Appends the hashes of the full blocks of `tokens` that are missing in `hashes`.
    pub fn extend(&self, hashes: &mut Vec<BlockHash>, tokens: &[i64], extra_keys: &ExtraKeys) {
        let start_token = hashes.len() * self.block_size;
        let tokens = tokens.get(start_token..).unwrap_or_default();
        if tokens.len() < self.block_size {
            return;
        }
        let parent = hashes.last().copied().unwrap_or(self.root).to_bytes();
        let chain = Chain {
            parent: &parent[..self.algorithm.hash_len()],
            tokens,
            block_size: self.block_size,
            num_lookahead_tokens: 0,
            keys: &extra_keys.of_chain(start_token),
        };
        hashes.extend(chain.hash(self.algorithm));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_chain_ends_where_lookahead_tokens_are_missing() {
        let tokens = [1; 10];
        let hashes = |num_lookahead_tokens| {
            let chain = Chain {
                parent: b"",
                tokens: &tokens,
                block_size: 3,
                num_lookahead_tokens,
                keys: &[],
            };
            chain.hash(HashAlgorithm::Xxhash).len()
        };
        assert_eq!([0, 1, 2, 4, 8, 11].map(hashes), [3, 3, 2, 2, 0, 0]);
    }

    #[test]
    fn algorithms_have_names_and_lengths() {
        for (name, algorithm) in HashAlgorithm::ALL {
            assert_eq!((HashAlgorithm::named(name), algorithm.name()), (Some(algorithm), name));
            let hasher = BlockHasher::new(algorithm, 16, "seed");
            assert_eq!((hasher.algorithm(), hasher.block_size()), (algorithm, 16));
            let hash = algorithm.hash_text("seed");
            let bytes = &hash.to_bytes()[..algorithm.hash_len()];
            assert_eq!(BlockHash::from_slice(bytes), Some(hash));
        }
        assert_eq!(HashAlgorithm::ALL.map(|(_, algorithm)| algorithm.hash_len()), [32, 32, 16, 16]);
        assert_eq!(HashAlgorithm::named("md5"), None);
    }
}
