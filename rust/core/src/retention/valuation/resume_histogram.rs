//! Learns at which positions near the ends of earlier prompts requests resume.
//!
//! A follow-up diverges a little before the end of the prompt that it continues: where a template
//! put the last tokens, or at a multiple of the pieces in its traffic. The bins of the histogram
//! distinguish boundaries by two numbers: their distance from the prompt's end, and the largest
//! power of two of the alignment that divides them.

use crate::pool::{Nearness, tuning};

/// A bin of the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bin {
    step: usize,
    doublings: usize,
}

impl Bin {
    /// The number of powers of two that are distinguished. A larger power mostly has one multiple
    /// near the end.
    const NUM_DOUBLINGS: usize = Nearness::REACH.ilog2() as usize + 1;
    const COUNT: usize = Self::NUM_DOUBLINGS * Nearness::NUM_STEPS;

    /// Returns the bin of the boundary `position`, a multiple of `alignment`, in tokens; `None` if
    /// the boundary is not near the end.
    pub(super) fn of(position: usize, alignment: usize, nearness: Nearness) -> Option<Self> {
        let doublings = (position / alignment).trailing_zeros() as usize;
        Some(Self { step: nearness.step()?, doublings: doublings.min(Self::most(alignment)) })
    }

    /// Returns the number of doublings of `alignment` for which mostly one multiple is near the
    /// end.
    fn most(alignment: usize) -> usize {
        (Nearness::REACH / alignment).max(1).ilog2() as usize
    }

    fn index(self) -> usize {
        self.doublings * Nearness::NUM_STEPS + self.step
    }

    /// Returns the bin's share of all boundaries near the end.
    fn share(self, alignment: usize) -> f64 {
        let halvings = (self.doublings + 1).min(Self::most(alignment));
        let of_step = Nearness::num_tokens(self.step) as f64 / Nearness::REACH as f64;
        of_step / (1 << halvings) as f64
    }
}

/// The bins whose boundaries have the same value as the end of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBins {
    /// A bit for each bin that is not kept.
    dropped: u32,
}

const _: () = assert!(Bin::COUNT < u32::BITS as usize);

impl KeptBins {
    /// All bins.
    pub const ALL: Self = Self { dropped: 0 };

    pub(super) fn contains(self, bin: Option<Bin>) -> bool {
        bin.is_some_and(|bin| self.dropped >> bin.index() & 1 == 0)
    }
}

/// Counts how many requests resumed in each bin.
#[derive(Clone, Debug)]
pub struct ResumeHistogram {
    alignment: usize,
    total: u32,
    counts: [u32; Bin::COUNT],
}

impl ResumeHistogram {
    /// Creates an empty histogram for hits that end at multiples of `alignment` tokens.
    pub fn new(alignment: usize) -> Self {
        Self { alignment, total: 0, counts: [0; Bin::COUNT] }
    }

    /// Counts the first request that resumes at `position`, a multiple of the alignment. `nearness`
    /// is its distance from the end of the earlier prompt. Returns the kept bins from time to time.
    pub fn record(&mut self, position: usize, nearness: Nearness) -> Option<KeptBins> {
        let bin = Bin::of(position, self.alignment, nearness)?;
        self.counts[bin.index()] += 1;
        self.total += 1;
        if self.total == tuning::MAX_RESUMES {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        self.total.is_multiple_of(tuning::RESUMES_PER_UPDATE).then(|| self.kept_bins())
    }

    fn kept_bins(&self) -> KeptBins {
        let all = f64::from(self.total) + tuning::PRIOR_RESUMES;
        let bins = (0..Bin::NUM_DOUBLINGS).flat_map(|doublings| {
            (0..Nearness::NUM_STEPS).map(move |step| Bin { step, doublings })
        });
        let dropped = bins.filter(|&bin| {
            let share = bin.share(self.alignment);
            f64::from(self.counts[bin.index()]) + tuning::PRIOR_RESUMES * share
                < tuning::MIN_RESUME_SHARE * all * share
        });
        KeptBins { dropped: dropped.fold(0, |dropped, bin| dropped | 1 << bin.index()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the boundaries in a prompt that are kept.
    fn kept(bins: KeptBins, alignment: usize, num_prompt_tokens: usize) -> Vec<usize> {
        let boundaries = (1..=num_prompt_tokens / alignment).map(|i| i * alignment);
        let bin =
            |boundary| Bin::of(boundary, alignment, Nearness::of(num_prompt_tokens - boundary));
        boundaries.filter(|&boundary| bins.contains(bin(boundary))).collect()
    }

    /// Returns the kept bins after requests resumed at multiples of `grain` tokens, up to `reach`
    /// tokens before the ends of prompts of all lengths.
    fn after(alignment: usize, grain: usize, reach: usize, num: usize) -> KeptBins {
        let mut resumes = ResumeHistogram::new(alignment);
        let mut bins = KeptBins::ALL;
        for i in 0..num {
            let num_prompt_tokens = 5000 + 37 * i;
            let position = (num_prompt_tokens - 29 * i % reach) / grain * grain;
            let nearness = Nearness::of(num_prompt_tokens - position);
            bins = resumes.record(position, nearness).unwrap_or(bins);
        }
        bins
    }

    #[test]
    fn all_boundaries_have_bins_and_their_shares_are_one() {
        for alignment in [1, 16, 48, 256, 544, 2048] {
            let doublings = 0..=Bin::most(alignment);
            let steps = || 0..Nearness::NUM_STEPS;
            let bins = doublings.flat_map(|d| steps().map(move |step| Bin { step, doublings: d }));
            assert!(bins.clone().all(|bin| bin.index() < Bin::COUNT));
            assert_eq!(bins.map(|bin| bin.share(alignment)).sum::<f64>(), 1.0);
        }
    }

    #[test]
    fn before_anything_was_seen_and_where_requests_resume_anywhere_all_is_kept() {
        let all: Vec<_> = (93..=124).map(|i| i * 16).collect();
        assert_eq!(kept(KeptBins::ALL, 16, 1999), all);
        for num in [1, 10, 40, 3000] {
            assert_eq!(kept(after(16, 16, 512, num), 16, 1999), all, "after {num}");
        }
    }

    #[test]
    fn what_is_made_of_pieces_keeps_the_boundaries_between_them() {
        let bins = after(16, 512, 1, 200);
        assert_eq!(kept(bins, 16, 1999), [1536]);
        assert_eq!(kept(bins, 16, 2050), [2048]);
        assert_eq!(kept(after(16, 64, 1, 200), 16, 1999), [1984]);
        assert_eq!(kept(after(256, 512, 1, 200), 256, 1999), [1536]);
    }

    #[test]
    fn follow_ups_that_part_at_the_end_keep_what_is_nearest_to_it() {
        assert_eq!(kept(after(16, 16, 40, 200), 16, 1999), [1936, 1952, 1968, 1984]);
    }

    #[test]
    fn what_was_seen_is_forgotten_over_time() {
        let mut resumes = ResumeHistogram::new(16);
        let note = |resumes: &mut ResumeHistogram, position, num| {
            let noted = (0..num).filter_map(|_| resumes.record(position, Nearness::of(300)));
            kept(noted.last().expect("near the end"), 16, 1999)
        };
        assert_eq!(note(&mut resumes, 512, 5000), [1536]);
        assert_eq!(note(&mut resumes, 16, 5000).last(), Some(&1712));
        assert!(resumes.total < tuning::MAX_RESUMES);
        assert_eq!(resumes.record(512, Nearness::FAR), None);
    }
}
