//! What blocks are worth.

/// How much less a unit of the pool that a window tail or a state takes is worth than one that a
/// full block takes, in halvings; and whether it is worth that for good. See
/// [`crate::group::Worth`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grade {
    halvings: u8,
    lasts: bool,
}

impl Grade {
    /// Grades that there are.
    pub const COUNT: usize = 8;
    /// Worth as much as a full block.
    pub const BEST: Self = Self { halvings: 0, lasts: false };
    /// Worth nothing that anybody knows of: recycled before all others.
    pub const WORST: Self = Self { halvings: Self::COUNT as u8 - 1, lasts: false };

    /// So many halvings; at most those of [`Self::WORST`].
    pub fn new(halvings: usize) -> Self {
        Self { halvings: halvings.min(Self::COUNT - 1) as u8, lasts: false }
    }

    /// The same, whether or not requests resume there, as long as the prefix is used.
    pub fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// Halvings, from 0 for the best.
    pub fn halvings(self) -> usize {
        usize::from(self.halvings)
    }

    /// Whether it is worth that as long as the prefix is used.
    pub fn lasts(self) -> bool {
        self.lasts
    }

    /// Whether a tail is held while its request runs: from half the worth of a full block on.
    pub fn is_worth_holding(self) -> bool {
        self.halvings <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_end_with_the_worst_and_half_is_worth_holding() {
        assert_eq!(Grade::new(100), Grade::WORST);
        assert_eq!([0, 1, 2].map(|n| Grade::new(n).is_worth_holding()), [true, true, false]);
    }
}
