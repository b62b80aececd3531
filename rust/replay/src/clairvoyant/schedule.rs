//! The schedule of a run, reduced to the data that a bound needs.

use std::ops::Range;

/// A change of a request's blocks. Requests are named by their index in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request starts, or restarts, with slots for its first `num_tokens` tokens.
    Admitted {
        /// The request.
        request: u32,
        /// The number of tokens with slots, including tokens of the hit.
        num_tokens: u32,
    },
    /// The request has slots for its first `num_tokens` tokens.
    Extended {
        /// The request.
        request: u32,
        /// The number of tokens with slots.
        num_tokens: u32,
    },
    /// The request releases its blocks and waits again.
    Preempted {
        /// The request.
        request: u32,
    },
    /// The request ends and releases its blocks.
    Ended {
        /// The request.
        request: u32,
    },
    /// All blocks of a step are allocated, and none is released yet.
    StepAllocated,
}

/// The events of a run in order, without steps in which no table can grow.
#[derive(Clone, Debug)]
pub struct Schedule {
    hash_block_size: usize,
    events: Vec<Event>,
}

impl Schedule {
    /// Returns an empty schedule of a run with one hash per `hash_block_size` tokens.
    pub fn new(hash_block_size: usize) -> Self {
        Self { hash_block_size, events: Vec::new() }
    }

    /// Returns the events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Records that a request is admitted with slots for `num_tokens` tokens.
    pub fn admit(&mut self, request: usize, num_tokens: usize) {
        let (request, num_tokens) = (request as u32, num_tokens as u32);
        self.events.push(Event::Admitted { request, num_tokens });
    }

    /// Records that a running request gets slots for these tokens. Decode steps are recorded only
    /// if they start a block, or fill a block with known tokens.
    pub fn extend(
        &mut self,
        request: usize,
        num_prompt_tokens: usize,
        num_known_tokens: usize,
        tokens: Range<usize>,
    ) {
        let size = self.hash_block_size;
        let begins = tokens.start.div_ceil(size) < tokens.end.div_ceil(size);
        let fills = tokens.start < num_known_tokens && tokens.start / size < tokens.end / size;
        if tokens.start < num_prompt_tokens || begins || fills {
            let (request, num_tokens) = (request as u32, tokens.end as u32);
            self.events.push(Event::Extended { request, num_tokens });
        }
    }

    /// Records that a request is preempted.
    pub fn preempt(&mut self, request: usize) {
        self.events.push(Event::Preempted { request: request as u32 });
    }

    /// Records that a request ends, or is rejected after it ran.
    pub fn end(&mut self, request: usize) {
        self.events.push(Event::Ended { request: request as u32 });
    }

    /// Records that the blocks of a step are allocated.
    pub fn step_allocated(&mut self) {
        if !matches!(self.events.last(), None | Some(Event::StepAllocated)) {
            self.events.push(Event::StepAllocated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_steps_inside_a_block_are_left_out() {
        let mut schedule = Schedule::new(4);
        schedule.admit(7, 6);
        schedule.step_allocated();
        for num_tokens in 6..13 {
            schedule.extend(7, 6, 6, num_tokens..num_tokens + 1);
            schedule.step_allocated();
        }
        let extended = |num_tokens| Event::Extended { request: 7, num_tokens };
        assert_eq!(
            schedule.events(),
            [
                Event::Admitted { request: 7, num_tokens: 6 },
                Event::StepAllocated,
                extended(9),
                Event::StepAllocated,
                extended(13),
                Event::StepAllocated,
            ]
        );
    }

    #[test]
    fn steps_that_fill_a_block_with_known_tokens_are_kept() {
        let mut schedule = Schedule::new(4);
        (6..13).for_each(|end| schedule.extend(7, 6, 8, end..end + 1));
        let extended = |num_tokens| Event::Extended { request: 7, num_tokens };
        assert_eq!(schedule.events(), [8, 9, 13].map(extended));
    }

    #[test]
    fn every_chunk_of_a_prompt_is_kept() {
        let mut schedule = Schedule::new(4);
        schedule.admit(0, 1);
        schedule.extend(0, 4, 4, 1..2);
        assert_eq!(schedule.events().len(), 2);
    }
}
