//! Remembers the text at the start of prompts, to explain misses that keys of blocks cannot.
//!
//! A key names whole blocks under one salt and adapter. So keys cannot show that two prompts share
//! less than a block, or share text under different salts. This memory has fingerprints of the
//! prefixes of prompts at some lengths: [`STEP`], `2 * STEP` and so on at first, then each length is
//! an eighth longer. A shared prefix is taken to end at the last of these lengths within it.

use super::outcome::{Outcome, PromptOutcomes};

/// The smallest distance of two lengths, in tokens.
const STEP: usize = 16;
/// The longest prefix, in tokens.
const MAX_TOKENS: usize = 8192;
/// Blocks of fewer tokens are too short to look inside.
const MIN_UNIT: usize = 4 * STEP;

/// The start of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptStart<'a> {
    /// The first tokens of the prompt, as many as [`crate::Manager::num_start_tokens`] asks for.
    pub tokens: &'a [i64],
    /// A number for the salt and the adapter; 0 for neither.
    pub realm: u64,
}

/// The fingerprints of the latest prompts, in one number per slot. A new one replaces an old one.
#[derive(Debug)]
pub(super) struct PromptStarts {
    slots: Vec<u32>,
    /// The distance of the places at which keys of a prompt end.
    unit: usize,
    /// Whether a prompt had a salt or an adapter.
    has_realms: bool,
}

impl PromptStarts {
    /// Creates an empty memory.
    pub(super) fn new(num_slots: usize, unit: usize) -> Self {
        Self { slots: vec![0; num_slots], unit, has_realms: false }
    }

    /// Returns how many tokens of a prompt are of use; 0 if none are. If a hit covers all of them,
    /// an earlier prompt with the same start was remembered already.
    pub(super) fn num_tokens(&self, realm: u64, num_hit_tokens: usize) -> usize {
        let can_see_more = self.unit >= MIN_UNIT || self.has_realms || realm != 0;
        let is_needed = can_see_more && num_hit_tokens < MAX_TOKENS;
        if is_needed && !self.slots.is_empty() { MAX_TOKENS } else { 0 }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Corrects the outcomes of a prompt whose first-time tokens share text with an earlier prompt,
    /// and remembers the prompt.
    pub(super) fn observe(&mut self, start: PromptStart<'_>, outcomes: &mut PromptOutcomes) {
        let first_time = outcomes.of(Outcome::FirstTime) as usize;
        let seen = outcomes.num_tokens() as usize - first_time;
        self.has_realms |= start.realm != 0;
        let own = fingerprints(start.tokens, start.realm);
        let shared = self.last_known(&own);
        let below = if shared < seen + self.unit { shared.saturating_sub(seen) } else { 0 };
        let any = if self.has_realms { fingerprints(start.tokens, ANY_REALM) } else { Vec::new() };
        let plain = if start.realm != 0 { fingerprints(start.tokens, 0) } else { Vec::new() };
        let elsewhere = self.last_known(&any).max(self.last_known(&plain));
        let other = elsewhere.saturating_sub(seen.max(shared));
        let below = below.min(first_time);
        outcomes.shift(Outcome::FirstTime, Outcome::BelowBlock, below);
        outcomes.shift(
            Outcome::FirstTime,
            Outcome::OtherSaltOrAdapter,
            other.min(first_time - below),
        );
        own.iter().for_each(|&(_, fingerprint)| self.insert(fingerprint));
        if start.realm != 0 {
            any.iter().for_each(|&(_, fingerprint)| self.insert(fingerprint));
        }
    }

    fn last_known(&self, fingerprints: &[(usize, u64)]) -> usize {
        let known = fingerprints.iter().rev().find(|&&(_, fingerprint)| self.knows(fingerprint));
        known.map_or(0, |&(length, _)| length)
    }

    fn knows(&self, fingerprint: u64) -> bool {
        self.slots[self.slot(fingerprint)] == tag(fingerprint)
    }

    fn insert(&mut self, fingerprint: u64) {
        let slot = self.slot(fingerprint);
        self.slots[slot] = tag(fingerprint);
    }

    fn slot(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.slots.len() as u128) >> 64) as usize
    }
}

/// The realm of texts under any salt or adapter.
const ANY_REALM: u64 = u64::MAX;

/// Returns the part of a fingerprint that a slot holds. An empty slot holds 0.
fn tag(fingerprint: u64) -> u32 {
    fingerprint as u32 | 1
}

/// Returns the lengths of a prompt's prefixes and their fingerprints, from short to long.
fn fingerprints(tokens: &[i64], realm: u64) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    let mut state = mixed(realm, 0);
    let mut next = STEP;
    for (position, &token) in tokens.iter().enumerate() {
        state = mixed(state, token as u64);
        if position + 1 == next {
            found.push((next, mixed(state, next as u64)));
            next += (next / 8 / STEP * STEP).max(STEP);
        }
    }
    found
}

/// Returns a state that depends on each bit of both numbers, as the function SplitMix64 does.
fn mixed(state: u64, value: u64) -> u64 {
    let sum = state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let first = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(seen: usize, first_time: usize) -> PromptOutcomes {
        let mut outcomes = PromptOutcomes::default();
        outcomes.add(Outcome::HitGpu, seen);
        outcomes.add(Outcome::FirstTime, first_time);
        outcomes
    }

    /// Returns the tokens below a block, of another salt, and of the first time.
    fn observe(starts: &mut PromptStarts, tokens: &[i64], realm: u64, seen: usize) -> [u64; 3] {
        let mut counts = outcomes(seen, tokens.len() - seen);
        let most = starts.num_tokens(realm, 0);
        starts
            .observe(PromptStart { tokens: &tokens[..tokens.len().min(most)], realm }, &mut counts);
        assert_eq!(counts.num_tokens(), tokens.len() as u64);
        [Outcome::BelowBlock, Outcome::OtherSaltOrAdapter, Outcome::FirstTime]
            .map(|it| counts.of(it))
    }

    fn prompt(shared: usize, own: i64, length: usize) -> Vec<i64> {
        (0..length as i64).map(|i| if i < shared as i64 { i } else { own * 10_000 + i }).collect()
    }

    #[test]
    fn a_prefix_shorter_than_a_block_is_below_the_block() {
        let mut starts = PromptStarts::new(1000, 1600);
        assert_eq!(observe(&mut starts, &prompt(561, 1, 700), 0, 0), [0, 0, 700]);
        let [below, other, first_time] = observe(&mut starts, &prompt(561, 2, 700), 0, 0);
        assert!((480..=561).contains(&below), "{below}");
        assert_eq!((other, first_time), (0, 700 - below));
    }

    #[test]
    fn a_prefix_that_continues_after_known_blocks_is_below_the_next_block() {
        let mut starts = PromptStarts::new(1000, 160);
        observe(&mut starts, &prompt(256, 1, 700), 0, 0);
        assert_eq!(observe(&mut starts, &prompt(256, 2, 700), 0, 160), [96, 0, 444]);
    }

    #[test]
    fn forgotten_blocks_are_not_below_a_block() {
        let mut starts = PromptStarts::new(1000, 160);
        observe(&mut starts, &prompt(512, 1, 700), 0, 0);
        assert_eq!(observe(&mut starts, &prompt(512, 2, 700), 0, 0), [0, 0, 700]);
    }

    #[test]
    fn text_under_another_salt_is_found_in_both_directions() {
        let mut starts = PromptStarts::new(1000, 16);
        let text = prompt(128, 1, 128);
        assert_eq!(observe(&mut starts, &text, 7, 0), [0, 0, 128]);
        assert_eq!(observe(&mut starts, &text, 8, 0), [0, 128, 0]);
        assert_eq!(observe(&mut starts, &text, 0, 0), [0, 128, 0]);
        assert_eq!(observe(&mut starts, &text, 7, 112), [0, 0, 16]);
        let mut starts = PromptStarts::new(1000, 1600);
        assert_eq!(observe(&mut starts, &text, 0, 0), [0, 0, 128]);
        assert_eq!(observe(&mut starts, &text, 9, 0), [0, 128, 0]);
    }

    #[test]
    fn nothing_is_read_for_short_blocks_without_salts() {
        let mut starts = PromptStarts::new(1000, 16);
        assert_eq!(starts.num_tokens(0, 0), 0);
        assert_eq!(observe(&mut starts, &prompt(500, 1, 700), 0, 0), [0, 0, 700]);
        assert_eq!(observe(&mut starts, &prompt(500, 1, 700), 0, 0), [0, 0, 700]);
        assert_eq!(starts.num_tokens(1, 0), MAX_TOKENS);
        assert_eq!(PromptStarts::new(0, 1600).num_tokens(1, 0), 0);
    }

    #[test]
    fn a_cleared_memory_knows_nothing() {
        let mut starts = PromptStarts::new(1000, 1600);
        observe(&mut starts, &prompt(561, 1, 700), 0, 0);
        starts.clear();
        assert_eq!(observe(&mut starts, &prompt(561, 2, 700), 0, 0), [0, 0, 700]);
    }

    #[test]
    fn different_texts_have_different_fingerprints() {
        let mut starts = PromptStarts::new(100_000, 1600);
        for own in 0..500 {
            assert_eq!(observe(&mut starts, &prompt(0, own + 1, 700), 0, 0), [0, 0, 700], "{own}");
        }
    }
}
