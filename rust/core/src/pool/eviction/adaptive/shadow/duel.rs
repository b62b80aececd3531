//! Set dueling (DIP, ISCA 2007): decides which scoring function is in force.
//!
//! The lead of a function over another one is a quotient. Its numerator is the sum of the
//! differences of their hits per round. Its denominator is the root of the sum of the squared
//! differences: what random signs would give. Both sums fade.

use super::FUNCTIONS;
use crate::pool::eviction::adaptive::scoring::ScoringFunction;
use crate::pool::eviction::adaptive::tuning;

/// The leads of all pairs of functions.
#[derive(Debug, Default)]
pub(super) struct Duel {
    leads: [[Lead; FUNCTIONS]; FUNCTIONS],
    /// The index of the function in force. It is recency until another function is far enough
    /// ahead.
    pub(super) in_force: usize,
}

/// The lead of a function over another one.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    sum: f32,
    sum_of_squares: f32,
}

impl Lead {
    fn add(&mut self, difference: f32) {
        self.sum = self.sum * tuning::LEAD_FADE + difference;
        self.sum_of_squares = self.sum_of_squares * tuning::LEAD_FADE + difference * difference;
    }

    /// Returns the lead in standard deviations of a random result.
    fn in_deviations(self) -> f32 {
        if self.sum_of_squares > 0.0 { self.sum / self.sum_of_squares.sqrt() } else { 0.0 }
    }
}

impl Duel {
    /// Adds the hits of a round.
    pub(super) fn end_round(&mut self, hits: [u32; FUNCTIONS]) {
        for (leads, own) in self.leads.iter_mut().zip(hits) {
            for (lead, other) in leads.iter_mut().zip(hits) {
                lead.add(own as f32 - other as f32);
            }
        }
    }

    /// Puts the function in force that is furthest ahead of the current one, if one is far enough
    /// ahead. Recency takes over as soon as the current function's lead over it is too small.
    pub(super) fn choose(&mut self) {
        let lead = |function: usize| self.leads[function][self.in_force].in_deviations();
        let needed = |function: usize| match ScoringFunction::ALL[function] {
            ScoringFunction::Recency => -tuning::LEAD_TO_STAY,
            _ => tuning::LEAD_TO_TAKE_OVER,
        };
        let others = (0..FUNCTIONS).filter(|&function| function != self.in_force);
        let ahead = others.filter(|&function| lead(function) > needed(function));
        let furthest = ahead.max_by(|&a, &b| lead(a).total_cmp(&lead(b)));
        self.in_force = furthest.unwrap_or(self.in_force);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(duel: &mut Duel, num: usize, hits: [u32; FUNCTIONS]) -> ScoringFunction {
        for _ in 0..num {
            duel.end_round(hits);
            duel.choose();
        }
        ScoringFunction::ALL[duel.in_force]
    }

    #[test]
    fn a_function_that_is_steadily_ahead_takes_over() {
        let mut duel = Duel::default();
        // After n equal rounds, the lead is the root of n deviations.
        assert_eq!(rounds(&mut duel, 2, [10, 11, 10]), ScoringFunction::Recency);
        assert_eq!(rounds(&mut duel, 1, [10, 11, 10]), ScoringFunction::Frequency);
    }

    #[test]
    fn differences_that_cancel_change_nothing() {
        let mut duel = Duel::default();
        for _ in 0..200 {
            assert_eq!(rounds(&mut duel, 1, [10, 30, 10]), ScoringFunction::Recency);
            assert_eq!(rounds(&mut duel, 1, [30, 10, 30]), ScoringFunction::Recency);
        }
    }

    #[test]
    fn recency_returns_once_the_lead_is_small() {
        let mut duel = Duel::default();
        assert_eq!(rounds(&mut duel, 9, [10, 10, 12]), ScoringFunction::Hazard);
        // Nine rounds of +2 and seven of -2 give a lead of 4 / 8.
        assert_eq!(rounds(&mut duel, 6, [12, 12, 10]), ScoringFunction::Hazard);
        assert_eq!(rounds(&mut duel, 1, [12, 12, 10]), ScoringFunction::Recency);
    }

    #[test]
    fn of_two_that_are_ahead_the_better_takes_over() {
        let mut duel = Duel::default();
        assert_eq!(rounds(&mut duel, 1, [10, 11, 10]), ScoringFunction::Recency);
        assert_eq!(rounds(&mut duel, 8, [10, 11, 13]), ScoringFunction::Hazard);
    }

    #[test]
    fn without_hits_nothing_changes() {
        assert_eq!(rounds(&mut Duel::default(), 100, [0; FUNCTIONS]), ScoringFunction::Recency);
    }
}
