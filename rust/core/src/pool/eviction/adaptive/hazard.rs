//! Estimates how likely a free block is used again, by class and age, and computes the score that
//! follows from it.

use super::tuning::{self, AGES, AVERAGE_WEIGHT, CLASSES};

/// A number for each frequency class and age.
pub(super) type ByClassAndAge = [[f32; AGES]; CLASSES];

const NOTHING: ByClassAndAge = [[0.0; AGES]; CLASSES];

/// The observations of sampled blocks. Old observations fade.
#[derive(Debug)]
pub(super) struct HazardEstimate {
    reused: ByClassAndAge,
    /// The number of blocks that were used again in this epoch.
    just_reused: [[u32; AGES]; CLASSES],
    /// The number of blocks that were free at an age, so that they could have been used again.
    exposed: ByClassAndAge,
    /// The number of blocks that are free now.
    free: ByClassAndAge,
}

impl HazardEstimate {
    pub(super) fn new() -> Self {
        let just_reused = [[0; AGES]; CLASSES];
        Self { reused: NOTHING, just_reused, exposed: NOTHING, free: NOTHING }
    }

    #[inline]
    pub(super) fn note_free(&mut self, class: usize, num: u32) {
        self.free[class][0] += num as f32;
    }

    #[inline]
    pub(super) fn note_reuse(&mut self, class: usize, age: usize, num: u32) {
        self.free[class][age] -= num as f32;
        self.just_reused[class][age] += num;
    }

    /// Ends an epoch. Free blocks were exposed at their age, and become an epoch older. Blocks of
    /// the last age are forgotten.
    pub(super) fn end_epoch(&mut self) {
        for class in 0..CLASSES {
            for age in 0..AGES {
                let just_reused = std::mem::take(&mut self.just_reused[class][age]) as f32;
                let exposed = self.free[class][age] + just_reused;
                let fade = |sum: f32, new: f32| (sum + new) * tuning::REUSE_FADE;
                self.reused[class][age] = fade(self.reused[class][age], just_reused);
                self.exposed[class][age] = fade(self.exposed[class][age], exposed);
            }
            self.free[class].rotate_right(1);
            self.free[class][0] = 0.0;
        }
    }

    /// Forgets all free blocks.
    pub(super) fn forget_free(&mut self) {
        self.free = NOTHING;
    }

    /// Updates Gittins' index of each class and age. The index is the highest ratio of expected
    /// hits to expected time in the pool, over all times for which a block may be kept. Classes
    /// without observations are updated only if `are_all`.
    pub(super) fn update(&self, indices: &mut ByClassAndAge, are_all: bool) {
        let average = self.average_hazards();
        let mut of_average = None;
        for (class, indices) in indices.iter_mut().enumerate() {
            // The compiler vectorises this loop.
            let is_seen = self.exposed[class].iter().fold(false, |any, &seen| any | (seen > 0.0));
            if is_seen {
                *indices = best_ratios(&self.hazards(class, &average));
            } else if are_all {
                *indices = *of_average.get_or_insert_with(|| best_ratios(&average));
            }
        }
    }

    /// Returns, for each age, how likely a free block of any class is used again within an epoch.
    fn average_hazards(&self) -> [f32; AGES] {
        let [reused, exposed] = [&self.reused, &self.exposed].map(sums);
        let total = |sums: &[f32; AGES]| sums.iter().sum::<f32>();
        let overall = (total(&reused) + 1.0) / (total(&exposed) + AGES as f32);
        std::array::from_fn(|age| {
            // Before the first observations, reuse becomes rarer with age.
            let prior = overall * tuning::PRIOR_START / (1.0 + age as f32 / tuning::PRIOR_DECAY);
            (reused[age] + AVERAGE_WEIGHT * prior) / (exposed[age] + AVERAGE_WEIGHT)
        })
    }

    fn hazards(&self, class: usize, average: &[f32; AGES]) -> [f32; AGES] {
        let [reused, exposed] = [&self.reused[class], &self.exposed[class]].map(near_sums);
        std::array::from_fn(|age| {
            (reused[age] + AVERAGE_WEIGHT * average[age]) / (exposed[age] + AVERAGE_WEIGHT)
        })
    }
}

/// Returns the sums over all classes.
fn sums(values: &ByClassAndAge) -> [f32; AGES] {
    let mut sums = [0.0; AGES];
    for of_class in values {
        sums.iter_mut().zip(of_class).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// Returns for each age the sum over the age and its neighbours. Each 16 epochs of age add one
/// neighbour on each side, because old ages behave alike.
fn near_sums(values: &[f32; AGES]) -> [f32; AGES] {
    const ALIKE: usize = tuning::EPOCHS_PER_NEIGHBOUR;
    const REACH: usize = (AGES - 1) / ALIKE;
    let mut padded = [0.0; AGES + REACH];
    padded[..AGES].copy_from_slice(values);
    let mut sums = [0.0; AGES];
    for (reach, sums) in sums.chunks_mut(ALIKE).enumerate() {
        for first in (0..=2 * reach).map(|i| ALIKE * reach - reach + i) {
            let near = &padded[first..first + ALIKE];
            sums.iter_mut().zip(near).for_each(|(sum, value)| *sum += value);
        }
    }
    sums
}

/// Returns for each age the steepest slope to a later point on the curve of hits over time in the
/// pool. This is the first edge of the upper hull from that age on.
fn best_ratios(hazards: &[f32; AGES]) -> [f32; AGES] {
    let points = hits_over_time(hazards);
    // The hull from an age on. The first point is last, and each point has the slope to the next.
    let mut hull = [Corner { at: points[AGES], slope: f32::NEG_INFINITY }; AGES + 1];
    let mut len = 1;
    let mut best = [0.0; AGES];
    for (best, &from) in best.iter_mut().zip(&points).rev() {
        let mut first = hull[len - 1];
        let mut slope = from.slope_to(first.at);
        while slope <= first.slope {
            len -= 1;
            first = hull[len - 1];
            slope = from.slope_to(first.at);
        }
        *best = slope;
        hull[len] = Corner { at: from, slope };
        len += 1;
    }
    best
}

/// The hits and the time up to an age, for a block that is not used before.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    time: f32,
    hits: f32,
}

impl Point {
    #[inline]
    fn slope_to(self, later: Self) -> f32 {
        let time = later.time - self.time;
        (later.hits - self.hits) / if time > 1e-9 { time } else { 1e-9 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Corner {
    at: Point,
    slope: f32,
}

fn hits_over_time(hazards: &[f32; AGES]) -> [Point; AGES + 1] {
    let mut points = [Point::default(); AGES + 1];
    let (mut alive, mut last) = (1.0, Point::default());
    for (point, hazard) in points[1..].iter_mut().zip(hazards) {
        last = Point { time: last.time + alive, hits: last.hits + alive * hazard };
        *point = last;
        // Smaller chances make no difference.
        let rest = alive * (1.0 - hazard);
        alive = if rest > 1e-6 { rest } else { 1e-6 };
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::eviction::adaptive::scoring::ScoringFunction;

    /// It is worth waiting for a rise as long as the later hits outweigh the wait.
    #[test]
    fn the_index_of_a_hazard_that_rises_looks_ahead() {
        let mut hazards = [0.0; AGES];
        hazards[2] = 0.75;
        let ratios = best_ratios(&hazards);
        assert_eq!(ratios[..4], [0.25, 0.375, 0.75, 0.0]);
    }

    #[test]
    fn the_index_of_a_hazard_that_falls_is_the_hazard() {
        let hazards = std::array::from_fn(|age| 0.5 / (1 + age) as f32);
        let ratios = best_ratios(&hazards);
        assert!(
            ratios.iter().zip(&hazards).all(|(ratio, hazard)| (ratio / hazard - 1.0).abs() < 1e-3)
        );
    }

    #[test]
    fn a_block_that_is_used_again_at_an_age_is_worth_most_just_before() {
        let mut hazard = HazardEstimate::new();
        hazard.note_free(0, 1000);
        (0..41).for_each(|_| hazard.end_epoch());
        hazard.note_reuse(0, 41, 900);
        hazard.end_epoch();
        let [once, ..] = ScoringFunction::Hazard.scores(&hazard);
        assert!(once[41] > once[20] && once[20] > once[0] && once[0] > once[60], "{once:?}");
    }

    #[test]
    fn before_anything_was_seen_the_youngest_of_any_class_are_worth_most() {
        let indices = ScoringFunction::Hazard.scores(&HazardEstimate::new());
        assert!(indices[0].is_sorted_by(|young, old| young >= old));
        assert!(indices[0][0] > indices[0][AGES - 1]);
        assert!(indices.iter().all(|class| *class == indices[0]));
    }

    #[test]
    fn what_waits_is_exposed_at_every_age_and_forgotten_after_the_last() {
        let mut hazard = HazardEstimate::new();
        hazard.note_free(2, 3);
        (0..2 * AGES).for_each(|_| hazard.end_epoch());
        let exposed = &hazard.exposed[2];
        assert!(exposed.iter().all(|&exposed| exposed > 1.0), "{exposed:?}");
        assert!(exposed.is_sorted(), "the later the less has faded");
        assert_eq!(hazard.free, NOTHING);
    }

    /// Computes the sums directly from the definition.
    #[test]
    fn neighbours_are_summed_the_more_the_older() {
        let values = std::array::from_fn(|age| (age * age % 7) as f32);
        let sum = |age: usize| {
            let reach = age / 16;
            values[age - reach..(age + reach + 1).min(AGES)].iter().sum::<f32>()
        };
        assert_eq!(near_sums(&values), std::array::from_fn(sum));
    }

    #[test]
    fn what_was_seen_fades() {
        let mut hazard = HazardEstimate::new();
        hazard.note_free(1, 1);
        (0..3).for_each(|_| hazard.end_epoch());
        hazard.note_reuse(1, 3, 1);
        (0..128).for_each(|_| hazard.end_epoch());
        assert!((0.49..0.51).contains(&hazard.reused[1][3]));
        assert_eq!(hazard.exposed[1][3], hazard.reused[1][3]);
        assert_eq!(hazard.free, NOTHING);
    }
}
