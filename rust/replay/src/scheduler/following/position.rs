//! The server's position in a request.

use std::collections::VecDeque;

/// A position in a request's schedule, in tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// The number of tokens that were computed before the server's latest step.
    pub(super) start: usize,
    /// The number of tokens that were computed after that step.
    pub(super) end: usize,
    /// The number of tokens in flight when the latest step was scheduled.
    pub(super) num_in_flight: usize,
    /// The steps that may be in flight: the number of each step and its number of tokens.
    pub(super) latest: VecDeque<(usize, usize)>,
    /// Whether the server had ended the request.
    pub(super) has_ended: bool,
}

impl Position {
    /// Returns the number of tokens that the server knew when it scheduled the latest step. One of
    /// them is not computed, unless a step that yields it was in flight.
    pub(super) fn num_known(&self) -> usize {
        (self.start + 1).saturating_sub(self.num_in_flight)
    }

    /// Counts the tokens of the steps from `first` on as in flight, and forgets earlier steps.
    pub(super) fn note_in_flight(&mut self, first: usize) {
        self.latest.retain(|&(step, _)| step >= first);
        self.num_in_flight = self.in_flight_from(first);
    }

    /// Returns the number of tokens of the steps from `first` on.
    pub(super) fn in_flight_from(&self, first: usize) -> usize {
        let steps = self.latest.iter().filter(|&&(step, _)| step >= first);
        steps.map(|&(_, num_tokens)| num_tokens).sum()
    }
}
