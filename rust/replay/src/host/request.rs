//! The connector's state of a request.

use std::collections::HashSet;

use kvoxide_core::host::{HostRequest, StoreWait};
use kvoxide_core::{
    BlockHash, BlockId, GroupBlocks, HashSource, HashWindow, NULL_BLOCK, RequestView,
};

/// The connector's state of a request that has not ended, or whose transfers have not.
#[derive(Debug, Default)]
pub(super) struct RequestState {
    /// The tier's state of the request.
    pub host: HostRequest,
    /// For each group, the first chunk that was not offered.
    pub next: Vec<usize>,
    /// For each group, the blocks that the request got. Blocks that left a window stay in the list
    /// until another request gets them.
    pub blocks: Vec<Vec<BlockId>>,
    /// For each group, how many of these blocks the request got before this step.
    num_old: Vec<usize>,
    pub num_prompt_tokens: usize,
    /// The number of transfers in progress.
    pub num_jobs: usize,
    /// Whether the tier knows that the request has ended.
    pub has_ended: bool,
    /// How far the request's load has waited for stores of the blocks that it takes.
    pub store_wait: StoreWait,
    /// The last offer for which there was no room, if its blocks are the same still.
    pub refused: Option<OfferedAt>,
}

/// The values that decide an offer of a request and its result, apart from its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OfferedAt {
    /// The changes of the tier's chunks so far.
    pub num_changes: u64,
    pub num_tokens: usize,
    pub num_hashes: usize,
    pub has_ended: bool,
}

impl RequestState {
    pub fn new(num_groups: usize) -> Self {
        Self {
            next: vec![0; num_groups],
            blocks: vec![Vec::new(); num_groups],
            num_old: vec![0; num_groups],
            ..Self::default()
        }
    }

    /// Starts again from the first token.
    pub fn restart(&mut self) {
        self.refused = None;
        self.next.fill(0);
        self.num_old.fill(0);
        self.blocks.iter_mut().for_each(Vec::clear);
    }

    /// Replaces the blocks of a group by a request's table.
    pub fn set_blocks(&mut self, at: usize, table: &GroupBlocks) {
        self.refused = None;
        let blocks = &mut self.blocks[at];
        blocks.clear();
        blocks.extend(table.iter());
        self.num_old[at] = 0;
    }

    /// Forgets blocks of a group that left its window and that requests got in this step. Only the
    /// first `most` blocks can still be offered.
    pub fn forget_taken_blocks(&mut self, at: usize, most: usize, allocated: &HashSet<BlockId>) {
        let places = self.next[at]..self.num_old[at].min(most);
        for block in self.blocks[at].get_mut(places).unwrap_or_default() {
            if allocated.contains(block) {
                *block = NULL_BLOCK;
                self.refused = None;
            }
        }
    }

    /// Ends a step: all blocks are old.
    pub fn end_step(&mut self) {
        let lengths = self.blocks.iter().map(Vec::len);
        self.num_old.iter_mut().zip(lengths).for_each(|(old, length)| *old = length);
    }
}

/// The numbers of a request that decide what it offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    pub hashes: HashWindow<'a>,
    pub num_prompt_tokens: usize,
    /// The number of tokens that are computed after the step.
    pub num_computed: usize,
    /// The number of tokens that are known.
    pub num_tokens: usize,
    pub shared_prefix_boundary: usize,
    pub has_ended: bool,
}

impl<'a> Progress<'a> {
    /// Returns the numbers of a request that computes `num_new` tokens in a step.
    pub fn of(view: &RequestView<'a>, num_new: usize) -> Self {
        Self {
            hashes: view.hashes,
            num_prompt_tokens: view.num_prompt_tokens,
            num_computed: view.num_computed_tokens + num_new,
            num_tokens: view.num_tokens,
            shared_prefix_boundary: view.shared_prefix_boundary,
            has_ended: false,
        }
    }
}

/// A request that ended and has not offered its last chunks.
#[derive(Clone, Debug)]
pub(super) struct EndedRequest {
    pub id: u64,
    /// The position of the first hash.
    first_hash: usize,
    hashes: Vec<BlockHash>,
    num_prompt_tokens: usize,
    num_computed: usize,
    num_tokens: usize,
    shared_prefix_boundary: usize,
}

impl EndedRequest {
    /// Takes what a request needs from `first_hash` on.
    pub fn of(view: &RequestView<'_>, first_hash: usize, is_aborted: bool) -> Self {
        let num_hashes = view.hashes.len();
        let first_hash = first_hash.min(num_hashes);
        let is_cut_off = view.num_computed_tokens < view.num_prompt_tokens;
        Self {
            id: view.id,
            first_hash,
            hashes: (first_hash..num_hashes).map(|at| view.hashes.at(at)).collect(),
            num_prompt_tokens: view.num_prompt_tokens,
            // The last token of a request is never computed, unless the request was aborted while
            // the step with this token was in flight.
            num_computed: match is_cut_off || is_aborted {
                true => view.num_computed_tokens,
                false => view.num_prompt_tokens.max(view.num_tokens - 1),
            },
            num_tokens: view.num_tokens,
            shared_prefix_boundary: view.shared_prefix_boundary,
        }
    }

    pub fn progress(&self) -> Progress<'_> {
        Progress {
            hashes: HashWindow::new(self.first_hash, &self.hashes),
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed: self.num_computed,
            num_tokens: self.num_tokens,
            shared_prefix_boundary: self.shared_prefix_boundary,
            has_ended: true,
        }
    }
}
