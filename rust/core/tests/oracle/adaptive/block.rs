//! The record of a block in the policy.

/// The halvings of a block without value.
pub const WORTHLESS: usize = 7;

/// The place of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In use, or in the queue of the pool.
    #[default]
    Elsewhere,
    Listed,
    Protected,
    /// In the list of its priority.
    Prioritized,
}

/// A block, in use or free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    pub place: Place,
    /// The number of uses: 1 when the block becomes cached, one more for each hit, at most 15.
    pub uses: usize,
    pub halvings: usize,
    pub is_tail: bool,
    /// Whether the block has generated tokens.
    pub is_generated: bool,
    pub is_sampled: bool,
    /// Whether a request hit it since its last second chance.
    pub was_hit: bool,
    /// Whether it gets second chances without hits.
    pub is_durable: bool,
    /// Whether requests of several sessions have hit the block. Marked for full attention only.
    pub is_shared: bool,
    /// The number of tokens up to the end of the block.
    pub end: usize,
    /// The epoch in which the block became free last.
    pub epoch: usize,
    /// The step of a full-attention block's distance from the end of its prompt.
    pub nearness: Option<usize>,
}

impl Block {
    const MAX_USES: usize = 15;
    /// The most halvings of a valuable tail. Such a tail has at least half the value of a
    /// full-attention block.
    const MAX_HALVINGS: usize = 1;

    /// Creates the record of a block that becomes cached, which is its first use.
    pub fn new(is_tail: bool, is_generated: bool, end: usize) -> Self {
        Self { uses: 1, is_tail, is_generated, end, ..Self::default() }
    }

    /// Counts a hit of the block by a request.
    pub fn hit(&mut self) {
        self.uses = (self.uses + 1).min(Self::MAX_USES);
        (self.halvings, self.was_hit) = (0, true);
    }

    /// Returns whether the block is protected after a running request has passed it.
    pub fn is_valuable_tail(&self) -> bool {
        self.is_tail && self.halvings <= Self::MAX_HALVINGS
    }

    /// Returns whether the block has generated tokens and no other request has used it.
    pub fn is_unused_answer(&self) -> bool {
        self.is_generated && self.uses == 1
    }

    /// Returns whether the block is a full-attention block near the end of a prompt, or in an
    /// answer.
    pub fn is_end(&self) -> bool {
        self.is_generated || self.nearness.is_some()
    }

    /// Returns whether the block has no value.
    pub fn is_worthless(&self) -> bool {
        self.halvings == WORTHLESS
    }

    /// Returns whether the block gets a second chance if its prefix was used later than the block.
    pub fn may_get_second_chance(&self) -> bool {
        self.is_valuable_tail() && (self.was_hit || self.is_durable)
    }
}
