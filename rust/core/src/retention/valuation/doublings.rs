//! Computes powers of two.

/// Returns the exponent of the smallest power of two that is at least `number`, a positive number.
pub(super) fn doublings_to(number: f64) -> i32 {
    const FRACTION: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: i32 = f64::MAX_EXP - 1;
    let bits = number.to_bits();
    (bits >> FRACTION) as i32 - BIAS + i32::from(bits & ((1 << FRACTION) - 1) != 0)
}
