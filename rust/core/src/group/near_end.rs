//! At which boundaries near the end of a prompt later requests resume.
//!
//! Follow-ups part a little before the end of the prompt that they go on from: where its last
//! tokens were put there by a template, or at a multiple of what their traffic is made of. Where,
//! is told by how near the end a boundary lies, and by the largest power of two of hits' ends that
//! it is a multiple of.

use crate::pool::Nearness;

/// A boundary near the end of a prompt, as far as boundaries are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    step: usize,
    doublings: usize,
}

impl Spot {
    /// Powers of two that are told apart: up to the one that is near the end mostly once.
    const NUM_DOUBLINGS: usize = Nearness::REACH.ilog2() as usize + 1;
    const COUNT: usize = Self::NUM_DOUBLINGS * Nearness::NUM_STEPS;

    /// The boundary `position`, a multiple of `alignment`, in tokens; `None` if it lies anywhere
    /// else than near the end.
    pub fn of(position: usize, alignment: usize, nearness: Nearness) -> Option<Self> {
        let doublings = (position / alignment).trailing_zeros() as usize;
        Some(Self { step: nearness.step()?, doublings: doublings.min(Self::most(alignment)) })
    }

    /// Doublings of `alignment` up to what is near the end mostly once.
    fn most(alignment: usize) -> usize {
        (Nearness::REACH / alignment).max(1).ilog2() as usize
    }

    fn index(self) -> usize {
        self.doublings * Nearness::NUM_STEPS + self.step
    }

    /// The share of all boundaries near the end that are such ones.
    fn share(self, alignment: usize) -> f64 {
        let halvings = (self.doublings + 1).min(Self::most(alignment));
        let of_step = Nearness::num_tokens(self.step) as f64 / Nearness::REACH as f64;
        of_step / (1 << halvings) as f64
    }
}

/// Boundaries near a prompt's end that are worth as much as the end itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearEnd {
    /// A bit for each spot that is not.
    dropped: u32,
}

const _: () = assert!(Spot::COUNT < u32::BITS as usize);

impl NearEnd {
    /// All boundaries.
    pub const ALL: Self = Self { dropped: 0 };

    /// Whether a boundary is.
    pub fn keeps(self, spot: Option<Spot>) -> bool {
        spot.is_some_and(|spot| self.dropped >> spot.index() & 1 == 0)
    }
}

/// Where requests resumed near the ends of prompts before them.
#[derive(Clone, Debug)]
pub struct Resumes {
    alignment: usize,
    num: u32,
    at: [u32; Spot::COUNT],
}

impl Resumes {
    /// Resumes anywhere near the end that are taken as seen before any was.
    const PRIOR: f64 = 48.0;
    /// Resumes after which something may have changed.
    const SOME: u32 = 8;
    /// When so many were seen, half of them are forgotten.
    const MAX: u32 = 1024;
    /// A boundary is kept if at least so much of what there would be at one anywhere resumes there.
    const LEAST: f64 = 0.5;

    /// None yet, where hits end at multiples of `alignment` tokens.
    pub fn new(alignment: usize) -> Self {
        Self { alignment, num: 0, at: [0; Spot::COUNT] }
    }

    /// A request resumes, at a multiple of the alignment, which lay so near the end of the prompt
    /// before it. Every so often, the boundaries that are worth to be kept from now on.
    pub fn note(&mut self, position: usize, nearness: Nearness) -> Option<NearEnd> {
        let spot = Spot::of(position, self.alignment, nearness)?;
        self.at[spot.index()] += 1;
        self.num += 1;
        if self.num == Self::MAX {
            self.at.iter_mut().for_each(|num| *num /= 2);
            self.num = self.at.iter().sum();
        }
        self.num.is_multiple_of(Self::SOME).then(|| self.near_end())
    }

    fn near_end(&self) -> NearEnd {
        let all = f64::from(self.num) + Self::PRIOR;
        let spots = (0..Spot::NUM_DOUBLINGS).flat_map(|doublings| {
            (0..Nearness::NUM_STEPS).map(move |step| Spot { step, doublings })
        });
        let dropped = spots.filter(|&spot| {
            let share = spot.share(self.alignment);
            f64::from(self.at[spot.index()]) + Self::PRIOR * share < Self::LEAST * all * share
        });
        NearEnd { dropped: dropped.fold(0, |dropped, spot| dropped | 1 << spot.index()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boundaries that are kept of those before the end of a prompt.
    fn kept(near_end: NearEnd, alignment: usize, num_prompt_tokens: usize) -> Vec<usize> {
        let boundaries = (1..=num_prompt_tokens / alignment).map(|i| i * alignment);
        let spot =
            |boundary| Spot::of(boundary, alignment, Nearness::of(num_prompt_tokens - boundary));
        boundaries.filter(|&boundary| near_end.keeps(spot(boundary))).collect()
    }

    /// What is kept after requests resumed at multiples of `grain` tokens, up to `reach` before the
    /// ends of prompts of all lengths.
    fn after(alignment: usize, grain: usize, reach: usize, num: usize) -> NearEnd {
        let mut resumes = Resumes::new(alignment);
        let mut near_end = NearEnd::ALL;
        for i in 0..num {
            let num_prompt_tokens = 5000 + 37 * i;
            let position = (num_prompt_tokens - 29 * i % reach) / grain * grain;
            let nearness = Nearness::of(num_prompt_tokens - position);
            near_end = resumes.note(position, nearness).unwrap_or(near_end);
        }
        near_end
    }

    #[test]
    fn all_boundaries_are_spots_and_their_shares_are_one() {
        for alignment in [1, 16, 48, 256, 544, 2048] {
            let doublings = 0..=Spot::most(alignment);
            let steps = || 0..Nearness::NUM_STEPS;
            let spots =
                doublings.flat_map(|d| steps().map(move |step| Spot { step, doublings: d }));
            assert!(spots.clone().all(|spot| spot.index() < Spot::COUNT));
            assert_eq!(spots.map(|spot| spot.share(alignment)).sum::<f64>(), 1.0);
        }
    }

    #[test]
    fn before_anything_was_seen_and_where_requests_resume_anywhere_all_is_kept() {
        let all: Vec<_> = (93..=124).map(|i| i * 16).collect();
        assert_eq!(kept(NearEnd::ALL, 16, 1999), all);
        for num in [1, 10, 40, 3000] {
            assert_eq!(kept(after(16, 16, 512, num), 16, 1999), all, "after {num}");
        }
    }

    #[test]
    fn what_is_made_of_pieces_keeps_the_boundaries_between_them() {
        let near_end = after(16, 512, 1, 200);
        assert_eq!(kept(near_end, 16, 1999), [1536]);
        assert_eq!(kept(near_end, 16, 2050), [2048]);
        assert_eq!(kept(after(16, 64, 1, 200), 16, 1999), [1984]);
        assert_eq!(kept(after(256, 512, 1, 200), 256, 1999), [1536]);
    }

    #[test]
    fn follow_ups_that_part_at_the_end_keep_what_is_nearest_to_it() {
        assert_eq!(kept(after(16, 16, 40, 200), 16, 1999), [1936, 1952, 1968, 1984]);
    }

    #[test]
    fn what_was_seen_is_forgotten_over_time() {
        let mut resumes = Resumes::new(16);
        let note = |resumes: &mut Resumes, position, num| {
            let noted = (0..num).filter_map(|_| resumes.note(position, Nearness::of(300)));
            kept(noted.last().expect("near the end"), 16, 1999)
        };
        assert_eq!(note(&mut resumes, 512, 5000), [1536]);
        assert_eq!(note(&mut resumes, 16, 5000).last(), Some(&1712));
        assert!(resumes.num < Resumes::MAX);
        assert_eq!(resumes.note(512, Nearness::FAR), None);
    }
}
