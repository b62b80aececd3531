//! Evicts the blocks of the session that is unused for the longest time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kvoxide_core::BlockId;
use kvoxide_core::pool::{Blocks, EvictionHints, EvictionPolicy};

use super::caller::Caller;
use super::ordered::Ordered;

/// Sessions by their latest call. A block belongs to the session that used it last. Of a session,
/// the blocks that became free first are evicted first.
#[derive(Debug)]
pub struct SessionLru {
    caller: Arc<Caller>,
    sessions: HashMap<u64, Session>,
    /// The sessions with free blocks, after their latest calls.
    order: BTreeSet<(u64, u64)>,
    /// The free blocks: their sessions, and their numbers.
    places: HashMap<BlockId, (u64, u64)>,
    num_freed: u64,
}

#[derive(Debug, Default)]
struct Session {
    latest_call: u64,
    free: Ordered,
}

impl SessionLru {
    pub fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            sessions: HashMap::new(),
            order: BTreeSet::new(),
            places: HashMap::new(),
            num_freed: 0,
        }
    }

    /// Notes that the current session is used. Returns it.
    fn touch(&mut self) -> u64 {
        let (id, call) = (self.caller.session(), self.caller.call());
        let session = self.sessions.entry(id).or_default();
        if session.latest_call != call {
            if self.order.remove(&(session.latest_call, id)) {
                self.order.insert((call, id));
            }
            session.latest_call = call;
        }
        id
    }

    /// Removes a free block from its session.
    fn take(&mut self, block: BlockId) -> bool {
        let Some((id, number)) = self.places.remove(&block) else { return false };
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.free.remove(number, block);
        if session.free.is_empty() {
            self.order.remove(&(session.latest_call, id));
        }
        true
    }
}

impl EvictionPolicy for SessionLru {
    fn cached(&mut self, _: &Blocks, _: BlockId, _: Option<EvictionHints>) {
        self.touch();
    }

    fn hit(&mut self, _: &Blocks, _: BlockId) {
        self.touch();
    }

    fn insert(&mut self, _: &Blocks, block: BlockId) {
        let (id, number) = (self.touch(), self.num_freed);
        self.num_freed += 1;
        self.places.insert(block, (id, number));
        let session = self.sessions.entry(id).or_default();
        session.free.insert(number, block);
        self.order.insert((session.latest_call, id));
    }

    fn remove(&mut self, _: &Blocks, block: BlockId) -> bool {
        self.take(block)
    }

    fn evict(&mut self, _: &Blocks) -> Option<BlockId> {
        let &(_, id) = self.order.first()?;
        let (_, block) = self.sessions.get(&id)?.free.first()?;
        self.take(block);
        Some(block)
    }

    fn order(&self, _: &Blocks) -> Vec<BlockId> {
        let sessions = self.order.iter().filter_map(|(_, id)| self.sessions.get(id));
        sessions.flat_map(|session| session.free.iter()).collect()
    }

    fn num_blocks(&self) -> usize {
        self.places.len()
    }

    fn check(&self, blocks: &Blocks) -> Result<(), String> {
        let num_ordered = self.order(blocks).len();
        match self.places.keys().find(|&&block| !blocks.is_free(block)) {
            Some(block) => Err(format!("block {block} is in use")),
            None if num_ordered != self.places.len() => {
                Err(format!("{num_ordered} of {} free blocks are in order", self.places.len()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::baselines::Baseline;
    use crate::baselines::toy_pool::ToyPool;

    #[test]
    fn the_longest_unused_session_goes_first_with_all_its_blocks() {
        let mut pool = ToyPool::new(6, Baseline::SessionLru);
        pool.serve(1, &[10, 11, 12]);
        pool.serve(2, &[20, 21]);
        pool.serve(1, &[10, 11]);
        // Block 12 was used before the blocks of session 2, but its session was used after them.
        pool.serve(3, &[30, 31, 32]);
        assert_eq!(pool.cached(&[10, 11, 12, 20, 21]), [10, 11, 12]);
    }

    #[test]
    fn a_shared_prefix_belongs_to_the_session_that_used_it_last() {
        let mut pool = ToyPool::new(4, Baseline::SessionLru);
        pool.serve(1, &[10, 11]);
        pool.serve(2, &[10, 20]);
        pool.serve(3, &[30, 31]);
        assert_eq!(pool.cached(&[10, 11, 20]), [10, 20]);
    }
}
