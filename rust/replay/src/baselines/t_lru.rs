//! Tail-Optimized LRU, after "Tail-Optimized Caching for LLM Inference" (NeurIPS 2025,
//! arXiv 2510.15152).
//!
//! The next turn of a session computes the tokens that are not cached. As long as these are at most
//! a threshold, the turn meets its latency target. So the end of a session, up to the threshold
//! less the expected length of the next message, can be evicted without harm. Such blocks go first,
//! and then all others. Both are in the order of LRU.

use std::collections::HashMap;
use std::sync::Arc;

use kvoxide_core::BlockId;
use kvoxide_core::pool::{Blocks, EvictionHints, EvictionPolicy};

use super::caller::Caller;
use super::ordered::Ordered;

/// The number of tokens that a turn may compute. The paper leaves it to the operator.
const THRESHOLD: usize = 1024;

/// Free blocks in two lists by the time at which they became free.
#[derive(Debug)]
pub struct TLru {
    caller: Arc<Caller>,
    /// The tokens of each session's latest request, up to the last block that is cached, and the
    /// length of its prompt.
    sessions: HashMap<u64, Length>,
    /// Blocks that a next turn can compute again within the threshold.
    safe: Ordered,
    other: Ordered,
    /// The free blocks: whether they are safe, and their numbers.
    places: HashMap<BlockId, (bool, u64)>,
    num_freed: u64,
    messages: Messages,
}

#[derive(Clone, Copy, Debug, Default)]
struct Length {
    tokens: usize,
    prompt: usize,
}

/// The number of tokens by which prompts are longer than what their session had before.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    tokens: usize,
    number: usize,
}

impl TLru {
    pub fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            sessions: HashMap::new(),
            safe: Ordered::default(),
            other: Ordered::default(),
            places: HashMap::new(),
            num_freed: 0,
            messages: Messages::default(),
        }
    }

    fn list(&mut self, is_safe: bool) -> &mut Ordered {
        if is_safe { &mut self.safe } else { &mut self.other }
    }

    /// Notes that the current session has a block that ends at `end`.
    fn reach(&mut self, end: usize) {
        let length = self.sessions.entry(self.caller.session()).or_default();
        length.tokens = length.tokens.max(end);
    }

    /// Returns whether a block that ends at `end` can be evicted without harm to the next turn.
    fn is_safe(&self, end: usize) -> bool {
        let length = self.sessions.get(&self.caller.session()).copied().unwrap_or_default();
        let expected = self.messages.tokens / self.messages.number.max(1);
        end + THRESHOLD > length.tokens + expected
    }
}

impl EvictionPolicy for TLru {
    fn cached(&mut self, blocks: &Blocks, block: BlockId, hints: Option<EvictionHints>) {
        if let Some(hints) = hints {
            let length = self.sessions.entry(self.caller.session()).or_default();
            if length.prompt != hints.num_prompt_tokens {
                if length.tokens > 0 && hints.num_prompt_tokens > length.tokens {
                    self.messages.tokens += hints.num_prompt_tokens - length.tokens;
                    self.messages.number += 1;
                }
                *length = Length { tokens: 0, prompt: hints.num_prompt_tokens };
            }
        }
        self.reach(blocks.hash_num_tokens(block).unwrap_or(0));
    }

    fn hit(&mut self, blocks: &Blocks, block: BlockId) {
        self.reach(blocks.hash_num_tokens(block).unwrap_or(0));
    }

    fn insert(&mut self, blocks: &Blocks, block: BlockId) {
        let is_safe = self.is_safe(blocks.hash_num_tokens(block).unwrap_or(0));
        let number = self.num_freed;
        self.num_freed += 1;
        self.list(is_safe).insert(number, block);
        self.places.insert(block, (is_safe, number));
    }

    fn remove(&mut self, _: &Blocks, block: BlockId) -> bool {
        let Some((is_safe, number)) = self.places.remove(&block) else { return false };
        self.list(is_safe).remove(number, block)
    }

    fn evict(&mut self, _: &Blocks) -> Option<BlockId> {
        let block = self.safe.pop_first().or_else(|| self.other.pop_first())?;
        self.places.remove(&block);
        Some(block)
    }

    fn order(&self, _: &Blocks) -> Vec<BlockId> {
        self.safe.iter().chain(self.other.iter()).collect()
    }

    fn num_blocks(&self) -> usize {
        self.places.len()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let num_listed = self.safe.len() + self.other.len();
        match self.places.keys().find(|&&block| !blocks.is_free(block)) {
            Some(block) => Err(format!("block {block} is in use")),
            None if num_listed != self.places.len() => {
                Err(format!("{num_listed} of {} free blocks are listed", self.places.len()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::Baseline;
    use crate::baselines::toy_pool::{BLOCK_SIZE, ToyPool};

    #[test]
    fn ends_that_a_turn_can_compute_again_go_before_older_blocks() {
        let num_safe = THRESHOLD / BLOCK_SIZE;
        let long = |first: u64| (first..first + num_safe as u64 + 4).collect::<Vec<_>>();
        let mut pool = ToyPool::new(2 * (num_safe + 4), Baseline::TLru);
        pool.serve(1, &long(1000));
        pool.serve(2, &long(2000));
        // All but four blocks of each session are safe. LRU would take session 1 first.
        pool.serve(3, &(1..=2 * num_safe as u64).collect::<Vec<_>>());
        let kept = [1000, 1001, 1002, 1003, 2000, 2001, 2002, 2003];
        assert_eq!(pool.cached(&[long(1000), long(2000)].concat()), kept);
    }

    #[test]
    fn without_a_safe_end_it_is_lru() {
        let mut pool = ToyPool::new(4, Baseline::TLru);
        pool.serve(1, &[10, 11]);
        pool.serve(2, &[20, 21]);
        pool.serve(1, &[10, 11]);
        pool.serve(3, &[30, 31]);
        assert_eq!(pool.cached(&[10, 11, 20, 21]), [10, 11]);
    }
}
