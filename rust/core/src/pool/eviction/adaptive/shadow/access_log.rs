//! Accesses to sampled blocks that the shadow caches have not processed yet. They process many
//! accesses at once, so that the waits for memory overlap.

use super::ShadowCaches;
use super::table::ShadowKey;
use crate::pool::blocks::{Blocks, Fingerprint, IdRun};
use crate::pool::eviction::adaptive::sampled::Sampled;

/// Accesses of the same kind, in order.
#[derive(Debug, Default)]
pub(super) struct AccessLog {
    access: Access,
    keys: Vec<ShadowKey>,
}

/// An access to a sampled block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Access {
    /// A request uses a block that was cached.
    #[default]
    Hit,
    /// The same, but vLLM's default policy has no tail at or after the block. It computes the
    /// block.
    HitWithoutTail,
    /// The block is computed, for the first time or again.
    Computed,
    /// The same, but vLLM's default policy has no tail at or after the block.
    ComputedWithoutTail,
    /// The block becomes free, in a class.
    Freed(u8),
}

/// The number of keys that the shadow caches process at once.
const PART: usize = 512;

impl ShadowCaches {
    /// Logs an access to the block that has this fingerprint.
    #[inline(never)]
    pub(in super::super) fn record(&mut self, access: Access, fingerprint: Fingerprint) {
        self.begin(access);
        self.push(fingerprint);
    }

    /// Logs an access to each sampled block of a run. Returns the number of these blocks.
    #[inline(never)]
    pub(in super::super) fn record_run(
        &mut self,
        access: Access,
        blocks: &Blocks,
        sampled: &Sampled,
        run: IdRun,
    ) -> usize {
        self.begin(access);
        let keys = &mut self.log.keys;
        let num_before = keys.len();
        sampled.for_each(run, |block| keys.push(ShadowKey::of(blocks.fingerprint(block))));
        keys.len() - num_before
    }

    /// Sets the kind of access for the blocks that follow.
    #[inline]
    pub(in super::super) fn begin(&mut self, access: Access) {
        if self.log.access != access {
            self.flush();
            self.log.access = access;
        }
    }

    #[inline]
    pub(in super::super) fn push(&mut self, fingerprint: Fingerprint) {
        self.log.keys.push(ShadowKey::of(fingerprint));
    }

    /// Lets the shadow caches process all accesses of the log.
    #[inline]
    pub(in super::super) fn flush(&mut self) {
        if !self.log.keys.is_empty() {
            self.flush_all();
        }
    }

    #[inline(never)]
    fn flush_all(&mut self) {
        let mut keys = std::mem::take(&mut self.log.keys);
        let access = self.log.access;
        if matches!(access, Access::Hit | Access::HitWithoutTail) {
            self.counts.hit += keys.len() as u64;
        }
        let has_tail = matches!(access, Access::Hit | Access::Computed);
        for part in keys.chunks(PART) {
            match access {
                Access::Freed(class) => self.freed(part, usize::from(class)),
                _ => self.used(part, has_tail),
            }
        }
        keys.clear();
        self.log.keys = keys;
    }
}
