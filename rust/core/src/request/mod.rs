//! A request in the core: its number, its hashes and its blocks.

mod blocks;
mod hashes;
mod table;

pub use blocks::{HeldBlocks, RequestBlocks, RequestTails};
pub use hashes::{GroupHashes, HashSource, HashWindow};
pub use table::GroupBlocks;

/// The number of a request. Two live requests never have the same.
pub type RequestId = u64;

/// What a call reads of a request. Numbers are in tokens.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request.
    pub id: RequestId,
    /// The hashes of all full hash blocks so far, each chained over its prefix. An allocation reads
    /// those from [`crate::Manager::first_hash_needed`] on.
    pub hashes: HashWindow<'a>,
    /// Prompt and output tokens so far.
    pub num_tokens: usize,
    /// Prompt tokens.
    pub num_prompt_tokens: usize,
    /// Tokens whose KV the scheduler counts as computed.
    pub num_computed_tokens: usize,
    /// Tokens of steps whose output is not processed yet. Fewer than none where outputs of an ended
    /// request reached this one, which has its id.
    pub num_in_flight_tokens: isize,
    /// The shared-prefix boundary that the look-up found; 0 for none.
    pub shared_prefix_boundary: usize,
    /// Whether the request waits to be admitted (new or preempted), so that the watermark applies.
    pub is_waiting: bool,
}

impl<'a> RequestView<'a> {
    /// A waiting request with a prompt of `num_tokens` and nothing computed.
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
}
