//! The lists of evictable blocks, and their order of eviction.

use std::collections::{BTreeMap, BTreeSet};

use kvoxide_core::BlockId;

use super::scoring::{AGES, Scores};

/// A list of free blocks with the same frequency class, number of halvings and age. Each halving
/// halves the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct List {
    pub class: usize,
    pub halvings: usize,
    pub age: usize,
}

impl List {
    fn older(self) -> Self {
        Self { age: (self.age + 1).min(AGES - 1), ..self }
    }
}

/// Decides which list goes first: the list with the lowest score, and for equal scores the older
/// one. If scores and ages are equal, the list in front stays in front until it is found empty or
/// an epoch ends. Then the lowest class is in front.
#[derive(Clone)]
pub struct Ranking {
    pub scores: Scores,
    /// Lists that got a block since they were last found empty.
    filled: BTreeSet<List>,
    /// The class and halvings of the list in front.
    front: Option<(usize, usize)>,
}

impl Ranking {
    pub fn new(scores: Scores) -> Self {
        Self { scores, filled: BTreeSet::new(), front: None }
    }

    /// Notes that a list got a block.
    pub fn fill(&mut self, list: List) {
        if !self.filled.contains(&list) {
            if self.front().is_none_or(|front| self.goes_before(list, front)) {
                self.front = Some((list.class, list.halvings));
            }
            self.filled.insert(list);
        }
    }

    /// Returns the list in front. It can be empty again.
    pub fn front(&self) -> Option<List> {
        let (class, halvings) = self.front?;
        let same_kind =
            self.filled.iter().filter(|list| (list.class, list.halvings) == (class, halvings));
        same_kind
            .copied()
            .reduce(|first, other| if self.goes_before(other, first) { other } else { first })
    }

    /// Drops the list in front, which was found empty.
    pub fn drop_front(&mut self) {
        if let Some(front) = self.front() {
            self.filled.remove(&front);
        }
        self.find_front();
    }

    /// Makes every list an epoch older. The two oldest lists become one.
    pub fn end_epoch(&mut self) {
        self.filled = self.filled.iter().map(|list| list.older()).collect();
        self.find_front();
    }

    pub fn clear(&mut self) {
        (self.filled, self.front) = (BTreeSet::new(), None);
    }

    fn find_front(&mut self) {
        let lists = self.filled.iter().copied();
        let first =
            lists.reduce(|first, other| if self.goes_before(other, first) { other } else { first });
        self.front = first.map(|list| (list.class, list.halvings));
    }

    fn goes_before(&self, list: List, other: List) -> bool {
        let (score, other_score) = (self.score(list), self.score(other));
        score < other_score || score == other_score && list.age > other.age
    }

    fn score(&self, list: List) -> f32 {
        self.scores[list.class][list.age] * 0.5_f32.powi(list.halvings as i32)
    }
}

/// The lists of all evictable blocks. The first block of the list in front is evicted next.
pub struct Lists {
    blocks: BTreeMap<List, Vec<BlockId>>,
    ranking: Ranking,
}

impl Lists {
    pub fn new(scores: Scores) -> Self {
        Self { blocks: BTreeMap::new(), ranking: Ranking::new(scores) }
    }

    /// Adds a block at the back of a list.
    pub fn push(&mut self, list: List, block: BlockId) {
        self.blocks.entry(list).or_default().push(block);
        self.ranking.fill(list);
    }

    pub fn remove(&mut self, block: BlockId) {
        self.blocks.values_mut().for_each(|list| list.retain(|&other| other != block));
    }

    /// Returns the block that is evicted next.
    pub fn first(&mut self) -> Option<BlockId> {
        loop {
            let list = self.blocks.get(&self.ranking.front()?);
            if let Some(&block) = list.and_then(|blocks| blocks.first()) {
                return Some(block);
            }
            self.ranking.drop_front();
        }
    }

    /// Makes every list an epoch older and updates the scores. The two oldest lists become one,
    /// with the blocks of the older one in front.
    pub fn end_epoch(&mut self, scores: Scores) {
        for (list, blocks) in std::mem::take(&mut self.blocks).into_iter().rev() {
            self.blocks.entry(list.older()).or_default().extend(blocks);
        }
        self.ranking.scores = scores;
        self.ranking.end_epoch();
    }

    /// Returns every block in the order of eviction.
    pub fn in_order(&self) -> Vec<BlockId> {
        let (mut ranking, mut order) = (self.ranking.clone(), Vec::new());
        while let Some(list) = ranking.front() {
            order.extend(self.blocks.get(&list).into_iter().flatten());
            ranking.drop_front();
        }
        order
    }
}
