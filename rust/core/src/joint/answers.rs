//! Decides whether answers are kept: blocks with generated tokens.
//!
//! Some answers never come back. The next prompt of a reasoning model, for example, lacks the
//! thoughts of the answer before it. Memory that keeps such answers has less room for prompts.

/// How many of the tokens of kept answers are hit. Old ones count less.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// The tokens of kept answers.
    kept: u64,
    /// The hit tokens of answers.
    hit: u64,
    /// All hit tokens that were counted so far.
    num_hit: u64,
    /// The number of answers that ended.
    num_ended: u64,
    /// How many tokens of kept answers are enough to judge by. 0 keeps every answer.
    enough: u64,
}

impl Answers {
    /// Answers are given up if less than one of so many of their tokens is hit.
    const LEAST_HIT: u64 = 16;
    /// One of so many answers is kept in any case, so that a change of the traffic is noticed.
    const SAMPLED: u64 = 8;
    /// Answers of this part of the pool are enough to judge by.
    const PARTS: usize = 4;

    /// Creates the counts of a pool with room for this many tokens of full attention.
    pub fn new(num_tokens: usize) -> Self {
        Self { enough: (num_tokens / Self::PARTS) as u64, ..Self::default() }
    }

    /// Notes that a request ended whose answer has `num_tokens` tokens. Of all answers, `num_hit`
    /// tokens were hit so far. Returns whether the answer is kept.
    pub fn end(&mut self, num_tokens: usize, num_hit: u64) -> bool {
        self.num_ended += 1;
        self.hit += num_hit.saturating_sub(std::mem::replace(&mut self.num_hit, num_hit));
        if self.are_given_up() && !is_sampled(self.num_ended) {
            return false;
        }
        self.kept += num_tokens as u64;
        if self.kept > 2 * self.enough {
            self.kept /= 2;
            self.hit /= 2;
        }
        true
    }

    /// Returns whether answers are given up, but for the sampled ones.
    pub fn are_given_up(&self) -> bool {
        self.enough > 0 && self.kept >= self.enough && self.hit < self.kept / Self::LEAST_HIT
    }
}

/// Requests can come in turns, so the numbers of their ends are scattered first.
fn is_sampled(number: u64) -> bool {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(Answers::SAMPLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: usize = 100;

    /// Ends `num` requests, with `hits` hit tokens after each. Returns how many answers were kept.
    fn end(answers: &mut Answers, num: u64, hits: u64) -> u64 {
        let before = answers.num_hit;
        (1..=num).filter(|n| answers.end(TOKENS, before + n * hits)).count() as u64
    }

    #[test]
    fn answers_that_never_come_back_are_given_up_but_for_a_sample() {
        let mut answers = Answers::new(4 * 20 * TOKENS);
        assert_eq!(end(&mut answers, 20, 0), 20);
        assert!(answers.are_given_up());
        let kept = end(&mut answers, 800, 0);
        assert!((50..=200).contains(&kept), "{kept}");
    }

    #[test]
    fn answers_that_come_back_are_kept() {
        let mut answers = Answers::new(4 * 20 * TOKENS);
        assert_eq!(end(&mut answers, 500, 8), 500);
        assert!(!answers.are_given_up());
    }

    #[test]
    fn a_change_of_the_traffic_is_noticed_in_the_sample() {
        let mut answers = Answers::new(4 * 20 * TOKENS);
        end(&mut answers, 100, 0);
        assert!(answers.are_given_up());
        // Sampled answers alone are hit, two thirds of their tokens.
        end(&mut answers, 200, 8);
        assert!(!answers.are_given_up());
        assert_eq!(end(&mut answers, 100, 50), 100);
        end(&mut answers, 300, 0);
        assert!(answers.are_given_up());
    }

    #[test]
    fn without_a_count_of_hits_every_answer_is_kept() {
        let mut answers = Answers::default();
        assert_eq!(end(&mut answers, 300, 0), 300);
    }
}
