//! What a tail is worth per unit of the pool, against a full-attention block.

use super::tuning;

/// The value of a block: how often that of a full block is halved, and whether the value lasts. See
/// [`crate::group::ValueModel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueLevel {
    halvings: u8,
    is_durable: bool,
}

impl ValueLevel {
    /// The value of a full-attention block.
    pub const BEST: Self = Self { halvings: 0, is_durable: false };
    /// No value. Such blocks are evicted before all others.
    pub const WORST: Self = Self { halvings: tuning::VALUE_LEVELS as u8, is_durable: false };

    /// A full-attention block's value, halved so often; at least [`Self::WORST`].
    pub fn new(halvings: usize) -> Self {
        Self { halvings: halvings.min(tuning::VALUE_LEVELS) as u8, is_durable: false }
    }

    /// Returns the higher of two values.
    pub fn max(self, other: Self) -> Self {
        if other.halvings < self.halvings { other } else { self }
    }

    /// The same value, for as long as the prefix is used, whether or not requests resume there.
    pub fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    /// How often a full-attention block's value is halved.
    pub fn halvings(self) -> usize {
        usize::from(self.halvings)
    }

    /// Whether the value lasts as long as the prefix is used.
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
