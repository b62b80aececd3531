//! Observes admissions and sums their outcomes.

use super::classify::AdmittedPrompt;
use super::hit_rules::HitRules;
use super::outcome::PromptOutcomes;
use super::prompt_starts::PromptStarts;
use crate::group::Group;
use crate::pool::BlockPool;

/// The outcomes of all prompts since observation started.
#[derive(Debug)]
pub(crate) struct OutcomeObserver {
    rules: HitRules,
    num_prompt_tokens: u64,
    total: PromptOutcomes,
    starts: PromptStarts,
}

impl OutcomeObserver {
    /// Creates an observer of a manager with these rules. It remembers up to `num_starts` prefixes
    /// of prompts.
    pub(crate) fn new(rules: HitRules, num_starts: usize) -> Self {
        let starts = PromptStarts::new(num_starts, rules.key_distance(), rules.hash_block_size);
        Self { rules, num_prompt_tokens: 0, total: PromptOutcomes::default(), starts }
    }

    /// Returns whether tokens at the start of a prompt are of use.
    pub(crate) fn reads_start(&self, realm: u64, num_hit_tokens: usize) -> bool {
        self.starts.reads_tokens(realm, num_hit_tokens)
    }

    /// Forgets the prompts so far, as when the cache is reset.
    pub(crate) fn forget_prompts(&mut self) {
        self.starts.clear();
    }

    /// Returns the outcomes of a prompt that is admitted, and counts them.
    #[cold]
    #[inline(never)]
    pub(crate) fn admit(
        &mut self,
        prompt: &AdmittedPrompt<'_>,
        groups: &[Group],
        pool: &mut BlockPool,
    ) -> PromptOutcomes {
        let mut outcomes = prompt.classify(&self.rules, groups, pool);
        self.starts.observe(prompt.hashes, prompt.start, &mut outcomes);
        self.num_prompt_tokens += prompt.num_prompt_tokens as u64;
        self.total.add_all(&outcomes);
        outcomes
    }

    /// Returns the outcomes of all prompts.
    pub(crate) fn total(&self) -> &PromptOutcomes {
        &self.total
    }

    /// Checks that the outcomes sum to the prompts. The error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (counted, expected) = (self.total.num_tokens(), self.num_prompt_tokens);
        match counted == expected {
            true => Ok(()),
            false => Err(format!("outcomes of {counted} tokens for {expected} prompt tokens")),
        }
    }
}
