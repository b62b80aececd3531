//! Reference sliding-window attention (R-SWA). A token attends to the whole prompt and to a window
//! of generated tokens, so the blocks between the two are released.

use std::ops::Range;

use super::full::{FULL, FullAttention};
use crate::error::Result;
use crate::group::data::GroupData;
use crate::group::declaration::Declaration;
use crate::group::spec::{GroupSpec, Size};

/// R-SWA, as vLLM has it from 0.32 on.
pub(super) static RSWA: Declaration = Declaration {
    name: "rswa",
    short_name: "rswa",
    vllm_classes: ("RSWASpec", "RSWAManager"),
    required: &[Size::RswaWindow],
    releases: "those between prompt and window",
    is_pinned_by_drop: true,
    has_usual_table: false,
    ..FULL
};

/// Full attention over the prompt, a window over the rest.
#[derive(Clone, Debug)]
pub struct Rswa {
    /// The part that is full attention.
    pub(crate) full: FullAttention,
    window: usize,
}

impl Rswa {
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        let window = spec.required(Size::RswaWindow)?;
        Ok(Self { full: FullAttention::default(), window })
    }

    /// Returns the positions between prompt and window; none if `num_prompt_tokens` is not known.
    pub(crate) fn gap(
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
