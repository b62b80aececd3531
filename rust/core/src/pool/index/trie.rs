//! A path-compressed trie of cached prefixes. With it, a look-up of a prefix need not read every
//! hash.
//!
//! A *segment* lists the blocks that serve the hashes of consecutive positions. A *node* is a block
//! of a segment together with all blocks before it. The blocks before a segment belong to a node of
//! its parent: a prefix that diverges from another starts a child segment at that node.
//!
//! Between calls, each block in a segment serves its own key at its position and names that
//! segment. A segment that lost blocks on which a child builds is not extended, because the child
//! would seem to continue the new blocks. All of this holds only if each hash determines all hashes
//! before it.

use crate::block::BlockId;
use crate::pool::blocks::{NO_SEGMENT, SegmentId};

/// The trie of a pool.
#[derive(Debug)]
pub(super) struct PrefixTrie {
    /// The segments. The first one means [`NO_SEGMENT`], the empty start of every prefix.
    segments: Vec<Segment>,
    vacant: Vec<SegmentId>,
}

#[derive(Debug, Default)]
struct Segment {
    /// Changes each time the id is used again.
    generation: u32,
    parent: SegmentId,
    parent_generation: u32,
    /// The number of the parent's blocks before this segment.
    num_parent_blocks: usize,
    /// The position of the first block in its prefix.
    start: usize,
    /// Tokens per block.
    block_size: usize,
    blocks: Vec<BlockId>,
    /// The number of blocks before the last branch to a child.
    longest_continued: usize,
}

/// A block and the segment that it names.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrieBlock {
    /// The block.
    pub(super) block: BlockId,
    /// The segment that the block names.
    pub(super) segment: SegmentId,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    segment: SegmentId,
    /// The number of blocks in the segment up to the node.
    len: usize,
}

/// The path from the start of a prefix to one of its blocks: one node per segment, the last one
/// first.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriePath {
    nodes: Vec<Node>,
}

impl Default for PrefixTrie {
    fn default() -> Self {
        Self { segments: vec![Segment::default()], vacant: Vec::new() }
    }
}

impl PrefixTrie {
    /// The smallest length of prefixes in the trie. Shorter ones are found as fast by their hashes.
    pub(super) const MIN_HASHES: usize = 32;
    const MAX_SEGMENTS: usize = SegmentId::MAX as usize + 1;
    /// The longest path that is followed.
    const MAX_NODES: usize = 1024;

    /// Returns the smallest length of prefixes that are added to the trie now. It is larger if ids
    /// are scarce.
    pub(super) fn min_hashes(&self) -> usize {
        let num_left = Self::MAX_SEGMENTS - self.segments.len() + self.vacant.len();
        match num_left * 4 / Self::MAX_SEGMENTS {
            2.. => Self::MIN_HASHES,
            1 => 8 * Self::MIN_HASHES,
            _ => 32 * Self::MIN_HASHES,
        }
    }

    /// Returns the segment for blocks from position `first` on, after the block that serves the
    /// hash before them. Returns [`NO_SEGMENT`] if that block is not in the trie or no id is left.
    /// If no block is added to the segment, it must be [closed](Self::close).
    pub(super) fn open(
        &mut self,
        before: Option<TrieBlock>,
        first: usize,
        block_size: usize,
    ) -> SegmentId {
        let Some(parent) = self.node_before(before, first) else { return NO_SEGMENT };
        let Segment { blocks, longest_continued, .. } = &self.segments[parent.segment as usize];
        let is_end = parent.segment != NO_SEGMENT && blocks.len() == parent.len;
        match is_end && *longest_continued <= parent.len {
            true => parent.segment,
            false => self.begin(parent, first, block_size),
        }
    }

    fn node_before(&self, before: Option<TrieBlock>, first: usize) -> Option<Node> {
        match (before, first.checked_sub(1)) {
            (None, None) => Some(Node { segment: NO_SEGMENT, len: 0 }),
            (Some(before), Some(position)) => self.node(before, position),
            _ => None,
        }
    }

    #[inline(never)]
    fn begin(&mut self, parent: Node, start: usize, block_size: usize) -> SegmentId {
        let Some(id) = self.vacant_id() else { return NO_SEGMENT };
        let above = &mut self.segments[parent.segment as usize];
        above.longest_continued = above.longest_continued.max(parent.len);
        let parent_generation = above.generation;
        let Segment { generation, .. } = self.segments[id as usize];
        self.segments[id as usize] = Segment {
            generation,
            parent: parent.segment,
            parent_generation,
            num_parent_blocks: parent.len,
            start,
            block_size,
            ..Segment::default()
        };
        id
    }

    fn vacant_id(&mut self) -> Option<SegmentId> {
        self.vacant.pop().or_else(|| {
            let id = SegmentId::try_from(self.segments.len()).ok()?;
            self.segments.push(Segment::default());
            Some(id)
        })
    }

    /// Adds blocks from position `first` on. They name the segment that was opened for them.
    pub(super) fn push(&mut self, id: SegmentId, first: usize, blocks: &[BlockId]) {
        let segment = &mut self.segments[id as usize];
        // The opened segment may have lost its end since then.
        if segment.block_size > 0 && segment.start + segment.blocks.len() == first {
            segment.blocks.extend_from_slice(blocks);
        }
        self.close(id);
    }

    /// Frees the id of a segment if the segment has no blocks.
    pub(super) fn close(&mut self, id: SegmentId) {
        self.segments[id as usize].vacate_if_empty(id, &mut self.vacant);
    }

    #[inline]
    fn node(&self, TrieBlock { block, segment: id }: TrieBlock, position: usize) -> Option<Node> {
        let segment = &self.segments[id as usize];
        let index = position.checked_sub(segment.start)?;
        let is_listed = segment.blocks.get(index) == Some(&block);
        is_listed.then_some(Node { segment: id, len: index + 1 })
    }

    /// Returns whether a block is in the trie at a position.
    pub(super) fn lists(&self, block: TrieBlock, position: usize) -> bool {
        self.node(block, position).is_some()
    }

    /// Removes blocks from the end of a segment, as long as they are the next of `blocks`. Returns
    /// the number of removed blocks.
    #[inline]
    pub(super) fn pop(&mut self, id: SegmentId, blocks: impl Iterator<Item = BlockId>) -> usize {
        let segment = &mut self.segments[id as usize];
        let listed = segment.blocks.iter().rev();
        let num_popped = listed.zip(blocks).take_while(|&(&last, block)| last == block).count();
        if num_popped > 0 {
            segment.blocks.truncate(segment.blocks.len() - num_popped);
            segment.vacate_if_empty(id, &mut self.vacant);
        }
        num_popped
    }

    /// Removes a block, whose key covers `num_tokens` tokens, and all blocks after it from its
    /// segment.
    #[cold]
    pub(super) fn cut(&mut self, TrieBlock { block, segment: id }: TrieBlock, num_tokens: usize) {
        let segment = &mut self.segments[id as usize];
        let position = (num_tokens / segment.block_size.max(1)).checked_sub(1 + segment.start);
        if let Some(index) = position.filter(|&i| segment.blocks.get(i) == Some(&block)) {
            segment.blocks.truncate(index);
            self.close(id);
        }
    }

    /// Returns the path to a block at a position; `None` if a block before it is missing.
    pub(super) fn path(&self, last: TrieBlock, position: usize) -> Option<TriePath> {
        let mut node = self.node(last, position)?;
        let mut nodes = Vec::with_capacity(4);
        while node.segment != NO_SEGMENT {
            let segment = &self.segments[node.segment as usize];
            let is_whole = segment.blocks.len() >= node.len && nodes.len() < Self::MAX_NODES;
            let above = &self.segments[segment.parent as usize];
            if !is_whole || above.generation != segment.parent_generation {
                return None;
            }
            nodes.push(node);
            node = Node { segment: segment.parent, len: segment.num_parent_blocks };
        }
        Some(TriePath { nodes })
    }

    /// Appends the blocks of a path, from first to last, to `out`.
    pub(super) fn read(&self, path: &TriePath, out: &mut Vec<BlockId>) {
        let last = path.nodes.first();
        out.reserve(last.map_or(0, |last| self.segments[last.segment as usize].start + last.len));
        for node in path.nodes.iter().rev() {
            out.extend_from_slice(&self.segments[node.segment as usize].blocks[..node.len]);
        }
    }

    /// Removes all segments. Blocks can still name them.
    pub(super) fn clear(&mut self) {
        for (id, segment) in (0..=SegmentId::MAX).zip(&mut self.segments) {
            segment.blocks.clear();
            segment.vacate_if_empty(id, &mut self.vacant);
        }
    }

    /// Returns every block in the trie, with the segment that it must name and the number of tokens
    /// that its key must cover.
    pub(super) fn listed(&self) -> impl Iterator<Item = (TrieBlock, usize)> + '_ {
        (0..=SegmentId::MAX).zip(&self.segments).flat_map(|(id, segment)| {
            let positions = (segment.start + 1..).map(|n| n * segment.block_size);
            let blocks = segment.blocks.iter();
            blocks.map(move |&block| TrieBlock { block, segment: id }).zip(positions)
        })
    }

    /// Returns a segment that wrongly could be extended: a child that follows its lost end would
    /// seem to continue the new blocks.
    pub(super) fn broken_segment(&self) -> Option<SegmentId> {
        let forgets = |segment: &&Segment| {
            let above = &self.segments[segment.parent as usize];
            let is_child = above.generation == segment.parent_generation && segment.block_size > 0;
            is_child && above.longest_continued < segment.num_parent_blocks
        };
        self.segments.iter().find(forgets).map(|segment| segment.parent)
    }
}

impl Segment {
    /// Frees the id if the segment is empty. A block that the segment had lost can still name it
    /// afterwards.
    #[inline]
    fn vacate_if_empty(&mut self, id: SegmentId, vacant: &mut Vec<SegmentId>) {
        if self.blocks.is_empty() && self.block_size > 0 {
            let generation = self.generation.wrapping_add(1);
            *self = Self { generation, ..Self::default() };
            vacant.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_used_anew_once_its_segment_lists_nothing() {
        let mut trie = PrefixTrie::default();
        let segment = trie.open(None, 0, 4);
        trie.push(segment, 0, &[7, 8]);
        let listed = |block| TrieBlock { block, segment };
        assert!(trie.path(listed(8), 1).is_some());
        assert_eq!(trie.pop(segment, [8, 7, 9].into_iter()), 2);
        assert!(trie.path(listed(7), 0).is_none());
        assert_eq!(trie.open(None, 0, 4), segment);
        trie.push(segment, 0, &[9]);
        let (child, generation) = (trie.open(Some(listed(9)), 1, 4), trie.segments[1].generation);
        assert_eq!((child, generation), (segment, 1));
    }

    #[test]
    fn short_prefixes_are_left_out_when_ids_are_scarce_and_all_when_there_is_none() {
        let mut trie = PrefixTrie::default();
        let mut least = Vec::new();
        while let segment @ 1.. = trie.open(None, 0, 1) {
            trie.push(segment, 0, &[segment.into()]);
            least.push(trie.min_hashes());
        }
        least.dedup();
        assert_eq!(trie.segments.len(), PrefixTrie::MAX_SEGMENTS);
        assert_eq!(least, [1, 8, 32].map(|times| times * PrefixTrie::MIN_HASHES));
        trie.clear();
        assert_eq!(trie.min_hashes(), PrefixTrie::MIN_HASHES);
        assert_eq!(trie.listed().count(), 0);
    }
}
