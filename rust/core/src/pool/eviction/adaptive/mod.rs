//! kvoxide's own eviction policy, [`crate::Retention::Adaptive`].
//!
//! Free cached blocks are in ranked lists, one for each frequency class, value level and epoch. The
//! *frequency class* says how often the block's prefix was used, the *value level* how much less a
//! tail is worth than a full block of the same size, and the *epoch* when the block became free:
//! time is counted in blocks that become cached, sixteen epochs to a pool. Once an epoch a *scoring
//! function* gives each list a score from class, age and value. Eviction takes the oldest block of
//! the list with the lowest score ([`lists`], [`ranks`]).
//!
//! There are three scoring functions ([`scoring`]), and which is best depends on the traffic. So one
//! in 16 to 64 blocks is *sampled* by its fingerprint, and for each function a *shadow cache*
//! simulates on hashes alone which of the sampled blocks the pool would still have. The function
//! whose shadow cache hits most is in force: set dueling ([`shadow`]). The sampled blocks also show
//! how likely a block of a class is used again at each age; the third function ranks by this
//! *hazard* ([`hazard`]).
//!
//! Around this order there are three exceptions. Tails are *protected* while their request runs, and
//! go last. A tail that is due for eviction although its prefix is still used gets a *second chance*
//! where a request resumed at it ([`evict`]). Blocks with a retention *priority* go before or after
//! all others ([`prioritize`]).
//!
//! Uncached blocks are in the free queue, which is emptied first, and behind them cached ones without
//! a value. `tests/oracle/adaptive.rs` in this
//! crate is the same policy, naive and one block at a time.
//!
//! Sources: hazards of reuse by age are LHD's (NSDI 2018), their index is Gittins'; uses by age are
//! hyperbolic caching (ATC 2017); sampled shadows are SHARDS (FAST 2015), set dueling is DIP's (ISCA
//! 2007).

mod cached;
mod evict;
mod hits;
mod prioritize;
mod release;

mod lists;
mod shadow;

mod ranks;

mod scoring;

mod hazard;

mod block_metas;

mod meta_run;

mod block_meta;
mod nearness;
mod sampled;
mod value;

pub(crate) mod tuning;

pub use block_meta::BlockClass;
pub use nearness::Nearness;
pub use release::Release;
pub use scoring::ScoringFunction;
pub use shadow::SampleCounts;
pub use value::ValueLevel;

use block_meta::{BlockMeta, Place, TargetList};
use block_metas::BlockMetas;
use lists::RankedLists;
use prioritize::PriorityContext;
use shadow::ShadowCaches;
use shadow::access_log::AccessLog;
use tuning::TUNING;

use super::priority::PriorityLists;
use super::queue::Queue;
use crate::block::{BlockId, GroupId};
use crate::pool::blocks::BlockList;
use crate::pool::blocks::Blocks;

/// What the adaptive policy knows of a model.
#[derive(Clone, Debug)]
pub struct AdaptiveConfig {
    /// What a block of each group is by default.
    pub classes: Vec<BlockClass>,
    /// The most free blocks above the default priority.
    pub max_high_priority: usize,
    /// Window blocks that vLLM's own policy caches with each sampleable block, on average over a
    /// prompt.
    pub dense_tails_per_block: f64,
}

/// The policy, and all free blocks in its order.
#[derive(Debug)]
pub struct Adaptive {
    /// Uncached blocks, and those that are allocated next.
    queue: Queue,
    metas: BlockMetas,
    lists: RankedLists,
    num_ranked: usize,
    /// Sampled blocks among them.
    num_sampled: usize,
    num_answer_block_hits: u64,
    /// Lengths in tokens of the prompts whose ends were computed since they were asked for.
    ended_prompts: Vec<usize>,
    /// Tails of requests that run.
    protected: BlockList,
    /// Tails that became protected since [`Adaptive::start_protecting`], until they are asked for.
    newly_protected: Option<Vec<BlockId>>,
    priority_lists: PriorityLists,
    context: PriorityContext,
    shadow: ShadowCaches,
    log: AccessLog,
    clock: EpochClock,
    /// What a block of each group is by default.
    classes: Vec<BlockClass>,
    /// A group of which a hit needs every block, where others have tails.
    full_group: Option<GroupId>,
}

/// Counts sampleable blocks that become cached, until a round of the duel ends, and such rounds,
/// until an epoch does.
#[derive(Clone, Copy, Debug)]
struct EpochClock {
    round_len: usize,
    num_cached: usize,
    num_rounds: usize,
}

impl Adaptive {
    /// Records that the lists need in [`Blocks`] beside those of the queue.
    pub(crate) const NUM_SENTINELS: usize = RankedLists::NUM_LISTS + 1 + PriorityLists::NUM_LISTS;

    /// The policy of a fresh pool, none of whose blocks is cached. `blocks` has
    /// [`Self::NUM_SENTINELS`] records behind those of `queue` for the lists.
    pub(crate) fn new(blocks: &mut Blocks, queue: Queue, order: AdaptiveConfig) -> Self {
        let AdaptiveConfig { classes, max_high_priority, dense_tails_per_block } = order;
        let num_blocks = blocks.len();
        let rounds_per_pool = TUNING.epochs_per_pool * TUNING.rounds_per_epoch;
        let round_len = (num_blocks / rounds_per_pool).max(TUNING.min_round_len);
        let shadow = ShadowCaches::new(num_blocks, dense_tails_per_block);
        let first_sentinel = num_blocks as u32 + 1;
        let protected_sentinel = first_sentinel + RankedLists::NUM_LISTS as u32;
        Self {
            queue,
            metas: BlockMetas::new(num_blocks),
            lists: RankedLists::new(blocks, first_sentinel, shadow.scores()),
            num_ranked: 0,
            num_sampled: 0,
            num_answer_block_hits: 0,
            ended_prompts: Vec::new(),
            protected: BlockList::new(blocks, protected_sentinel),
            newly_protected: None,
            priority_lists: PriorityLists::new(blocks, protected_sentinel + 1, max_high_priority),
            context: PriorityContext::default(),
            shadow,
            log: AccessLog::new(),
            clock: EpochClock { round_len, num_cached: 0, num_rounds: 0 },
            full_group: full_group(&classes),
            classes,
        }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Number of free cached blocks, without those in the queue.
    pub fn num_blocks(&self) -> usize {
        self.num_ranked + self.protected.len() + self.priority_lists.len()
    }

    /// The protected tails, the oldest first.
    pub fn protected_tails<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        self.protected.iter(blocks)
    }

    /// Number of protected tails.
    pub fn num_protected_tails(&self) -> usize {
        self.protected.len()
    }

    /// The scoring function in force.
    pub fn scoring_function(&self) -> ScoringFunction {
        self.shadow.in_force()
    }

    /// What the shadow caches counted.
    pub fn sample_counts(&self) -> &SampleCounts {
        self.shadow.counts()
    }

    /// Returns how many blocks one sampled block stands for.
    pub fn blocks_per_sample(&self) -> usize {
        self.shadow.blocks_per_sample()
    }

    /// A group of which a hit needs every block, where others have tails.
    pub fn full_group(&self) -> Option<GroupId> {
        self.full_group
    }

    /// How near the end of its prompt a block of [`Self::full_group`] lies.
    pub fn nearness(&self, block: BlockId) -> Nearness {
        self.metas[block].nearness()
    }

    /// Whether a block holds generated tokens.
    pub fn is_generated(&self, block: BlockId) -> bool {
        self.metas[block].is_generated()
    }

    /// Whether a full-attention block lies near the end of a prompt or in an answer.
    pub fn is_end(&self, block: BlockId) -> bool {
        let meta = self.metas[block];
        meta.is_generated() || meta.nearness().step().is_some()
    }

    /// Whether a block holds generated tokens and was used by the request alone that generated them.
    /// Others are part of a prompt.
    pub fn is_unused_answer(&self, block: BlockId) -> bool {
        self.metas[block].is_unused_answer()
    }

    /// How often blocks with generated tokens were hit, tails left out.
    pub fn num_answer_block_hits(&self) -> u64 {
        self.num_answer_block_hits
    }

    /// Returns the lengths in tokens of the prompts whose ends were computed since the last call.
    pub fn take_ended_prompts(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended_prompts)
    }

    /// Whether a block has been used by the request alone that computed it.
    pub fn is_used_once(&self, block: BlockId) -> bool {
        self.metas[block].list_key().class() == 0
    }

    /// Returns the share of once used full blocks that are used again while they are cached.
    pub fn reuse_of_once_used(&self) -> f64 {
        self.shadow.reuse_of_once_used()
    }

    /// Whether a block is free and cached, and not in the queue.
    pub fn has(&self, block: BlockId) -> bool {
        self.metas[block].place() != Place::Elsewhere
    }

    /// Protects tails that are released until [`Self::stop_protecting`].
    pub fn start_protecting(&mut self) {
        self.newly_protected = Some(Vec::new());
    }

    /// Returns the tails that became protected since [`Self::start_protecting`].
    pub fn stop_protecting(&mut self) -> Vec<BlockId> {
        self.newly_protected.take().unwrap_or_default()
    }

    /// Whether a block is a protected tail.
    pub(crate) fn is_protected(&self, block: BlockId) -> bool {
        self.metas[block].place() == Place::Protected
    }

    /// A block lost its keys. A free one goes to the free queue.
    pub(crate) fn uncached(&mut self, blocks: &mut Blocks, block: BlockId) {
        self.move_to_queue(blocks, block);
    }

    /// Moves a block from the list that it is in to the free queue: to the back if it is cached.
    /// Returns whether it was in a list, other than the queue.
    fn move_to_queue(&mut self, blocks: &mut Blocks, block: BlockId) -> bool {
        let is_listed = self.remove(blocks, block);
        if is_listed {
            self.queue.enqueue(blocks, block);
        }
        is_listed
    }

    /// Takes a block out of the list that it is in, and its priority away. Returns whether it was in
    /// a list, other than the queue.
    pub(super) fn remove(&mut self, blocks: &mut Blocks, block: BlockId) -> bool {
        let was = self.metas.update(block, |meta| meta.removed().with_priority(false));
        if was.place() != Place::Elsewhere {
            self.unlink(blocks, block, was);
        }
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
                self.num_sampled -= was.num_sampled();
            }
        }
    }

    /// Puts a block into the ranked list of blocks that became free `age` epochs ago. The caller
    /// counts it.
    fn rank(&mut self, blocks: &mut Blocks, block: BlockId, age: usize) {
        let key = self.metas[block].list_key();
        let target = TargetList::new(key, self.lists.epoch().before(age), true);
        self.metas.enter(block, target);
        self.lists.push_aged(blocks, key.class(), key.value(), age, block);
    }

    /// Ends the rounds and epochs in which enough blocks have become cached.
    fn end_due_epochs(&mut self, blocks: &mut Blocks) {
        while self.clock.num_cached >= self.clock.round_len {
            self.clock.num_cached -= self.clock.round_len;
            self.shadow.end_round();
            self.clock.num_rounds += 1;
            if self.clock.num_rounds == TUNING.rounds_per_epoch {
                self.clock.num_rounds = 0;
                self.shadow.end_epoch();
                self.lists.end_epoch(blocks, self.shadow.scores());
            }
        }
    }

    /// Lets the shadow caches have as many of the sampled blocks as the pool has, and as many more
    /// as empty blocks could hold.
    fn fit_shadow_caches(&mut self) {
        let num_queued = self.queue.free.len();
        self.shadow.fit(self.num_sampled, num_queued, self.num_blocks() + num_queued);
    }

    /// Returns the free cached blocks in the order of their eviction if no tail got a second chance.
    pub(crate) fn eviction_order(&self, blocks: &Blocks) -> Vec<BlockId> {
        let by_priority: Vec<_> = self.priority_lists.iter(blocks).collect();
        let num_low = by_priority.len() - self.priority_lists.num_high();
        let (low, high) = by_priority.split_at(num_low);
        let mut order = [low, &self.lists.in_order(blocks), high].concat();
        order.extend(self.protected.iter(blocks));
        order
    }

    /// The free cached blocks, in no particular order.
    pub(crate) fn blocks<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        let ranked = self.priority_lists.iter(blocks).chain(self.lists.iter(blocks));
        ranked.chain(self.protected.iter(blocks))
    }
}

fn full_group(classes: &[BlockClass]) -> Option<GroupId> {
    let has_tails = classes.iter().any(|class| class.is_tail);
    let full = classes.iter().position(|class| class.is_sampleable && !class.is_tail);
    Some(full.filter(|_| has_tails)? as GroupId)
}
