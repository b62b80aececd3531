//! The lists of evictable blocks, and the order of their eviction.

use std::collections::{BTreeMap, BTreeSet};

use kvoxide_core::BlockId;

use super::scoring::{AGES, Scores};

/// A list of free blocks of one frequency class, one number of halvings and one age. Each halves
/// the score.
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

/// Which list goes first: the one with the lowest score, of equals the older one. Of equal scores
/// and ages the list that was in front stays there until it is found empty or an epoch ends; then
/// the lowest class is in front.
#[derive(Clone)]
pub struct Ranking {
    pub scores: Scores,
    /// Lists that got a block since they were last found empty.
    filled: BTreeSet<List>,
    /// Class and halvings of the list in front.
    front: Option<(usize, usize)>,
}

impl Ranking {
    pub fn new(scores: Scores) -> Self {
        Self { scores, filled: BTreeSet::new(), front: None }
    }

    /// A list got a block.
    pub fn fill(&mut self, list: List) {
        if !self.filled.contains(&list) {
            if self.front().is_none_or(|front| self.goes_before(list, front)) {
                self.front = Some((list.class, list.halvings));
            }
            self.filled.insert(list);
        }
    }

    /// Returns the list in front, which may have run empty since it got a block.
    pub fn front(&self) -> Option<List> {
        let (class, halvings) = self.front?;
        let same_kind =
            self.filled.iter().filter(|list| (list.class, list.halvings) == (class, halvings));
        same_kind
            .copied()
            .reduce(|first, other| if self.goes_before(other, first) { other } else { first })
    }

    /// The list in front was found empty.
    pub fn drop_front(&mut self) {
        if let Some(front) = self.front() {
            self.filled.remove(&front);
        }
        self.find_front();
    }

    /// Every list is an epoch older. The two oldest become one.
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

    /// Every list is an epoch older, and scored anew. Of the two oldest, which become one, the
    /// older one's blocks are in front.
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
