//! kvoxide's own eviction policy, [`crate::Retention::Adaptive`].
//!
//! Free cached blocks are in ranked lists, one for each combination of frequency class, value and
//! epoch:
//!
//! - The *frequency class* says how often the block's prefix was used.
//! - The *value* says how much less a tail is worth than a full block of the same size. It is stored
//!   as *halvings*: how many times a full block's value is halved ([`ValueLevel`]).
//! - The *epoch* says when the block became free. Time is counted in blocks that become cached: a
//!   pool's worth of blocks takes sixteen epochs.
//!
//! Once an epoch, a *scoring function* gives each list a score from class, age and value. Eviction
//! takes the oldest block of the list with the lowest score ([`lists`], [`ranks`]).
//!
//! There are three scoring functions ([`scoring`]), and the traffic decides which one is best.
//! Therefore one in 16 to 64 blocks is *sampled* by its fingerprint. For each function, a *shadow
//! cache* simulates, on hashes alone, which of the sampled blocks the pool would still have. The
//! function whose shadow cache hits most is in force: set dueling ([`shadow`]). The sampled blocks
//! also show how likely a block of a class is used again at each age. The third function ranks by
//! this *hazard* ([`hazard`]).
//!
//! There are three exceptions to this order:
//!
//! - Tails are *protected* while their request runs, and are evicted last.
//! - A tail that is due for eviction although its prefix is still used gets a *second chance* if a
//!   request resumed at it ([`evict`]).
//! - Blocks with a retention *priority* are evicted before or after all others ([`prioritize`]).
//!
//! The free queue is emptied first. It holds uncached blocks, followed by cached blocks without a
//! value. `tests/oracle/adaptive.rs` in this crate implements the same policy naively, one block at
//! a time.
//!
//! Sources: hazards of reuse by age are from LHD (NSDI 2018), and their index is Gittins'. Uses by
//! age are from hyperbolic caching (ATC 2017). Sampled shadows are from SHARDS (FAST 2015), and set
//! dueling is from DIP (ISCA 2007).

mod cached;
mod evict;
mod hits;
mod prioritize;
mod release;

mod lists;
mod shadow;

mod ranks;
mod scoring;

mod block_metas;
mod hazard;

mod block_meta;
mod densities;
mod nearness;
mod sampled;
mod value;

pub(crate) mod tuning;

pub use block_meta::{BlockClass, BlockMeta};
pub use densities::num_samples;
pub use nearness::Nearness;
pub use release::Release;
pub use scoring::ScoringFunction;
pub use shadow::{SampleCounts, ShadowCaches};
pub use value::ValueLevel;

use block_meta::{Place, TargetList};
use block_metas::BlockMetas;
use lists::RankedLists;
use prioritize::RequestPriority;

use super::priority::PriorityLists;
use super::queue::Queue;
use crate::block::{BlockId, GroupId};
use crate::pool::blocks::{BlockList, Blocks, ListSpan};

/// The properties of a model that the adaptive policy reads.
#[derive(Clone, Debug)]
pub struct AdaptiveConfig {
    /// The default properties of a block in each group.
    pub classes: Vec<BlockClass>,
    /// The maximum number of free blocks above the default priority.
    pub max_high_priority: usize,
}

/// The policy, and all free blocks in its order.
#[derive(Debug)]
pub struct Adaptive {
    /// Uncached blocks, and blocks that are allocated next.
    pub(super) queue: Queue,
    metas: BlockMetas,
    lists: RankedLists,
    num_ranked: usize,
    /// The number of sampled blocks in the ranked lists.
    num_sampled: usize,
    /// The number of hits of blocks with generated tokens, without tails.
    pub(crate) num_answer_block_hits: u64,
    /// The tails of running requests.
    protected: BlockList,
    /// The tails that became protected since [`Adaptive::start_protecting`], until
    /// [`Adaptive::stop_protecting`] returns them.
    newly_protected: Option<Vec<BlockId>>,
    priority_lists: PriorityLists,
    request_priority: RequestPriority,
    /// The number of last full blocks of the next hit that vLLM's default policy would compute
    /// again.
    num_without_tail: usize,
    /// The number of blocks that vLLM's default policy has fewer.
    num_fewer_by_default: usize,
    shadow: ShadowCaches,
    /// The number of sampleable blocks that become cached in a round of the duel.
    round_len: usize,
    num_cached_in_round: usize,
    num_rounds_in_epoch: usize,
    classes: Vec<BlockClass>,
    /// A group in which a hit needs every block, if other groups have tails.
    pub(crate) full_group: Option<GroupId>,
}

impl Adaptive {
    /// The number of records that the lists need in [`Blocks`] in addition to the records of the
    /// queue.
    pub(crate) const NUM_SENTINELS: usize = RankedLists::NUM_LISTS + 1 + PriorityLists::NUM_LISTS;

    /// Creates the policy of a new pool without cached blocks. `blocks` has [`Self::NUM_SENTINELS`]
    /// records for the lists, after the records of `queue`.
    pub(crate) fn new(blocks: &mut Blocks, queue: Queue, config: AdaptiveConfig) -> Self {
        let AdaptiveConfig { classes, max_high_priority } = config;
        let num_blocks = blocks.len();
        let rounds_per_pool = tuning::EPOCHS_PER_POOL * tuning::ROUNDS_PER_EPOCH;
        let shadow = ShadowCaches::new(num_blocks);
        let first_sentinel = num_blocks as u32 + 1;
        let protected_sentinel = first_sentinel + RankedLists::NUM_LISTS as u32;
        Self {
            queue,
            metas: BlockMetas::new(num_blocks),
            lists: RankedLists::new(blocks, first_sentinel, shadow.scores()),
            num_ranked: 0,
            num_sampled: 0,
            num_answer_block_hits: 0,
            protected: BlockList::new(blocks, protected_sentinel),
            newly_protected: None,
            priority_lists: PriorityLists::new(blocks, protected_sentinel + 1, max_high_priority),
            request_priority: RequestPriority::default(),
            num_without_tail: 0,
            num_fewer_by_default: 0,
            shadow,
            round_len: (num_blocks / rounds_per_pool).max(tuning::MIN_ROUND_LEN),
            num_cached_in_round: 0,
            num_rounds_in_epoch: 0,
            full_group: full_group(&classes),
            classes,
        }
    }

    /// Returns the number of free cached blocks, without the blocks in the queue.
    pub fn num_listed(&self) -> usize {
        self.num_ranked + self.protected.len() + self.priority_lists.len()
    }

    /// Returns the protected tails, the oldest first.
    pub fn protected_tails<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        self.protected.iter(blocks)
    }

    /// Returns the shadow caches of the scoring functions.
    pub fn shadow(&self) -> &ShadowCaches {
        &self.shadow
    }

    /// Notes what vLLM's default policy would do with the request that is admitted next. It would
    /// cache `num_tails` blocks of tails. Of the full blocks of the hit, it would compute the last
    /// `num_without_tail` again, because it has no tail there.
    pub(crate) fn note_default(&mut self, num_tails: usize, num_without_tail: usize) {
        self.shadow.default_cache.cached_tails(num_tails);
        self.num_without_tail = num_without_tail;
    }

    /// Simulates vLLM's default policy in a pool that has `num_blocks` blocks fewer than this one.
    pub(crate) fn simulate_default_with_fewer(&mut self, num_blocks: usize) {
        self.num_fewer_by_default = num_blocks;
    }

    /// Returns the metadata of a block.
    pub fn meta(&self, block: BlockId) -> BlockMeta {
        self.metas[block]
    }

    /// Returns whether a block is free and cached, and not in the queue.
    pub fn is_listed(&self, block: BlockId) -> bool {
        self.metas[block].place() != Place::Elsewhere
    }

    /// Starts to protect tails that are released, until [`Self::stop_protecting`].
    pub fn start_protecting(&mut self) {
        self.newly_protected = Some(Vec::new());
    }

    /// Returns the tails that became protected since [`Self::start_protecting`].
    pub fn stop_protecting(&mut self) -> Vec<BlockId> {
        self.newly_protected.take().unwrap_or_default()
    }

    /// Returns whether a block is a protected tail.
    pub(crate) fn is_protected(&self, block: BlockId) -> bool {
        self.metas[block].place() == Place::Protected
    }

    /// Moves a block from its list to the free queue: to the back if it is cached. Returns whether
    /// it was in a list other than the queue.
    pub(super) fn move_to_queue(&mut self, blocks: &mut Blocks, block: BlockId) -> bool {
        let is_listed = self.remove(blocks, block);
        if is_listed {
            self.queue.enqueue(blocks, block);
        }
        is_listed
    }

    /// Takes a free block out of its list or the queue.
    pub(super) fn take_out(&mut self, blocks: &mut Blocks, block: BlockId) {
        if !self.remove(blocks, block) {
            self.queue.unlink(blocks, ListSpan::of(block));
        }
    }

    /// Takes a block out of its list, and removes its priority. Returns whether it was in a list
    /// other than the queue.
    pub(super) fn remove(&mut self, blocks: &mut Blocks, block: BlockId) -> bool {
        let was = self.metas.update(block, |meta| meta.removed().with_priority(false));
        self.unlink(blocks, block, was);
        was.place() != Place::Elsewhere
    }

    /// Takes a block out of the list that its metadata named.
    fn unlink(&mut self, blocks: &mut Blocks, block: BlockId, was: BlockMeta) {
        match was.place() {
            Place::Elsewhere => {}
            Place::Protected => self.protected.remove(blocks, block),
            Place::PriorityList => self.priority_lists.remove(blocks, block),
            Place::Ranked => {
                blocks.unlink(block);
                self.num_ranked -= 1;
                self.num_sampled -= usize::from(was.is_sampled());
            }
        }
    }

    /// Puts a block into the ranked list of blocks that became free `age` epochs ago.
    fn rank(&mut self, blocks: &mut Blocks, block: BlockId, age: usize) {
        let meta = self.metas[block];
        let target = TargetList::new(meta, self.lists.epoch().before(age), true);
        self.metas.enter(block, target);
        self.lists.push(blocks, block, meta, age);
        self.num_ranked += 1;
        self.num_sampled += usize::from(meta.is_sampled());
    }

    /// Ends the rounds and epochs in which enough blocks have become cached.
    fn end_due_epochs(&mut self, blocks: &mut Blocks) {
        while self.num_cached_in_round >= self.round_len {
            self.num_cached_in_round -= self.round_len;
            self.shadow.end_round();
            self.num_rounds_in_epoch += 1;
            if self.num_rounds_in_epoch == tuning::ROUNDS_PER_EPOCH {
                self.num_rounds_in_epoch = 0;
                self.shadow.end_epoch();
                self.lists.end_epoch(blocks, self.shadow.scores());
            }
        }
    }

    /// Gives each shadow cache room for the sampled blocks that the pool has, and for the sampled
    /// share of empty blocks.
    fn fit_shadow_caches(&mut self) {
        let num_queued = self.queue.free.len();
        let num_free = self.num_listed() + num_queued;
        let num_free_by_default = num_free.saturating_sub(self.num_fewer_by_default);
        self.shadow.fit(self.num_sampled, num_queued, num_free_by_default);
    }

    /// Returns the free cached blocks in the order in which they would be evicted if no tail got a
    /// second chance.
    pub(crate) fn eviction_order<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = BlockId> + 'a {
        let by_priority = || self.priority_lists.iter(blocks);
        let num_low = self.priority_lists.len() - self.priority_lists.num_high();
        let ranked = by_priority().take(num_low).chain(self.lists.in_order(blocks));
        ranked.chain(by_priority().skip(num_low)).chain(self.protected.iter(blocks))
    }

    /// Returns the free cached blocks, in no particular order.
    pub(crate) fn listed_blocks<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = BlockId> + 'a {
        let ranked = self.priority_lists.iter(blocks).chain(self.lists.iter(blocks));
        ranked.chain(self.protected.iter(blocks))
    }
}

fn full_group(classes: &[BlockClass]) -> Option<GroupId> {
    let has_tails = classes.iter().any(|class| class.is_tail);
    let full = classes.iter().position(|class| class.is_sampleable && !class.is_tail);
    Some(full.filter(|_| has_tails)? as GroupId)
}
