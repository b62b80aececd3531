//! The sessions of requests: where the sequences of each session ended.
//!
//! A request continues its session if its prompt begins with such a sequence. The prefix that it
//! hits is then the session's own. Every other prefix that a request hits is shared with other
//! sessions.

use super::given_up::{give_up, whole_group};
use super::{ActivePolicy, Admission};
use crate::block::BlockHash;
use crate::pool::{Adaptive, BlockPool, RequestRetention, SessionId};
use crate::request::RequestBlocks;

impl ActivePolicy {
    /// Notes that several sessions share the prefix that a request hits, unless the request
    /// continues its own session.
    #[inline]
    pub(super) fn note_shared(&self, pool: &mut BlockPool, admission: &Admission<'_>) {
        if admission.num_local_computed_tokens > 0 && self.watches_sessions(pool) {
            self.note_shared_hit(pool, admission);
        }
    }

    fn watches_sessions(&self, pool: &BlockPool) -> bool {
        !self.sessions.are_none() || pool.adaptive().is_some_and(Adaptive::has_session)
    }

    #[cold]
    #[inline(never)]
    fn note_shared_hit(&self, pool: &mut BlockPool, admission: &Admission<'_>) {
        let Some(whole) = whole_group(&self.shapes) else { return };
        let Some(hit) = admission.hit.get(whole) else { return };
        let session = pool.adaptive().and_then(Adaptive::requested).and_then(|it| it.session());
        let reaches = |end| self.reaches(pool, admission, whole, end);
        if !session.is_some_and(|session| self.sessions.continues(session, reaches))
            && let Some((adaptive, _)) = pool.adaptive_mut()
        {
            adaptive.mark_shared(hit.ids());
        }
    }

    /// Returns whether the prompt of a request begins with a sequence of this end.
    fn reaches(
        &self,
        pool: &BlockPool,
        admission: &Admission<'_>,
        whole: usize,
        end: SequenceEnd,
    ) -> bool {
        let last_block = (end.num_tokens() / self.shapes[whole].block_size).checked_sub(1);
        let hit = admission.hit.get(whole).zip(last_block);
        if let Some(block) = hit.and_then(|(hit, last_block)| hit.get(last_block)) {
            return end.is_at(&pool.blocks().last_key(block).hash);
        }
        let last_hash = (end.num_tokens() / admission.hash_block_size).checked_sub(1);
        let hash = last_hash.and_then(|last| admission.request.hashes.get_at(last));
        hash.is_some_and(|hash| end.is_at(hash))
    }

    /// Gives up the blocks of a request that end after its first `start` tokens.
    pub(crate) fn give_up_from(&self, pool: &mut BlockPool, held: &RequestBlocks, start: usize) {
        let given_up = RequestRetention::default().giving_up(start..usize::MAX);
        give_up(&self.shapes, pool, held, &given_up);
    }

    /// Gives up what a request asks for, and notes the end of its sequence.
    pub(super) fn note_session_end(&mut self, pool: &mut BlockPool, held: &RequestBlocks) {
        let Some(requested) = pool.adaptive().and_then(Adaptive::requested) else { return };
        if requested.gives_up_any() {
            give_up(&self.shapes, pool, held, &requested);
        }
        let Some(session) = requested.session() else { return };
        if requested.ends_session() {
            return self.sessions.forget(session);
        }
        let Some(whole) = whole_group(&self.shapes) else { return };
        let table = &held.groups[whole].blocks;
        let size = self.shapes[whole].block_size;
        let blocks = pool.blocks();
        let Some(last) = table.iter_owned_rev().find(|&block| blocks.is_cached(block)) else {
            return;
        };
        let end_of = |block| {
            SequenceEnd::new(&blocks.last_key(block).hash, blocks.last_hash_num_tokens(block))
        };
        let extends = |end: SequenceEnd| {
            let last_block = (end.num_tokens() / size).checked_sub(1);
            let block = last_block.and_then(|last_block| table.get(last_block));
            block.is_some_and(|block| end_of(block) == end)
        };
        self.sessions.note_end(session, end_of(last), extends);
    }
}

/// The number of sessions in a generation: as many as a table of 2^19 entries takes without growing.
/// Two generations are kept.
const MAX_SESSIONS: usize = (7 << 16) - 1;

/// The end of a sequence: the first word of the hash of its last full block, and its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SequenceEnd {
    word: [u32; 2],
    num_tokens: u32,
}

impl SequenceEnd {
    pub(super) fn new(hash: &BlockHash, num_tokens: usize) -> Self {
        let num_tokens = u32::try_from(num_tokens).unwrap_or(u32::MAX);
        Self { word: halves(hash.0[0]), num_tokens }
    }

    pub(super) fn num_tokens(self) -> usize {
        self.num_tokens as usize
    }

    /// Returns whether a hash after the same number of tokens is the hash of this end.
    pub(super) fn is_at(self, hash: &BlockHash) -> bool {
        self.word == halves(hash.0[0])
    }
}

/// Splits a word so that an entry of a table has no padding: it takes 20 bytes.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

type EndBySession = hashbrown::HashMap<[u32; 2], SequenceEnd, foldhash::fast::FixedState>;

/// The last ends of some sessions. Few sessions have a second one, so it has a table of its own.
#[derive(Debug, Default)]
struct Generation {
    newest: EndBySession,
    second: EndBySession,
}

impl Generation {
    /// Returns the last ends of a session, the newest first.
    fn ends(&self, session: SessionId) -> [Option<SequenceEnd>; 2] {
        let end_in = |ends: &EndBySession| ends.get(&halves(session)).copied();
        let newest = end_in(&self.newest);
        [newest, newest.and_then(|_| end_in(&self.second))]
    }

    fn set(&mut self, session: SessionId, newest: SequenceEnd, second: Option<SequenceEnd>) {
        self.newest.insert(halves(session), newest);
        match second {
            Some(second) => self.second.insert(halves(session), second),
            None => self.second.remove(&halves(session)),
        };
    }

    fn forget(&mut self, session: SessionId) {
        self.newest.remove(&halves(session));
        self.second.remove(&halves(session));
    }
}

/// The last ends of each session. The sessions that were unused for longest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    new: Generation,
    old: Generation,
}

impl Sessions {
    /// Returns whether no request had a session yet.
    pub(super) fn are_none(&self) -> bool {
        self.new.newest.is_empty() && self.old.newest.is_empty()
    }

    /// Returns whether a request continues its session. `reaches` returns whether its prompt has
    /// this end.
    pub(super) fn continues(
        &self,
        session: SessionId,
        reaches: impl FnMut(SequenceEnd) -> bool,
    ) -> bool {
        self.ends(session).into_iter().flatten().any(reaches)
    }

    /// Notes that a sequence of a session ended. `extends` returns whether the sequence contains an
    /// earlier end, which is then forgotten.
    pub(super) fn note_end(
        &mut self,
        session: SessionId,
        end: SequenceEnd,
        extends: impl Fn(SequenceEnd) -> bool,
    ) {
        let [newest, second] = self.ends(session);
        self.old.forget(session);
        let second = if newest.is_some_and(extends) { second } else { newest };
        if self.new.newest.len() >= MAX_SESSIONS && !self.new.newest.contains_key(&halves(session))
        {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.set(session, end, second);
    }

    /// Forgets a session that ended.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.new.forget(session);
        self.old.forget(session);
    }

    fn ends(&self, session: SessionId) -> [Option<SequenceEnd>; 2] {
        match self.new.ends(session) {
            [None, _] => self.old.ends(session),
            ends => ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(num_tokens: usize) -> SequenceEnd {
        SequenceEnd::new(&BlockHash([num_tokens as u64, 0, 0, 0]), num_tokens)
    }

    fn ends_of(sessions: &Sessions, session: SessionId) -> Vec<usize> {
        let mut ends = Vec::new();
        sessions.continues(session, |end| {
            ends.push(end.num_tokens());
            false
        });
        ends
    }

    #[test]
    fn a_session_has_its_two_last_ends_that_no_sequence_extended() {
        let mut sessions = Sessions::default();
        assert!(sessions.are_none());
        sessions.note_end(7, end(100), |_| false);
        sessions.note_end(7, end(200), |end| end.num_tokens() == 100);
        assert_eq!(ends_of(&sessions, 7), [200]);
        sessions.note_end(7, end(50), |_| false);
        assert_eq!(ends_of(&sessions, 7), [50, 200]);
        sessions.note_end(7, end(60), |_| false);
        assert_eq!(ends_of(&sessions, 7), [60, 50]);
        sessions.forget(7);
        assert!(ends_of(&sessions, 7).is_empty() && sessions.are_none());
    }

    #[test]
    fn the_sessions_that_were_unused_for_longest_are_forgotten() {
        let mut sessions = Sessions::default();
        for session in 0..2 * MAX_SESSIONS as u64 + 2 {
            sessions.note_end(session, end(100), |_| true);
            sessions.note_end(1, end(200), |_| true);
        }
        assert!(ends_of(&sessions, 0).is_empty());
        assert_eq!(ends_of(&sessions, 1), [200]);
        let tables = [&sessions.new, &sessions.old].map(|of| [&of.newest, &of.second]);
        for ends in tables.as_flattened() {
            assert!(ends.len() <= MAX_SESSIONS && ends.capacity() <= MAX_SESSIONS + 1);
        }
        let num_bytes = tables[0][0].allocation_size();
        assert!(num_bytes <= 24 * MAX_SESSIONS + 64, "{num_bytes}");
    }
}
