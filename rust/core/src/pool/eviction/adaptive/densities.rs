//! The densities of a sample, by the size of the pool.

use super::tuning;
use crate::block::BlockHash;
use crate::pool::KeyLayout;

/// Returns the density of a pool's sample: one in 2 to the power of this many blocks is sampled.
pub(super) fn num_zeros(num_blocks: usize) -> u32 {
    let halvings = tuning::SPARSER_SAMPLES.iter().filter(|&&pool| num_blocks >= pool).count();
    tuning::SAMPLE_BITS + halvings as u32
}

/// Returns in how many of the densities the blocks with a hash are sampled. These are the densest
/// ones.
pub fn num_samples(hash: &BlockHash) -> u32 {
    let num_densities = 1 + tuning::SPARSER_SAMPLES.len() as u32;
    let num_zeros = KeyLayout::bits(hash).leading_zeros();
    (num_zeros + 1).saturating_sub(tuning::SAMPLE_BITS).min(num_densities)
}

#[cfg(test)]
mod tests {
    use super::super::shadow::ShadowCaches;
    use super::*;

    #[test]
    fn a_hash_is_sampled_in_the_densities_whose_limit_is_above_it() {
        let limits = [100, 1 << 17, 1 << 21].map(|num| ShadowCaches::new(num).sample_limit());
        let mut seen = [0; 4];
        for n in 0..1 << 13 {
            let hash = BlockHash([n, 1, 2, 3]);
            let below = limits.iter().filter(|&&limit| KeyLayout::bits(&hash) < limit).count();
            assert_eq!(num_samples(&hash) as usize, below);
            seen[below] += 1;
        }
        assert!(seen.iter().all(|&num| num > 0), "{seen:?}");
    }
}
