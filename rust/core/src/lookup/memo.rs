//! Memos of the last look-up of each request. A waiting request is looked up at every step. With a
//! memo, a look-up costs only as much as the changes since the last one.
//!
//! If no key was added to or removed from the index, the hit is the same. Otherwise:
//!
//! - Groups for which every prefix of a hit is a hit keep the blocks that they found.
//! - Blocks that were evicted since are looked up again.
//! - The search continues from the end of the known prefix.

use super::hit::PrefixHit;
use super::prefix::CachedPrefix;
use crate::block::BlockHash;
use crate::error::Result;
use crate::pool::RemovalLog;
use crate::request::{HashSource, RequestId};

type MemoMap = hashbrown::HashMap<RequestId, LookupMemo, foldhash::fast::FixedState>;

/// The memos of all waiting requests.
#[derive(Debug, Default)]
pub(crate) struct LookupMemos {
    by_request: MemoMap,
    num_ids: usize,
    /// The number of memos with prefixes.
    num_with_prefixes: usize,
}

impl LookupMemos {
    /// The number of hashes from which a memo costs less than another look-up.
    pub(crate) const MIN_HASHES: usize = 64;
    /// The most block ids in all memos together, 64 MB. If there are more, all memos are dropped.
    const MAX_IDS: usize = 1 << 24;

    /// Returns whether no memo is stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }

    /// Returns whether some memo needs to know which keys are removed from the index.
    pub(crate) fn has_prefixes(&self) -> bool {
        self.num_with_prefixes > 0
    }

    /// Removes a request's memo. Returns it if its chain is a prefix of `hashes`.
    pub(crate) fn take(
        &mut self,
        id: RequestId,
        hashes: &dyn HashSource,
    ) -> Result<Option<LookupMemo>> {
        let Some(memo) = self.remove(id) else { return Ok(None) };
        Ok(if memo.chain.starts(hashes)? { Some(memo) } else { None })
    }

    /// Stores a request's memo.
    pub(crate) fn put(&mut self, id: RequestId, memo: LookupMemo) {
        self.num_ids += memo.num_ids();
        self.num_with_prefixes += usize::from(!memo.prefixes.is_empty());
        self.by_request.insert(id, memo);
        if self.num_ids > Self::MAX_IDS {
            *self = Self::default();
        }
    }

    /// Drops a request's memo. `removals` is kept only while a memo needs it.
    #[inline]
    pub(crate) fn forget(&mut self, id: RequestId, removals: &mut RemovalLog) {
        if !self.is_empty() {
            self.remove(id);
            removals.keep(self.has_prefixes());
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<LookupMemo> {
        let memo = self.by_request.remove(&id)?;
        self.num_ids -= memo.num_ids();
        self.num_with_prefixes -= usize::from(!memo.prefixes.is_empty());
        Some(memo)
    }
}

/// The result of a look-up, kept for the next one.
#[derive(Debug)]
pub(crate) struct LookupMemo {
    chain: ChainEnd,
    max_length: usize,
    version: u64,
    /// The hit.
    pub hit: PrefixHit,
    /// Cached prefixes, one for each `SpecGroup`.
    pub prefixes: Vec<CachedPrefix>,
}

impl LookupMemo {
    /// Creates a memo of a look-up of at most `max_length` tokens, with its hit, at a version of
    /// the pool.
    pub(crate) fn new(
        chain: ChainEnd,
        max_length: usize,
        version: u64,
        hit: PrefixHit,
        prefixes: Vec<CachedPrefix>,
    ) -> Self {
        Self { chain, max_length, version, hit, prefixes }
    }

    /// Returns whether a look-up would find the same hit.
    pub(crate) fn is_current(&self, chain: &ChainEnd, max_length: usize, version: u64) -> bool {
        self.chain == *chain && self.max_length == max_length && self.version == version
    }

    fn num_ids(&self) -> usize {
        let in_hit: usize = self.hit.blocks.iter().map(|group| group.ids().len()).sum();
        in_hit + self.prefixes.iter().map(CachedPrefix::num_ids).sum::<usize>()
    }
}

/// The length and the last hash of a chain, which covers all hashes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainEnd {
    len: usize,
    last: BlockHash,
}

impl ChainEnd {
    /// Returns the end of a chain.
    pub(crate) fn of(hashes: &dyn HashSource) -> Result<Self> {
        let len = hashes.len();
        let last = len.checked_sub(1).map(|last| hashes.get(last)).transpose()?;
        Ok(Self { len, last: last.unwrap_or_default() })
    }

    fn starts(&self, hashes: &dyn HashSource) -> Result<bool> {
        Ok(self.len <= hashes.len() && (self.len == 0 || hashes.get(self.len - 1)? == self.last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::request::{GroupBlocks, HashWindow};

    fn chain(len: u64) -> Vec<BlockHash> {
        (1..=len).map(|n| BlockHash([n, 0, 0, 0])).collect()
    }

    /// Returns a memo of a hit of two blocks and of a prefix of `in_prefix` blocks.
    fn memo(hashes: &[BlockHash], in_prefix: usize) -> LookupMemo {
        let blocks = Arc::new(vec![GroupBlocks::new(1, vec![5, 6])]);
        let hit = PrefixHit { blocks, length: 12, shared_prefix_boundary: 0 };
        let prefix = CachedPrefix { ids: vec![vec![0; in_prefix]], ..CachedPrefix::default() };
        let chain = ChainEnd::of(&HashWindow::from(hashes)).expect("a chain");
        LookupMemo::new(chain, 40, 3, hit, vec![prefix])
    }

    #[test]
    fn ids_are_counted_as_memos_come_and_go() {
        let hashes = chain(3);
        let mut memos = LookupMemos::default();
        let mut removals = RemovalLog::default();
        for id in [1, 2, 3] {
            memos.put(id, memo(&hashes, 3));
            assert_eq!(memos.num_ids, 5 * id as usize);
        }
        memos.forget(1, &mut removals);
        assert_eq!(memos.num_ids, 10);
        assert!(memos.take(2, &HashWindow::from(&hashes[..])).expect("a chain").is_some());
        assert_eq!((memos.num_ids, memos.is_empty()), (5, false));
        memos.forget(3, &mut removals);
        assert_eq!((memos.num_ids, memos.is_empty()), (0, true));
    }

    #[test]
    fn all_memos_are_dropped_when_they_hold_too_many_ids() {
        let hashes = chain(3);
        let mut memos = LookupMemos::default();
        memos.put(1, memo(&hashes, 3));
        memos.put(2, memo(&hashes, LookupMemos::MAX_IDS - 7));
        assert_eq!((memos.by_request.len(), memos.num_ids), (2, LookupMemos::MAX_IDS));
        memos.put(3, memo(&hashes, 0));
        assert!(memos.is_empty() && !memos.has_prefixes());
        assert_eq!(memos.num_ids, 0);
    }

    #[test]
    fn a_memo_is_of_use_to_a_chain_that_goes_on_from_its_own() {
        let hashes = chain(4);
        for (known, asked, is_kept) in [
            (&hashes[..3], &hashes[..4], true),
            (&hashes[..3], &hashes[..3], true),
            (&hashes[..3], &hashes[..2], false),
            (&hashes[..3], &hashes[1..], false),
            (&hashes[..0], &hashes[..0], true),
        ] {
            let mut memos = LookupMemos::default();
            memos.put(1, memo(known, 0));
            let found = memos.take(1, &HashWindow::from(asked)).expect("a chain");
            assert_eq!(found.is_some(), is_kept, "{} and {}", known.len(), asked.len());
        }
    }

    #[test]
    fn a_memo_is_current_for_the_same_look_up_at_the_same_version() {
        let hashes = chain(4);
        let memo = memo(&hashes[..3], 0);
        let end = |hashes: &[BlockHash]| ChainEnd::of(&HashWindow::from(hashes)).expect("a chain");
        assert!(memo.is_current(&end(&hashes[..3]), 40, 3));
        assert!(!memo.is_current(&end(&hashes[..4]), 40, 3));
        assert!(!memo.is_current(&end(&hashes[1..4]), 40, 3));
        assert!(!memo.is_current(&end(&hashes[..3]), 39, 3));
        assert!(!memo.is_current(&end(&hashes[..3]), 40, 4));
    }
}
