//! The distance of a position from the end of its prompt, in steps.

use super::tuning::NEAR_END_BOUNDS;

/// How near the end of its prompt a block or a boundary lies, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nearness(u8);

impl Nearness {
    /// The position is [`Self::REACH`] or more tokens from the end.
    pub(crate) const FAR: Self = Self(0);
    /// The number of steps, without [`Self::FAR`].
    pub(crate) const NUM_STEPS: usize = NEAR_END_BOUNDS.len();
    /// The number of tokens before the end of a prompt from which on every position is far.
    pub(crate) const REACH: usize = NEAR_END_BOUNDS[0];

    /// Returns the nearness of a position that lies `num_tokens` tokens before the end.
    pub fn of(num_tokens: usize) -> Self {
        Self(NEAR_END_BOUNDS.iter().filter(|&&bound| num_tokens < bound).count() as u8)
    }

    /// Returns the least number of tokens that a position of this nearness lies before the end.
    pub(crate) fn least_tokens(self) -> usize {
        let [first, second, third] = NEAR_END_BOUNDS;
        [first, second, third, 0][usize::from(self.0)]
    }

    /// Returns the two bits that [`Self::from_bits`] reads.
    pub(super) fn bits(self) -> u32 {
        u32::from(self.0)
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits as u8 & 3)
    }

    /// Returns the step, counted from the farthest one; `None` for [`Self::FAR`].
    pub fn step(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// Returns the number of tokens of a step. All steps have [`Self::REACH`] tokens in total.
    pub fn num_tokens(step: usize) -> usize {
        NEAR_END_BOUNDS[step] - NEAR_END_BOUNDS.get(step + 1).unwrap_or(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_as_many_tokens_as_they_say() {
        for step in 0..Nearness::NUM_STEPS {
            let is_there = |&tokens: &usize| Nearness::of(tokens).step() == Some(step);
            assert_eq!((0..2000).filter(is_there).count(), Nearness::num_tokens(step));
        }
        let steps = [0, 63, 64, 255, 256, 511, 512].map(|tokens| Nearness::of(tokens).step());
        assert_eq!(steps, [Some(2), Some(2), Some(1), Some(1), Some(0), Some(0), None]);
        let least = [0, 63, 64, 255, 256, 511, 512, 900].map(|n| Nearness::of(n).least_tokens());
        assert_eq!(least, [0, 0, 64, 64, 256, 256, 512, 512]);
        let all = [0, 100, 300, 1000].map(Nearness::of);
        assert_eq!(all.map(|nearness| Nearness::from_bits(nearness.bits())), all);
    }
}
