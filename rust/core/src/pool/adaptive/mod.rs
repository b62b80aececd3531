//! The order in which free cached blocks are evicted under [`crate::Retention::Adaptive`].
//!
//! Free cached blocks wait in lists by the uses of their prefix, the epoch in which they became
//! free, and their grade. An [`Ordering`] is a rank of those lists, made anew once an
//! epoch; eviction takes the head of the lowest ranked list that has one. A sample of the blocks,
//! by name alone, shows how often blocks of an age are used again, and which of the orderings
//! would have hit most: that one is in force ([`Sample`]). Window tails of requests that run are
//! *held*: they are recycled last.
//!
//! Sources: hazards of reuse by age are LHD's (NSDI 2018), their index is Gittins'; uses by age are
//! hyperbolic caching (ATC 2017); sampled shadows are SHARDS (FAST 2015) and set duelling.

mod ages;
mod lists;
mod orderings;
mod profile;
mod ranks;
mod sample;
mod tags;

pub use orderings::Ordering;
pub use tags::{Grade, Mark};

use lists::Lists;
use sample::Sample;
use tags::{Place, Tags, Waiting};

use super::free_queue::{BlockList, Run};
use super::states::BlockStates;
use crate::block::{BlockId, GroupId};

/// Free cached blocks, in lists that are ranked.
#[derive(Debug)]
pub struct Adaptive {
    tags: Tags,
    lists: Lists,
    held: BlockList,
    sample: Sample,
    /// What a block of each group is by default.
    marks: Vec<Mark>,
    num_listed: usize,
    num_watched: usize,
    clock: Clock,
    /// Tails that became held since somebody wants to know.
    newly_held: Option<Vec<BlockId>>,
}

/// Blocks that are being put into one list, one after the other.
#[derive(Debug, Default)]
pub struct Filing {
    waiting: Option<Waiting>,
    sentinel: u32,
    last: u32,
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
    /// Records that the lists need in [`BlockStates`] beside those of the blocks.
    pub const NUM_SENTINELS: usize = Lists::NUM_LISTS + 1;

    /// No free cached block yet. `marks` says what a block of each group is by default; `states`
    /// has [`Self::NUM_SENTINELS`] records from `first_sentinel` on for the lists.
    pub fn new(states: &mut BlockStates, first_sentinel: u32, marks: Vec<Mark>) -> Self {
        let num_blocks = states.len();
        let epoch_len = (num_blocks / Clock::PER_POOL).max(Clock::MIN_LEN);
        let sample = Sample::new(num_blocks);
        Self {
            tags: Tags::new(num_blocks),
            lists: Lists::new(states, first_sentinel, &sample.values()),
            held: states.empty_list(first_sentinel + Lists::NUM_LISTS as u32),
            sample,
            marks,
            num_listed: 0,
            num_watched: 0,
            clock: Clock { epoch_len, num_cached: 0 },
            newly_held: None,
        }
    }

    /// Blocks in the lists and in the held tier.
    pub fn num_blocks(&self) -> usize {
        self.num_listed + self.held.len()
    }

    /// Blocks in the held tier.
    pub fn num_held(&self) -> usize {
        self.held.len()
    }

    /// The ordering in force.
    pub fn ordering(&self) -> Ordering {
        self.sample.ordering()
    }

    /// A group of which a hit needs every block.
    pub fn whole_group(&self) -> Option<GroupId> {
        let group = self.marks.iter().position(|mark| mark.is_watched && !mark.is_tail)?;
        Some(group as GroupId)
    }

    /// What a block of a group is by default.
    pub fn mark_of(&self, group: GroupId) -> Mark {
        self.marks[usize::from(group)]
    }

    /// A block has become cached under the key that it has now.
    #[inline]
    pub fn mark(&mut self, states: &BlockStates, block: BlockId, mark: Mark) {
        let is_sampled = mark.is_watched && self.sample.takes(states.fingerprint(block));
        self.tags.start(block, mark, is_sampled);
        self.clock.num_cached += usize::from(mark.is_watched);
        if is_sampled {
            self.sample.used(name_of(states, block));
        }
    }

    /// The tag of a block goes to another, which got its keys.
    pub fn move_tag(&mut self, from: BlockId, to: BlockId) {
        self.tags.copy(from, to);
    }

    /// A hit uses a block; one that is free leaves the list that it is in: whether it was in one.
    /// It may do so later, with all of `run`; see [`Self::leave`].
    #[inline]
    pub fn hit(
        &mut self,
        states: &mut BlockStates,
        block: BlockId,
        is_free: bool,
        run: &mut Run,
    ) -> bool {
        let place = if is_free { self.tags.place(block) } else { Place::Elsewhere };
        match place {
            Place::Elsewhere => {}
            Place::Held => drop(self.remove(states, block)),
            Place::Listed => {
                if !run.grow(states, block) {
                    self.leave(states, std::mem::replace(run, Run::of(block)));
                }
                self.tags.set_place(block, Place::Elsewhere);
                self.note_left(block);
            }
        }
        self.tags.add_use(block);
        if self.tags.is_sampled(block) {
            self.sample.used(name_of(states, block));
        }
        place != Place::Elsewhere
    }

    /// Blocks of the lists that were hit and stand side by side leave them.
    pub fn leave(&mut self, states: &mut BlockStates, run: Run) {
        states.unlink_run(&run);
    }

    /// A tail goes with another block of its prefix: it has been used as often.
    pub fn inherit_uses(&mut self, block: BlockId, from: BlockId) {
        self.tags.inherit_uses(block, from);
    }

    /// A block in use is worth as much as a full block from now on.
    pub fn promote(&mut self, block: BlockId) {
        self.tags.set_grade(block, Grade::BEST);
    }

    /// Whether a block is in the lists or the held tier.
    pub fn has(&self, block: BlockId) -> bool {
        self.tags.place(block) != Place::Elsewhere
    }

    /// A cached block lost its last holder. Until [`Self::close`], nothing else may touch the lists.
    #[inline]
    pub fn file(&mut self, states: &mut BlockStates, block: BlockId, filing: &mut Filing) {
        let waiting = self.tags.waiting(block);
        if filing.waiting != Some(waiting) {
            self.close(states, filing);
            if waiting.is_held_tail()
                && let Some(newly_held) = &mut self.newly_held
            {
                newly_held.push(block);
                self.tags.set_place(block, Place::Held);
                return self.held.push_back(states, block);
            }
            *filing = self.open(states, waiting);
        }
        states.append(filing.last, block);
        filing.last = block;
        if self.note_listed(block, self.lists.epoch() as u16) {
            let name = name_of(states, block);
            self.sample.freed(name, waiting.class(), self.num_watched);
        }
    }

    fn open(&mut self, states: &BlockStates, waiting: Waiting) -> Filing {
        let sentinel = self.lists.open(waiting.class(), waiting.grade());
        Filing { waiting: Some(waiting), sentinel, last: states.last_of_ring(sentinel) }
    }

    /// The blocks that were filed are in their list.
    pub fn close(&mut self, states: &mut BlockStates, filing: &mut Filing) {
        if filing.waiting.take().is_some() {
            states.append(filing.last, filing.sentinel);
        }
    }

    fn file_one(&mut self, states: &mut BlockStates, block: BlockId) {
        let mut filing = self.open(states, self.tags.waiting(block));
        self.file(states, block, &mut filing);
        self.close(states, &mut filing);
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
        self.tags.place(block) == Place::Held
    }

    /// A held block waits in the lists from now on.
    pub fn let_go(&mut self, states: &mut BlockStates, block: BlockId) {
        self.held.remove(states, block);
        self.file_one(states, block);
    }

    /// Takes a block out of the list that it is in, if it is in one.
    pub fn remove(&mut self, states: &mut BlockStates, block: BlockId) -> bool {
        match self.tags.place(block) {
            Place::Elsewhere => return false,
            Place::Held => self.held.remove(states, block),
            Place::Listed => {
                states.unlink(block);
                self.note_left(block);
            }
        }
        self.tags.set_place(block, Place::Elsewhere);
        true
    }

    /// A block is in the lists from an epoch on; whether it is sampled.
    fn note_listed(&mut self, block: BlockId, epoch: u16) -> bool {
        let (is_watched, is_sampled) = self.tags.wait(block, epoch);
        self.num_listed += 1;
        self.num_watched += usize::from(is_watched);
        is_sampled
    }

    fn note_left(&mut self, block: BlockId) {
        self.num_listed -= 1;
        self.num_watched -= usize::from(self.tags.is_watched(block));
    }

    /// Takes the block out of its list that is to be evicted first.
    pub fn pop(&mut self, states: &mut BlockStates) -> Option<BlockId> {
        let listed = self.lists.pop(states);
        if let Some(block) = listed {
            self.note_left(block);
        }
        let block = listed.or_else(|| self.held.pop_front(states))?;
        self.tags.set_place(block, Place::Elsewhere);
        Some(block)
    }

    /// A free block whose key another has that is in use is evicted before all others.
    pub fn supersede(&mut self, states: &mut BlockStates, block: BlockId) {
        if self.remove(states, block) {
            self.tags.set_grade(block, Grade::WORST);
            self.file_one(states, block);
        }
    }

    /// Whether a tail that is to be evicted may have a chance: one that goes with `prefix`, the
    /// block of its prefix that ends where it does, waits on beside that block if that was used
    /// since.
    pub fn rejoin(&mut self, states: &mut BlockStates, tail: BlockId, prefix: BlockId) -> bool {
        let now = self.lists.epoch() as u16;
        let age = |epoch: u16| usize::from(now.wrapping_sub(epoch));
        let prefix_age = match states.ref_count(prefix) {
            0 => age(self.tags.epoch(prefix)),
            _ => 0,
        };
        if prefix_age >= age(self.tags.epoch(tail)) {
            return false;
        }
        self.tags.inherit_uses(tail, prefix);
        self.note_listed(tail, now.wrapping_sub(prefix_age as u16));
        let (class, grade) = (self.tags.class(tail), self.tags.grade(tail));
        self.lists.push_aged(states, class, grade, prefix_age, tail);
        true
    }

    /// Whether a block is a tail that is worth to be held.
    pub fn is_good_tail(&self, block: BlockId) -> bool {
        self.tags.waiting(block).is_held_tail()
    }

    /// Every so often an epoch ends.
    pub fn tick(&mut self, states: &mut BlockStates) {
        while self.clock.num_cached >= self.clock.epoch_len {
            self.clock.num_cached -= self.clock.epoch_len;
            self.sample.end_epoch();
            self.lists.end_epoch(states, &self.sample.values());
        }
    }

    /// The cache was emptied.
    pub fn forget_names(&mut self) {
        self.sample.forget_all();
    }

    /// The blocks of the lists and of the held tier, in no particular order.
    pub fn blocks<'a>(&'a self, states: &'a BlockStates) -> impl Iterator<Item = BlockId> + 'a {
        self.lists.blocks(states).chain(self.held.iter(states))
    }
}

/// The name of a block in the sample: of the prefix that it stands for, in its group.
fn name_of(states: &BlockStates, block: BlockId) -> u64 {
    let group = u64::from(states.group_of(block));
    states.name_word(block) ^ group.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
