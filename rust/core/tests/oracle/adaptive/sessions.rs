//! The sessions of requests, and the blocks that requests give up.
//!
//! A request continues its session if its prompt begins with one of the last two sequences of the
//! session. If one of them contains the other, only the longer one counts. The prefix that any
//! other request hits is shared.

use std::collections::HashMap;

use kvoxide_core::{BlockHash, BlockId, CacheKey, NULL_BLOCK};

use super::requests::{Manager, Request, Step};

/// For each session, the hashes of its last two sequences and their tokens, the newest first.
pub type Sessions = HashMap<u64, Vec<(BlockHash, usize)>>;

impl Manager {
    /// Marks the prefix that a request hits as shared, unless the request continues its session.
    /// Nothing is marked before the first request with a session.
    pub fn note_shared(&mut self, step: &Step<'_>) {
        let session = self.policy.priorities.asked.session;
        let (Some(whole), Some(hit)) = (self.whole_group(), step.hit) else { return };
        if self.sessions.is_empty() && session.is_none() {
            return;
        }
        let ends = session.and_then(|session| self.sessions.get(&session));
        let has = |&(hash, end): &(BlockHash, usize)| {
            step.hashes.get(end / self.hash_block_size - 1) == Some(&hash)
        };
        if !ends.is_some_and(|ends| ends.iter().any(has)) {
            self.policy.mark_shared(&hit[whole]);
        }
    }

    /// Gives up what a request asks for, and notes the end of its sequence.
    pub fn note_session_end(&mut self, request: &Request) {
        let asked = self.policy.priorities.asked.clone();
        self.give_up(request);
        let Some(session) = asked.session else { return };
        if asked.ends_session {
            self.sessions.remove(&session);
            return;
        }
        let Some(whole) = self.whole_group() else { return };
        let ends = request.tables[whole].iter().filter(|&&block| self.policy.is_cached(block));
        let ends: Vec<_> = ends.map(|&block| self.end_of(block)).collect();
        let Some(&end) = ends.last() else { return };
        let mut known = self.sessions.remove(&session).unwrap_or_default();
        if known.first().is_some_and(|newest| ends.contains(newest)) {
            known.remove(0);
        }
        known.insert(0, end);
        known.truncate(2);
        self.sessions.insert(session, known);
    }

    fn give_up(&mut self, request: &Request) {
        let Some(whole) = self.whole_group() else { return };
        let prefix = &request.tables[whole];
        let is_own = |block: &BlockId| {
            let record = self.policy.blocks[*block as usize];
            let last_block = |end: usize| prefix.get((end - 1) / self.groups[whole].block_size);
            *block != NULL_BLOCK
                && self.policy.is_cached(*block)
                && self.policy.priorities.asked.gives_up(record.end)
                && last_block(record.end)
                    .is_some_and(|&last| !self.policy.blocks[last as usize].is_shared)
        };
        let mut given_up = Vec::new();
        for block in prefix.iter().rev().filter(|block| is_own(block)) {
            let (hash, _) = self.end_of(*block);
            for group in (0..self.groups.len()).filter(|&i| self.groups[i].window.is_some()) {
                given_up.extend(self.policy.pool.find(&CacheKey { hash, group: group as u16 }));
            }
        }
        let tables = request.tables.iter().flat_map(|table| table.iter().rev());
        given_up.extend(tables.filter(|block| is_own(block)));
        given_up.into_iter().for_each(|block| self.policy.give_up(block));
    }

    /// Returns the hash of a cached block and the number of tokens up to its end.
    fn end_of(&self, block: BlockId) -> (BlockHash, usize) {
        let hash = self.policy.pool.blocks[block as usize].keys[0].hash;
        (hash, self.policy.blocks[block as usize].end)
    }

    fn whole_group(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.window.is_none())
    }
}
