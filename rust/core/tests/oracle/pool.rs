//! A naive block pool. It handles one block at a time, with `Vec` and `HashMap`. The engine's
//! [`kvoxide_core::BlockPool`] must make the same decisions.
//!
//! A block is *in use* while it has references, otherwise it is *free*. A free block is in one of
//! two lists. The first block of the queue is allocated next. Blocks of the pinned tier are
//! allocated when the queue is empty. A block with keys is *cached*, in use or free: look-ups find
//! it until it is allocated or evicted.

use std::collections::HashMap;

use kvoxide_core::{BlockId, CacheKey, Event, NULL_BLOCK, RecycleOrder};

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub references: u32,
    /// The keys under which look-ups find the block. The first one is its own.
    pub keys: Vec<CacheKey>,
    /// Whether the block goes to the pinned tier when it loses its last reference.
    pub is_pinned: bool,
}

pub struct Pool {
    pub blocks: Vec<Block>,
    /// Free blocks. The first one is allocated next.
    pub queue: Vec<BlockId>,
    /// Free pinned blocks. The block that has been pinned longest is first.
    pub pinned: Vec<BlockId>,
    /// The blocks that have a key. The first one serves it.
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

    /// Allocates `n` blocks from the front of the queue. They lose their keys.
    pub fn take(&mut self, n: usize) -> Vec<BlockId> {
        self.demote(n.saturating_sub(self.queue.len()));
        let taken: Vec<_> = self.queue.drain(..n).collect();
        for &block in &taken {
            self.remove_keys(block);
            self.blocks[block as usize].references = 1;
        }
        taken
    }

    /// Moves the `n` blocks that have been pinned longest to the back of the queue.
    fn demote(&mut self, n: usize) {
        for block in self.pinned.drain(..n.min(self.pinned.len())) {
            self.blocks[block as usize].is_pinned = false;
            self.queue.push(block);
        }
    }

    /// Adds a reference to each block. A free block is removed from its list.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            self.blocks[block as usize].references += 1;
            self.queue.retain(|&free| free != block);
            self.pinned.retain(|&free| free != block);
        }
    }

    /// Removes a reference from each block. Blocks that become free are handled in the given order:
    ///
    /// - Pinned blocks go to the pinned tier.
    /// - Cached blocks go to the back of the queue.
    /// - All others keep their order and go to the front, or with [`RecycleOrder::Fifo`] to the
    ///   back.
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

    /// Releases the blocks of a request, from the last of its sequence to the first.
    pub fn release_table(&mut self, table: &[BlockId]) {
        let turned: Vec<_> = table.iter().rev().copied().collect();
        self.release(&turned);
    }

    /// Removes a reference from each block. All blocks that become free go to the back of the
    /// queue.
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

    /// Flags cached blocks for the pinned tier.
    pub fn pin(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let state = &mut self.blocks[block as usize];
            state.is_pinned |= !state.keys.is_empty();
        }
    }

    /// Makes a key the only key of a full block.
    pub fn cache(&mut self, block: BlockId, key: CacheKey) {
        if block != NULL_BLOCK {
            self.remove_keys(block);
            self.add_key(block, key);
        }
    }

    /// Adds a key to a block.
    pub fn add_key(&mut self, block: BlockId, key: CacheKey) {
        let keys = &mut self.blocks[block as usize].keys;
        if !keys.contains(&key) {
            keys.push(key);
            self.index.entry(key).or_default().push(block);
        }
    }

    /// Returns the block that serves a key: the one that got the key first.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        self.index.get(key).map(|blocks| blocks[0])
    }

    /// Removes all keys of a block and reports each of them.
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

    /// Moves all keys of a block, and its place in the pinned tier, to another block without keys.
    /// Creates no event.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        let told = self.events.len();
        let keys = self.blocks[from as usize].keys.clone();
        self.remove_keys(from);
        self.events.truncate(told);
        keys.iter().for_each(|&key| self.add_key(to, key));
        let was_pinned = std::mem::take(&mut self.blocks[from as usize].is_pinned);
        self.blocks[to as usize].is_pinned = was_pinned && !keys.is_empty();
    }

    /// Evicts blocks, in use or free. A free pinned block goes back to the queue.
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

    /// Evicts all blocks. If a block is in use, does nothing and returns `false`.
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
