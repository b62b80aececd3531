//! The links from each block to its neighbours in a list.

use std::hint::black_box;

use bytemuck::Zeroable;

use super::run::IdRun;
use crate::block::BlockId;

/// The next and the previous block, stored as differences of ids. So zeroed memory is already the
/// queue of a fresh pool, in order of block id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(C, align(8))]
pub(crate) struct Links {
    next: u32,
    prev: u32,
}

impl Links {
    /// The links of a block whose neighbours in the list have the previous and the next id.
    pub(crate) const UP: Self = Self { next: 0, prev: 0 };
    /// The same links in a list in which ids go down.
    pub(crate) const DOWN: Self = Self { next: u32::MAX - 1, prev: 2 };

    /// Returns the links of a block between two others.
    #[inline]
    pub(crate) fn between(prev: u32, id: u32, next: u32) -> Self {
        Self { next: to_next(id, next), prev: to_prev(id, prev) }
    }

    /// Returns the block after `id`, if these are the links of `id`.
    #[inline]
    pub(crate) fn next_of(self, id: u32) -> u32 {
        self.next.wrapping_add(id).wrapping_add(1)
    }

    /// Returns the block before `id`, if these are the links of `id`.
    #[inline]
    pub(crate) fn prev_of(self, id: u32) -> u32 {
        self.prev.wrapping_add(id).wrapping_sub(1)
    }

    /// Returns whether both links lead to the next block by the same difference of ids.
    #[inline]
    pub(crate) fn has_next_of(self, other: Self) -> bool {
        self.next == other.next
    }

    fn bits(self) -> u64 {
        u64::from(self.next) | u64::from(self.prev) << 32
    }
}

#[inline]
fn to_next(id: u32, next: u32) -> u32 {
    next.wrapping_sub(id).wrapping_sub(1)
}

#[inline]
fn to_prev(id: u32, prev: u32) -> u32 {
    prev.wrapping_sub(id).wrapping_add(1)
}

/// Makes two blocks neighbours.
#[inline]
pub(super) fn join(links: &mut [Links], left: u32, right: u32) {
    links[right as usize].prev = to_prev(right, left);
    links[left as usize].next = to_next(left, right);
}

/// Removes a block from its ring.
#[inline]
pub(super) fn unlink(links: &mut [Links], id: u32) {
    let own = links[id as usize];
    join(links, own.prev_of(id), own.next_of(id));
}

/// Returns whether all links are `same`. It compares all at once, which is several times faster
/// than one by one.
#[inline]
pub(super) fn are_all(links: &[Links], same: Links) -> bool {
    links.iter().fold(0, |any, links| any | links.bits() ^ same.bits()) == 0
}

/// Returns the run that starts with a block of a list. It has between 1 and `most` blocks.
#[inline]
pub(crate) fn run_from(links: &[Links], first: BlockId, most: usize) -> IdRun {
    let at = first as usize;
    let others = most.saturating_sub(1);
    let last = match links[at] {
        own if own.has_next_of(Links::UP) => {
            let behind = &links[at..links.len().min(at + others)];
            first + num_leading(behind, Links::UP)
        }
        own if own.has_next_of(Links::DOWN) => {
            let behind = &links[(at + 1).saturating_sub(others)..=at];
            first - num_leading_back(behind, Links::DOWN)
        }
        _ => first,
    };
    IdRun { first, last }
}

/// Returns how many leading links have the next block at `step`.
#[inline]
fn num_leading(links: &[Links], step: Links) -> u32 {
    let (parts, _) = links.as_chunks();
    let num_whole = parts.iter().take_while(|part| lead(part, step)).count() * PART;
    let rest = links[num_whole..].iter().take_while(|links| links.has_next_of(step));
    (num_whole + rest.count()) as u32
}

/// Returns how many trailing links have the next block at `step`.
#[inline]
fn num_leading_back(links: &[Links], step: Links) -> u32 {
    let (_, parts) = links.as_rchunks();
    let num_whole = parts.iter().rev().take_while(|part| lead(part, step)).count() * PART;
    let rest = links[..links.len() - num_whole].iter().rev();
    (num_whole + rest.take_while(|links| links.has_next_of(step)).count()) as u32
}

const PART: usize = 8;

/// Returns whether each link has the next block at `step`. It compares all at once, without a
/// branch for each.
#[inline]
fn lead(links: &[Links; PART], step: Links) -> bool {
    links.iter().fold(0, |any, links| any | links.next ^ step.next) == 0
}

/// Appends `n` blocks from `first` on, in the order of their list, to `out`. Returns the block
/// after them.
pub(super) fn follow(links: &[Links], first: BlockId, n: usize, out: &mut Vec<BlockId>) -> u32 {
    out.reserve(n);
    let (mut next, mut left) = (first, n);
    while left >= BETWEEN_RUNS {
        let run = run_from(links, next, left);
        match run.is_ascending() {
            true => out.extend(run.first..=run.last),
            false => out.extend((run.last..=run.first).rev()),
        }
        next = links[run.last as usize].next_of(run.last);
        left -= run.len();
        if run.len() < PART {
            let n = left.min(BETWEEN_RUNS);
            next = follow_each(links, next, n, out);
            left -= n;
        }
    }
    follow_each(links, next, left, out)
}

/// The number of blocks that are read one by one after a short run, before the next search for a
/// run.
const BETWEEN_RUNS: usize = 48;

fn follow_each(links: &[Links], first: BlockId, n: usize, out: &mut Vec<BlockId>) -> u32 {
    let mut next = first;
    out.extend((0..n).map(|_| {
        let block = next;
        // Guesses the next block, so that the blocks of a run are read without waiting for the
        // links.
        next = match links[block as usize] {
            own if own.has_next_of(Links::UP) => Links::UP.next_of(block),
            own if own.has_next_of(Links::DOWN) => Links::DOWN.next_of(block),
            own => Links { next: black_box(own.next), ..own }.next_of(block),
        };
        block
    }));
    next
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the links of blocks that form a ring in this order.
    pub(crate) fn ring(order: &[u32]) -> Vec<Links> {
        let mut links = vec![Links::default(); order.len()];
        let behind = order.iter().cycle().skip(1);
        order.iter().zip(behind).for_each(|(&left, &right)| join(&mut links, left, right));
        links
    }

    #[test]
    fn neighbours_are_found_again() {
        let links = ring(&[2, 0, 3, 1]);
        let neighbours = |id: u32| [links[id as usize].prev_of(id), links[id as usize].next_of(id)];
        assert_eq!([0, 1, 2, 3].map(neighbours), [[2, 3], [3, 2], [1, 0], [0, 1]]);
        assert_eq!(links[3], Links::between(0, 3, 1));
        assert_eq!(ring(&[1, 2, 3, 0])[2], Links::UP);
        assert_eq!(ring(&[3, 2, 1, 0])[2], Links::DOWN);
    }

    #[test]
    fn a_list_is_followed_through_runs_and_what_is_between_them() {
        let up: Vec<u32> = (40..100).collect();
        let down: Vec<u32> = (1..30).rev().collect();
        let between: Vec<u32> = (30..40).step_by(2).chain((30..40).skip(1).step_by(2)).collect();
        let order = [&[0][..], &up, &between, &down].concat();
        let links = ring(&order);
        for first in 0..order.len() {
            for n in [0, 1, 15, 16, 17, 40, order.len()] {
                let mut followed = vec![7];
                let next = follow(&links, order[first], n, &mut followed);
                let expected = order.iter().cycle().skip(first);
                assert!(followed[1..].iter().eq(expected.clone().take(n)), "{n} from {first}");
                assert_eq!((followed[0], Some(&next)), (7, expected.skip(n).take(1).next()));
            }
        }
    }
}
