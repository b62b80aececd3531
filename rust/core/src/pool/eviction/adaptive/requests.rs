//! Priorities that requests claim for their blocks: where blocks get them, and what they change of
//! where blocks wait. Whoever asks for nothing comes by none of this.

use super::block_meta::{Place, Tag};
use super::priority::{Claim, Standing};
use super::shadow::access_log::Event;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::eviction::adaptive::{Adaptive, Name};

/// On whose behalf blocks are used, and when.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    in_force: Option<Claim>,
    /// Milliseconds, of a clock that the caller has.
    now: u64,
    keeps_time: bool,
    /// What blocks inherit that were computed once more, as soon as they are marked.
    inherited: Vec<(BlockId, Standing)>,
}

impl Adaptive {
    /// Until [`Self::end_claiming`], blocks are used on behalf of a request with this claim.
    pub fn start_claiming(&mut self, claim: Claim) {
        self.claims.keeps_time |= claim.has_end();
        self.claims.in_force = Some(claim).filter(|claim| !claim.is_default());
    }

    /// From now on blocks are used on behalf of who asks for nothing.
    pub fn end_claiming(&mut self) {
        self.claims.in_force = None;
    }

    /// Whether blocks are used on behalf of a request with a claim.
    pub fn is_claiming(&self) -> bool {
        self.claims.in_force.is_some()
    }

    /// Whether [`Self::set_now`] has to be called: some claim ends by itself.
    pub fn keeps_time(&self) -> bool {
        self.claims.keeps_time
    }

    /// The time in milliseconds, which does not go backwards. Claims that have ended by then end.
    pub fn set_now(&mut self, states: &mut Blocks, now: u64) {
        self.claims.now = self.claims.now.max(now);
        while let Some(block) = self.ladder.ended(self.claims.now) {
            self.return_to_order(states, block);
        }
        self.sightings.tell(&mut self.sample);
        self.sample.fit(self.num_watched);
    }

    /// Blocks above the default priority that wait.
    pub fn num_protected(&self) -> usize {
        self.ladder.num_high()
    }

    /// What a block is entitled to, if to anything.
    pub fn standing(&self, block: BlockId) -> Option<Standing> {
        self.tags.of(block).is_claimed().then(|| self.ladder.standing(block))
    }

    /// What is wrong with the blocks of other priorities than the default, or with the sample's.
    pub fn check(&self, states: &Blocks) -> Result<(), String> {
        self.tags.check()?;
        let is_claimed = |block: BlockId| self.tags.of(block).is_claimed();
        if let Some(block) = self.ladder.blocks(states).find(|&block| !is_claimed(block)) {
            return Err(format!("block {block} is on a rung without a claim"));
        }
        if let Some(block) = self.lists.blocks(states).find(|&block| is_claimed(block)) {
            return Err(format!("block {block} is in a list with a claim"));
        }
        self.ladder.check(states, self.claims.now)
    }

    /// Blocks that have just been marked are those of the request in whose behalf they were
    /// computed, and of those whose copies they are.
    pub fn claim_marked(&mut self, states: &Blocks, blocks: &[BlockId]) {
        if let Some(claim) = self.claims.in_force {
            let standing = claim.from(self.claims.now);
            for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
                self.entitle(states, block, standing);
            }
        }
        for (block, standing) in std::mem::take(&mut self.claims.inherited) {
            self.raise_to(states, block, standing);
        }
    }

    /// Whether [`Self::claim_marked`] has anything to do.
    #[inline]
    pub fn has_claims_to_mark(&self) -> bool {
        self.claims.in_force.is_some() || !self.claims.inherited.is_empty()
    }

    /// The request in force uses blocks, or gives them back: of its claim and those before, the
    /// highest holds.
    pub fn raise(&mut self, states: &Blocks, blocks: impl IntoIterator<Item = BlockId>) {
        let Some(claim) = self.claims.in_force else { return };
        let standing = claim.from(self.claims.now);
        for block in blocks.into_iter().filter(|&block| block != NULL_BLOCK) {
            if states.is_cached(block) {
                self.raise_to(states, block, standing);
            }
        }
    }

    fn raise_to(&mut self, states: &Blocks, block: BlockId, claimed: Standing) {
        let now = self.claims.now;
        let standing = self.standing(block);
        if let Some(standing) = standing.filter(|held| held.priority == claimed.priority) {
            let until = standing.until.max(claimed.until);
            return self.entitle(states, block, Standing { until, ..claimed });
        }
        let live = standing.filter(|held| held.is_live(now));
        if claimed.priority > live.map_or(Claim::DEFAULT_PRIORITY, |held| held.priority) {
            self.entitle(states, block, claimed);
        }
    }

    fn entitle(&mut self, states: &Blocks, block: BlockId, standing: Standing) {
        self.ladder.entitle(states, block, standing, self.claims.now);
        self.tags.set_claimed(block, true);
    }

    /// A hit uses a block that somebody had claimed. Who asks for nothing asks for more than a low
    /// priority.
    #[cold]
    pub(crate) fn note_hit_of_claimed(&mut self, block: BlockId) {
        if self.claims.in_force.is_none() && self.ladder.standing(block).is_low() {
            self.tags.set_claimed(block, false);
        }
    }

    /// A claimed block lost its last holder: whether it waits on a rung. Otherwise it waits as one
    /// of the default priority, or is held.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_on_ladder(&mut self, states: &mut Blocks, block: BlockId) -> bool {
        let standing = self.ladder.standing(block);
        let waiting = self.tags.of(block).waiting();
        let is_poor_tail = waiting.is_tail() && !waiting.is_held_tail();
        if !standing.is_live(self.claims.now) || !standing.is_low() && is_poor_tail {
            self.tags.set_claimed(block, false);
            return false;
        }
        if !standing.is_low() && self.newly_held.is_some() && waiting.is_held_tail() {
            return false;
        }
        self.tags.wait_on_ladder(block, self.lists.epoch());
        self.ladder.push(states, block);
        while let Some(excess) = self.ladder.excess(states) {
            self.return_to_order(states, excess);
        }
        true
    }

    /// A block leaves the ladder and waits as one of the default priority from now on, as old as it
    /// is.
    fn return_to_order(&mut self, states: &mut Blocks, block: BlockId) {
        self.ladder.remove(states, block);
        self.tags.set_claimed(block, false);
        let tag = self.tags.of(block);
        self.list_aged(states, block, self.lists.epoch().age(tag.epoch()));
        self.num_listed += 1;
        self.num_watched += tag.num_watched();
        if tag.is_sampled() {
            let name = Name::of(states.fingerprint(block));
            self.sightings.note(&mut self.sample, Event::Freed(tag.waiting().class() as u8), name);
        }
    }

    /// A block that waits leaves its rung.
    #[cold]
    pub(crate) fn leave_ladder(&mut self, states: &mut Blocks, block: BlockId) {
        self.ladder.remove(states, block);
    }

    /// A block is about to lose what it cached, or its place; the claim goes with it.
    #[cold]
    pub(crate) fn disclaim(&mut self, was: Tag, block: BlockId) {
        if was.is_claimed() {
            self.tags.set_claimed(block, false);
        }
    }

    /// Moves blocks below the default priority to the end of the free queue, those first that go first.
    #[cold]
    #[inline(never)]
    pub(crate) fn pop_low(&mut self, states: &mut Blocks, n: usize) -> usize {
        let mut num_moved = 0;
        while num_moved < n
            && let Some(block) = self.ladder.first_low(states)
        {
            self.remove(states, block);
            self.queue.free.push_back(states, block);
            num_moved += 1;
        }
        num_moved
    }

    /// A block computed once more inherits the claim of the copy before.
    pub(crate) fn inherit_claim(&mut self, from: BlockId, to: BlockId) {
        if let Some(standing) = self.standing(from) {
            self.claims.inherited.push((to, standing));
        }
    }

    /// The claim of a block goes to another, which got its keys, as its tag does.
    pub(crate) fn move_claim(&mut self, states: &Blocks, from: BlockId, to: BlockId) {
        if let Some(standing) = self.standing(from) {
            self.entitle(states, to, standing);
        }
    }

    /// Whether a block waits on a rung.
    pub fn is_on_ladder(&self, block: BlockId) -> bool {
        self.tags.of(block).place() == Place::Ladder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockHash;
    use crate::pool::NO_SEGMENT;
    use crate::pool::blocks::fingerprint::{Fingerprint, KeyLayout};
    use crate::pool::eviction::adaptive::block_meta::Epoch;
    use crate::pool::eviction::adaptive::release::Filing;
    use crate::pool::eviction::adaptive::{AdaptiveOrder, Mark};
    use crate::pool::eviction::queue::{Queue, RecycleOrder};
    use crate::pool::eviction::value::Grade;

    const BLOCK: BlockId = 3;

    /// A cached block that is sampled and has no holder.
    fn world(capacity: usize) -> (Blocks, Adaptive) {
        let (layout, num_sentinels) = (KeyLayout::new(1), Adaptive::NUM_SENTINELS);
        let mut states = Blocks::with_sentinels(400, layout, num_sentinels);
        let mark = Mark { is_watched: true, ..Mark::default() };
        let queue = Queue::new(&mut states, RecycleOrder::default());
        let order = AdaptiveOrder { marks: vec![mark], num_protected: capacity };
        let mut adaptive = Adaptive::new(&mut states, queue, order);
        states.set_key(BLOCK, &BlockHash([1, 0, 0, 0]), Fingerprint(5), 16, NO_SEGMENT);
        adaptive.mark(&states, &[BLOCK], mark);
        (states, adaptive)
    }

    fn file(states: &mut Blocks, adaptive: &mut Adaptive, priority: i64) {
        adaptive.start_claiming(Claim::new(priority, Some(1.0)).expect("a claim"));
        adaptive.claim_marked(states, &[BLOCK]);
        let mut filing = Filing::default();
        adaptive.file(states, BLOCK, &mut filing);
        adaptive.close(states, &mut filing);
        adaptive.end_claiming();
    }

    #[test]
    fn what_waits_on_a_rung_is_not_in_the_sample_until_it_leaves_it() {
        for priority in [0, 100] {
            let (mut states, mut adaptive) = world(10);
            file(&mut states, &mut adaptive, priority);
            assert!(adaptive.is_on_ladder(BLOCK));
            assert_eq!((adaptive.num_watched, adaptive.sample.num_free()), (0, [0; 3]));
            adaptive.set_now(&mut states, 1_000);
            assert!(!adaptive.is_on_ladder(BLOCK));
            // One of 16 has a name, for which there is room in no shadow of so small a pool.
            assert_eq!((adaptive.num_watched, adaptive.num_listed), (1, 1));
        }
    }

    #[test]
    fn beyond_the_share_a_block_is_as_old_as_it_is() {
        let (mut states, mut adaptive) = world(1);
        file(&mut states, &mut adaptive, 100);
        adaptive.clock.num_cached = 3 * adaptive.clock.epoch_len;
        adaptive.tick(&mut states);
        assert_eq!(adaptive.lists.epoch(), Epoch::new(3));
        assert_eq!(adaptive.tags.of(BLOCK).epoch(), Epoch::new(0));
        adaptive.set_now(&mut states, 1_000);
        assert_eq!(adaptive.tags.of(BLOCK).epoch(), Epoch::new(0));
        assert_eq!(adaptive.check(&states), Ok(()));
        let class = adaptive.tags.of(BLOCK).waiting().class();
        adaptive.lists.push_aged(&mut states, class, Grade::BEST, 0, BLOCK + 1);
        let first = adaptive.lists.first(&states).and_then(|list| states.first_of_ring(list));
        assert_eq!(first, Some(BLOCK), "the older goes first");
    }

    #[test]
    fn what_is_wrong_with_the_rungs_is_found() {
        type Plant = fn(&mut Blocks, &mut Adaptive);
        let plants: [(&str, Plant); 6] = [
            ("without a claim", |_, adaptive| adaptive.tags.set_claimed(BLOCK, false)),
            ("is on rung 100", |states, adaptive| {
                adaptive.ladder.entitle(states, BLOCK, Standing { priority: 60, until: 1_000 }, 0);
            }),
            ("noted wrongly", |states, adaptive| {
                adaptive.ladder.entitle(states, BLOCK, Standing { priority: 100, until: 7 }, 0);
            }),
            ("has ended", |_, adaptive| adaptive.claims.now = 1_000),
            ("are counted", |states, _| states.unlink(BLOCK)),
            ("with a claim", |_, adaptive| {
                adaptive.tags.set_claimed(BLOCK, true);
            }),
        ];
        for (what, plant) in plants {
            let (mut states, mut adaptive) = world(10);
            file(&mut states, &mut adaptive, 100);
            if what == "with a claim" {
                adaptive.set_now(&mut states, 1_000);
            }
            assert_eq!(adaptive.check(&states), Ok(()));
            plant(&mut states, &mut adaptive);
            let found = adaptive.check(&states).expect_err(what);
            assert!(found.contains(what) || what == "are counted", "{found} instead of {what}");
        }
    }
}
