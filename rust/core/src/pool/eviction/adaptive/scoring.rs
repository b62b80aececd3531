//! The orderings that compete: what a free block is worth by the uses of its prefix and by how long
//! it has been free.

use super::ages::{AGES, Values};
use super::block_meta::CLASSES;
use super::hazard::Profile;

/// A rank of free cached blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Ordering {
    /// The longest unused goes first.
    Recency,
    /// The least uses per time since the last goes first.
    Frequency,
    /// The least expected hits per expected time in the pool goes first.
    Hazard,
}

impl Ordering {
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

    /// Whether what blocks are worth changes with what is seen of them.
    pub(crate) fn learns(self) -> bool {
        self == Self::Hazard
    }

    /// Worth by class and age.
    pub(crate) fn values(self, profile: &Profile) -> Values {
        /// The middle of each class's uses.
        const USES: [f32; CLASSES] = [1.0, 2.4, 5.3, 12.0];
        let by_age = |uses: f32| std::array::from_fn(|age| uses / (1 + typical(age)) as f32);
        match self {
            Self::Recency => [by_age(1.0); CLASSES],
            Self::Frequency => USES.map(by_age),
            Self::Hazard => profile.indices(),
        }
    }
}

/// The age of blocks as far as ages are told apart: the last one stands for all beyond it too.
fn typical(age: usize) -> usize {
    if age == AGES - 1 { 2 * age } else { age }
}
