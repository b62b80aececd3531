//! Computes block hashes of the requests in a run. They need no cryptographic hash, because a run
//! has no other input than its trace.

use std::sync::Arc;

use kvoxide_core::{BlockHash, HashWindow};

use crate::samples::{Samples, default_hash};
use crate::trace::{MAX_LENGTH, Prompt};

/// Sizes of hashes, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct HashSizes {
    /// Tokens per hash.
    pub block_size: usize,
    /// Tokens per id of the trace.
    pub tokens_per_id: usize,
    /// The number of tokens after a block that must be known before the block has a hash.
    pub num_lookahead_tokens: usize,
}

/// The growing chain of block hashes of one request.
#[derive(Clone, Debug)]
pub struct HashChain {
    block_size: usize,
    num_lookahead_tokens: usize,
    /// The hashes of the full blocks.
    pub hashes: Vec<BlockHash>,
    /// The parent hash and the tokens of the block that is not full yet, as bytes.
    block: Vec<u8>,
    /// The sampled blocks, if they are known of blocks of this size.
    samples: Option<Arc<Samples>>,
}

/// Returns a token that no trace has, and no other request or position.
fn unknown_token(request: usize, position: usize) -> i64 {
    i64::MIN + (request * MAX_LENGTH + position) as i64
}

const PARENT_LEN: usize = 16;
const TOKEN_LEN: usize = 8;

impl HashChain {
    /// Returns the hash chain of the prompt of the request with this index. Tokens that the trace
    /// does not know differ from all others.
    pub fn new(
        sizes: HashSizes,
        samples: Option<&Arc<Samples>>,
        prompt: &Prompt,
        request: usize,
    ) -> Self {
        let length = prompt.len();
        let num_known = prompt.num_known(sizes.tokens_per_id).min(length);
        let samples = samples.filter(|_| sizes.block_size == sizes.tokens_per_id);
        let mut chain = Self::empty(sizes, samples, num_known);
        prompt.each(num_known, sizes.tokens_per_id, |token| chain.push(token));
        (num_known..length).for_each(|position| chain.push(unknown_token(request, position)));
        chain
    }

    /// Returns the hash chain of the first `num_tokens` known tokens.
    pub fn of_first(sizes: HashSizes, prompt: &Prompt, num_tokens: usize) -> Self {
        let mut chain = Self::empty(sizes, None, num_tokens);
        prompt.each(num_tokens, sizes.tokens_per_id, |token| chain.push(token));
        chain
    }

    fn empty(sizes: HashSizes, samples: Option<&Arc<Samples>>, num_tokens: usize) -> Self {
        Self {
            block_size: sizes.block_size,
            num_lookahead_tokens: sizes.num_lookahead_tokens,
            hashes: Vec::with_capacity(num_tokens / sizes.block_size),
            block: vec![0; PARENT_LEN],
            samples: samples.cloned(),
        }
    }

    /// Returns the hashes for the manager, as a chain. Leaves out the last ones if their lookahead
    /// tokens are missing.
    pub fn window(&self) -> HashWindow<'_> {
        let num_open = (self.block.len() - PARENT_LEN) / TOKEN_LEN;
        let num_missing = self.num_lookahead_tokens.saturating_sub(num_open);
        let num_unknown = num_missing.div_ceil(self.block_size);
        let num_known = self.hashes.len().saturating_sub(num_unknown);
        HashWindow::from(&self.hashes[..num_known]).chained(true)
    }

    /// Appends a token.
    pub fn push(&mut self, token: i64) {
        self.block.extend_from_slice(&token.to_le_bytes());
        if self.block.len() == PARENT_LEN + self.block_size * TOKEN_LEN {
            let hash = match &self.samples {
                None => default_hash(&self.block),
                Some(samples) => samples.hash(&self.block, token / self.block_size as i64),
            };
            self.hashes.extend(BlockHash::from_slice(&hash));
            self.block.clear();
            self.block.extend_from_slice(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use kvoxide_core::HashSource as _;

    use super::*;

    fn chain(tokens: &[i64]) -> Vec<BlockHash> {
        let sizes = HashSizes { block_size: 4, tokens_per_id: 1, num_lookahead_tokens: 0 };
        HashChain::new(sizes, None, &Prompt::of_tokens(tokens.to_vec()), 0).hashes
    }

    #[test]
    fn unknown_tokens_of_two_requests_are_never_equal() {
        let sizes = HashSizes { block_size: 4, tokens_per_id: 4, num_lookahead_tokens: 0 };
        let prompt = Prompt::of_ids(13, [7, 8]);
        let [a, b] = [0, 1].map(|request| HashChain::new(sizes, None, &prompt, request).hashes);
        assert_eq!((a.len(), &a[..2]), (3, &b[..2]));
        assert_ne!(a[2], b[2]);
    }

    #[test]
    fn a_block_has_its_hash_when_its_lookahead_is_known() {
        let sizes = HashSizes { block_size: 4, tokens_per_id: 1, num_lookahead_tokens: 1 };
        let known = |length: i64| {
            let prompt = Prompt::of_tokens((0..length).collect());
            HashChain::new(sizes, None, &prompt, 0).window().len()
        };
        assert_eq!([3, 4, 5, 8, 9].map(known), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn equal_prefixes_have_equal_hashes_and_a_change_alters_all_following() {
        let a = chain(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let b = chain(&[1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12]);
        assert_eq!(a.len(), 3);
        assert_eq!(a[0], b[0]);
        assert!(a[1] != b[1] && a[2] != b[2]);
    }
}
