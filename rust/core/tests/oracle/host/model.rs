//! A naive host tier. It handles one chunk at a time, with `Vec` and `HashMap`. The engine's
//! [`kvoxide_core::host::HostTier`] must make the same decisions.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use kvoxide_core::CacheKey;
use kvoxide_core::host::{HostPolicy, HostTierConfig, Position, VllmVersion};

/// The rank, then the position from last to first, then the key.
type SortKey = (u64, Reverse<u32>, [u8; 32], u16);

#[derive(Clone, Default)]
pub struct Request {
    pub resets: usize,
    pub rank: Option<u64>,
    pub seen: Vec<CacheKey>,
    pub inserted: HashSet<CacheKey>,
    pub reused: HashSet<CacheKey>,
    pub misses: HashSet<CacheKey>,
    pub is_finished: bool,
}

pub struct Tier {
    pub config: HostTierConfig,
    /// The chunk and the references of each key. The references are -1 while the key is stored.
    pub chunks: HashMap<CacheKey, (u32, i32)>,
    num_used_ids: u32,
    freed: Vec<u32>,
    ranks: HashMap<CacheKey, (u64, u32)>,
    next_rank: u64,
    /// The lists T1, T2, B1 and B2.
    pub lists: [Vec<CacheKey>; 4],
    pub target: f64,
    pub tracked: Vec<(CacheKey, u32)>,
    /// Keys of loads. Each stays here until the first of its loads ends.
    pub loading: HashSet<CacheKey>,
    pub resets: usize,
}

impl Tier {
    pub fn new(config: HostTierConfig) -> Self {
        Self {
            config,
            chunks: HashMap::new(),
            num_used_ids: 0,
            freed: Vec::new(),
            ranks: HashMap::new(),
            next_rank: 0,
            lists: Default::default(),
            target: 0.0,
            tracked: Vec::new(),
            loading: HashSet::new(),
            resets: 0,
        }
    }

    pub fn load(&mut self, request: &mut Request, keys: &[CacheKey], positions: &[Position]) {
        self.read(keys);
        self.see(request, keys, positions);
        request.reused.extend(keys.iter().filter(|key| !request.inserted.contains(key)));
    }

    pub fn complete_load(&mut self, keys: &[CacheKey]) {
        self.complete_read(keys);
        for key in keys {
            self.loading.remove(key);
        }
    }

    /// Keeps chunks from eviction. That is no use of their keys.
    pub fn read(&mut self, keys: &[CacheKey]) {
        for key in keys {
            self.chunks.get_mut(key).expect("a hit").1 += 1;
        }
    }

    pub fn complete_read(&mut self, keys: &[CacheKey]) {
        for key in keys {
            self.chunks.get_mut(key).expect("a key that is read").1 -= 1;
        }
    }

    /// Returns the length of the hit from the first key on; `None` if one of its chunks is pending.
    pub fn prefix(&self, keys: &[CacheKey]) -> Option<usize> {
        let is_absent = |key: &CacheKey| !self.chunks.contains_key(key);
        let len = keys.iter().position(is_absent).unwrap_or(keys.len());
        keys[..len].iter().all(|key| self.chunks[key].1 >= 0).then_some(len)
    }

    /// Returns the end of a hit's window; `None` if one of its chunks is pending. The last window
    /// can end anywhere. A window that ends at the last key needs a size of its own.
    pub fn window(&self, keys: &[CacheKey], window: usize, first_window: usize) -> Option<usize> {
        let is_there = |at: usize| self.chunks.contains_key(&keys[at]);
        let ends = (0..=keys.len()).rev();
        for end in ends {
            let run = (0..end).rev().take_while(|&at| is_there(at)).count();
            let wanted = if end == keys.len() { first_window } else { window };
            let len = if run >= wanted { wanted } else { run };
            // A run is counted from its end. A shorter run counts only if nothing is before it.
            let is_end = end == keys.len() || !is_there(end);
            if is_end && (run >= wanted || run == end) {
                let is_ready = (end - len..end).all(|at| self.chunks[&keys[at]].1 >= 0);
                return is_ready.then_some(end);
            }
        }
        Some(0)
    }

    /// Returns the stored keys, their chunks and the evicted keys.
    pub fn store(
        &mut self,
        request: &mut Request,
        keys: &[CacheKey],
        positions: &[Position],
    ) -> Option<(Vec<CacheKey>, Vec<u32>, Vec<CacheKey>)> {
        let threshold = self.config.store_threshold;
        if threshold >= 2 {
            self.track(keys);
        }
        let count = |key| self.tracked.iter().find(|one| one.0 == key).map_or(0, |one| one.1);
        let is_absent = |key: &CacheKey| !self.chunks.contains_key(key);
        let is_stored =
            |key: &CacheKey| is_absent(key) && (threshold < 2 || count(*key) >= threshold);
        let is_ready = |key: &CacheKey| self.chunks.get(key).is_some_and(|chunk| chunk.1 >= 0);
        let stored: Vec<_> = keys.iter().copied().filter(is_stored).collect();
        let ready: Vec<_> = keys.iter().copied().filter(is_ready).collect();
        let used: Vec<_> =
            (0..keys.len()).filter(|&at| is_stored(&keys[at]) || is_ready(&keys[at])).collect();
        for key in stored.iter().rev().filter(|key| !request.misses.contains(key)) {
            self.adapt(*key);
        }
        request.misses.extend(&stored);
        let used_keys: Vec<_> = used.iter().map(|&at| keys[at]).collect();
        let used_positions: Vec<_> = used.iter().map(|&at| positions[at]).collect();
        self.see(request, &used_keys, &used_positions);
        request.reused.extend(ready.iter().filter(|key| !request.inserted.contains(key)));

        let num_free = self.config.num_chunks - self.chunks.len();
        let evicted = self.evict(stored.len().saturating_sub(num_free), keys)?;
        let mut chunks = Vec::new();
        for key in &stored {
            let at = keys.iter().position(|other| other == key).expect("an offered key");
            chunks.push(self.insert(request, *key, positions[at]));
        }
        request.inserted.extend(&stored);
        Some((stored, chunks, evicted))
    }

    pub fn complete_store(&mut self, keys: &[CacheKey], is_success: bool) {
        for key in keys {
            let Some(chunk) = self.chunks.get_mut(key).filter(|chunk| chunk.1 < 0) else {
                continue;
            };
            chunk.1 = 0;
            if !is_success {
                self.remove(*key);
            }
        }
    }

    pub fn touch(&mut self, keys: &[CacheKey]) {
        for key in keys.iter().rev() {
            match self.chunks.get(key) {
                None => self.adapt(*key),
                Some(&(_, references)) => self.use_again(*key, references >= 0),
            }
        }
    }

    /// Ends a request whose keys have these positions.
    pub fn finish(&mut self, request: &mut Request, position: impl Fn(&CacheKey) -> Position) {
        if request.is_finished || request.resets != self.resets {
            return;
        }
        request.is_finished = true;
        let mut keys = request.seen.clone();
        let all_have = |keys: &[CacheKey]| keys.iter().all(|key| position(key).is_some());
        keys.sort_by_key(|key| key.group);
        for group in keys.chunk_by_mut(|one, other| one.group == other.group) {
            if all_have(group) {
                group.sort_by_key(&position);
            }
        }
        if all_have(&keys) {
            keys.sort_by_key(&position);
        }
        keys.retain(|key| self.chunks.contains_key(key));
        for key in keys.into_iter().rev() {
            let is_reused = request.reused.contains(&key);
            if self.config.policy == HostPolicy::Lru || is_reused || request.inserted.contains(&key)
            {
                self.use_again(key, is_reused);
            }
        }
    }

    pub fn reset(&mut self) {
        let config = self.config.clone();
        let (tracked, resets) = (std::mem::take(&mut self.tracked), self.resets + 1);
        *self = Self { tracked, resets, ..Self::new(config) };
    }

    /// Returns the evictable keys in LRU order.
    pub fn lru_order(&self) -> Vec<CacheKey> {
        let is_evictable = |key: &&CacheKey| self.chunks[*key].1 == 0;
        let mut keys: Vec<_> = self.chunks.keys().filter(is_evictable).copied().collect();
        keys.sort_by_key(|key| self.sort_key(key));
        keys
    }

    fn sort_key(&self, key: &CacheKey) -> SortKey {
        let (rank, position) = self.ranks[key];
        (rank, Reverse(position), key.hash.to_bytes(), key.group)
    }

    fn shares_ranks(&self) -> bool {
        self.config.policy == HostPolicy::Lru && self.config.release == VllmVersion::V0_33
    }

    fn see(&mut self, request: &mut Request, keys: &[CacheKey], positions: &[Position]) {
        let mut has_new = false;
        for (key, position) in keys.iter().zip(positions) {
            if request.seen.contains(key) {
                continue;
            }
            request.seen.push(*key);
            if !self.shares_ranks() {
                continue;
            }
            if !std::mem::replace(&mut has_new, true) {
                self.rank_of(request);
            }
            let rank = request.rank.expect("a rank");
            let (Some(position), Some(now)) = (*position, self.ranks.get_mut(key)) else {
                continue;
            };
            if (now.0, Reverse(now.1)) < (rank, Reverse(position)) {
                *now = (rank, position);
            }
        }
    }

    fn rank_of(&mut self, request: &mut Request) -> u64 {
        *request.rank.get_or_insert_with(|| {
            self.next_rank += 1;
            self.next_rank
        })
    }

    fn insert(&mut self, request: &mut Request, key: CacheKey, position: Position) -> u32 {
        let chunk = if (self.num_used_ids as usize) < self.config.num_chunks {
            self.num_used_ids += 1;
            self.num_used_ids - 1
        } else {
            self.freed.pop().expect("a free chunk")
        };
        self.chunks.insert(key, (chunk, -1));
        self.lists[2].retain(|other| *other != key);
        self.lists[3].retain(|other| *other != key);
        self.lists[0].push(key);
        match position.filter(|_| self.shares_ranks()) {
            Some(position) => {
                let rank = self.rank_of(request);
                self.ranks.insert(key, (rank, position));
            }
            None => {
                self.next_rank += 1;
                self.ranks.insert(key, (self.next_rank, 0));
            }
        }
        chunk
    }

    fn remove(&mut self, key: CacheKey) {
        let (chunk, _) = self.chunks.remove(&key).expect("a chunk");
        self.freed.push(chunk);
        self.ranks.remove(&key);
        self.lists[..2].iter_mut().for_each(|list| list.retain(|other| *other != key));
    }

    /// Makes a key the youngest one. Under ARC it goes to T2 if `goes_to_t2`, otherwise it stays in
    /// its list.
    fn use_again(&mut self, key: CacheKey, goes_to_t2: bool) {
        self.next_rank += 1;
        self.ranks.insert(key, (self.next_rank, 0));
        let list = usize::from(goes_to_t2 || self.lists[1].contains(&key));
        self.lists[..2].iter_mut().for_each(|list| list.retain(|other| *other != key));
        self.lists[list].push(key);
    }

    fn adapt(&mut self, key: CacheKey) {
        if self.config.policy == HostPolicy::Lru {
            return;
        }
        let [b1, b2] = [2, 3].map(|list| self.lists[list].len() as f64);
        let Some(list) = [2, 3].into_iter().find(|&list| self.lists[list].contains(&key)) else {
            return;
        };
        self.target = match list {
            2 => (self.target + f64::max(1.0, b2 / b1)).min(self.config.num_chunks as f64),
            _ => (self.target - f64::max(1.0, b1 / b2)).max(0.0),
        };
        self.lists[list].retain(|other| *other != key);
        self.lists[list].push(key);
    }

    fn evict(&mut self, n: usize, offer: &[CacheKey]) -> Option<Vec<CacheKey>> {
        let is_victim = |key: &CacheKey| self.chunks[key].1 == 0 && !offer.contains(key);
        let mut victims: Vec<(CacheKey, usize)> = Vec::new();
        if self.config.policy == HostPolicy::Lru {
            victims = self.lru_order().into_iter().filter(is_victim).map(|key| (key, 0)).collect();
            victims.truncate(n);
        } else {
            let [mut t1, mut t2] =
                [0, 1].map(|list| self.lists[list].iter().copied().filter(is_victim));
            let mut t1_len = self.lists[0].len();
            while victims.len() < n {
                let from_t1 = (t1_len >= self.target as usize).then(|| t1.next()).flatten();
                let from_t2 = from_t1.is_none().then(|| t2.next()).flatten();
                let Some(key) = from_t1.or(from_t2).or_else(|| t1.next()) else { break };
                t1_len -= usize::from(from_t2.is_none());
                victims.push((key, usize::from(from_t2.is_some())));
            }
        }
        if victims.len() < n {
            return None;
        }
        for &(key, list) in &victims {
            self.remove(key);
            if self.config.policy == HostPolicy::Arc {
                self.lists[2 + list].push(key);
            }
        }
        for ghosts in self.lists[2..].iter_mut().filter(|_| n > 0) {
            ghosts.drain(..ghosts.len().saturating_sub(self.config.num_chunks));
        }
        Some(victims.into_iter().map(|(key, _)| key).collect())
    }

    fn track(&mut self, keys: &[CacheKey]) {
        let is_tracked = |tracked: &[(CacheKey, u32)], key: &CacheKey| {
            tracked.iter().position(|one| one.0 == *key)
        };
        for key in keys {
            if let Some(at) = is_tracked(&self.tracked, key) {
                let (key, count) = self.tracked.remove(at);
                self.tracked.push((key, count + 1));
            }
        }
        let first_of_offer = |tracked: &[(CacheKey, u32)]| keys.contains(&tracked[0].0);
        for key in keys {
            if is_tracked(&self.tracked, key).is_some() {
                continue;
            }
            if self.tracked.len() >= self.config.max_tracker_size {
                if self.tracked.is_empty() || first_of_offer(&self.tracked) {
                    continue;
                }
                self.tracked.remove(0);
            }
            self.tracked.push((*key, 1));
        }
    }
}
