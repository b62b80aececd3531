//! The block pool, one block at a time, as `Vec` and `HashMap` write it down. The engine's
//! [`kvoxide_core::BlockPool`] has to decide the same.
//!
//! A block is *in use* while it has references, else *free*. A free block stands in one of two
//! lists: the queue, whose first block is recycled next, or the pinned tier, which is recycled
//! after the queue is empty. A block with keys is *cached*, in use or free: look-ups find it, until
//! it is recycled or evicted.

use std::collections::HashMap;

use kvoxide_core::{BlockId, CacheKey, Event, NULL_BLOCK, RecycleOrder};

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub references: u32,
    /// What look-ups find the block under; the first is its own hash.
    pub keys: Vec<CacheKey>,
    /// Whether the block goes to the pinned tier when its last user leaves.
    pub is_pinned: bool,
}

pub struct Pool {
    pub blocks: Vec<Block>,
    /// Free blocks; the first is recycled next.
    pub queue: Vec<BlockId>,
    /// Free pinned blocks; the first came first.
    pub pinned: Vec<BlockId>,
    /// The blocks that have a key; the first of them serves it.
    pub index: HashMap<CacheKey, Vec<BlockId>>,
    pub events: Vec<Event>,
    order: RecycleOrder,
}

impl Pool {
    pub fn new(num_blocks: usize, order: RecycleOrder) -> Self {
        Self {
            blocks: vec![Block::default(); num_blocks],
            queue: (1..num_blocks as BlockId).collect(),
            pinned: Vec::new(),
            index: HashMap::new(),
            events: Vec::new(),
            order,
        }
    }

    pub fn num_free(&self) -> usize {
        self.queue.len() + self.pinned.len()
    }

    /// Takes `n` blocks from the front of the queue. They lose their keys.
    pub fn take(&mut self, n: usize) -> Vec<BlockId> {
        self.demote(n.saturating_sub(self.queue.len()));
        let taken: Vec<_> = self.queue.drain(..n).collect();
        for &block in &taken {
            self.remove_keys(block);
            self.blocks[block as usize].references = 1;
        }
        taken
    }

    /// Moves the `n` blocks that are pinned the longest to the back of the queue.
    fn demote(&mut self, n: usize) {
        for block in self.pinned.drain(..n.min(self.pinned.len())) {
            self.blocks[block as usize].is_pinned = false;
            self.queue.push(block);
        }
    }

    /// One user more for each block. A free block leaves its list.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            self.blocks[block as usize].references += 1;
            self.queue.retain(|&free| free != block);
            self.pinned.retain(|&free| free != block);
        }
    }

    /// One user less for each block. Of those without a user, in the order given, pinned ones go to
    /// the pinned tier and cached ones to the back of the queue; the others go, as they are
    /// ordered, to the front, or to the back as well in [`RecycleOrder::Fifo`].
    pub fn release(&mut self, blocks: &[BlockId]) {
        let mut front = Vec::new();
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            let state = &mut self.blocks[block as usize];
            state.references -= 1;
            if state.references > 0 {
                continue;
            }
            if state.is_pinned {
                self.pinned.push(block);
            } else if !state.keys.is_empty() || self.order == RecycleOrder::Fifo {
                self.queue.push(block);
            } else {
                front.push(block);
            }
        }
        self.queue.splice(..0, front);
    }

    /// Releases the blocks of a request, the last of its sequence first.
    pub fn release_table(&mut self, table: &[BlockId]) {
        let turned: Vec<_> = table.iter().rev().copied().collect();
        self.release(&turned);
    }

    /// One user less for each block; those without a user go to the back of the queue, whatever
    /// they are.
    pub fn release_to_back(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let state = &mut self.blocks[block as usize];
            state.references -= 1;
            if state.references == 0 {
                state.is_pinned = false;
                self.queue.push(block);
            }
        }
    }

    /// Marks cached blocks for the pinned tier.
    pub fn pin(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let state = &mut self.blocks[block as usize];
            state.is_pinned |= !state.keys.is_empty();
        }
    }

    /// Makes a full block found under its hash alone.
    pub fn cache(&mut self, block: BlockId, key: CacheKey) {
        if block != NULL_BLOCK {
            self.remove_keys(block);
            self.add_key(block, key);
        }
    }

    /// Makes a block found under one more key.
    pub fn add_key(&mut self, block: BlockId, key: CacheKey) {
        let keys = &mut self.blocks[block as usize].keys;
        if !keys.contains(&key) {
            keys.push(key);
            self.index.entry(key).or_default().push(block);
        }
    }

    /// The block that serves a key: of those that have it, the one that got it first.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        self.index.get(key).map(|blocks| blocks[0])
    }

    /// No key finds the block any more. Each key is told as removed.
    pub fn remove_keys(&mut self, block: BlockId) {
        for key in std::mem::take(&mut self.blocks[block as usize].keys) {
            let blocks = self.index.get_mut(&key).expect("a key of a block is in the index");
            blocks.retain(|&other| other != block);
            if blocks.is_empty() {
                self.index.remove(&key);
            }
            self.events.push(Event::Removed { hash: key.hash, group: key.group });
        }
    }

    /// A block without keys gets all keys of another, and its place in the pinned tier. Nothing is
    /// told.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        let told = self.events.len();
        let keys = self.blocks[from as usize].keys.clone();
        self.remove_keys(from);
        self.events.truncate(told);
        keys.iter().for_each(|&key| self.add_key(to, key));
        let was_pinned = std::mem::take(&mut self.blocks[from as usize].is_pinned);
        self.blocks[to as usize].is_pinned = was_pinned && !keys.is_empty();
    }

    /// Takes blocks out of the cache, in use or free. One of the pinned tier returns to the queue.
    pub fn evict(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            self.remove_keys(block);
            if std::mem::take(&mut self.blocks[block as usize].is_pinned)
                && self.blocks[block as usize].references == 0
            {
                self.pinned.retain(|&free| free != block);
                match self.order {
                    RecycleOrder::Fifo => self.queue.push(block),
                    RecycleOrder::UncachedFirst => self.queue.insert(0, block),
                }
            }
        }
    }

    /// Takes all blocks out of the cache; refused while a block is in use.
    pub fn reset(&mut self) -> bool {
        if self.num_free() + 1 < self.blocks.len() {
            return false;
        }
        self.demote(self.pinned.len());
        self.blocks.iter_mut().for_each(|block| block.keys.clear());
        self.index.clear();
        self.events.push(Event::Cleared);
        true
    }
}
