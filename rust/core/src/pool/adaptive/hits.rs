//! Hits: blocks are used again, and free ones leave the order of eviction.

use super::Adaptive;
use super::names::Name;
use super::sample::Use;
use super::sightings::Event;
use super::tag::{Place, Tag};
use crate::block::BlockId;
use crate::pool::record_writer::RecordWriter;
use crate::pool::records::Records;
use crate::pool::states::BlockStates;
use crate::rows::Row;

/// How many blocks were hit and have left the lists, which do not know it yet.
#[derive(Debug, Default)]
pub struct Leaving {
    num_listed: usize,
    num_watched: usize,
}

impl Leaving {
    /// A block leaves its list. Hardly any stands beside the one that left before it: the tails of
    /// several groups wait together, and are hit group by group.
    #[inline]
    fn add(&mut self, records: &mut RecordWriter<'_>, block: BlockId, was: Tag) {
        records.unlink(block);
        self.num_listed += 1;
        self.num_watched += was.num_watched();
    }
}

impl Adaptive {
    /// A hit is the first to use blocks that wait in the lists, and of which nobody wants to know:
    /// how many there are before the first of which that is not so.
    #[inline]
    pub fn hit_listed(
        &mut self,
        states: &mut BlockStates,
        blocks: &[BlockId],
        leaving: &mut Leaving,
    ) -> usize {
        let mut left = std::mem::take(leaving);
        let (mut records, mut tags) = (states.record_writer(), self.tags.writer());
        let num_hit = blocks.iter().position(|&block| {
            let was = tags.hit_listed(block, || records.add_first_reference(block));
            was.map(|was| left.add(&mut records, block, was)).is_none()
        });
        *leaving = left;
        num_hit.unwrap_or(blocks.len())
    }

    /// A hit uses blocks in a row, if all are in use, or all wait in the lists and stand in a row
    /// there too, and no request claimed any; whether it is so.
    pub fn hit_row(&mut self, states: &mut BlockStates, row: Row, leaving: &mut Leaving) -> bool {
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
        states: &mut BlockStates,
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
            Place::Listed => leaving.add(&mut states.record_writer(), block, was),
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
