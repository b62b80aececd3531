//! Which waits in the pool are worth their room.

use std::collections::BinaryHeap;

/// A stretch of units that a request could hit if they stay in the pool from one moment to another.
/// Moments are counted in allocated steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The first step after whose allocation they have to be there though nobody uses them.
    pub from: u32,
    /// The step in which they are hit; they are in use then.
    pub until: u32,
    /// The request that hits them.
    pub request: u32,
    /// How many units of prefix wait.
    pub num_units: u32,
}

/// How many units of each request have to be given up, so that in every step no more wait than
/// there is `room` for; as few as possible.
pub fn given_up(mut waits: Vec<Wait>, room: &[usize], num_requests: usize) -> Vec<usize> {
    waits.sort_unstable_by_key(|wait| wait.from);
    let mut waits = waits.into_iter().filter(|wait| wait.from < wait.until).peekable();
    let mut kept = Kept::new(room.len(), num_requests);
    for (step, &room) in room.iter().enumerate() {
        kept.end(step);
        while let Some(wait) = waits.next_if(|wait| wait.from as usize == step) {
            kept.add(wait);
        }
        kept.cut_to(room);
    }
    kept.num_dropped
}

/// What waits at one moment.
struct Kept {
    num_units: usize,
    /// Units whose wait ends in each step.
    ending: Vec<usize>,
    /// The last to end first. What has ended lies below all that has not.
    by_end: BinaryHeap<(u32, u32, u32)>,
    num_dropped: Vec<usize>,
}

impl Kept {
    fn new(num_steps: usize, num_requests: usize) -> Self {
        Self {
            num_units: 0,
            ending: vec![0; num_steps + 1],
            by_end: BinaryHeap::new(),
            num_dropped: vec![0; num_requests],
        }
    }

    fn add(&mut self, wait: Wait) {
        self.num_units += wait.num_units as usize;
        self.ending[wait.until as usize] += wait.num_units as usize;
        self.by_end.push((wait.until, wait.request, wait.num_units));
    }

    fn end(&mut self, step: usize) {
        self.num_units -= self.ending[step];
    }

    /// Gives up what ends last until no more than `room` is left.
    fn cut_to(&mut self, room: usize) {
        while self.num_units > room {
            let Some((until, request, num_units)) = self.by_end.pop() else { return };
            let num_dropped = (self.num_units - room).min(num_units as usize);
            self.num_units -= num_dropped;
            self.ending[until as usize] -= num_dropped;
            self.num_dropped[request as usize] += num_dropped;
            let rest = num_units - num_dropped as u32;
            if rest > 0 {
                self.by_end.push((until, request, rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait(from: u32, until: u32, request: u32, num_units: u32) -> Wait {
        Wait { from, until, request, num_units }
    }

    #[test]
    fn what_ends_last_is_given_up() {
        let waits = vec![wait(0, 9, 0, 3), wait(1, 3, 1, 2), wait(4, 6, 2, 3)];
        assert_eq!(given_up(waits.clone(), &[3; 9], 3), [3, 0, 0]);
        assert_eq!(given_up(waits.clone(), &[5; 9], 3), [1, 0, 0]);
        assert_eq!(given_up(waits, &[6; 9], 3), [0, 0, 0]);
    }

    #[test]
    fn what_is_hit_at_once_needs_no_room() {
        assert_eq!(given_up(vec![wait(1, 1, 0, 5)], &[0; 3], 1), [0]);
    }

    #[test]
    fn room_that_shrinks_costs_what_waits() {
        let waits = vec![wait(0, 4, 0, 4), wait(0, 2, 1, 4)];
        assert_eq!(given_up(waits.clone(), &[8, 8, 8, 4], 2), [0, 0]);
        assert_eq!(given_up(waits, &[8, 5, 8, 4], 2), [3, 0]);
    }

    /// The most units that can be kept, by trying every choice.
    fn most_kept(waits: &[Wait], room: &[usize]) -> usize {
        let fits = |chosen: u32| {
            let is_kept = |i: &usize| chosen >> i & 1 == 1;
            let waiting = |step: usize| {
                let waits_at = |wait: &Wait| (wait.from..wait.until).contains(&(step as u32));
                (0..waits.len()).filter(is_kept).filter(|&i| waits_at(&waits[i])).count()
            };
            room.iter().enumerate().all(|(step, &room)| waiting(step) <= room)
        };
        let choices = (0..1 << waits.len()).filter(|&chosen| fits(chosen));
        choices.map(|chosen: u32| chosen.count_ones() as usize).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn as_few_as_possible_are_given_up(
            waits in prop::collection::vec((0..8_u32, 0..8_u32), 0..9),
            room in prop::collection::vec(0..4_usize, 9),
        ) {
            let stretch = |(request, &(a, b)): (usize, &(u32, u32))| {
                wait(a.min(b), a.max(b), request as u32, 1)
            };
            let waits: Vec<_> = waits.iter().enumerate().map(stretch).collect();
            let num_dropped: usize = given_up(waits.clone(), &room, waits.len()).iter().sum();
            prop_assert_eq!(waits.len() - num_dropped, most_kept(&waits, &room));
        }
    }
}
