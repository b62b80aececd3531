//! Reference sliding-window attention (R-SWA). A token attends to the whole prompt and to a window
//! of generated tokens. The blocks between the two are released.

use std::ops::Range;

use super::full::{FULL, FullAttention};
use crate::error::Result;
use crate::group::data::GroupData;
use crate::group::declaration::Declaration;
use crate::group::spec::{GroupSpec, Size};

/// R-SWA, which vLLM has since 0.32.
pub(super) static RSWA: Declaration = Declaration {
    name: "rswa",
    short_name: "rswa",
    vllm_classes: ("RSWASpec", "RSWAManager"),
    required: &[Size::RswaWindow],
    releases: "blocks between prompt and window",
    is_pinned_by_drop: true,
    has_usual_table: false,
    ..FULL
};

/// Full attention over the prompt, and a window over the generated tokens.
#[derive(Clone, Debug)]
pub struct Rswa {
    /// The full attention over the prompt.
    pub(crate) full: FullAttention,
    window: usize,
}

impl Rswa {
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        let window = spec.required(Size::RswaWindow)?;
        Ok(Self { full: FullAttention::default(), window })
    }

    /// Returns the positions of the blocks between prompt and window; none if `num_prompt_tokens`
    /// is unknown.
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
