//! What blocks are worth under adaptive retention, and where their values come from.
//!
//! Values are in *full blocks*: a tail with the value 1/4 waits for its eviction a quarter as long as
//! a full-attention block that takes as much of the pool. A block gets its value when it becomes
//! cached, and another one when its request ends:
//!
//! - [`position`]: from where a tail is in its prompt. The end of the prompt and the boundaries
//!   near it, shared-prefix boundaries, and the power-of-two spacing of tails inside the prompt.
//! - [`ends`]: from what became of earlier ends. Ends of prompts, ends of answers, and ends at which a
//!   request has resumed are learnt apart.
//! - [`resumes`]: what a request that resumes, and one that ends, teaches both; and at which distances
//!   from the end of a prompt requests resume ([`resume_histogram`]).
//! - [`release`]: the values that the tails of a request get when it ends, and the order in which
//!   its blocks are released.
//!
//! Priorities that requests set go before all values; the pool keeps them
//! (`pool/eviction/priority.rs`).

mod release;
mod resumes;

mod position;

mod block_values;

mod ends;
mod resume_histogram;

mod doublings;

pub use ends::{EndValue, EndValues};
pub use position::ValueModel;
pub use resume_histogram::{KeptBins, ResumeHistogram};

pub(super) use position::TailValue;
pub(super) use release::{note_protected_tails, release_all, unprotect_tails};
pub(crate) use resumes::Admission;

use ends::EndStatistics;

use super::shape::TailShape;

/// The values of blocks, and what traffic has taught about them.
#[derive(Debug)]
pub(super) struct Valuation {
    model: ValueModel,
    near_end: ResumeHistogram,
    ends: EndStatistics,
    /// Hits end at multiples of this many tokens.
    alignment: usize,
}

impl Valuation {
    /// Returns the values before anything is learnt. Hits end at multiples of `alignment` tokens.
    pub(super) fn new(shapes: &[TailShape], alignment: usize) -> Self {
        Self {
            model: ValueModel::of(shapes),
            near_end: ResumeHistogram::new(alignment),
            ends: EndStatistics::default(),
            alignment,
        }
    }

    /// Returns what gives values to blocks.
    #[inline]
    pub(super) fn model(&self) -> &ValueModel {
        &self.model
    }
}
