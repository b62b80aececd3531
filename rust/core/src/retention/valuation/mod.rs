//! The values of blocks under adaptive retention, and how they are determined.
//!
//! Values are in *full blocks*. A tail with the value 1/4 waits for its eviction a quarter as long
//! as a full-attention block that takes as much of the pool. A block gets its value when it becomes
//! cached, and another one when its request ends:
//!
//! - [`position`]: determines values from the position of a tail in its prompt. Important positions
//!   are the end of the prompt, boundaries near the end, and shared-prefix boundaries. Other tails
//!   inside the prompt have a power-of-two spacing.
//! - [`ends`]: determines values from the outcome of earlier ends. Ends of prompts, ends of
//!   answers, and ends where a request has resumed are learnt separately.
//! - [`resumes`]: learns from requests that resume and from requests that end, for both. It also
//!   learns at which distances from the end of a prompt requests resume ([`resume_histogram`]).
//! - [`release`]: sets the values of a request's tails when it ends, and the order in which its
//!   blocks are released.
//!
//! Priorities that requests set take precedence over all values. The pool stores them
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
pub(super) use resumes::SharedPrefix;

use ends::EndStatistics;

use super::shape::TailShape;

/// The values of blocks, and the knowledge from traffic that determines them.
#[derive(Debug)]
pub(super) struct Valuation {
    model: ValueModel,
    near_end: ResumeHistogram,
    ends: EndStatistics,
}

impl Valuation {
    /// Returns the valuation before anything is learnt. Hits end at multiples of `alignment`
    /// tokens.
    pub(super) fn new(shapes: &[TailShape], alignment: usize) -> Self {
        Self {
            model: ValueModel::of(shapes),
            near_end: ResumeHistogram::new(alignment),
            ends: EndStatistics::default(),
        }
    }

    /// Returns the model that assigns values to blocks.
    #[inline]
    pub(super) fn model(&self) -> &ValueModel {
        &self.model
    }
}
