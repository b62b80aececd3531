//! Requests of the traffic: their counts, tokens and hashes.

use std::sync::Arc;

use kvoxide_core::{BlockHash, HashWindow, RequestId, RequestRetention, RequestView};

/// The longest request, in tokens.
const MAX_TOKENS: usize = 900;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A request of a scheduler.
#[derive(Debug)]
pub struct Request {
    /// The id.
    pub id: RequestId,
    /// Prompt and output tokens.
    pub tokens: Vec<u64>,
    /// The hash of each full hash block.
    pub hashes: Vec<BlockHash>,
    /// The number of tokens in the prompt.
    pub num_prompt_tokens: usize,
    /// The number of tokens that count as computed.
    pub num_computed_tokens: usize,
    /// The number of tokens in steps whose output is not processed yet.
    pub num_in_flight_tokens: usize,
    /// The shared-prefix boundary that the look-up found.
    pub boundary: usize,
    /// Whether the request waits to be admitted.
    pub is_waiting: bool,
    /// The retention that the request asks for.
    pub retention: Option<Arc<RequestRetention>>,
}

impl Request {
    /// Returns a request of `len` tokens that shares the first `shared` tokens with its family.
    pub fn new(id: RequestId, family: u8, len: u16, shared: u16, hash_block_size: usize) -> Self {
        let len = 1 + usize::from(len) % MAX_TOKENS;
        let shared = usize::from(shared) % (len + 1);
        let own = 1_000 + id;
        let token = |t: usize| if t < shared { u64::from(family % 4) } else { own };
        let mut request = Self {
            id,
            tokens: (0..len).map(token).collect(),
            hashes: Vec::new(),
            num_prompt_tokens: len,
            num_computed_tokens: 0,
            num_in_flight_tokens: 0,
            boundary: 0,
            is_waiting: true,
            retention: None,
        };
        request.hash(hash_block_size);
        request
    }

    /// Appends tokens that no other request has.
    pub fn append(&mut self, n: usize, hash_block_size: usize) {
        let more = n.min(MAX_TOKENS.saturating_sub(self.tokens.len()));
        let first = self.tokens.len() as u64;
        self.tokens.extend((first..first + more as u64).map(|t| t * 31 + self.id));
        self.hash(hash_block_size);
    }

    /// Appends the hashes of full blocks. Each hash is computed from the previous hash and the
    /// tokens.
    fn hash(&mut self, hash_block_size: usize) {
        let blocks = self.tokens.chunks_exact(hash_block_size).skip(self.hashes.len());
        for block in blocks {
            let parent = self.hashes.last().map_or(7, |hash| hash.0[0]);
            let mix =
                |state: u64, &token: &u64| (state ^ token).wrapping_mul(MULTIPLIER).rotate_left(23);
            let digest = block.iter().fold(parent, mix);
            self.hashes.push(BlockHash([digest, digest ^ 1, 0, 0]));
        }
    }

    /// Returns the hashes, as a chain.
    pub fn chain(&self) -> HashWindow<'_> {
        HashWindow::from(&self.hashes[..]).chained(true)
    }

    /// Returns the request in the form that the manager reads.
    pub fn view(&self) -> RequestView<'_> {
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            num_in_flight_tokens: self.num_in_flight_tokens.cast_signed(),
            shared_prefix_boundary: self.boundary,
            is_waiting: self.is_waiting,
            ..RequestView::new(self.id, self.chain(), self.tokens.len())
        }
    }
}
