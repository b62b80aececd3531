//! Scoring functions: the worth of a free cached block by its frequency class and by how long it
//! has been free. Lists with the lowest score are evicted first.

use super::hazard::{ByClassAndAge, HazardEstimate};
use super::tuning::{AGES, CLASS_USES, CLASSES, OLDEST_AGE_FACTOR};

/// A scoring function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ScoringFunction {
    /// 1 / age: the block that was unused for the longest time is evicted first.
    Recency,
    /// Number of uses / age.
    Frequency,
    /// Expected hits / expected time in the pool.
    Hazard,
}

impl ScoringFunction {
    /// All scoring functions.
    pub const ALL: [Self; 3] = [Self::Recency, Self::Frequency, Self::Hazard];

    /// Returns the name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recency => "recency",
            Self::Frequency => "frequency",
            Self::Hazard => "hazard",
        }
    }

    /// Returns the score of a full block of each class and age.
    pub(super) fn scores(self, hazard: &HazardEstimate) -> ByClassAndAge {
        let by_age = |uses: f32| std::array::from_fn(|age| uses / (1 + counted_age(age)) as f32);
        let mut scores = [[0.0; AGES]; CLASSES];
        match self {
            Self::Recency => scores = [by_age(1.0); CLASSES],
            Self::Frequency => scores = CLASS_USES.map(by_age),
            Self::Hazard => hazard.update(&mut scores, true),
        }
        scores
    }
}

/// Returns the value that the scores use for an age. The last age includes all later ages.
fn counted_age(age: usize) -> usize {
    if age == AGES - 1 { OLDEST_AGE_FACTOR * age } else { age }
}
