//! How often free blocks are used again, by class and age, and what that says of each.

use super::ages::{AGES, Values};
use super::tags::CLASSES;

/// What was seen of sampled blocks. Old observations fade.
#[derive(Debug)]
pub(super) struct Profile {
    reused: Values,
    exposed: Values,
}

/// What is left of an observation after an epoch: half of it after 8 pools were taken.
const FADE: f32 = 0.9946;
/// Blocks that the average of all classes counts for, beside those of a class.
const PRIOR: f32 = 32.0;

impl Profile {
    pub fn new() -> Self {
        Self { reused: [[0.0; AGES]; CLASSES], exposed: [[0.0; AGES]; CLASSES] }
    }

    /// A block of a class was used again at an age.
    pub fn note_reuse(&mut self, class: usize, age: usize) {
        self.reused[class][age] += 1.0;
        self.exposed[class][age] += 1.0;
    }

    /// So many blocks of a class are free at an age as an epoch ends.
    pub fn note_free(&mut self, class: usize, age: usize, n: usize) {
        self.exposed[class][age] += n as f32;
    }

    /// An epoch ends.
    pub fn fade(&mut self) {
        let all = self.reused.iter_mut().chain(&mut self.exposed);
        all.flatten().for_each(|value| *value *= FADE);
    }

    /// Gittins' index of each class and age: of the ratios of expected hits to expected time in the
    /// pool that waiting for any time offers, the best.
    pub fn indices(&self) -> Values {
        let average = self.average_hazards();
        std::array::from_fn(|class| best_ratios(&self.hazards(class, &average)))
    }

    /// How likely a free block of any class is used again within an epoch, by age.
    fn average_hazards(&self) -> [f32; AGES] {
        let sum = |values: &Values, age: usize| values.iter().map(|ages| ages[age]).sum::<f32>();
        let total = |values: &Values| values.iter().flatten().sum::<f32>();
        let overall = (total(&self.reused) + 1.0) / (total(&self.exposed) + AGES as f32);
        std::array::from_fn(|age| {
            // Before anything was seen, reuse becomes rarer as time goes by.
            let prior = overall * 4.0 / (1.0 + age as f32 / 4.0);
            (sum(&self.reused, age) + PRIOR * prior) / (sum(&self.exposed, age) + PRIOR)
        })
    }

    fn hazards(&self, class: usize, average: &[f32; AGES]) -> [f32; AGES] {
        std::array::from_fn(|age| {
            // Neighbouring ages are alike, the more so the older.
            let reach = age / 16;
            let near = age - reach..(age + reach + 1).min(AGES);
            let reused: f32 = self.reused[class][near.clone()].iter().sum();
            let exposed: f32 = self.exposed[class][near].iter().sum();
            (reused + PRIOR * average[age]) / (exposed + PRIOR)
        })
    }
}

/// For each age the steepest slope from it to a later one, where hits rise over time in the pool:
/// along the upper hull of what lies behind it.
fn best_ratios(hazards: &[f32; AGES]) -> [f32; AGES] {
    // Hits and time up to each age, of a block that is not used before.
    let mut points = [(0.0_f32, 0.0_f32); AGES + 1];
    let mut alive = 1.0;
    for (age, hazard) in hazards.iter().enumerate() {
        let (time, hits) = points[age];
        points[age + 1] = (time + alive, hits + alive * hazard);
        // A chance below which nothing can be told apart.
        alive = (alive * (1.0 - hazard)).max(1e-6);
    }
    let slope = |from: (f32, f32), to: (f32, f32)| (to.1 - from.1) / (to.0 - from.0).max(1e-9);
    let mut hull = vec![points[AGES]];
    let mut best = [0.0; AGES];
    for age in (0..AGES).rev() {
        let from = points[age];
        while let [.., second, first] = hull[..]
            && slope(from, first) <= slope(first, second)
        {
            hull.pop();
        }
        best[age] = hull.last().map_or(0.0, |&first| slope(from, first));
        hull.push(from);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting for a rise is worth it as long as what is waited for outweighs the wait.
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
    fn who_is_used_again_at_an_age_is_worth_most_just_before() {
        let mut profile = Profile::new();
        for age in 0..=40 {
            profile.note_free(0, age, 1000);
        }
        (0..900).for_each(|_| profile.note_reuse(0, 40));
        let [once, ..] = profile.indices();
        assert!(once[40] > once[20] && once[20] > once[0] && once[0] > once[60], "{once:?}");
    }

    #[test]
    fn before_anything_was_seen_the_youngest_of_any_class_are_worth_most() {
        let indices = Profile::new().indices();
        assert!(indices[0].is_sorted_by(|young, old| young >= old));
        assert!(indices[0][0] > indices[0][AGES - 1]);
        assert!(indices.iter().all(|class| *class == indices[0]));
    }

    #[test]
    fn what_was_seen_fades() {
        let mut profile = Profile::new();
        profile.note_reuse(1, 3);
        (0..128).for_each(|_| profile.fade());
        assert!((0.49..0.51).contains(&profile.reused[1][3]));
        assert_eq!(profile.exposed[1][3], profile.reused[1][3]);
    }
}
