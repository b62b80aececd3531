//! The order in which free cached blocks are evicted under [`crate::Retention::Adaptive`].
//!
//! Free cached blocks wait in lists by the uses of their prefix, the epoch in which they became
//! free, and their grade. An [`Ordering`] is a rank of those lists, made anew once an
//! epoch; eviction takes the head of the lowest ranked list that has one. A sample of the blocks,
//! by name alone, shows how often blocks of an age are used again, and which of the orderings
//! would have hit most: that one is in force ([`Sample`]). Window tails of requests that run are
//! *held*: they are recycled last. Blocks for which a request claims another priority than the
//! default wait on the rungs of a [`Ladder`] instead.
//!
//! Sources: hazards of reuse by age are LHD's (NSDI 2018), their index is Gittins'; uses by age are
//! hyperbolic caching (ATC 2017); sampled shadows are SHARDS (FAST 2015) and set duelling.

mod ages;
mod block_meta;
mod block_metas;
mod cached;
mod evict;
mod hazard;
mod hits;
mod lists;
mod meta_writer;
mod ones;
mod priorities;
mod priority;
mod priority_lists;
mod ranks;
mod release;
mod requests;
mod sampled;
mod scoring;
mod shadow;

pub use block_meta::Mark;
pub use priority::{Claim, Standing};
pub use release::Parting;
pub use scoring::Ordering;
pub use shadow::SampleCounts;

use block_meta::{Place, Stamp};
use block_metas::Tags;
use lists::Lists;
use priority_lists::Ladder;
use requests::Claims;
use shadow::Sample;
use shadow::access_log::Sightings;
use shadow::table::Name;

use super::nearness::Nearness;
use super::queue::Queue;
use crate::block::{BlockId, GroupId};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::list::BlockList;

/// What the adaptive policy knows of a model.
#[derive(Clone, Debug)]
pub struct AdaptiveOrder {
    /// What a block of each group is by default.
    pub marks: Vec<Mark>,
    /// Free blocks that are kept for their priority, at most.
    pub num_protected: usize,
}

/// Free cached blocks in lists that are ranked, and the free queue.
#[derive(Debug)]
pub struct Adaptive {
    queue: Queue,
    tags: Tags,
    lists: Lists,
    held: BlockList,
    ladder: Ladder,
    claims: Claims,
    sample: Sample,
    sightings: Sightings,
    /// What a block of each group is by default.
    marks: Vec<Mark>,
    /// A group of which a hit needs every block, where it needs tails too.
    whole_group: Option<GroupId>,
    num_listed: usize,
    num_watched: usize,
    clock: Clock,
    /// Tails that became held since somebody wants to know.
    newly_held: Option<Vec<BlockId>>,
}

/// Counts blocks that become cached and are watched, until an epoch ends.
#[derive(Clone, Copy, Debug)]
struct Clock {
    epoch_len: usize,
    num_cached: usize,
}

impl Clock {
    /// Epochs in which as many blocks become cached as a pool has.
    const PER_POOL: usize = 16;
    /// Blocks; shorter epochs of small pools say nothing.
    const MIN_LEN: usize = 16;
}

impl Adaptive {
    /// Records that the lists need in [`Blocks`] beside those of the blocks.
    pub const NUM_SENTINELS: usize = Lists::NUM_LISTS + 1 + Ladder::NUM_RUNGS;

    /// No free cached block yet. `states` has [`Self::NUM_SENTINELS`] records behind those of
    /// `queue` for the lists.
    pub(crate) fn new(states: &mut Blocks, queue: Queue, order: AdaptiveOrder) -> Self {
        let AdaptiveOrder { marks, num_protected } = order;
        let first_sentinel = states.len() as u32 + 1;
        let num_blocks = states.len();
        let epoch_len = (num_blocks / Clock::PER_POOL).max(Clock::MIN_LEN);
        let sample = Sample::new(num_blocks);
        let held_sentinel = first_sentinel + Lists::NUM_LISTS as u32;
        Self {
            queue,
            tags: Tags::new(num_blocks),
            lists: Lists::new(states, first_sentinel, sample.values()),
            held: states.empty_list(held_sentinel),
            ladder: Ladder::new(states, held_sentinel + 1, num_protected),
            claims: Claims::default(),
            sample,
            sightings: Sightings::new(),
            whole_group: whole_group(&marks),
            marks,
            num_listed: 0,
            num_watched: 0,
            clock: Clock { epoch_len, num_cached: 0 },
            newly_held: None,
        }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Blocks in the lists, on the ladder and in the held tier.
    pub fn num_blocks(&self) -> usize {
        self.num_listed + self.held.len() + self.ladder.len()
    }

    /// The blocks of the held tier, the oldest first.
    pub fn held<'a>(&'a self, states: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        self.held.iter(states)
    }

    /// Blocks in the held tier.
    pub fn num_held(&self) -> usize {
        self.held.len()
    }

    /// The ordering in force.
    pub fn ordering(&self) -> Ordering {
        self.sample.ordering()
    }

    /// What the sample counted.
    pub fn sample_counts(&self) -> &SampleCounts {
        self.sample.counts()
    }

    /// A group of which a hit needs every block, where it needs tails too.
    pub fn whole_group(&self) -> Option<GroupId> {
        self.whole_group
    }

    /// How near the end of the prompt it was computed for a block of [`Self::whole_group`] lies.
    pub fn nearness(&self, block: BlockId) -> Nearness {
        self.tags.of(block).nearness()
    }

    /// What a block of a group is by default.
    pub fn mark_of(&self, group: GroupId) -> Mark {
        self.marks[usize::from(group)]
    }

    /// Whether a block is in the lists, on the ladder or in the held tier.
    pub fn has(&self, block: BlockId) -> bool {
        self.tags.of(block).place() != Place::Elsewhere
    }

    /// From now on until [`Self::end_holding`], tails that are given back are held.
    pub fn start_holding(&mut self) {
        self.newly_held = Some(Vec::new());
    }

    /// The tails that became held since [`Self::start_holding`].
    pub fn end_holding(&mut self) -> Vec<BlockId> {
        self.newly_held.take().unwrap_or_default()
    }

    /// Whether a block is in the held tier.
    pub fn is_held(&self, block: BlockId) -> bool {
        self.tags.of(block).place() == Place::Held
    }

    /// A block lost its keys. A free one goes to the free queue.
    pub(crate) fn uncached(&mut self, states: &mut Blocks, block: BlockId) {
        if self.remove(states, block) {
            self.queue.enqueue(states, block);
        }
    }

    /// Takes a block out of the ranked list, protected tier or ladder that it is in. Returns whether
    /// it was in one.
    pub fn remove(&mut self, states: &mut Blocks, block: BlockId) -> bool {
        let was = self.tags.leave(block);
        self.disclaim(was, block);
        match was.place() {
            Place::Elsewhere => return false,
            Place::Held => self.held.remove(states, block),
            Place::Ladder => self.leave_ladder(states, block),
            Place::Listed => {
                states.unlink(block);
                self.num_listed -= 1;
                self.num_watched -= was.num_watched();
            }
        }
        true
    }

    /// A block waits beside those that became free `age` epochs ago. That there is one more, or one
    /// that was counted moved, is the caller's to know.
    fn list_aged(&mut self, states: &mut Blocks, block: BlockId, age: usize) {
        let waiting = self.tags.of(block).waiting();
        self.tags.wait_alike(block, Stamp::new(waiting, self.lists.epoch().before(age), true));
        self.lists.push_aged(states, waiting.class(), waiting.grade(), age, block);
    }

    /// Every so often an epoch ends.
    pub fn tick(&mut self, states: &mut Blocks) {
        while self.clock.num_cached >= self.clock.epoch_len {
            self.clock.num_cached -= self.clock.epoch_len;
            self.sample.end_epoch();
            self.lists.end_epoch(states, self.sample.values());
        }
    }

    /// Returns the blocks of the ladder, the lists and the held tier in the order of their eviction, if
    /// no tail waits on.
    pub fn eviction_order(&self, states: &Blocks) -> Vec<BlockId> {
        let by_priority: Vec<_> = self.ladder.blocks(states).collect();
        let num_high = self.ladder.num_high();
        let (low, high) = by_priority.split_at(by_priority.len() - num_high);
        let mut order = [low, &self.lists.in_order(states), high].concat();
        order.extend(self.held.iter(states));
        order
    }

    /// The blocks of the ladder, the lists and the held tier, in no particular order.
    pub fn blocks<'a>(&'a self, states: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        self.ladder.blocks(states).chain(self.lists.blocks(states)).chain(self.held.iter(states))
    }
}

fn whole_group(marks: &[Mark]) -> Option<GroupId> {
    let has_tails = marks.iter().any(|mark| mark.is_tail);
    let whole = marks.iter().position(|mark| mark.is_watched && !mark.is_tail);
    Some(whole.filter(|_| has_tails)? as GroupId)
}
