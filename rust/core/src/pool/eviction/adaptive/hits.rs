//! Hits: blocks are used again, and free ones leave the order of eviction.

use super::block_meta::Place;
use super::shadow::Use;
use super::shadow::access_log::Event;
use super::shadow::table::Name;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::blocks::record_writer::{Alone, Beside, Unlinking};
use crate::pool::blocks::records::Records;
use crate::pool::blocks::run::{IdRun, Ids, Runs};
use crate::pool::eviction::adaptive::Adaptive;

impl Adaptive {
    /// Adds a reference to each block; a free one leaves its list. Null blocks are passed over.
    #[cold]
    #[inline(never)]
    pub fn hit(&mut self, states: &mut Blocks, blocks: &[BlockId]) {
        if blocks.is_empty() {
            return;
        }
        if blocks.len() < IdRun::MIN_LEN || are_scattered_tails(states, blocks) {
            self.hit_scattered(states, blocks);
        } else {
            for piece in Runs::of(blocks, IdRun::MIN_LEN) {
                let (Ids::Run(part) | Ids::Scattered(part)) = piece;
                let is_row = matches!(piece, Ids::Run(_));
                if !is_row || !self.hit_row(states, IdRun::of(part)) {
                    self.hit_scattered(states, part);
                }
            }
        }
        self.sightings.tell(&mut self.sample);
        if self.is_claiming() {
            self.raise(states, blocks.iter().copied());
        }
    }

    fn hit_scattered(&mut self, states: &mut Blocks, mut blocks: &[BlockId]) {
        loop {
            let num_hit = self.hit_listed(states, blocks);
            let Some((&block, behind)) = blocks[num_hit..].split_first() else { break };
            self.hit_one(states, block);
            blocks = behind;
        }
    }

    /// A hit is the first to use blocks that wait in the lists, and that no request claimed: how many
    /// there are before the first of which that is not so.
    #[inline]
    fn hit_listed(&mut self, states: &mut Blocks, blocks: &[BlockId]) -> usize {
        // Tails of several groups wait together and are hit group by group, so that hardly any
        // stands beside the one before it; full blocks mostly do.
        match states.starts_beside(blocks) {
            true => self.hit_each::<Beside>(states, blocks),
            false => self.hit_each::<Alone>(states, blocks),
        }
    }

    #[inline]
    fn hit_each<U: Unlinking>(&mut self, states: &mut Blocks, blocks: &[BlockId]) -> usize {
        let (mut unlinking, mut num_hit) = (U::default(), 0);
        self.sightings.start(&mut self.sample, Event::Used(Use::Hit));
        loop {
            let left = &blocks[num_hit..];
            let (num, is_sampled) = self.hit_up_to_sampled(states, left, &mut unlinking);
            num_hit += num;
            if !is_sampled {
                unlinking.finish(&mut states.writer_of_first(0));
                return num_hit;
            }
            let name = Name::of(states.fingerprint(blocks[num_hit - 1]));
            self.sightings.add(&mut self.sample, name);
        }
    }

    /// As [`Self::hit_listed`], up to a block of the sample: how many blocks with that one, and
    /// whether there is one. Calls nothing, so that the loop keeps all it needs in registers.
    #[inline]
    fn hit_up_to_sampled<U: Unlinking>(
        &mut self,
        states: &mut Blocks,
        blocks: &[BlockId],
        unlinking: &mut U,
    ) -> (usize, bool) {
        let (mut tags, mut num_watched, mut is_sampled) = (self.tags.writer(), 0, false);
        let mut records = states.writer_of_first(tags.len());
        let mut own = *unlinking;
        let stop = blocks.iter().position(|&block| {
            let Some(was) = tags.hit_listed(block) else { return true };
            records.add_reference(block);
            own.unlink(&mut records, block);
            num_watched += was.num_watched();
            is_sampled = was.is_sampled();
            is_sampled
        });
        *unlinking = own;
        let num_hit = stop.map_or(blocks.len(), |stop| stop + usize::from(is_sampled));
        self.num_listed -= num_hit;
        self.num_watched -= num_watched;
        (num_hit, is_sampled)
    }

    /// A hit uses blocks in a row, if all are in use, or all wait in the lists and stand in a row
    /// there too, and no request claimed any; whether it is so.
    fn hit_row(&mut self, states: &mut Blocks, row: IdRun) -> bool {
        let are_listed = states.ref_count(row.first) == 0;
        let Some(mut tags) = self.tags.row_of_plain(row, are_listed) else { return false };
        let touch = if are_listed { Records::touch_free_row } else { Records::touch_row };
        let Some(run) = touch(states.records_mut(), row) else { return false };
        let num_watched = tags.hit();
        if are_listed {
            states.unlink_run(&run);
            self.num_listed -= run.len();
            self.num_watched -= num_watched;
        }
        self.note_row(states, row, Event::Used(Use::Hit));
        true
    }

    fn hit_one(&mut self, states: &mut Blocks, block: BlockId) {
        if block == NULL_BLOCK {
            return;
        }
        let is_free = states.add_reference(block) == 1;
        let was = self.tags.hit(block, is_free);
        if was.is_sampled() {
            let name = Name::of(states.fingerprint(block));
            self.sightings.note(&mut self.sample, Event::Used(Use::Hit), name);
        }
        if was.is_claimed() {
            self.note_hit_of_claimed(block);
        }
        if !is_free {
            return;
        }
        match was.place() {
            Place::Elsewhere => self.queue.free.remove(states, block),
            Place::Held => self.held.remove(states, block),
            Place::Ladder => self.leave_ladder(states, block),
            Place::Listed => {
                states.unlink(block);
                self.num_listed -= 1;
                self.num_watched -= was.num_watched();
            }
        }
    }
}

/// Whether a few blocks hardly stand in rows in their lists, as tails do, of which several groups'
/// wait together.
fn are_scattered_tails(states: &Blocks, blocks: &[BlockId]) -> bool {
    blocks.len() < 4 * IdRun::MIN_LEN && !states.starts_beside(blocks)
}
