//! The counts of a histogram in serialized form.

use hdrhistogram::{Histogram, RecordError};
use serde::{Deserialize, Serialize};

/// Pairs of a value, at the histogram's precision, and the number of times that it occurred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramCounts(Vec<(u64, u64)>);

impl HistogramCounts {
    /// Returns the counts of a histogram.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let values = histogram.iter_recorded();
        Self(values.map(|at| (at.value_iterated_to(), at.count_at_value())).collect())
    }

    /// Adds the counts to a histogram with the same bounds and digits. Fails for values outside of
    /// its bounds.
    pub fn record(&self, histogram: &mut Histogram<u64>) -> Result<(), RecordError> {
        self.0.iter().try_for_each(|&(value, count)| histogram.record_n(value, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_of_the_counts_of_another_is_equal_to_it() {
        let bounded = Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).expect("bounds");
        let grows = Histogram::<u64>::new(3).expect("digits");
        for empty in [bounded, grows] {
            let mut counted = empty.clone();
            for value in [1, 999, 1_000, 123_456_789, 123_456_789, 99_999_999_999] {
                counted.saturating_record(value);
            }
            let mut copied = empty.clone();
            HistogramCounts::of(&counted).record(&mut copied).expect("the same bounds");
            assert_eq!((copied.max(), &copied), (counted.max(), &counted));
            assert_eq!(HistogramCounts::of(&empty), HistogramCounts(Vec::new()));
        }
    }

    #[test]
    fn a_value_beyond_the_bounds_is_refused() {
        let mut bounded = Histogram::<u64>::new_with_bounds(1, 1_000, 3).expect("bounds");
        assert!(HistogramCounts(vec![(u64::MAX, 1)]).record(&mut bounded).is_err());
    }
}
