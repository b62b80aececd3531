//! Observes the outcomes of prompts: see [`crate::outcomes`].

use super::Manager;
use super::args::AllocateArgs;
use super::report::{ByKind, by_kind};
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::outcomes::{
    AdmittedPrompt, HitRules, OutcomeObserver, Positions, PromptOutcomes, PromptStart,
    start_positions,
};
use crate::pool::{BlockPool, ReuseGaps};
use crate::request::{HashSource, RequestView};

/// Outcomes since observation started. All numbers only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeReport {
    /// The prompt tokens of admitted requests, by outcome.
    pub outcomes: PromptOutcomes,
    /// The cached blocks that were evicted because they were allocated.
    pub evictions: ByKind,
    /// The times from evictions of keys to the first admission that asked for them.
    pub reuse_gaps: ReuseGaps,
}

/// The data that an observed admission reads in addition to its request.
#[derive(Clone, Copy)]
pub struct ObservedRequest<'a> {
    /// All hashes of the request.
    pub hashes: &'a dyn HashSource,
    /// Whether the request reads the cache. Requests for prompt logprobs do not.
    pub reads_cache: bool,
    /// The start of the prompt, if the caller has its tokens.
    pub start: Option<PromptStart<'a>>,
}

/// A request that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedAdmission {
    /// The new blocks of each group.
    pub blocks: Vec<Vec<BlockId>>,
    /// The outcomes of the prompt; `None` if outcomes are not observed, or if the manager knew the
    /// request already.
    pub outcomes: Option<PromptOutcomes>,
}

impl Manager {
    /// Starts to observe the outcomes of prompts. Remembers up to half as many evicted keys as the
    /// pool has blocks. Returns [`Error::Precondition`] if a request was served before.
    pub fn observe_outcomes(&mut self) -> Result<()> {
        // Together with the evicted keys, at most 8 bytes a block.
        let num_starts = self.config.num_blocks * 3 / 4;
        self.observe_outcomes_with_memory(self.config.num_blocks / 2, num_starts)
    }

    /// Does the same as [`Self::observe_outcomes`] and remembers up to `num_keys` evicted keys and
    /// up to `num_starts` prefixes of prompts.
    pub fn observe_outcomes_with_memory(
        &mut self,
        num_keys: usize,
        num_starts: usize,
    ) -> Result<()> {
        if self.outcomes.is_some() {
            return Ok(());
        }
        if self.has_served() {
            return Err(Error::Precondition(
                "outcomes cannot be observed: the manager has already served requests, whose \
                 blocks are unknown. Call observe_outcomes on a new manager"
                    .into(),
            ));
        }
        self.outcomes = Some(Box::new(OutcomeObserver::new(self.hit_rules(), num_starts)));
        self.pool.observe_outcomes(num_keys);
        Ok(())
    }

    /// Returns whether outcomes are observed.
    #[inline]
    pub fn observes_outcomes(&self) -> bool {
        self.outcomes.is_some()
    }

    /// Returns the positions of the tokens that help to explain the misses of the next prompt. A
    /// `realm` is a number for its salt and its adapter; 0 means neither. `num_hit_tokens` of the
    /// prompt are hit.
    pub fn start_positions(
        &self,
        realm: u64,
        num_prompt_tokens: usize,
        num_hit_tokens: usize,
    ) -> impl Iterator<Item = Positions> + use<> {
        let observer = self.outcomes.as_ref();
        let is_read = observer.is_some_and(|observer| observer.reads_start(realm, num_hit_tokens));
        start_positions(if is_read { num_prompt_tokens } else { 0 })
    }

    /// Sets the time, in seconds, of the evictions and admissions that follow. Does nothing unless
    /// outcomes are observed.
    pub fn set_outcome_time(&mut self, seconds: f64) {
        if let Some(keys) = self.pool.index_mut().evicted_keys_mut() {
            keys.set_now(seconds);
        }
    }

    /// Does the same as [`Self::allocate_slots`] for the first allocation of a request. Also
    /// returns the outcomes of its prompt.
    #[inline(never)]
    pub fn admit_observed(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        observed: ObservedRequest<'_>,
    ) -> Result<Option<ObservedAdmission>> {
        let Some(mut outcomes) = self.outcomes.take() else {
            let blocks = self.allocate_slots(request, args)?;
            return Ok(blocks.map(|blocks| ObservedAdmission { blocks, outcomes: None }));
        };
        let mut observer = AdmissionObserver { outcomes: &mut outcomes, observed, result: None };
        let blocks = self.allocate_observed_by(&mut observer, request, args);
        let result = observer.result;
        self.outcomes = Some(outcomes);
        Ok(blocks?.map(|blocks| ObservedAdmission { blocks, outcomes: result }))
    }

    /// Returns the outcomes since observation started; `None` if outcomes are not observed.
    pub fn outcome_report(&self) -> Option<OutcomeReport> {
        let observer = self.outcomes.as_ref()?;
        let index = self.pool.index();
        let evictions = index.evictions_by_group().unwrap_or_default();
        Some(OutcomeReport {
            outcomes: *observer.total(),
            evictions: by_kind(&self.groups, evictions.iter().copied()),
            reuse_gaps: index.evicted_keys()?.gaps().clone(),
        })
    }

    /// Returns where hits can end and what they need.
    pub fn hit_rules(&self) -> HitRules {
        let Self { layout, groups, retention, .. } = self;
        HitRules::new(&layout.spec_groups, groups, retention.rules(), layout.hit_alignment)
    }
}

/// Observes an admission right before anything changes. It can no longer fail.
pub(super) trait ObserveAdmission {
    fn admit(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        groups: &[Group],
        pool: &mut BlockPool,
    );
}

/// Observes nothing. The code of an allocation that is not observed has no trace of it.
impl ObserveAdmission for () {
    #[inline(always)]
    fn admit(&mut self, _: &RequestView<'_>, _: &AllocateArgs<'_>, _: &[Group], _: &mut BlockPool) {
    }
}

struct AdmissionObserver<'a> {
    outcomes: &'a mut OutcomeObserver,
    observed: ObservedRequest<'a>,
    result: Option<PromptOutcomes>,
}

impl ObserveAdmission for AdmissionObserver<'_> {
    fn admit(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        groups: &[Group],
        pool: &mut BlockPool,
    ) {
        let prompt = AdmittedPrompt {
            hashes: self.observed.hashes,
            reads_cache: self.observed.reads_cache,
            num_prompt_tokens: request.num_prompt_tokens,
            num_tokens: request.num_tokens,
            num_local: args.num_local(request),
            num_computed: args.total_computed(request),
            hit: args.new_computed_blocks,
            start: self.observed.start,
        };
        self.result = Some(self.outcomes.admit(&prompt, groups, pool));
    }
}
