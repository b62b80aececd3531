//! Reference sliding-window attention (R-SWA): a token attends to the whole prompt and to a window
//! of what was generated, so the blocks between the two are given back.

use std::ops::Range;

use super::cache_rules::CacheRules;
use super::data::GroupData;
use super::declaration::{Caching, Declaration, Sharding, Support};
use super::full::FullAttention;
use super::growing;
use super::kind::Kind;
use super::query::{GroupHit, HitQuery};
use super::spec::{GroupSpec, Size};
use super::turn::{Adoption, Slots, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::request::RequestId;

/// R-SWA, as vLLM has it from 0.32 on.
pub static RSWA: Declaration = Declaration {
    name: "rswa",
    event_name: "full_attention",
    short_name: "rswa",
    vllm_classes: ("RSWASpec", "RSWAManager"),
    vllm_attributes: &[],
    required: &[Size::RswaWindow],
    optional: &[],
    caching: Caching::Always,
    sharding: Sharding::Shared,
    support: Support {
        hit_needs: "the whole prefix",
        gives_back: "those between prompt and window",
        is_sparse: false,
        is_pinned_by_drop: true,
        supports_eagle: true,
        mixes_block_sizes: true,
    },
    build: ReferenceWindow::build,
};

/// Full attention over the prompt, a window over the rest.
#[derive(Clone, Debug)]
struct ReferenceWindow {
    full: FullAttention,
    window: usize,
}

impl ReferenceWindow {
    fn build(spec: &GroupSpec) -> Result<Box<dyn Kind>> {
        Ok(Box::new(Self {
            full: FullAttention::default(),
            window: spec.required(Size::RswaWindow)?,
        }))
    }

    /// The blocks between prompt and window; none while it is not known where the prompt ends.
    fn gap(
        &self,
        data: &GroupData,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> Range<usize> {
        let Some(num_prompt_tokens) = num_prompt_tokens else { return 0..0 };
        let window_start = num_computed_tokens.saturating_sub(self.window).max(num_prompt_tokens);
        num_prompt_tokens.div_ceil(data.block_size)..window_start / data.block_size
    }
}

impl Kind for ReferenceWindow {
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        self.full.longest_hit(query)
    }

    fn is_prefix_closed(&self) -> bool {
        true
    }

    fn supports_partial_hits(&self) -> bool {
        true
    }

    fn caches_partial_tail(&self) -> bool {
        true
    }

    fn learn(&mut self, rules: &CacheRules) {
        self.full.learn(rules);
    }

    fn has_own_joints(&self) -> bool {
        true
    }

    fn adopt(&mut self, data: &GroupData, turn: &mut Turn<'_>, adoption: &Adoption<'_>) {
        self.full.adopt(data, turn, adoption);
    }

    fn extend(&mut self, data: &GroupData, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        self.full.extend(data, turn, slots)
    }

    fn give_back(
        &mut self,
        data: &GroupData,
        turn: &mut Turn<'_>,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> usize {
        let gap = self.gap(data, num_computed_tokens, num_prompt_tokens);
        growing::give_back_range(turn, gap.start, gap.end)
    }

    fn is_given_back(
        &self,
        data: &GroupData,
        _: RequestId,
        position: usize,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> bool {
        self.gap(data, num_computed_tokens, num_prompt_tokens).contains(&position)
    }
}
