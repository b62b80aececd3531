//! Scoring functions: what a free cached block is worth by its frequency class and by how long it has
//! been free. Lists with the lowest score are evicted first.

use super::hazard::{ByClassAndAge, HazardEstimate};
use super::tuning::{TUNING, Tuning};

/// The score of a full block of each class and age.
pub(super) type Scores = ByClassAndAge;

/// A scoring function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ScoringFunction {
    /// 1 / age: the longest unused is evicted first.
    Recency,
    /// Uses / age.
    Frequency,
    /// Expected hits per expected time in the pool.
    Hazard,
}

impl ScoringFunction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Recency, Self::Frequency, Self::Hazard];

    /// The name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recency => "recency",
            Self::Frequency => "frequency",
            Self::Hazard => "hazard",
        }
    }

    /// Whether scores change with what is observed.
    pub(super) fn learns(self) -> bool {
        self == Self::Hazard
    }

    pub(super) fn scores(self, hazard: &HazardEstimate) -> Scores {
        let by_age = |uses: f32| std::array::from_fn(|age| uses / (1 + typical(age)) as f32);
        match self {
            Self::Recency => [by_age(1.0); Tuning::CLASSES],
            Self::Frequency => TUNING.class_uses.map(by_age),
            Self::Hazard => hazard.indices(),
        }
    }
}

/// The typical age of blocks of an age. The last one stands for all ages beyond it too.
fn typical(age: usize) -> usize {
    if age == Tuning::AGES - 1 { TUNING.oldest_age_factor * age } else { age }
}
