//! Sums of observations that fade. Observations that are added at once count as if they were added one
//! by one, rounding included.

/// Adds 1 to a sum, which is not negative, `num` times, and rounds as each addition does. Only one that
/// reaches a power of two rounds.
pub(super) fn add_repeatedly(sum: &mut f32, num: u32) {
    const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;
    /// Nothing becomes more by 1.
    const MOST: f32 = (1_u32 << f32::MANTISSA_DIGITS) as f32;
    let mut left = num;
    while left > 0 && *sum < MOST {
        let power = f32::from_bits(((sum.to_bits() >> MANTISSA) + 1) << MANTISSA);
        let step = ((power - *sum) as u32 + 1).min(left);
        *sum += step as f32;
        left -= step;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ones_are_added_as_one_by_one(bits in 0_u32..0x4b80_0010, num in 0_u32..3000) {
            let (mut sum, mut expected) = (f32::from_bits(bits), f32::from_bits(bits));
            add_repeatedly(&mut sum, num);
            (0..num).for_each(|_| expected += 1.0);
            prop_assert_eq!(sum, expected);
        }

        #[test]
        fn sums_of_any_size_are_added_to(start in 0.0_f32..3e4, num in 0_u32..3000) {
            let (mut sum, mut expected) = (start, start);
            add_repeatedly(&mut sum, num);
            (0..num).for_each(|_| expected += 1.0);
            prop_assert_eq!(sum, expected);
        }
    }
}
