//! A request in the core: its id, its hashes and its blocks.

mod blocks;
mod hashes;
mod table;

pub use blocks::{HeldBlocks, RequestBlocks, RequestTails};
pub use hashes::{GroupHashes, HashSource, HashWindow};
pub use table::GroupBlocks;

/// The id of a request. Two live requests never have the same id.
pub type RequestId = u64;

/// The data of a request that a call reads. Numbers are in tokens.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request.
    pub id: RequestId,
    /// The hashes of all full hash blocks so far. Each hash covers its whole prefix. An allocation
    /// reads the hashes from [`crate::Manager::first_hash_needed`] on.
    pub hashes: HashWindow<'a>,
    /// The number of prompt and output tokens so far.
    pub num_tokens: usize,
    /// The number of prompt tokens.
    pub num_prompt_tokens: usize,
    /// The number of tokens whose KV the scheduler counts as computed.
    pub num_computed_tokens: usize,
    /// The number of tokens in steps whose output is not processed yet. It is negative if this
    /// request got outputs of an ended request with the same id.
    pub num_in_flight_tokens: isize,
    /// The shared-prefix boundary that the look-up found; 0 if there is none.
    pub shared_prefix_boundary: usize,
    /// Whether the request waits to be admitted (new or preempted). Then the watermark applies.
    pub is_waiting: bool,
}

impl<'a> RequestView<'a> {
    /// Creates a waiting request with a prompt of `num_tokens` tokens, none of them computed.
    pub fn new(id: RequestId, hashes: impl Into<HashWindow<'a>>, num_tokens: usize) -> Self {
        Self {
            id,
            hashes: hashes.into(),
            num_tokens,
            num_prompt_tokens: num_tokens,
            num_computed_tokens: 0,
            num_in_flight_tokens: 0,
            shared_prefix_boundary: 0,
            is_waiting: true,
        }
    }
    /// Returns how many of `num_computed` tokens are not in flight. Steps in flight can still read
    /// blocks before their tokens.
    #[inline]
    pub(crate) fn num_processed(&self, num_computed: usize) -> usize {
        num_computed.cast_signed().wrapping_sub(self.num_in_flight_tokens).max(0).cast_unsigned()
    }
}
