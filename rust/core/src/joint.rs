//! Decides what CPU memory keeps, if it decides together with the pool: [`JointPool`] simulates one
//! pool of the size of both, which sees the same requests. CPU memory keeps the blocks that this
//! pool has and the real one has not.
//!
//! - [`stores`]: the stores of a step.
//! - [`loads`]: a look-up in both memories, the blocks that a load attaches, and the blocks that it
//!   fills.
//! - [`groups`]: the groups of a manager as CPU memory sees them.
//! - [`answers`]: whether generated blocks are kept.

mod answers;
#[cfg(test)]
mod every_step;
mod groups;
mod loads;
mod stores;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use answers::Answers;
pub use groups::{search_of, window_tokens};
pub use loads::{LoadedBlock, attached_tables, blocks_to_load};
pub use stores::{StepStores, StoredStep, note_used};

use crate::block::{BlockId, CacheKey};
use crate::error::Result;
use crate::group::Group;
use crate::manager::{AllocateArgs, Follower, Manager, ManagerConfig, QuietSteps};
use crate::pool::{BlockMeta, LeavingBlock, PrefixCursor, RequestRetention};
use crate::request::{RequestId, RequestView};
use crate::retention::DefaultHits;

/// A simulated pool of the size of GPU and CPU memory together.
#[derive(Debug)]
pub struct JointPool {
    manager: Manager,
    requests: HashMap<RequestId, Served, FixedState>,
    answers: Answers,
    num_lost: usize,
}

/// A request as the pool has served it so far.
#[derive(Debug)]
struct Served {
    /// The number of tokens that have slots; `None` if the pool had no room.
    end: Option<usize>,
    num_prompt_tokens: usize,
    quiet: QuietSteps,
}

impl Served {
    /// A request that the pool cannot serve.
    fn not_at_all(request: &RequestView<'_>) -> Self {
        let num_prompt_tokens = request.num_prompt_tokens;
        Self { end: None, num_prompt_tokens, quiet: QuietSteps::default() }
    }
}

impl JointPool {
    /// Creates the pool for a manager with this configuration and CPU memory of `num_chunks` chunks.
    pub fn new(config: &ManagerConfig, num_chunks: usize) -> Result<Self> {
        let mut manager = Manager::new(ManagerConfig {
            num_blocks: config.num_blocks.saturating_add(num_chunks),
            enable_events: false,
            observe: false,
            needs_zeroing: false,
            watermark: 0.0,
            ..config.clone()
        })?;
        let pool = manager.pool_mut();
        pool.note_leaving(true);
        if let Some((adaptive, _)) = pool.adaptive_mut() {
            // vLLM's CPU memory has what the pool has too, so the smaller memory adds nothing.
            adaptive.simulate_default_with_fewer(config.num_blocks.min(num_chunks));
        }
        let answers = answers_of(&manager);
        Ok(Self { manager, requests: HashMap::default(), answers, num_lost: 0 })
    }

    /// Lets a pool follow a manager. CPU memory has `num_chunks` chunks.
    pub fn follow(manager: &mut Manager, num_chunks: usize) -> Result<()> {
        let pool = Self::new(manager.config(), num_chunks)?;
        manager.set_follower(Some(Box::new(pool)));
        Ok(())
    }

    fn admit(
        &mut self,
        request: &RequestView<'_>,
        (num_hit, end): (usize, usize),
        retention: Option<&Arc<RequestRetention>>,
    ) -> Result<()> {
        let max_length = request.num_tokens.saturating_sub(1);
        let hit = self.manager.get_computed_blocks(request.id, &request.hashes, max_length)?;
        let num_lost = hit.length.saturating_sub(num_hit);
        self.num_lost += num_lost / self.manager.scheduler_block_size();
        let view = RequestView {
            num_computed_tokens: 0,
            shared_prefix_boundary: hit.shared_prefix_boundary,
            is_waiting: true,
            ..*request
        };
        let args = AllocateArgs {
            num_new_tokens: end.saturating_sub(hit.length),
            num_new_computed_tokens: hit.length,
            new_computed_blocks: if hit.length > 0 { &hit.blocks } else { &[] },
            ..AllocateArgs::default()
        };
        self.allocate(&view, &args, (hit.length, end.max(hit.length)), retention)
    }

    fn grow(
        &mut self,
        request: &RequestView<'_>,
        (start, end): (usize, usize),
        retention: Option<&Arc<RequestRetention>>,
    ) -> Result<()> {
        let view = RequestView { num_computed_tokens: start, is_waiting: false, ..*request };
        let args = AllocateArgs { num_new_tokens: end - start, ..AllocateArgs::default() };
        self.allocate(&view, &args, (start, end), retention)
    }

    fn allocate(
        &mut self,
        view: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        (start, end): (usize, usize),
        retention: Option<&Arc<RequestRetention>>,
    ) -> Result<()> {
        let allocate = |manager: &mut Manager| manager.allocate_slots(view, args);
        let fits = self.manager.with_retention(retention, allocate)?.is_some();
        if !fits {
            self.release(view.id, None);
        }
        self.manager.end_simulated_step()?;
        let served = match fits {
            true => Served {
                end: Some(end),
                num_prompt_tokens: view.num_prompt_tokens,
                quiet: self.manager.quiet_steps(view, (start, end)),
            },
            false => Served::not_at_all(view),
        };
        self.requests.insert(view.id, served);
        Ok(())
    }

    fn release(&mut self, request: RequestId, retention: Option<&Arc<RequestRetention>>) {
        // A request that never got a block is unknown to the manager.
        let _ = self.manager.with_retention(retention, |manager| manager.free(request));
    }
}

impl Follower for JointPool {
    /// Answers that no other request has used are not kept if answers are given up.
    fn keeps(&self) -> Box<dyn FnMut(&CacheKey) -> bool + '_> {
        let pool = self.manager.pool();
        let adaptive = pool.adaptive().filter(|_| self.answers.are_given_up());
        let groups = self.manager.groups().iter();
        let mut cursors: Vec<_> = groups.map(|group| PrefixCursor::new(group.id)).collect();
        Box::new(move |key| {
            let cursor = cursors.get_mut(usize::from(key.group));
            let block = cursor.and_then(|it| it.find(pool.index(), pool.blocks(), key.hash));
            block.is_some_and(|block| {
                adaptive.is_none_or(|adaptive| !adaptive.meta(block).is_unused_answer())
            })
        })
    }

    /// A step of a prompt often takes the tails that have just left its own window. So a tail has to be
    /// worth at least half as much as a full block: as much as protects it while its request runs.
    /// Policies without values cache tails only where a later prompt is likely to need them.
    fn is_worth_a_wait(&self, key: &CacheKey) -> bool {
        let pool = self.manager.pool();
        let is_tail = self.manager.groups()[usize::from(key.group)].is_sparse;
        let meta = || Some(pool.adaptive()?.meta(pool.find(key)?));
        !is_tail || meta().is_none_or(BlockMeta::is_protectable)
    }

    fn order(&self) -> Box<dyn Iterator<Item = LeavingBlock> + '_> {
        Box::new(self.manager.pool().leaving(0..usize::MAX))
    }

    fn pass_over(&mut self, blocks: &[BlockId]) {
        self.manager.pool_mut().set_returned(blocks.iter().copied());
    }

    /// Returns the keys that the pool evicted since the last call and does not have again.
    fn take_given_up(&mut self) -> Vec<CacheKey> {
        self.manager.pool_mut().take_evicted_keys()
    }

    fn default_hits(&self) -> DefaultHits {
        let hits = self.manager.default_hits();
        // vLLM's CPU memory can lose a window and keep the prefix. The sample has full blocks alone.
        let has_tails = self.manager.groups().iter().any(|group| group.is_sparse);
        DefaultHits { is_upper_limit: hits.is_upper_limit || has_tails, ..hits }
    }

    /// Notes that a request has slots for its first `end` tokens in the real pool. Its first call
    /// looks up what this pool has of the request. A request that this pool cannot serve is passed
    /// over until it ends.
    fn reach(
        &mut self,
        request: &RequestView<'_>,
        num_hit: usize,
        end: usize,
        retention: Option<&Arc<RequestRetention>>,
    ) {
        let is_served = match self.requests.get_mut(&request.id) {
            None => self.admit(request, (num_hit, end), retention),
            Some(served) => {
                let Some(start) = served.end.filter(|&start| start < end) else { return };
                if served.quiet.has(request, (start, end)) {
                    served.end = Some(end);
                    return;
                }
                self.grow(request, (start, end), retention)
            }
        };
        if is_served.is_err() {
            self.release(request.id, None);
            self.requests.insert(request.id, Served::not_at_all(request));
        }
    }

    fn take_lost(&mut self) -> usize {
        std::mem::take(&mut self.num_lost)
    }

    fn free(
        &mut self,
        request: RequestId,
        retention: Option<&Arc<RequestRetention>>,
    ) -> Option<usize> {
        let Served { end, num_prompt_tokens, .. } = self.requests.remove(&request)?;
        let end = end?;
        let is_preempted = retention.is_some_and(|it| it.is_preempted());
        let has_answer = num_prompt_tokens < end && !is_preempted;
        let num_prompt = has_answer.then_some(num_prompt_tokens);
        let num_hit = self.manager.admitted().hit_answer_tokens;
        let given_up = num_prompt.filter(|num_prompt| !self.answers.end(end - num_prompt, num_hit));
        match given_up {
            None => self.release(request, retention),
            Some(num_prompt) => {
                let asked = retention.map_or_else(Default::default, |asked| (**asked).clone());
                let asked = Arc::new(asked.giving_up(num_prompt..usize::MAX));
                self.release(request, Some(&asked));
            }
        }
        given_up
    }

    fn step_starts(&mut self) {
        self.manager.new_step_starts();
    }

    fn set_now(&mut self, milliseconds: u64) {
        self.manager.set_now(milliseconds);
    }

    fn set_retention_interval(&mut self, interval: Option<usize>) {
        // The manager that is followed accepted the interval.
        let _ = self.manager.set_retention_interval(interval);
    }

    fn reset(&mut self) {
        let mut requests: Vec<_> = self.requests.drain().map(|(request, _)| request).collect();
        requests.sort_unstable();
        requests.into_iter().for_each(|request| self.release(request, None));
        self.manager.reset_prefix_cache();
    }
}

/// Returns the counts of answers, if the manager counts their hits.
fn answers_of(manager: &Manager) -> Answers {
    let is_whole = |group: &Group| group.is_cacheable && !group.is_sparse;
    if manager.pool().adaptive().is_none() || !manager.groups().iter().any(is_whole) {
        return Answers::default();
    }
    let num_blocks = manager.config().num_blocks;
    Answers::new(num_blocks.saturating_mul(manager.scheduler_block_size()))
}

#[cfg(test)]
mod tests {
    use super::testing::{BLOCK, hashes, key};
    use super::*;
    use crate::block::BlockHash;
    use crate::group::GroupSpec;

    fn pool(num_blocks: usize, num_chunks: usize) -> JointPool {
        let config = ManagerConfig::new(num_blocks, vec![GroupSpec::full(BLOCK)], 1 << 12);
        JointPool::new(&config, num_chunks).expect("a pool")
    }

    fn serve(pool: &mut JointPool, id: RequestId, hashes: &[BlockHash]) {
        let num_tokens = BLOCK * hashes.len();
        let view = RequestView::new(id, hashes, num_tokens);
        pool.reach(&view, 0, num_tokens / 2, None);
        pool.reach(&view, 0, num_tokens, None);
        pool.free(id, None);
    }

    #[test]
    fn it_holds_as_much_as_both_and_gives_up_the_oldest() {
        let (mut pool, [first, second, third]) = (pool(7, 6), [0, 100, 200].map(|n| hashes(n, 6)));
        serve(&mut pool, 1, &first);
        serve(&mut pool, 2, &second);
        assert!(first.iter().chain(&second).all(|hash| pool.has(&key(hash))));
        assert!(pool.take_given_up().is_empty());
        serve(&mut pool, 3, &third);
        let given_up = pool.take_given_up();
        let wanted: Vec<_> = first.iter().rev().map(key).collect();
        assert_eq!(given_up, wanted);
        assert!(second.iter().chain(&third).all(|hash| pool.has(&key(hash))));
    }

    #[test]
    fn what_it_has_again_is_not_given_up() {
        let (mut pool, hashes) = (pool(4, 3), hashes(0, 6));
        serve(&mut pool, 1, &hashes);
        serve(&mut pool, 2, &[7, 8].map(|n| BlockHash([n, 2, 2, 2])));
        serve(&mut pool, 3, &hashes);
        let given_up = pool.take_given_up();
        assert!(given_up.iter().all(|key| !pool.has(key)));
        assert!(hashes.iter().all(|hash| pool.has(&key(hash))));
    }

    #[test]
    fn a_block_that_neither_memory_has_is_lost_where_it_would_be_hit() {
        let (mut pool, hashes) = (pool(7, 6), hashes(0, 6));
        serve(&mut pool, 1, &hashes[..5]);
        let view = RequestView::new(2, &hashes[..], BLOCK * hashes.len());
        pool.reach(&view, 2 * BLOCK, view.num_tokens, None);
        assert_eq!([pool.take_lost(), pool.take_lost()], [3, 0]);
    }

    #[test]
    fn a_request_that_is_too_large_is_passed_over_until_it_ends() {
        let (mut pool, [large, small]) = (pool(3, 2), [hashes(0, 9), hashes(50, 2)]);
        let view = RequestView::new(1, &large[..], BLOCK * large.len());
        pool.reach(&view, 0, BLOCK * 9, None);
        pool.reach(&view, 0, BLOCK * 9, None);
        serve(&mut pool, 2, &small);
        assert!(small.iter().all(|hash| pool.has(&key(hash))));
        pool.free(1, None);
        pool.reset();
        assert!(!pool.has(&key(&small[0])));
    }

    /// Serves requests of two blocks of prompt and four of answer, which never come back. Returns
    /// what was given up with each.
    fn serve_answers(pool: &mut JointPool, ids: std::ops::Range<u64>) -> Vec<Option<usize>> {
        let serve = |id| {
            let hashes = hashes(1000 * id, 6);
            let view = RequestView {
                num_prompt_tokens: 2 * BLOCK,
                ..RequestView::new(id, &hashes[..], BLOCK * hashes.len())
            };
            pool.reach(&view, 0, 2 * BLOCK, None);
            pool.reach(&view, 0, BLOCK * hashes.len(), None);
            pool.free(id, None)
        };
        ids.map(serve).collect()
    }

    #[test]
    fn answers_that_do_not_come_back_leave_first() {
        let groups = vec![GroupSpec::full(BLOCK)];
        let policy = crate::Policy::adaptive();
        let config = ManagerConfig { policy, ..ManagerConfig::new(33, groups, 1 << 12) };
        let mut pool = JointPool::new(&config, 32).expect("a pool");
        let given_up = serve_answers(&mut pool, 1..60);
        assert_eq!(given_up[0], None);
        let num_given_up = given_up.iter().flatten().count();
        assert!((40..59).contains(&num_given_up), "{num_given_up}");
        assert!(given_up.iter().flatten().all(|&start| start == 2 * BLOCK));
        let last = given_up.iter().rposition(Option::is_some).expect("an answer") as u64 + 1;
        let keys: Vec<_> = hashes(1000 * last, 6).iter().map(key).collect();
        assert_eq!(
            keys.iter().map(|key| pool.has(key)).collect::<Vec<_>>(),
            [true, true, false, false, false, false]
        );
    }

    #[test]
    fn a_step_waits_for_stores_of_full_blocks_and_of_valuable_tails() {
        let groups = vec![GroupSpec::full(BLOCK), GroupSpec::sliding_window(BLOCK, 2 * BLOCK)];
        let policy = crate::Policy::adaptive();
        let config = ManagerConfig { policy, ..ManagerConfig::new(200, groups, 1 << 12) };
        let mut pool = JointPool::new(&config, 200).expect("a pool");
        let hashes = hashes(0, 64);
        serve(&mut pool, 1, &hashes);
        let worth = |group| -> Vec<_> {
            let keys = hashes.iter().map(|hash| CacheKey { group, ..key(hash) });
            keys.map(|key| (pool.has(&key), pool.is_worth_a_wait(&key))).collect()
        };
        assert_eq!(worth(0), vec![(true, true); 64]);
        let tails = worth(1);
        assert_eq!(tails[62..], [(true, true); 2]);
        assert_eq!(tails[30..32], [(true, true); 2]);
        let num_kept_alone = tails.iter().filter(|&&tail| tail == (true, false)).count();
        assert!((10..60).contains(&num_kept_alone), "{tails:?}");
    }

    #[test]
    fn the_answer_of_a_preempted_request_is_kept() {
        let config = ManagerConfig {
            policy: crate::Policy::adaptive(),
            ..ManagerConfig::new(33, vec![GroupSpec::full(BLOCK)], 1 << 12)
        };
        let mut pool = JointPool::new(&config, 32).expect("a pool");
        serve_answers(&mut pool, 1..60);
        let preempted = Arc::new(RequestRetention::default().while_preempted());
        let hashes = hashes(100_000, 6);
        for id in 100..140 {
            let view = RequestView {
                num_prompt_tokens: 2 * BLOCK,
                ..RequestView::new(id, &hashes[..], BLOCK * hashes.len())
            };
            pool.reach(&view, 0, BLOCK * hashes.len(), None);
            assert_eq!(pool.free(id, Some(&preempted)), None);
        }
    }

    #[test]
    fn without_adaptive_retention_every_answer_is_kept() {
        let given_up = serve_answers(&mut pool(33, 32), 1..60);
        assert!(given_up.iter().all(Option::is_none));
    }
}
