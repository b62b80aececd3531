//! Blocks that nobody uses any more are put into the lists, those that wait alike one after the
//! other.

use super::block_meta::{Place, Stamp, Tag, Waiting};
use super::shadow::access_log::Event;
use super::shadow::table::Name;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::list::{BackRun, FrontRun};
use crate::pool::blocks::records::Ends;
use crate::pool::blocks::run::{IdRun, Ids, Runs};
use crate::pool::blocks::{Blocks, Dropped};
use crate::pool::eviction::adaptive::Adaptive;

/// Blocks that are being put into one list, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Filing {
    stamp: Stamp,
    sentinel: u32,
    last: u32,
    num_listed: usize,
    num_watched: usize,
}

impl Default for Filing {
    fn default() -> Self {
        Self { stamp: Stamp::NONE, sentinel: 0, last: 0, num_listed: 0, num_watched: 0 }
    }
}

/// Blocks are being given back.
#[derive(Debug)]
pub struct Parting<'a> {
    states: &'a mut Blocks,
    adaptive: &'a mut Adaptive,
    /// Those that are not cached.
    front: FrontRun,
    /// Those that are.
    filing: Filing,
}

impl Parting<'_> {
    /// Drops a reference to a block.
    #[inline(always)]
    pub fn give_back(&mut self, block: BlockId) {
        self.give_one_back(block);
    }

    /// As [`Self::give_back`]: `None` if somebody holds the block still, else whether it is cached.
    #[inline(always)]
    fn give_one_back(&mut self, block: BlockId) -> Option<bool> {
        if block == NULL_BLOCK {
            return None;
        }
        let is_cached = match self.states.drop_reference(block) {
            Dropped::Held => return None,
            Dropped::Cached => true,
            Dropped::Uncached => false,
            Dropped::Other => self.states.is_cached(block),
        };
        match is_cached {
            true => self.adaptive.file(self.states, block, &mut self.filing),
            false => {
                self.adaptive.queue.free.push_to_front_run(self.states, &mut self.front, block);
            }
        }
        Some(is_cached)
    }

    /// Drops a reference to blocks, the last of them first.
    pub fn give_all_back(&mut self, blocks: &[BlockId]) {
        if blocks.len() < IdRun::MIN_LEN {
            return self.give_each_back(blocks);
        }
        let mut pieces = Vec::with_capacity(2 * blocks.len() / IdRun::MIN_LEN + 1);
        pieces.extend(Runs::of(blocks, IdRun::MIN_LEN));
        for piece in pieces.into_iter().rev() {
            match piece {
                Ids::Run(row) => self.give_row_back(row),
                Ids::Scattered(blocks) => self.give_each_back(blocks),
            }
        }
    }

    /// As [`Self::give_all_back`], of blocks whose ids are hardly in a row.
    pub fn give_each_back(&mut self, mut blocks: &[BlockId]) {
        while let Some((&block, before)) = blocks.split_last() {
            blocks = match self.give_one_back(block) {
                None => before,
                Some(true) => self.adaptive.file_alike(self.states, before, &mut self.filing),
                Some(false) => {
                    let free = &mut self.adaptive.queue.free;
                    &before[..free.drop_to_front_run(self.states, &mut self.front, before)]
                }
            };
        }
    }

    /// The first block given back may wait in another list than those before it, as do the others
    /// then.
    fn give_row_back(&mut self, row: &[BlockId]) {
        let [others @ .., first] = row else { return };
        let turned = |blocks| IdRun::of(blocks).reversed();
        if !self.adaptive.file_row(self.states, turned(row), &mut self.filing) {
            self.give_one_back(*first);
            if !self.adaptive.file_row(self.states, turned(others), &mut self.filing) {
                self.give_each_back(others);
            }
        }
    }

    /// A tail is not held any more.
    pub fn let_go(&mut self, tail: BlockId) {
        self.adaptive.let_go(self.states, tail, &mut self.filing);
    }
}

impl Adaptive {
    /// Drops a reference to each block. Null blocks are passed over.
    #[cold]
    #[inline(never)]
    pub fn release(&mut self, states: &mut Blocks, blocks: impl IntoIterator<Item = BlockId>) {
        if self.is_claiming() {
            let blocks: Vec<_> = blocks.into_iter().collect();
            self.raise(states, blocks.iter().copied());
            return self.part_with(states, |parting| {
                blocks.into_iter().for_each(|block| parting.give_back(block));
            });
        }
        self.part_with(states, |parting| {
            blocks.into_iter().for_each(|block| parting.give_back(block));
        });
    }

    /// Blocks are given back, and held ones let go, in the order in which it is done.
    #[inline]
    pub fn part_with(&mut self, states: &mut Blocks, give_back: impl FnOnce(&mut Parting<'_>)) {
        let (front, filing) = (self.queue.free.front_run(states), Filing::default());
        let mut parting = Parting { states, adaptive: self, front, filing };
        give_back(&mut parting);
        let Parting { states, adaptive, front, mut filing } = parting;
        adaptive.close(states, &mut filing);
        adaptive.queue.free.close_runs(states, front, BackRun::default());
    }

    /// Cached blocks lose their last holder, the last of them first, and wait as those before them
    /// do: what is left of them from the first on of which that is not so. The first of all is always
    /// left.
    #[inline]
    pub fn file_alike<'b>(
        &mut self,
        states: &mut Blocks,
        blocks: &'b [BlockId],
        filing: &mut Filing,
    ) -> &'b [BlockId] {
        let (mut last, mut num_watched) = (filing.last, 0);
        let (stamp, mut tags) = (filing.stamp, self.tags.writer());
        self.sightings.start(&mut self.sample, Event::Freed(stamp.class() as u8));
        let mut records = states.writer_of_first(tags.len());
        let stop = blocks.windows(2).rposition(|pair| {
            // As if the next one were filed too: its own link is written then, or by who is.
            let (block, next) = (pair[1], pair[0]);
            let is_last = || records.drop_between(last, block, next);
            let Some(tag) = tags.wait_alike_if(block, stamp, is_last) else { return true };
            last = block;
            num_watched += tag.num_watched();
            if tag.is_sampled() {
                let name = Name::of(records.fingerprint(block));
                self.sightings.add(&mut self.sample, name);
            }
            false
        });
        let num_left = stop.map_or(1, |pair| pair + 2).min(blocks.len());
        let num_filed = blocks.len() - num_left;
        if num_filed > 0 {
            states.append(filing.last, blocks[blocks.len() - 1]);
            filing.last = last;
            filing.num_listed += num_filed;
            filing.num_watched += num_watched;
        }
        &blocks[..num_left]
    }

    /// Drops a reference to each of some blocks in a row, if all are in use still, or all are
    /// cached, have no other holder and wait as those before them do; whether it is so.
    pub fn file_row(&mut self, states: &mut Blocks, row: IdRun, filing: &mut Filing) -> bool {
        let stamp = filing.stamp;
        let Some(mut tags) = self.tags.row_alike(row, stamp) else { return false };
        let mut ends = Ends { front: 0, is_front_open: false, back: filing.last, num_free: 0 };
        if !states.records_mut().drop_row_to_ends(row, &mut ends) {
            return false;
        }
        if ends.num_free > 0 {
            filing.num_watched += tags.wait(stamp);
            filing.num_listed += ends.num_free;
            filing.last = ends.back;
            self.note_row(states, row, Event::Freed(stamp.class() as u8));
        }
        true
    }

    /// A cached block lost its last holder. Until [`Self::close`], nothing else may touch the lists.
    #[inline]
    pub fn file(&mut self, states: &mut Blocks, block: BlockId, filing: &mut Filing) {
        let alike = self.tags.wait_alike(block, filing.stamp);
        let Some(tag) = alike.or_else(|| self.start_filing(states, block, filing)) else { return };
        states.append(filing.last, block);
        filing.last = block;
        filing.num_listed += 1;
        filing.num_watched += tag.num_watched();
        if tag.is_sampled() {
            let name = Name::of(states.fingerprint(block));
            let event = Event::Freed(filing.stamp.class() as u8);
            self.sightings.note(&mut self.sample, event, name);
        }
    }

    /// A block waits in another list than those before it, from now on; `None` if it is held.
    #[inline(never)]
    fn start_filing(
        &mut self,
        states: &mut Blocks,
        block: BlockId,
        filing: &mut Filing,
    ) -> Option<Tag> {
        self.close_list(states, filing);
        if self.tags.of(block).is_claimed() && self.wait_on_ladder(states, block) {
            return None;
        }
        let waiting = self.tags.of(block).waiting();
        if waiting.is_held_tail()
            && let Some(newly_held) = &mut self.newly_held
        {
            newly_held.push(block);
            self.tags.set_place(block, Place::Held);
            self.held.push_back(states, block);
            return None;
        }
        *filing = self.open(states, waiting);
        self.tags.wait_alike(block, filing.stamp)
    }

    fn open(&mut self, states: &Blocks, waiting: Waiting) -> Filing {
        let sentinel = self.lists.open(waiting.class(), waiting.grade());
        let stamp = Stamp::new(waiting, self.lists.epoch(), self.newly_held.is_some());
        let last = states.last_of_ring(sentinel);
        Filing { stamp, sentinel, last, ..Filing::default() }
    }

    /// The blocks that were filed are in their list, and none will be for now.
    pub fn close(&mut self, states: &mut Blocks, filing: &mut Filing) {
        self.close_list(states, filing);
        self.sightings.tell(&mut self.sample);
        self.sample.fit(self.num_watched);
    }

    fn close_list(&mut self, states: &mut Blocks, filing: &mut Filing) {
        let filed = std::mem::take(filing);
        if filed.num_listed > 0 {
            states.append(filed.last, filed.sentinel);
            self.num_listed += filed.num_listed;
            self.num_watched += filed.num_watched;
        }
    }

    /// A block that nobody uses waits, by itself.
    pub(crate) fn file_one(&mut self, states: &mut Blocks, block: BlockId) {
        let mut filing = self.open(states, self.tags.of(block).waiting());
        self.file(states, block, &mut filing);
        self.close(states, &mut filing);
    }

    /// A held block waits in the lists from now on.
    #[inline(never)]
    pub fn let_go(&mut self, states: &mut Blocks, block: BlockId, filing: &mut Filing) {
        self.held.remove(states, block);
        self.file(states, block, filing);
    }
}
