//! Classifies prompts naively. It remembers every key since the last reset, and asks the real look-up
//! what a manager with other keys would hit.

use std::collections::{HashMap, HashSet};

use crate::starts::Starts;
use kvoxide_core::{
    BlockHash, BlockId, CacheKey, GroupId, HashWindow, Manager, ManagerConfig, Outcome, Policy,
};

/// A prompt at its admission.
pub struct Prompt<'a> {
    pub hashes: &'a [BlockHash],
    pub tokens: &'a [u64],
    /// A number for the salt; 0 for none.
    pub realm: u64,
    pub num_prompt_tokens: usize,
    pub num_tokens: usize,
    pub num_local: usize,
    pub num_external: usize,
    /// The number of hit tokens in blocks with generated tokens.
    pub num_answer: usize,
    pub reads_cache: bool,
}

/// The keys that are cached, and every key that was evicted since the last reset.
pub struct Oracle {
    config: ManagerConfig,
    ever: HashSet<CacheKey>,
    /// The blocks of each cached key after the last call.
    cached: HashMap<CacheKey, Vec<BlockId>>,
    starts: Starts,
}

impl Oracle {
    pub fn new(config: &ManagerConfig) -> Self {
        let config = ManagerConfig {
            num_blocks: 6_000,
            enable_events: false,
            policy: Policy::every_tail(),
            ..config.clone()
        };
        Self { config, ever: HashSet::new(), cached: HashMap::new(), starts: Starts::default() }
    }

    /// Notes the keys that a manager has after a call. Blocks of `written` can have got other keys,
    /// because the call wrote to them. All other keys that are gone were evicted.
    pub fn note(&mut self, manager: &Manager, written: &HashSet<BlockId>) {
        let pool = manager.pool();
        let cached = pool.index().keys(pool.blocks());
        let cached: HashMap<_, _> =
            cached.map(|key| (key, pool.index().blocks_of(pool.blocks(), &key))).collect();
        for (key, blocks) in &self.cached {
            if !cached.contains_key(key) && blocks.iter().all(|block| written.contains(block)) {
                self.ever.remove(key);
            }
        }
        self.ever.extend(cached.keys());
        self.cached = cached;
    }

    pub fn reset(&mut self) {
        self.ever.clear();
        self.starts.clear();
        self.cached.clear();
    }

    /// Returns the outcomes of a prompt, in the order of [`Outcome::ALL`].
    pub fn classify(&self, manager: &Manager, prompt: &Prompt<'_>) -> [u64; 10] {
        let mut counts = [0; 10];
        let mut add = |outcome, num: usize| counts[outcome as usize] += num as u64;
        let all = prompt.num_prompt_tokens;
        let local = prompt.num_local.min(all);
        let hit = (prompt.num_local + prompt.num_external).min(all);
        add(Outcome::HitAnswer, prompt.num_answer);
        add(Outcome::HitGpu, local - prompt.num_answer);
        add(Outcome::HitHost, hit - local);
        let can_hit = manager.groups().iter().any(|group| group.is_cacheable);
        if !manager.config().enable_caching || !can_hit || !prompt.reads_cache {
            add(Outcome::NotCacheable, all - hit);
            return counts;
        }
        let seen = self.seen(manager, prompt).max(hit);
        // A chunk that no token attends to needs no blocks, so a hit can pass what was computed.
        let end = self.hit_of(manager, prompt, seen, |_, _| true).clamp(hit, seen);
        let is_full = |group: GroupId| manager.groups()[usize::from(group)].is_prefix_closed;
        let now = |key: &CacheKey| manager.pool().find(key).is_some();
        let ever = |key: &CacheKey| self.ever.contains(key);
        let has_full = manager.groups().iter().any(|group| group.is_prefix_closed);
        let ever_full = self
            .hit_of(manager, prompt, seen, |key, whole| !is_full(key.group) || whole || ever(key));
        let ever_full = ever_full.clamp(hit, end);
        let now_full = match has_full {
            true => self.hit_of(manager, prompt, seen, |key, _| !is_full(key.group) || now(key)),
            false => ever_full,
        };
        let now_full = now_full.clamp(hit, ever_full);
        let tail = self.hit_of(manager, prompt, seen, |key, _| match is_full(key.group) {
            true => now(key),
            false => ever(key),
        });
        let tail = tail.clamp(hit, now_full);
        let view = HashWindow::from(prompt.hashes);
        let possible = manager.find_longest_hit(&view, prompt.num_tokens - 1).expect("hashes");
        let not_taken = possible.length.clamp(hit, tail) - hit;
        let last = if seen == all { all.saturating_sub(prompt.num_tokens - 1) } else { 0 };
        let below = seen.saturating_sub(end);
        let last = last.min(below);
        add(Outcome::EvictedTail, tail - hit - not_taken);
        add(Outcome::NeverCached, now_full - tail + end - ever_full);
        add(Outcome::EvictedFull, ever_full - now_full);
        add(Outcome::BelowBlock, below - last);
        add(Outcome::NotCacheable, not_taken + last);
        add(Outcome::FirstTime, all - seen.max(end));
        self.starts.correct(&mut counts, manager, prompt);
        counts
    }

    /// Remembers the start of a prompt that was admitted.
    pub fn remember(&mut self, manager: &Manager, prompt: &Prompt<'_>) {
        self.starts.remember(manager, prompt);
    }

    /// Returns the longest prefix that ever had a key.
    fn seen(&self, manager: &Manager, prompt: &Prompt<'_>) -> usize {
        let size = manager.hash_block_size();
        let hashes = &prompt.hashes[..prompt.hashes.len().min(prompt.num_prompt_tokens / size)];
        let groups = 0..manager.groups().len() as GroupId;
        let is_known = |hash: BlockHash| {
            groups.clone().any(|group| self.ever.contains(&CacheKey { hash, group }))
        };
        hashes.iter().rposition(|&hash| is_known(hash)).map_or(0, |last| (last + 1) * size)
    }

    /// Returns the hit of a manager that has the keys of the first `num_tokens` tokens for which
    /// `has` returns true. It also gets whether the key ends a block of its group.
    fn hit_of(
        &self,
        manager: &Manager,
        prompt: &Prompt<'_>,
        num_tokens: usize,
        has: impl Fn(&CacheKey, bool) -> bool,
    ) -> usize {
        let size = manager.hash_block_size();
        let mut other = Manager::new(self.config.clone()).expect("a configuration that can work");
        let mut block = 0;
        // The block that EAGLE drops can be after the hit.
        for (i, &hash) in prompt.hashes.iter().enumerate() {
            let end = (i + 1) * size;
            for (id, group) in manager.groups().iter().enumerate() {
                let key = CacheKey { hash, group: id as GroupId };
                let ends_block = end.is_multiple_of(group.block_size);
                if end <= num_tokens && has(&key, ends_block) && group.is_cacheable {
                    block += 1;
                    other.pool_mut().insert_foreign_key(block, key, end).expect("a group");
                }
            }
        }
        let view = HashWindow::from(prompt.hashes);
        other.find_longest_hit(&view, prompt.num_tokens - 1).expect("hashes").length
    }
}
