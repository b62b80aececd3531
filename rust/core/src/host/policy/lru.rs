//! The least recently used chunk goes first: by rank, the later position first, then by the bytes
//! of the key.
//!
//! A use at the end of a request gives each chunk a rank of its own; what a running request sees
//! shares one. Ranks only grow, so chunks are listed in segments of rising ranks and read from the
//! front. A chunk's entry is current if it has the chunk's number; others are passed over. A pinned
//! chunk that is read loses its entry, and gets one out of line when its last load ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::reservation::reserved_list;
use crate::block::CacheKey;
use crate::host::chunks::{ChunkId, Chunks, Cursor};
use crate::host::key::Position;
use crate::host::release::VllmVersion;
use crate::host::request::HostRequest;

/// Entries of a segment of own ranks, after which the next one begins.
const MAX_SEGMENT_LEN: usize = 4096;

/// Chunks with this number have no entry.
const UNLISTED: u32 = 0;

/// When a chunk was used. Without a position, the position is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Recency {
    rank: u64,
    position: u32,
    /// The number of the chunk's entry.
    entry: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    chunk: ChunkId,
    number: u32,
}

/// When a key was used last: the lower rank is evicted first, of one rank the later position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruRank {
    /// One for each use, or for all keys of a running request.
    pub rank: u64,
    /// The tokens up to the key's end, 0 if it has a rank of its own.
    pub position: u32,
}

/// The key that sorts chunks: rank, the later position first, hash, group.
type SortKey = (u64, Reverse<u32>, [u8; 32], u16);

#[derive(Debug)]
struct Segment {
    first_rank: u64,
    last_rank: u64,
    /// Whether all entries have this rank, and are put in order only when they are read.
    is_of_request: bool,
    entries: Vec<Entry>,
}

impl Segment {
    fn new(rank: u64, is_of_request: bool) -> Self {
        Self { first_rank: rank, last_rank: rank, is_of_request, entries: Vec::new() }
    }
}

/// When each chunk was used, and which entries are current.
#[derive(Debug, Default)]
struct Listing {
    recencies: Vec<Recency>,
    next_number: u32,
    num_listed: usize,
}

impl Listing {
    /// Gives a chunk a new entry, which the caller puts where it belongs.
    #[inline]
    fn list(&mut self, chunk: ChunkId) -> Entry {
        self.next_number += 1;
        let recency = &mut self.recencies[chunk as usize];
        self.num_listed += usize::from(recency.entry == UNLISTED);
        recency.entry = self.next_number;
        Entry { chunk, number: self.next_number }
    }

    fn unlist(&mut self, chunk: ChunkId) {
        let entry = &mut self.recencies[chunk as usize].entry;
        self.num_listed -= usize::from(*entry != UNLISTED);
        *entry = UNLISTED;
    }

    fn is_current(&self, entry: &Entry) -> bool {
        self.recencies[entry.chunk as usize].entry == entry.number
    }
}

#[derive(Debug)]
pub(crate) struct Lru {
    release: VllmVersion,
    listing: Listing,
    next_rank: u64,
    /// Segments that were not read yet, in the order of their ranks.
    segments: VecDeque<Segment>,
    num_in_segments: usize,
    /// The segment that is read, its entries from the last to the first.
    reading: Vec<Entry>,
    /// The rank up to which segments were read or are.
    read_up_to: u64,
    /// Entries for chunks whose segment was read.
    out_of_line: BinaryHeap<Reverse<(SortKey, Entry)>>,
}

impl Lru {
    pub(super) fn new(release: VllmVersion, capacity: usize) -> Self {
        Self {
            release,
            listing: Listing { recencies: reserved_list(capacity), ..Listing::default() },
            next_rank: 0,
            segments: VecDeque::new(),
            num_in_segments: 0,
            reading: Vec::new(),
            read_up_to: 0,
            out_of_line: BinaryHeap::new(),
        }
    }

    pub(super) fn on_request_access(
        &mut self,
        chunks: &Chunks,
        request: &mut HostRequest,
        seen: &[(ChunkId, u32)],
    ) {
        if self.release != VllmVersion::V0_32 {
            let rank = self.request_rank(request);
            self.share_rank(chunks, rank, seen);
        }
    }

    pub(super) fn on_insert(
        &mut self,
        chunks: &Chunks,
        request: &mut HostRequest,
        chunk: ChunkId,
        position: Position,
    ) {
        let recencies = &mut self.listing.recencies;
        if chunk as usize >= recencies.len() {
            recencies.resize(chunk as usize + 1, Recency::default());
        }
        // They belong to the chunk's previous key.
        (recencies[chunk as usize].rank, recencies[chunk as usize].position) = (0, 0);
        match position.filter(|_| self.release != VllmVersion::V0_32) {
            Some(position) => {
                let rank = self.request_rank(request);
                self.share_rank(chunks, rank, &[(chunk, position)]);
            }
            None => self.set_own_ranks(&[chunk]),
        }
    }

    pub(super) fn on_remove(&mut self, chunk: ChunkId) {
        self.listing.unlist(chunk);
    }

    pub(super) fn on_evictable(&mut self, chunks: &Chunks, chunk: ChunkId) {
        self.on_released(chunks, &[chunk]);
    }

    /// Lists chunks whose loads ended, if they are evictable now.
    pub(super) fn on_released(&mut self, chunks: &Chunks, released: &[ChunkId]) {
        if self.listing.num_listed == chunks.num_used() {
            return;
        }
        for &chunk in released {
            let is_unlisted = self.listing.recencies[chunk as usize].entry == UNLISTED;
            if is_unlisted && chunks.is_evictable(chunk) {
                self.make_room(1);
                self.list_out_of_line(chunks, chunk);
            }
        }
    }

    /// Gives the chunks of keys that are there ranks of their own.
    pub(super) fn touch(&mut self, chunks: &Chunks, keys: impl Iterator<Item = CacheKey>) {
        let mut cursor = Cursor::backwards();
        let mut found = Vec::with_capacity(keys.size_hint().0);
        keys.for_each(|key| found.extend(chunks.find_next(&key, &mut cursor)));
        self.set_own_ranks(&found);
    }

    pub(super) fn evict(&mut self, chunks: &mut Chunks, n: usize) -> Vec<CacheKey> {
        let mut evicted = Vec::with_capacity(n);
        let mut offered = Vec::new();
        while evicted.len() < n {
            let Some(chunk) = self.pop(chunks) else { break };
            self.listing.unlist(chunk);
            if !chunks.is_evictable(chunk) {
                continue;
            }
            if chunks.is_offered(chunk) {
                offered.push(chunk);
                continue;
            }
            evicted.push(chunks.key(chunk));
            chunks.remove(chunk);
        }
        self.make_room(offered.len());
        offered.into_iter().for_each(|chunk| self.list_out_of_line(chunks, chunk));
        evicted
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.release, self.listing.recencies.capacity());
    }

    /// Returns the evictable keys, the first to go first.
    pub(super) fn order(&self, chunks: &Chunks) -> Vec<CacheKey> {
        let is_evictable = |&(_, chunk): &(CacheKey, ChunkId)| chunks.is_evictable(chunk);
        let mut keys: Vec<_> = chunks.iter().filter(is_evictable).collect();
        keys.sort_by_cached_key(|&(_, chunk)| self.sort_key(chunks, chunk));
        keys.into_iter().map(|(key, _)| key).collect()
    }

    /// Returns what orders each key, in no order, and the last rank that was given.
    pub(super) fn ranks(&self, chunks: &Chunks) -> (Vec<(CacheKey, LruRank)>, u64) {
        let rank = |chunk: ChunkId| {
            let Recency { rank, position, .. } = self.listing.recencies[chunk as usize];
            LruRank { rank, position }
        };
        (chunks.iter().map(|(key, chunk)| (key, rank(chunk))).collect(), self.next_rank)
    }

    fn request_rank(&mut self, request: &mut HostRequest) -> u64 {
        *request.rank.get_or_insert_with(|| {
            self.next_rank += 1;
            self.next_rank
        })
    }

    fn set_own_ranks(&mut self, mut chunks: &[ChunkId]) {
        self.make_room(chunks.len());
        while !chunks.is_empty() {
            let goes_on = self.segments.back().is_some_and(|last| {
                !last.is_of_request
                    && last.last_rank == self.next_rank
                    && last.entries.len() < MAX_SEGMENT_LEN
            });
            if !goes_on {
                self.segments.push_back(Segment::new(self.next_rank + 1, false));
            }
            let Some(segment) = self.segments.back_mut() else { return };
            let num = chunks.len().min(MAX_SEGMENT_LEN - segment.entries.len());
            for &chunk in &chunks[..num] {
                self.next_rank += 1;
                let recency = &mut self.listing.recencies[chunk as usize];
                (recency.rank, recency.position) = (self.next_rank, 0);
                segment.entries.push(self.listing.list(chunk));
            }
            segment.last_rank = self.next_rank;
            self.num_in_segments += num;
            chunks = &chunks[num..];
        }
    }

    /// Gives chunks a shared rank. A chunk keeps its own rank if that place in the order is later.
    fn share_rank(&mut self, chunks: &Chunks, rank: u64, seen: &[(ChunkId, u32)]) {
        self.make_room(seen.len());
        let is_read = rank <= self.read_up_to;
        let segment = if is_read { 0 } else { self.segment_of(rank) };
        for &(chunk, position) in seen {
            let now = &mut self.listing.recencies[chunk as usize];
            if (now.rank, Reverse(now.position)) >= (rank, Reverse(position)) {
                continue;
            }
            (now.rank, now.position) = (rank, position);
            if is_read {
                self.list_out_of_line(chunks, chunk);
            } else {
                self.segments[segment].entries.push(self.listing.list(chunk));
                self.num_in_segments += 1;
            }
        }
    }

    /// Returns the index of the segment of a rank that the keys of a request share.
    fn segment_of(&mut self, rank: u64) -> usize {
        let at = self.segments.partition_point(|segment| segment.first_rank < rank);
        if self.segments.get(at).is_none_or(|segment| segment.first_rank != rank) {
            self.segments.insert(at, Segment::new(rank, true));
        }
        at
    }

    fn list_out_of_line(&mut self, chunks: &Chunks, chunk: ChunkId) {
        let entry = self.listing.list(chunk);
        self.out_of_line.push(Reverse((self.sort_key(chunks, chunk), entry)));
    }

    /// Makes sure that so many entries more can be numbered, and that stale ones stay few.
    fn make_room(&mut self, num: usize) {
        let num_entries = self.num_in_segments + self.reading.len() + self.out_of_line.len();
        let num_listed = self.listing.num_listed;
        let num_numbers = (u32::MAX - self.listing.next_number) as usize;
        if num_entries >= 64 + num_listed + num_listed / 2 || num_numbers < num {
            self.drop_stale(num_numbers < num);
        }
    }

    /// Drops all entries that are not current, and numbers the others anew if asked for.
    fn drop_stale(&mut self, are_numbers_used_up: bool) {
        let is_current = |entry: &Entry| self.listing.is_current(entry);
        for segment in &mut self.segments {
            segment.entries.retain(is_current);
            segment.entries.shrink_to_fit();
        }
        self.segments.retain(|segment| !segment.entries.is_empty());
        self.num_in_segments = self.segments.iter().map(|segment| segment.entries.len()).sum();
        self.reading.retain(is_current);
        self.out_of_line.retain(|Reverse((_, entry))| is_current(entry));
        if are_numbers_used_up {
            self.number_anew();
        }
    }

    /// Numbers all entries from 1 on. Every one is current.
    fn number_anew(&mut self) {
        self.listing.next_number = UNLISTED;
        let Listing { recencies, next_number: next, .. } = &mut self.listing;
        let mut number = |entry: &mut Entry| {
            *next += 1;
            entry.number = *next;
            recencies[entry.chunk as usize].entry = *next;
        };
        self.segments.iter_mut().flat_map(|segment| &mut segment.entries).for_each(&mut number);
        self.reading.iter_mut().for_each(&mut number);
        let mut others: Vec<_> = std::mem::take(&mut self.out_of_line).into_vec();
        others.iter_mut().for_each(|Reverse((_, entry))| number(entry));
        self.out_of_line = others.into();
    }

    /// Takes the entry of the chunk that is the first in order.
    fn pop(&mut self, chunks: &Chunks) -> Option<ChunkId> {
        while self
            .out_of_line
            .peek()
            .is_some_and(|Reverse((_, entry))| !self.listing.is_current(entry))
        {
            self.out_of_line.pop();
        }
        while self.reading.last().is_some_and(|entry| !self.listing.is_current(entry)) {
            self.reading.pop();
        }
        // An entry out of line belongs to ranks that were read, so it is before all further segments.
        if self.reading.is_empty() && self.out_of_line.is_empty() && !self.read_segment(chunks) {
            return None;
        }
        let other = self.out_of_line.peek().map(|Reverse((sort_key, _))| sort_key);
        let is_out_of_line = match (self.reading.last(), other) {
            (Some(entry), Some(other)) => *other < self.sort_key(chunks, entry.chunk),
            (entry, _) => entry.is_none(),
        };
        match is_out_of_line {
            true => self.out_of_line.pop().map(|Reverse((_, entry))| entry.chunk),
            false => self.reading.pop().map(|entry| entry.chunk),
        }
    }

    /// Takes the next segment with a current entry. Returns whether there is one.
    fn read_segment(&mut self, chunks: &Chunks) -> bool {
        while let Some(Segment { mut entries, is_of_request, .. }) = self.segments.pop_front() {
            self.num_in_segments -= entries.len();
            entries.retain(|entry| self.listing.is_current(entry));
            let Some(last) = entries.last() else { continue };
            self.read_up_to = self.listing.recencies[last.chunk as usize].rank;
            if is_of_request {
                entries.sort_by_cached_key(|entry| self.sort_key(chunks, entry.chunk));
            }
            entries.reverse();
            self.reading = entries;
            return true;
        }
        false
    }

    fn sort_key(&self, chunks: &Chunks, chunk: ChunkId) -> SortKey {
        let Recency { rank, position, .. } = self.listing.recencies[chunk as usize];
        let key = chunks.key(chunk);
        (rank, Reverse(position), key.hash.to_bytes(), key.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockHash;

    fn key(n: u64) -> CacheKey {
        CacheKey { hash: BlockHash([n, 0, 0, 0]), group: 0 }
    }

    fn filled(num_chunks: u64) -> (Chunks, Lru) {
        let mut chunks = Chunks::new(num_chunks as usize).expect("a size that fits");
        let mut lru = Lru::new(VllmVersion::V0_33, 0);
        for n in 0..num_chunks {
            let chunk = chunks.insert(key(n));
            lru.on_insert(&chunks, &mut HostRequest::default(), chunk, None);
            chunks.make_ready(chunk);
            lru.on_evictable(&chunks, chunk);
        }
        (chunks, lru)
    }

    #[test]
    fn order_survives_that_the_numbers_of_entries_are_used_up() {
        let (mut chunks, mut lru) = filled(6);
        assert_eq!(lru.evict(&mut chunks, 1), [key(0)]);
        lru.listing.next_number = u32::MAX - 2;
        lru.touch(&chunks, [1, 2, 3, 4].map(key).into_iter());
        assert!(lru.listing.next_number < 100);
        assert_eq!(lru.evict(&mut chunks, 5), [5, 1, 2, 3, 4].map(key));
    }

    #[test]
    fn stale_entries_stay_few() {
        let (chunks, mut lru) = filled(100);
        for n in 0..10_000 {
            lru.touch(&chunks, [key(n % 100)].into_iter());
        }
        assert!(lru.num_in_segments <= 64 + 150);
    }
}
