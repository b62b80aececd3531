//! Selects the scoring function that decides, by set dueling between shadow caches (SHARDS, FAST
//! 2015).
//!
//! One block in 16 is sampled, by a hash of its key, its *name*. Each scoring function has a shadow
//! cache that holds only names and evicts by the function's scores. It holds as many names as the
//! pool has free sampled blocks and could have in its empty blocks.
//!
//! When a request asks for a free name, each function whose shadow cache still has the name gets a
//! hit. At the end of a round, a quarter of an epoch, the hits are compared. At the end of an
//! epoch, a function takes over if it leads the current one by more than 1.5 standard deviations.
//! Recency is the first current function. It takes over as soon as the current function leads it by
//! less than half a deviation. Leads fade, so that the duel follows the traffic.
//!
//! Hazards are learnt from the names, too. A name stays known for as many epochs as there are ages,
//! even if every shadow cache has evicted it.
//!
//! The names of one frequency class that became free in one epoch are a *ghost list*, in the order
//! in which they became free. A function evicts a ghost list from the front, so a cursor shows
//! which names it still has.
//!
//! The model leaves out one case, which the random traffic never reaches: the engine forgets the
//! name of a block that stays in use for 128 epochs.

use std::collections::{BTreeSet, HashMap};

use kvoxide_core::pool::{SampleCounts, ScoringFunction};

use super::default_queue::DefaultQueue;
use super::lists::{List, Ranking};
use super::scoring::{AGES, CLASSES, Reuse, Scores, first_scores};

/// A sampled key.
pub type Name = u32;

#[derive(Clone, Copy)]
enum Place {
    InUse,
    /// In the ghost list of a frequency class and an epoch, at a position.
    Free {
        class: usize,
        epoch: usize,
        position: usize,
        /// The tick of the [`DefaultQueue`] in which the name became free.
        tick: usize,
    },
}

/// Names in the order in which they became free; `None` for a name that was used again.
#[derive(Default)]
struct GhostList {
    names: Vec<Option<Name>>,
    /// The number of positions that each scoring function has evicted, from the front.
    cursors: [usize; 3],
}

struct ShadowCache {
    ranking: Ranking,
    /// The number of hits in this round.
    hits: u32,
}

/// The lead of a function over another one.
#[derive(Clone, Copy, Default)]
struct Lead {
    /// The sum of the differences of the hits in their rounds, and the sum of the squares.
    sum: f32,
    sum_of_squares: f32,
}

impl Lead {
    /// The share of a round that remains after the next round.
    const FADE: f32 = 0.9973;

    fn add(&mut self, difference: f32) {
        self.sum = self.sum * Self::FADE + difference;
        self.sum_of_squares = self.sum_of_squares * Self::FADE + difference * difference;
    }

    /// Returns the lead in standard deviations of a sum of differences with random signs.
    fn in_deviations(self) -> f32 {
        if self.sum_of_squares > 0.0 { self.sum / self.sum_of_squares.sqrt() } else { 0.0 }
    }
}

pub struct Duel {
    /// The number of highest bits of a name that must be zero for the name to be sampled.
    num_zero_bits: u32,
    max_names: usize,
    names: HashMap<Name, Place>,
    ghost_lists: HashMap<(usize, usize), GhostList>,
    /// One shadow cache for each of [`ScoringFunction::ALL`].
    caches: [ShadowCache; 3],
    default_queue: DefaultQueue,
    reuse: Reuse,
    /// The number of sampled blocks that became free after one use. The next field counts the
    /// blocks among them that were used again while the current function's shadow cache had them.
    /// Both are a pair: the count in this epoch, and the counts in earlier epochs, which fade.
    once_freed: (usize, f64),
    once_reused: (usize, f64),
    /// `leads[a][b]` is the lead of `a` over `b`.
    leads: [[Lead; 3]; 3],
    pub counts: SampleCounts,
    in_force: usize,
    epoch: usize,
    /// The frequency classes of the names that became free since the shadow caches last evicted.
    just_freed: BTreeSet<usize>,
}

impl Duel {
    /// The lead that a function needs to take over, and the lead over recency that it needs to
    /// stay.
    const TAKE_OVER: f32 = 1.5;
    const STAY: f32 = 0.5;
    /// The number of epochs after which the scores of classes without observations are updated.
    const EPOCHS_OF_UNSEEN: usize = 4;

    pub fn new(num_blocks: usize) -> Self {
        let num_zero_bits = 4 + u32::from(num_blocks >= 1 << 17) + u32::from(num_blocks >= 1 << 21);
        let cache =
            |function| ShadowCache { ranking: Ranking::new(first_scores(function)), hits: 0 };
        Self {
            num_zero_bits,
            max_names: (num_blocks >> num_zero_bits) * 5 + 64,
            names: HashMap::new(),
            ghost_lists: HashMap::new(),
            caches: ScoringFunction::ALL.map(cache),
            default_queue: DefaultQueue::new(num_zero_bits),
            reuse: Reuse::default(),
            once_freed: (0, 0.0),
            once_reused: (0, 0.0),
            leads: Default::default(),
            counts: SampleCounts::default(),
            in_force: 0,
            epoch: 0,
            just_freed: BTreeSet::new(),
        }
    }

    pub fn in_force(&self) -> ScoringFunction {
        ScoringFunction::ALL[self.in_force]
    }

    /// Returns the scores of the current function.
    pub fn scores(&self) -> &Scores {
        &self.caches[self.in_force].ranking.scores
    }

    pub fn samples(&self, fingerprint: u32) -> bool {
        fingerprint.leading_zeros() >= self.num_zero_bits
    }

    /// Counts a block that a request hits or computes. vLLM's default policy can hit it only if
    /// `has_tail` holds.
    pub fn used(&mut self, name: Name, is_hit: bool, has_tail: bool) {
        self.counts.asked += 1;
        self.counts.hit += u64::from(is_hit);
        if self.names.len() == self.max_names && !self.names.contains_key(&name) {
            return;
        }
        match self.names.insert(name, Place::InUse) {
            None => {}
            Some(Place::InUse) => {
                self.counts.kept.iter_mut().for_each(|kept| *kept += 1);
                self.counts.kept_by_default += u64::from(has_tail);
            }
            Some(Place::Free { class, epoch, position, tick }) => {
                let is_kept = has_tail && self.default_queue.use_block(tick);
                self.counts.kept_by_default += u64::from(is_kept);
                let list =
                    self.ghost_lists.get_mut(&(class, epoch)).expect("the list of a free name");
                list.names[position] = None;
                for (i, cache) in self.caches.iter_mut().enumerate() {
                    let is_kept = position >= list.cursors[i];
                    cache.hits += u32::from(is_kept);
                    self.counts.kept[i] += u64::from(is_kept);
                    if class == 0 && i == self.in_force && is_kept {
                        self.once_reused.0 += 1;
                    }
                }
                self.reuse.note_reused(class, self.epoch - epoch);
            }
        }
    }

    /// Counts a block of a frequency class that becomes free.
    pub fn freed(&mut self, name: Name, class: usize) {
        if let Some(place @ Place::InUse) = self.names.get_mut(&name) {
            let list = self.ghost_lists.entry((class, self.epoch)).or_default();
            let (epoch, position, tick) = (self.epoch, list.names.len(), self.default_queue.now());
            *place = Place::Free { class, epoch, position, tick };
            self.default_queue.freed();
            list.names.push(Some(name));
            self.reuse.note_freed(class);
            self.once_freed.0 += usize::from(class == 0);
            self.just_freed.insert(class);
        }
    }

    /// Counts tails that vLLM's default policy caches.
    pub fn cached_tails(&mut self, num: usize) {
        self.default_queue.cached_tails(num);
    }

    /// Counts a hit of tails, which become free again with the request's full-attention blocks.
    pub fn hit_tails(&mut self, num: usize) {
        self.default_queue.hit_tails(num);
    }

    /// Evicts names of each shadow cache until they fit a pool with `num_sampled` free sampled
    /// blocks, `num_empty` empty blocks and `num_free` free blocks in total.
    pub fn evict(&mut self, num_sampled: usize, num_empty: usize, num_free: usize) {
        if self.just_freed.is_empty() {
            return;
        }
        for class in std::mem::take(&mut self.just_freed) {
            let list = List { class, halvings: 0, age: 0 };
            self.caches.iter_mut().for_each(|cache| cache.ranking.fill(list));
        }
        for function in 0..self.caches.len() {
            while self.num_kept(function) > num_sampled + (num_empty >> self.num_zero_bits) {
                let ranking = &mut self.caches[function].ranking;
                let Some(List { class, age, .. }) = ranking.front() else { break };
                let list = self.ghost_lists.entry((class, self.epoch - age)).or_default();
                if list.cursors[function] < list.names.len() {
                    list.cursors[function] += 1;
                }
                if list.cursors[function] == list.names.len() {
                    ranking.drop_front();
                }
            }
        }
        self.default_queue.evict(num_free);
    }

    /// Returns how many free names the shadow cache of a function has.
    fn num_kept(&self, function: usize) -> usize {
        let kept = |list: &GhostList| list.names[list.cursors[function]..].iter().flatten().count();
        self.ghost_lists.values().map(kept).sum()
    }

    /// Ends a round.
    pub fn end_round(&mut self) {
        let hits = self.caches.each_mut().map(|cache| std::mem::take(&mut cache.hits));
        for (a, b) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
            self.leads[a][b].add(hits[a] as f32 - hits[b] as f32);
        }
    }

    /// Returns the share of once-used sampled blocks that are used again while they are cached.
    pub fn reuse_of_once_used(&self) -> f64 {
        // It starts as if 64 blocks had been seen, and a quarter of them used again.
        let sum = |(now, before): (usize, f64)| before + now as f64;
        (sum(self.once_reused) + 16.0) / (sum(self.once_freed) + 64.0)
    }

    /// Ends an epoch.
    pub fn end_epoch(&mut self) {
        self.reuse.end_epoch();
        for (now, before) in [&mut self.once_freed, &mut self.once_reused] {
            *before = (*before + *now as f64) * f64::from(Reuse::FADE);
            *now = 0;
        }
        self.epoch += 1;
        let forgotten =
            (0..CLASSES).filter_map(|class| Some((class, self.epoch.checked_sub(AGES)?)));
        for list in forgotten.filter_map(|key| self.ghost_lists.remove(&key)) {
            for name in list.names.iter().flatten() {
                self.names.remove(name);
            }
        }
        self.choose();
        for (function, cache) in ScoringFunction::ALL.iter().zip(&mut self.caches) {
            if *function == ScoringFunction::Hazard {
                let all = self.epoch.is_multiple_of(Self::EPOCHS_OF_UNSEEN);
                self.reuse.learn(&mut cache.ranking.scores, all);
            }
            cache.ranking.end_epoch();
        }
    }

    fn choose(&mut self) {
        let lead = |function: usize| self.leads[function][self.in_force].in_deviations();
        let needed = |function| if function == 0 { -Self::STAY } else { Self::TAKE_OVER };
        let others = (0..3).filter(|&function| function != self.in_force);
        let ahead = others.filter(|&function| lead(function) > needed(function));
        // Among equal ones, the last one counts.
        let furthest = ahead.max_by(|&a, &b| lead(a).total_cmp(&lead(b)));
        self.in_force = furthest.unwrap_or(self.in_force);
    }

    /// Forgets all names after a reset of the prefix cache. Keeps hits and hazards.
    pub fn forget_names(&mut self) {
        self.names.clear();
        self.ghost_lists.clear();
        self.just_freed.clear();
        self.reuse.forget_free();
        self.default_queue.clear();
        self.caches.iter_mut().for_each(|cache| cache.ranking.clear());
    }
}
