//! Hits: blocks are used again, and free ones leave the order of eviction.

use super::block_meta::Place;
use super::shadow::Use;
use super::shadow::access_log::Event;
use super::shadow::table::Name;
use crate::block::BlockId;
use crate::pool::blocks::Blocks;
use crate::pool::blocks::record_writer::{Alone, Beside, Unlinking};
use crate::pool::blocks::records::Records;
use crate::pool::blocks::run::IdRun;
use crate::pool::eviction::adaptive::Adaptive;

/// How many blocks were hit and have left the lists, which do not know it yet.
#[derive(Debug, Default)]
pub struct Leaving {
    num_listed: usize,
    num_watched: usize,
}

impl Adaptive {
    /// A hit is the first to use blocks that wait in the lists, and that no request claimed: how many
    /// there are before the first of which that is not so.
    #[inline]
    pub fn hit_listed(
        &mut self,
        states: &mut Blocks,
        blocks: &[BlockId],
        leaving: &mut Leaving,
    ) -> usize {
        // Tails of several groups wait together and are hit group by group, so that hardly any
        // stands beside the one before it; full blocks mostly do.
        match states.starts_beside(blocks) {
            true => self.hit_each::<Beside>(states, blocks, leaving),
            false => self.hit_each::<Alone>(states, blocks, leaving),
        }
    }

    #[inline]
    fn hit_each<U: Unlinking>(
        &mut self,
        states: &mut Blocks,
        blocks: &[BlockId],
        leaving: &mut Leaving,
    ) -> usize {
        let (mut unlinking, mut num_hit) = (U::default(), 0);
        self.sightings.start(&mut self.sample, Event::Used(Use::Hit));
        loop {
            let left = &blocks[num_hit..];
            let (num, is_sampled) = self.hit_up_to_sampled(states, left, leaving, &mut unlinking);
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
        leaving: &mut Leaving,
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
        leaving.num_listed += num_hit;
        leaving.num_watched += num_watched;
        (num_hit, is_sampled)
    }

    /// A hit uses blocks in a row, if all are in use, or all wait in the lists and stand in a row
    /// there too, and no request claimed any; whether it is so.
    pub fn hit_row(&mut self, states: &mut Blocks, row: IdRun, leaving: &mut Leaving) -> bool {
        let are_listed = states.ref_count(row.first) == 0;
        let Some(mut tags) = self.tags.row_of_plain(row, are_listed) else { return false };
        let touch = if are_listed { Records::touch_free_row } else { Records::touch_row };
        let Some(run) = touch(states.records_mut(), row) else { return false };
        let num_watched = tags.hit();
        if are_listed {
            states.unlink_run(&run);
            leaving.num_listed += run.len();
            leaving.num_watched += num_watched;
        }
        self.note_row(states, row, Event::Used(Use::Hit));
        true
    }

    /// A hit uses a block; one that is free leaves the list that it is in: whether it was in one.
    pub fn hit(
        &mut self,
        states: &mut Blocks,
        block: BlockId,
        is_free: bool,
        leaving: &mut Leaving,
    ) -> bool {
        let was = self.tags.hit(block, is_free);
        if was.is_sampled() {
            let name = Name::of(states.fingerprint(block));
            self.sightings.note(&mut self.sample, Event::Used(Use::Hit), name);
        }
        if was.is_claimed() {
            self.note_hit_of_claimed(block);
        }
        let place = if is_free { was.place() } else { Place::Elsewhere };
        match place {
            Place::Elsewhere => return false,
            Place::Held => self.held.remove(states, block),
            Place::Ladder => self.leave_ladder(states, block),
            Place::Listed => {
                states.unlink(block);
                leaving.num_listed += 1;
                leaving.num_watched += was.num_watched();
            }
        }
        true
    }

    /// The blocks that were hit have left the lists.
    pub fn leave(&mut self, leaving: Leaving) {
        self.num_listed -= leaving.num_listed;
        self.num_watched -= leaving.num_watched;
        self.sightings.tell(&mut self.sample);
    }
}
