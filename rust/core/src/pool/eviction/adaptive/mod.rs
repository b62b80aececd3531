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
pub use hits::Leaving;
pub use priority::{Claim, Standing};
pub use release::Filing;
pub use scoring::Ordering;
pub use shadow::SampleCounts;

use block_meta::{Place, Stamp, Tag, Uses};
use block_metas::Tags;
use lists::Lists;
use priority_lists::Ladder;
use requests::Claims;
use shadow::access_log::{Event, Sightings};
use shadow::table::Name;
use shadow::{Sample, Use};

use super::nearness::Nearness;
use super::value::Grade;
use crate::block::{BlockId, GroupId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::links::run_from;
use crate::pool::blocks::list::BlockList;
use crate::pool::blocks::list_span::ListSpan;
use crate::pool::blocks::run::IdRun;
use crate::pool::index::Fingerprint;

/// Free cached blocks, in lists that are ranked.
#[derive(Debug)]
pub struct Adaptive {
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

    /// No free cached block yet. `marks` says what a block of each group is by default; `states`
    /// has [`Self::NUM_SENTINELS`] records from `first_sentinel` on for the lists. At most
    /// `num_protected` free blocks are kept for their priority.
    pub fn new(
        states: &mut Blocks,
        first_sentinel: u32,
        marks: Vec<Mark>,
        num_protected: usize,
    ) -> Self {
        let num_blocks = states.len();
        let epoch_len = (num_blocks / Clock::PER_POOL).max(Clock::MIN_LEN);
        let sample = Sample::new(num_blocks);
        let held_sentinel = first_sentinel + Lists::NUM_LISTS as u32;
        Self {
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

    /// Full blocks have just become cached, the last of which lies so many tokens before the end of
    /// its prompt.
    #[inline]
    pub fn mark_near_end(&mut self, blocks: &[BlockId], block_size: usize, num_behind: usize) {
        for (block, num_behind) in blocks.iter().rev().zip((num_behind..).step_by(block_size)) {
            match Nearness::of(num_behind) {
                Nearness::FAR => break,
                nearness => self.tags.set_nearness(*block, nearness),
            }
        }
    }

    /// How near the end of the prompt it was computed for a block of [`Self::whole_group`] lies.
    pub fn nearness(&self, block: BlockId) -> Nearness {
        self.tags.of(block).nearness()
    }

    /// What a block of a group is by default.
    pub fn mark_of(&self, group: GroupId) -> Mark {
        self.marks[usize::from(group)]
    }

    /// Blocks have become cached under the keys that they have now. Null blocks are passed over.
    pub fn mark(&mut self, states: &Blocks, blocks: &[BlockId], mark: Mark) {
        let first = Tag::first(mark);
        let row = IdRun::detect(blocks).filter(|&row| self.tags.start_row(row, first));
        let mut num_marked = blocks.len();
        if row.is_none() {
            let mut tags = self.tags.writer();
            let known = blocks.iter().filter(|&&block| block != NULL_BLOCK);
            num_marked = known.map(|&block| tags.start(block, first)).count();
        }
        if mark.is_watched {
            match row {
                Some(row) => self.sample_row(states, row),
                None => blocks.iter().for_each(|&block| self.sample_one(states, block)),
            }
            self.sightings.tell(&mut self.sample);
            self.clock.num_cached += num_marked;
        }
    }

    /// Those of blocks in a row, which have become cached, that are of the sample from now on.
    fn sample_row(&mut self, states: &Blocks, row: IdRun) {
        const FEW: usize = 8;
        let Some(fingerprints) = row.slice(states.fingerprints()) else { return };
        let limit = self.sample.limit();
        let is_sampled = |own: &Fingerprint| own.0 < limit;
        for (few, first) in fingerprints.chunks(FEW).zip((row.bounds().0..).step_by(FEW)) {
            // Mostly none, and looked at side by side.
            if few.iter().fold(false, |any, own| any | is_sampled(own)) {
                let sampled = few.iter().zip(first..).filter(|(own, _)| is_sampled(own));
                sampled.for_each(|(_, block)| self.tags.add_to_sample(block));
            }
        }
        self.note_row(states, row, Event::Used(Use::Computed));
    }

    fn sample_one(&mut self, states: &Blocks, block: BlockId) {
        let fingerprint = states.fingerprint(block);
        if fingerprint.0 < self.sample.limit() && block != NULL_BLOCK {
            self.tags.add_to_sample(block);
            let name = Name::of(fingerprint);
            self.sightings.note(&mut self.sample, Event::Used(Use::Computed), name);
        }
    }

    /// The same became of blocks in a row: the sample has to know of those that it has.
    #[inline]
    fn note_row(&mut self, states: &Blocks, row: IdRun, event: Event) {
        let Self { tags, sightings, sample, .. } = self;
        sightings.start(sample, event);
        let name = |block| Name::of(states.fingerprint(block));
        match row.is_ascending() {
            true => sightings.add_each(sample, tags.sampled().upwards(row).map(name)),
            false => sightings.add_each(sample, tags.sampled().downwards(row).map(name)),
        }
    }

    /// The tag of a block goes to another, which got its keys.
    pub fn move_tag(&mut self, states: &Blocks, from: BlockId, to: BlockId) {
        self.tags.copy(from, to);
        self.move_claim(states, from, to);
    }

    /// A tail goes with another block of its prefix: it has been used as often.
    pub fn inherit_uses(&mut self, block: BlockId, from: BlockId) {
        self.tags.inherit_uses(block, from);
    }

    /// A sequence ends at tails in use: they are worth as much as full blocks from now on, and have
    /// been used as often as the block of their prefix that they go with.
    #[inline]
    pub fn promote(&mut self, tails: &[BlockId], prefix: Option<BlockId>) {
        let uses = prefix.map_or(Uses::default(), |prefix| self.tags.of(prefix).uses());
        let mut tags = self.tags.writer();
        for &tail in tails.iter().filter(|&&tail| tail != NULL_BLOCK) {
            tags.promote(tail, uses);
        }
    }

    /// As [`Self::promote`], of tails and the blocks of their prefix one by one.
    #[inline]
    pub fn promote_beside(&mut self, tails: &[BlockId], prefix: &[BlockId]) {
        let mut tags = self.tags.writer();
        for (&tail, &prefix) in tails.iter().zip(prefix).filter(|&(&tail, _)| tail != NULL_BLOCK) {
            // The null block is never used.
            tags.promote(tail, tags.uses(prefix));
        }
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

    /// Takes a block out of the list that it is in, if it is in one.
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

    /// Takes the block out of its list that is to be evicted first.
    pub fn pop(&mut self, states: &mut Blocks) -> Option<BlockId> {
        let listed = self.lists.first(states).and_then(|list| states.first_of_ring(list));
        let kept = || self.ladder.first_high(states).or_else(|| self.held.first(states));
        let block = listed.or_else(kept)?;
        self.remove(states, block);
        Some(block)
    }

    /// Moves blocks that are to be evicted first to the end of a queue, up to `n` and up to a tail
    /// that may have a chance still: how many.
    pub fn pop_run(&mut self, states: &mut Blocks, n: usize, queue: &mut BlockList) -> usize {
        if self.ladder.has_low() {
            return self.pop_low(states, n, queue);
        }
        let Some(list) = self.lists.first(states) else { return 0 };
        let (run, num_watched) = match self.leave_in_row(states, list, n) {
            Some(left) => left,
            None => self.leave_one_by_one(states.ring(list).take(n)),
        };
        self.num_listed -= run.len();
        self.num_watched -= num_watched;
        states.unlink_run(&run);
        queue.push_run(states, &run);
        run.len()
    }

    /// The first blocks of a list leave it if they are in a row and no tails that may have a chance
    /// still: those, up to `n`, and how many of them are watched.
    #[inline]
    fn leave_in_row(&mut self, states: &Blocks, list: u32, n: usize) -> Option<(ListSpan, usize)> {
        let first = states.first_of_ring(list).filter(|_| n >= IdRun::MIN_LEN)?;
        let row = run_from(states.links(), first, n);
        let num_watched = self.tags.row_that_leaves(row)?.leave();
        Some((ListSpan { front: row.first, back: row.last, len: row.len() }, num_watched))
    }

    /// As [`Self::leave_in_row`], of blocks that stand side by side, up to a tail that may have a
    /// chance still.
    fn leave_one_by_one(&mut self, blocks: impl Iterator<Item = BlockId>) -> (ListSpan, usize) {
        let (mut run, mut num_watched) = (ListSpan::default(), 0);
        let mut tags = self.tags.writer();
        for block in blocks {
            let Some(was) = tags.leave_unless_waiting_on(block) else { break };
            num_watched += was.num_watched();
            run.push(block);
        }
        (run, num_watched)
    }

    /// A free block whose key another has that is in use is evicted before all others.
    pub fn supersede(&mut self, states: &mut Blocks, block: BlockId, by: BlockId) {
        self.inherit_claim(block, by);
        let was = self.tags.of(block);
        if was.place() == Place::Listed {
            self.tags.set_grade(block, Grade::WORST);
            states.unlink(block);
            self.list_aged(states, block, 0);
        } else if self.remove(states, block) {
            self.tags.set_grade(block, Grade::WORST);
            self.file_one(states, block);
        }
    }

    /// A block waits beside those that became free `age` epochs ago. That there is one more, or one
    /// that was counted moved, is the caller's to know.
    fn list_aged(&mut self, states: &mut Blocks, block: BlockId, age: usize) {
        let waiting = self.tags.of(block).waiting();
        self.tags.wait_alike(block, Stamp::new(waiting, self.lists.epoch().before(age), true));
        self.lists.push_aged(states, waiting.class(), waiting.grade(), age, block);
    }

    /// Whether a tail that is to be evicted may have a chance: one that goes with `prefix`, the
    /// block of its prefix that ends where it does, waits on beside that block if that was used
    /// since.
    pub fn rejoin(&mut self, states: &mut Blocks, tail: BlockId, prefix: BlockId) -> bool {
        let now = self.lists.epoch();
        let age = |block| now.age(self.tags.of(block).epoch());
        let prefix_age = if states.ref_count(prefix) == 0 { age(prefix) } else { 0 };
        if prefix_age >= age(tail) {
            return false;
        }
        self.tags.inherit_uses(tail, prefix);
        self.tags.forget_hit(tail);
        self.list_aged(states, tail, prefix_age);
        self.num_listed += 1;
        self.num_watched += self.tags.of(tail).num_watched();
        true
    }

    /// Whether a block is a tail that waits on beside its prefix if that was used since.
    pub fn may_wait_on(&self, block: BlockId) -> bool {
        self.tags.of(block).may_wait_on()
    }

    /// Every so often an epoch ends.
    pub fn tick(&mut self, states: &mut Blocks) {
        while self.clock.num_cached >= self.clock.epoch_len {
            self.clock.num_cached -= self.clock.epoch_len;
            self.sample.end_epoch();
            self.lists.end_epoch(states, self.sample.values());
        }
    }

    /// The cache was emptied.
    pub fn forget_names(&mut self) {
        self.sample.forget_all();
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
