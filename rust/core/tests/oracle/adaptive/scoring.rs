//! Scoring functions. The score of a free cached block depends on two numbers: how often its prefix
//! was used (its *frequency class*), and how long it has been free (its *age*, in epochs). The list
//! of blocks with the lowest score is evicted first. Three functions compete:
//!
//! - *recency*, 1 / age: the least recently used block is evicted first;
//! - *frequency*, uses / age: hyperbolic caching (ATC 2017);
//! - *hazard*: expected hits per expected time in the pool, for the best time to wait (Gittins'
//!   index). It uses the observed reuse of each class and age (as in LHD, NSDI 2018).
//!
//! Scores are compared, so every sum here is a sum of `f32` in the engine's order.

use kvoxide_core::pool::ScoringFunction;

/// Frequency classes: 1 use, 2 to 3, 4 to 7, 8 and more.
pub const CLASSES: usize = 4;
/// The number of ages. Older blocks have the last age.
pub const AGES: usize = 64;
/// Scores by frequency class and age.
pub type Scores = [[f32; AGES]; CLASSES];

/// Returns the frequency class for a number of uses.
pub fn class_of(uses: usize) -> usize {
    [2, 4, 8].iter().filter(|&&bound| uses >= bound).count()
}

/// Returns the scores of a scoring function that learns nothing.
fn fixed_scores(uses: [f32; CLASSES]) -> Scores {
    // The last age also covers all older ones, so it counts twice.
    let age = |age: usize| if age == AGES - 1 { 2 * age } else { age };
    uses.map(|uses| std::array::from_fn(|i| uses / (1 + age(i)) as f32))
}

/// Returns the initial scores of a scoring function.
pub fn first_scores(function: ScoringFunction) -> Scores {
    match function {
        ScoringFunction::Recency => fixed_scores([1.0; CLASSES]),
        ScoringFunction::Frequency => fixed_scores([1.0, 2.4, 5.3, 12.0]),
        ScoringFunction::Hazard => {
            let mut scores = [[0.0; AGES]; CLASSES];
            Reuse::default().learn(&mut scores, true);
            scores
        }
    }
}

/// Counts how often sampled blocks were reused, by the frequency class and age that they had. Old
/// observations fade.
pub struct Reuse {
    /// The number of blocks reused at each age.
    reused: Scores,
    /// The number of blocks reused at each age in this epoch.
    just_reused: Scores,
    /// The number of blocks that were free at each age, reused or not.
    exposed: Scores,
    /// The number of blocks that are free now.
    free: Scores,
}

impl Default for Reuse {
    fn default() -> Self {
        let nothing = [[0.0; AGES]; CLASSES];
        Self { reused: nothing, just_reused: nothing, exposed: nothing, free: nothing }
    }
}

impl Reuse {
    /// The share of an observation that remains after an epoch.
    pub const FADE: f32 = 0.9946;
    /// The number of blocks of the average class that are added to the observations of each class.
    const PRIOR: f32 = 32.0;

    pub fn note_freed(&mut self, class: usize) {
        self.free[class][0] += 1.0;
    }

    pub fn note_reused(&mut self, class: usize, age: usize) {
        self.free[class][age] -= 1.0;
        self.just_reused[class][age] += 1.0;
    }

    /// Counts free blocks as exposed at their age and makes them an epoch older. Blocks of the last
    /// age are forgotten.
    pub fn end_epoch(&mut self) {
        for class in 0..CLASSES {
            for age in 0..AGES {
                let just_reused = std::mem::take(&mut self.just_reused[class][age]);
                let exposed = self.free[class][age] + just_reused;
                let fade = |sum: f32, new: f32| (sum + new) * Self::FADE;
                self.reused[class][age] = fade(self.reused[class][age], just_reused);
                self.exposed[class][age] = fade(self.exposed[class][age], exposed);
            }
            self.free[class].rotate_right(1);
            self.free[class][0] = 0.0;
        }
    }

    pub fn forget_free(&mut self) {
        self.free = [[0.0; AGES]; CLASSES];
    }

    /// Updates the hazard scores. Classes without observations are updated only with `all`.
    pub fn learn(&self, scores: &mut Scores, all: bool) {
        let average = self.average_hazards();
        let near = |values: &[f32; AGES], age| values[neighbours(age)].iter().sum::<f32>();
        for ((scores, reused), exposed) in scores.iter_mut().zip(&self.reused).zip(&self.exposed) {
            if exposed.iter().any(|&exposed| exposed > 0.0) {
                *scores = gittins_index(&std::array::from_fn(|age| {
                    let (reused, exposed) = (near(reused, age), near(exposed, age));
                    (reused + Self::PRIOR * average[age]) / (exposed + Self::PRIOR)
                }));
            } else if all {
                *scores = gittins_index(&average);
            }
        }
    }

    /// Returns, for each age, the probability that a free block of any class is reused within an
    /// epoch.
    fn average_hazards(&self) -> [f32; AGES] {
        let of_age =
            |values: &Scores, age: usize| values.iter().map(|class| class[age]).sum::<f32>();
        let all = |values| (0..AGES).map(|age| of_age(values, age)).sum::<f32>();
        let overall = (all(&self.reused) + 1.0) / (all(&self.exposed) + AGES as f32);
        std::array::from_fn(|age| {
            // Without observations, reuse becomes rarer with age.
            let prior = overall * 4.0 / (1.0 + age as f32 / 4.0);
            (of_age(&self.reused, age) + Self::PRIOR * prior)
                / (of_age(&self.exposed, age) + Self::PRIOR)
        })
    }
}

/// Returns the ages that are averaged with `age`. For older ages, they are more.
fn neighbours(age: usize) -> std::ops::Range<usize> {
    let reach = age / 16;
    age - reach..(age + reach + 1).min(AGES)
}

/// Returns, for each age, the most hits per time that a block offers if it is kept until the best
/// later age.
fn gittins_index(hazards: &[f32; AGES]) -> [f32; AGES] {
    // The expected hits and the expected time in the pool up to each age. A block leaves the pool
    // when it is hit.
    let (mut hits, mut time, mut alive) = ([0.0; AGES + 1], [0.0; AGES + 1], 1.0_f32);
    for (age, hazard) in hazards.iter().enumerate() {
        time[age + 1] = time[age] + alive;
        hits[age + 1] = hits[age] + alive * hazard;
        alive = (alive * (1.0 - hazard)).max(1e-6);
    }
    let ratio =
        |from: usize, to: usize| (hits[to] - hits[from]) / f32::max(time[to] - time[from], 1e-9);
    let (mut best, mut until) = ([0.0; AGES], [AGES; AGES]);
    for age in (0..AGES).rev() {
        until[age] = age + 1;
        // It pays to wait longer as long as later ages offer at least as many hits per time.
        while until[age] < AGES && ratio(age, until[age]) <= best[until[age]] {
            until[age] = until[until[age]];
        }
        best[age] = ratio(age, until[age]);
    }
    best
}
