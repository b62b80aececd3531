//! The value of a tail per unit of the pool, compared with a full-attention block.

use super::tuning;

/// The value of a block: the number of times that the value of a full block is halved, and whether
/// the value lasts. See [`crate::retention::ValueModel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueLevel {
    halvings: u8,
    is_durable: bool,
}

impl ValueLevel {
    /// The value of a full-attention block.
    pub const BEST: Self = Self { halvings: 0, is_durable: false };
    /// No value. Blocks without a value are evicted before all others.
    pub const WORST: Self = Self { halvings: tuning::VALUE_LEVELS as u8, is_durable: false };

    /// Returns a full-attention block's value, halved `halvings` times; at least [`Self::WORST`].
    pub fn new(halvings: usize) -> Self {
        Self { halvings: halvings.min(tuning::VALUE_LEVELS) as u8, is_durable: false }
    }

    /// Returns the higher of two values.
    pub fn max(self, other: Self) -> Self {
        if other.halvings < self.halvings { other } else { self }
    }

    /// Returns the same value, made to last as long as the prefix is used, whether or not requests
    /// resume there.
    pub fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    /// Returns the number of times that a full-attention block's value is halved.
    pub fn halvings(self) -> usize {
        usize::from(self.halvings)
    }

    /// Returns whether the value lasts as long as the prefix is used.
    pub fn is_durable(self) -> bool {
        self.is_durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_with_the_worst() {
        assert_eq!(ValueLevel::new(100), ValueLevel::WORST);
    }
}
