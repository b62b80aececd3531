//! What changes of many blocks at once when they are taken, hit or given back, in a list for each, and
//! the loops that change it. They have to be short: each goes on as long as blocks are what most
//! are, and leaves the others to its caller.

use std::hint::black_box;

use prefetch_index::prefetch_index;

use super::fingerprint::Fingerprint;
use super::flags::{KINDS, MAX_REFERENCES, flag};
use super::links::{Links, join};
use super::list_span::ListSpan;
use super::run::IdRun;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::prefault;

/// What is known of every block, item by item: most changes are to one item of blocks in a row.
#[derive(Clone, Debug)]
pub struct Records {
    /// References and flags.
    pub usage: Vec<u32>,
    /// Of each block, and of each sentinel of a queue but the first.
    pub links: Vec<Links>,
    /// The key that the block has or had last: an eviction needs no more of it.
    pub fingerprints: Vec<Fingerprint>,
}

impl Records {
    /// Of blocks that nobody uses.
    pub fn new(num_blocks: usize, num_sentinels: usize) -> Self {
        Self {
            usage: prefault::zeros(num_blocks),
            links: prefault::zeros(num_blocks + num_sentinels),
            fingerprints: prefault::zeros(num_blocks),
        }
    }

    /// Asks for what a hit or a release changes. Every fourth block is enough: neighbours mostly
    /// share a cache line.
    fn fetch(&self, blocks: &[BlockId]) {
        let (fours, _) = blocks.as_chunks::<4>();
        for &[block, ..] in fours {
            prefetch_index(&self.links, block as usize);
            prefetch_index(&self.usage, block as usize);
        }
    }

    /// Adds a reference to each block, as long as those that were free stand beside `run`, which
    /// takes them in; to how many.
    pub fn touch_beside(&mut self, blocks: &[BlockId], run: &mut ListSpan) -> usize {
        let links = &self.links[..];
        let usage = &mut self.usage[..];
        let [mut before, mut behind] = run.neighbours(links);
        let ListSpan { mut front, mut back, mut len } = *run;
        let mut num_touched = 0;
        for &block in blocks {
            let usage = &mut usage[block as usize];
            if *usage & MAX_REFERENCES == 0 {
                if block == NULL_BLOCK {
                    break;
                } else if block == before {
                    (front, before) = (block, links[block as usize].prev_of(block));
                } else if block == behind {
                    (back, behind) = (block, links[block as usize].next_of(block));
                } else {
                    break;
                }
                len += 1;
            } else if block == NULL_BLOCK {
                break;
            }
            *usage += 1;
            num_touched += 1;
        }
        *run = ListSpan { front, back, len };
        num_touched
    }

    /// Adds a reference to each of some blocks in a row, if all are in use, or all are free and
    /// stand in a row in their queue too. Then they are the run that is returned, without blocks in
    /// the first case.
    pub fn touch_row(&mut self, row: IdRun) -> Option<ListSpan> {
        let usage = row.slice_mut(&mut self.usage)?;
        if usage.iter().fold(0, |any, usage| any | usage) & MAX_REFERENCES == 0 {
            return self.touch_free_row(row);
        }
        let is_used = |usage: &u32| usage & MAX_REFERENCES > 0;
        let are_used = usage.iter().fold(true, |all, usage| all & is_used(usage));
        are_used
            .then(|| usage.iter_mut().for_each(|usage| *usage += 1))
            .map(|()| ListSpan::default())
    }

    /// As [`Self::touch_row`], of blocks that are known to be free.
    pub fn touch_free_row(&mut self, row: IdRun) -> Option<ListSpan> {
        let usage = row.slice_mut(&mut self.usage)?;
        let run = ListSpan::of_run(&self.links, row)?;
        usage.iter_mut().for_each(|usage| *usage += 1);
        Some(run)
    }

    /// Drops a reference to each of some blocks in a row, if the same becomes of all of them as
    /// [`Self::drop_to_ends`] would do; whether it was done.
    pub fn drop_row_to_ends(&mut self, row: IdRun, ends: &mut Ends) -> bool {
        let Some(usages) = row.slice_mut(&mut self.usage) else { return false };
        let usage = usages[0] & !flag::IN_TRIE;
        let other = |other: u32| other & !flag::IN_TRIE ^ usage;
        if usages.iter().fold(0, |any, &usage| any | other(usage)) != 0 {
            return false;
        }
        let end = match usage {
            _ if usage == flag::CACHED + 1 => Some(&mut ends.back),
            1 if ends.is_front_open => Some(&mut ends.front),
            _ if usage & MAX_REFERENCES > 1 => None,
            _ => return false,
        };
        usages.iter_mut().for_each(|usage| *usage -= 1);
        let Some(end) = end else { return true };
        if let Some(links) = row.slice_mut(&mut self.links) {
            // Not known to be zeros, for which the compiler would call a function.
            links.fill(black_box(if row.is_ascending() { Links::UP } else { Links::DOWN }));
        }
        join(&mut self.links, *end, row.first);
        *end = row.last;
        ends.num_free += row.len();
        true
    }

    /// Drops a reference to each block. Those that are free then go to one of the ends: to the back
    /// if they are cached under nothing but their own hash. Stops at a block that is neither so, nor
    /// in use still, nor to go to the front; how many come before it.
    #[inline(never)]
    pub fn drop_to_ends(&mut self, blocks: &[BlockId], ends: &mut Ends) -> usize {
        let Ends { mut front, is_front_open, mut back, mut num_free } = *ends;
        let uncached = if is_front_open { 1 } else { MAX_REFERENCES };
        let (usages, links) = (&mut self.usage[..], &mut self.links[..]);
        let other = blocks.iter().position(|&block| {
            let usage = usages[block as usize];
            if usage & !flag::IN_TRIE == flag::CACHED + 1 {
                usages[block as usize] = usage - 1;
                join(links, back, block);
                back = block;
            } else if usage == uncached && block != NULL_BLOCK {
                usages[block as usize] = 0;
                join(links, front, block);
                front = block;
            } else {
                let is_shared = usage & MAX_REFERENCES > 1 && block != NULL_BLOCK;
                usages[block as usize] -= u32::from(is_shared);
                return !is_shared;
            }
            num_free += 1;
            false
        });
        *ends = Ends { front, is_front_open, back, num_free };
        other.unwrap_or(blocks.len())
    }

    /// Drops a reference to each block, the last of them first, and lets them stand one behind the
    /// other, the first of them behind `last`, as long as they are free then and cached nowhere; how
    /// many are left, from the first on.
    pub fn drop_uncached_behind(&mut self, blocks: &[BlockId], last: &mut u32) -> usize {
        let (usages, links) = (&mut self.usage[..], &mut self.links[..]);
        let mut behind = *last;
        let other = blocks.iter().rposition(|&block| {
            let usage = &mut usages[block as usize];
            if *usage != 1 || block == NULL_BLOCK {
                return true;
            }
            *usage = 0;
            join(links, behind, block);
            behind = block;
            false
        });
        *last = behind;
        other.map_or(0, |last| last + 1)
    }

    /// Makes the taker of free blocks the only holder of those that are neither cached nor pinned.
    /// The others go to a list, which is as long as the blocks.
    pub fn take_uncached<T>(
        &mut self,
        blocks: &[BlockId],
        cached: &mut [(BlockId, T)],
        place: impl Fn(Fingerprint) -> T,
    ) -> Taken {
        let run = IdRun::detect(blocks);
        let taken = run.and_then(|run| self.take_uncached_row(run, blocks, cached, &place));
        taken.unwrap_or_else(|| self.take_uncached_ones(blocks, cached, &place))
    }

    /// As [`Self::take_uncached`], of blocks in a row, if all are plain or none is cached.
    fn take_uncached_row<T>(
        &mut self,
        row: IdRun,
        blocks: &[BlockId],
        cached: &mut [(BlockId, T)],
        place: &impl Fn(Fingerprint) -> T,
    ) -> Option<Taken> {
        let usages = row.slice_mut(&mut self.usage)?;
        let (any, all) = usages.iter().fold((0, !0), |(any, all), &u| (any | u, all & u));
        if any & KINDS == 0 {
            usages.fill(1);
            return Some(Taken { num_cached: 0, plain: 0, is_any_linked: false });
        } else if any & KINDS != flag::CACHED || all & KINDS != flag::CACHED {
            return None;
        }
        for (&block, cached) in blocks.iter().zip(cached) {
            *cached = (block, place(self.fingerprints[block as usize]));
        }
        Some(Taken {
            num_cached: blocks.len(),
            plain: !0 >> (u64::BITS as usize - blocks.len()),
            is_any_linked: any & flag::IN_TRIE != 0,
        })
    }

    fn take_uncached_ones<T>(
        &mut self,
        blocks: &[BlockId],
        cached: &mut [(BlockId, T)],
        place: &impl Fn(Fingerprint) -> T,
    ) -> Taken {
        let (mut num_cached, mut plain, mut flags) = (0, 0, 0);
        for &block in blocks {
            let usage = self.usage[block as usize];
            let kind = usage & KINDS;
            if kind == 0 {
                self.usage[block as usize] = 1;
            } else if let Some(cached) = cached.get_mut(num_cached) {
                *cached = (block, place(self.fingerprints[block as usize]));
                plain |= u64::from(kind == flag::CACHED) << num_cached;
                flags |= usage;
                num_cached += 1;
            }
        }
        Taken { num_cached, plain, is_any_linked: flags & flag::IN_TRIE != 0 }
    }

    /// Gives blocks flags, [`flag::CACHED`] among them, up to one that is so already, or null; how
    /// many.
    pub fn mark_cached(&mut self, blocks: &[BlockId], flags: u32) -> usize {
        if let Some(row) = IdRun::detect(blocks)
            && let Some(usages) = row.slice_mut(&mut self.usage)
            && usages.iter().fold(0, |any, usage| any | usage) & flag::CACHED == 0
        {
            usages.iter_mut().for_each(|usage| *usage |= flags);
            return blocks.len();
        }
        let is_marked = |&block: &BlockId| {
            let usage = &mut self.usage[block as usize];
            let is_new = *usage & flag::CACHED == 0 && block != NULL_BLOCK;
            if is_new {
                *usage |= flags;
            }
            is_new
        };
        blocks.iter().map(is_marked).take_while(|&is_marked| is_marked).count()
    }
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

/// What was found out of free blocks that are taken.
pub struct Taken {
    /// How many are cached; they are listed with their fingerprints and still to be taken.
    pub num_cached: usize,
    /// A bit for each of those: whether it serves its own hash, has no other and is not pinned.
    pub plain: u64,
    /// Whether any of those names a segment.
    pub is_any_linked: bool,
}

/// Parts of a list of blocks, one after the other, while what is known of those that follow is
/// fetched from memory.
pub fn prefetch_ahead<'a, I: Iterator<Item = &'a [BlockId]> + Clone>(
    records: &Records,
    parts: I,
) -> PrefetchAhead<I> {
    let mut later = parts.clone();
    later.by_ref().take(PARTS_AHEAD).for_each(|part| records.fetch(part));
    PrefetchAhead { parts, later }
}

/// See [`prefetch_ahead`].
pub struct PrefetchAhead<I> {
    parts: I,
    later: I,
}

impl<'a, I: Iterator<Item = &'a [BlockId]>> PrefetchAhead<I> {
    /// The next part.
    #[inline]
    pub fn next(&mut self, records: &Records) -> Option<&'a [BlockId]> {
        if let Some(part) = self.later.next() {
            records.fetch(part);
        }
        self.parts.next()
    }
}

const PARTS_AHEAD: usize = 2;
