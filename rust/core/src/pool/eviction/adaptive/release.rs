//! Blocks that nobody uses any more are put into the lists, those that wait alike one after the
//! other.

use super::block_meta::{Place, Stamp, Tag, Waiting};
use super::shadow::access_log::Event;
use super::shadow::table::Name;
use crate::block::BlockId;
use crate::pool::blocks::Blocks;
use crate::pool::blocks::records::Ends;
use crate::pool::blocks::run::IdRun;
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

impl Adaptive {
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
