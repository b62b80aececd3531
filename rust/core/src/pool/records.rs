//! The loops over many records that have to be short: each goes on as long as blocks are what most
//! are, and leaves the others to its caller.

use std::hint::black_box;

use prefetch_index::prefetch_index;

use super::index::{Fingerprint, Place};
use super::record::{DOWN, KINDS, MAX_REFERENCES, Record, UP, flag, join, next_of, prev_of, word};
use super::run::Run;
use crate::block::{BlockId, NULL_BLOCK};
use crate::rows::Row;

/// Lists `n` blocks from one on, in the order of their queue, and returns the one behind them.
pub fn follow(records: &[Record], first: BlockId, n: usize, out: &mut Vec<BlockId>) -> u32 {
    let mut next = first;
    out.extend((0..n).map(|_| {
        let block = next;
        // Guessed, so that blocks in a row are read without waiting for one to name the next.
        next = match records[block as usize][word::NEXT] {
            UP => block.wrapping_add(1),
            DOWN => block.wrapping_sub(1),
            step => block.wrapping_add(black_box(step)).wrapping_add(1),
        };
        block
    }));
    next
}

/// Parts of a list of blocks, one after the other, while the records of those that follow are
/// fetched from memory.
pub fn read_ahead<'a, I: Iterator<Item = &'a [BlockId]> + Clone>(
    records: &[Record],
    parts: I,
) -> ReadAhead<I> {
    let mut later = parts.clone();
    later.by_ref().take(PARTS_AHEAD).for_each(|part| fetch(records, part));
    ReadAhead { parts, later }
}

/// See [`read_ahead`].
pub struct ReadAhead<I> {
    parts: I,
    later: I,
}

impl<'a, I: Iterator<Item = &'a [BlockId]>> ReadAhead<I> {
    /// The next part.
    #[inline]
    pub fn next(&mut self, records: &[Record]) -> Option<&'a [BlockId]> {
        if let Some(part) = self.later.next() {
            fetch(records, part);
        }
        self.parts.next()
    }
}

const PARTS_AHEAD: usize = 2;

/// Every fourth record is enough: neighbours mostly share a cache line.
fn fetch(records: &[Record], blocks: &[BlockId]) {
    let (fours, _) = blocks.as_chunks::<RECORDS_PER_LINE>();
    fours.iter().for_each(|&[block, ..]| prefetch_index(records, block as usize));
}

const RECORDS_PER_LINE: usize = 64 / size_of::<Record>();

/// Adds a reference to each block, as long as those that were free stand beside `run`, which takes
/// them in; to how many.
pub fn touch_beside(records: &mut [Record], blocks: &[BlockId], run: &mut Run) -> usize {
    let [mut before, mut behind] = run.neighbours(records);
    let Run { mut front, mut back, mut len } = *run;
    let mut num_touched = 0;
    for &block in blocks {
        let record = &mut records[block as usize];
        if record[word::USE] & MAX_REFERENCES == 0 {
            if block == NULL_BLOCK {
                break;
            } else if block == before {
                (front, before) = (block, prev_of(block, record));
            } else if block == behind {
                (back, behind) = (block, next_of(block, record));
            } else {
                break;
            }
            len += 1;
        } else if block == NULL_BLOCK {
            break;
        }
        record[word::USE] += 1;
        num_touched += 1;
    }
    *run = Run { front, back, len };
    num_touched
}

/// Adds a reference to each of some blocks in a row, if all are in use, or all are free and stand
/// in a row in their queue too. Then they are the run that is returned, without blocks in the
/// first case.
pub fn touch_row(records: &mut [Record], row: Row) -> Option<Run> {
    let records = row.of_list(records)?;
    let (first, last, len) = (row.first.min(row.last), row.first.max(row.last), row.len());
    let all = records.iter().fold(0, |all, record| all | record[word::USE]);
    let run = if all & MAX_REFERENCES > 0 {
        let is_used = |record: &Record| record[word::USE] & MAX_REFERENCES > 0;
        records.iter().fold(true, |all, record| all & is_used(record)).then(Run::default)?
    } else if records[0][word::NEXT] == UP {
        leads(&records[..len - 1], UP).then_some(Run { front: first, back: last, len })?
    } else {
        leads(&records[1..], DOWN).then_some(Run { front: last, back: first, len })?
    };
    records.iter_mut().for_each(|record| record[word::USE] += 1);
    Some(run)
}

/// Whether the next block is one step away for each.
fn leads(records: &[Record], step: u32) -> bool {
    records.iter().fold(0, |any, record| any | record[word::NEXT] ^ step) == 0
}

/// The ends of a queue to which blocks are given back.
pub struct Ends {
    /// The last of the blocks that were put at its front, or its sentinel. They are to be joined
    /// with the blocks behind them.
    pub front: u32,
    /// Whether blocks that are cached nowhere go to the front.
    pub is_front_open: bool,
    /// The last block at its back, which is to be joined with the sentinel.
    pub back: u32,
    /// How many were put at either.
    pub num_free: usize,
}

/// Drops a reference to each of some blocks in a row, if the same becomes of all of them as
/// [`drop_to_ends`] would do; whether it was done.
pub fn drop_row_to_ends(records: &mut [Record], row: Row, ends: &mut Ends) -> bool {
    let Some(slice) = row.of_list(records) else { return false };
    let usage = slice[0][word::USE] & !flag::LINKED;
    let other = |record: &Record| record[word::USE] & !flag::LINKED ^ usage;
    if slice.iter().fold(0, |any, record| any | other(record)) != 0 {
        return false;
    }
    let end = match usage {
        _ if usage == flag::CACHED + 1 => &mut ends.back,
        1 if ends.is_front_open => &mut ends.front,
        _ if usage & MAX_REFERENCES > 1 => {
            slice.iter_mut().for_each(|record| record[word::USE] -= 1);
            return true;
        }
        _ => return false,
    };
    let [next, prev] = if row.goes_up() { [UP, 0] } else { [DOWN, 2] };
    for record in slice {
        record[word::NEXT] = next;
        record[word::PREV] = prev;
        record[word::USE] -= 1;
    }
    join(records, *end, row.first);
    *end = row.last;
    ends.num_free += row.len();
    true
}

/// Drops a reference to each block. Those that are free then go to one of the ends: to the back if
/// they are cached under nothing but their own hash. Stops at a block that is neither so, nor in
/// use still, nor to go to the front; how many come before it.
#[inline(never)]
pub fn drop_to_ends(records: &mut [Record], blocks: &[BlockId], ends: &mut Ends) -> usize {
    let Ends { mut front, is_front_open, mut back, mut num_free } = *ends;
    let uncached = if is_front_open { 1 } else { MAX_REFERENCES };
    let other = blocks.iter().position(|&block| {
        let usage = records[block as usize][word::USE];
        if usage & !flag::LINKED == flag::CACHED + 1 {
            records[block as usize][word::USE] = usage - 1;
            join(records, back, block);
            back = block;
        } else if usage == uncached && block != NULL_BLOCK {
            records[block as usize][word::USE] = 0;
            join(records, front, block);
            front = block;
        } else {
            let is_shared = usage & MAX_REFERENCES > 1 && block != NULL_BLOCK;
            records[block as usize][word::USE] -= u32::from(is_shared);
            return !is_shared;
        }
        num_free += 1;
        false
    });
    *ends = Ends { front, is_front_open, back, num_free };
    other.unwrap_or(blocks.len())
}

/// What was found out of free blocks that are taken.
pub struct Taken {
    /// How many are cached; they are listed with their fingerprints and still to be taken.
    pub num_cached: usize,
    /// A bit for each of those: whether it serves its own hash, has no other and is not pinned.
    pub plain: u64,
    /// Whether any of those names a segment.
    pub is_any_linked: bool,
}

/// Makes the taker of free blocks the only holder of those that are neither cached nor pinned. The
/// others go to a list, which is as long as the blocks.
pub fn take_uncached(
    records: &mut [Record],
    blocks: &[BlockId],
    cached: &mut [(BlockId, Place)],
) -> Taken {
    let (mut num_cached, mut plain, mut flags) = (0, 0, 0);
    for &block in blocks {
        let record = &mut records[block as usize];
        let usage = record[word::USE];
        let kind = usage & KINDS;
        if kind == 0 {
            record[word::USE] = 1;
        } else if let Some((listed, place)) = cached.get_mut(num_cached) {
            *listed = block;
            place.fingerprint = Fingerprint(record[word::FINGERPRINT]);
            plain |= u64::from(kind == flag::CACHED) << num_cached;
            flags |= usage;
            num_cached += 1;
        }
    }
    Taken { num_cached, plain, is_any_linked: flags & flag::LINKED != 0 }
}

/// Gives blocks flags, [`flag::CACHED`] among them, up to one that is so already, or null; how many.
pub fn mark_cached(records: &mut [Record], blocks: &[BlockId], flags: u32) -> usize {
    let is_marked = |&block: &BlockId| {
        let usage = &mut records[block as usize][word::USE];
        let is_new = *usage & flag::CACHED == 0 && block != NULL_BLOCK;
        if is_new {
            *usage |= flags;
        }
        is_new
    };
    blocks.iter().map(is_marked).take_while(|&is_marked| is_marked).count()
}
