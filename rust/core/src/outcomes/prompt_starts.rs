//! Remembers the text at the start of prompts, to explain misses that keys of blocks cannot.
//!
//! A key names whole blocks under one salt and adapter. So keys cannot show that two prompts share
//! less than a block, or share text under different salts. This memory has fingerprints of the
//! prefixes of prompts at some lengths: [`STEP`], `2 * STEP` and so on up to 256, then eight lengths
//! from each power of two to the next. A shared prefix is taken to end at the last of these lengths
//! within it.
//!
//! The prefixes under one salt and adapter are identified by block hashes, if there is a hash at
//! each length. Otherwise, and under different salts, a few tokens identify a prefix:
//! [`start_positions`]. To read all tokens from Python would take longer than the admission. So two
//! prefixes look the same if they differ only in tokens that are not read.

use std::iter::successors;

use super::outcome::{Outcome, PromptOutcomes};
use crate::request::HashSource;

/// The smallest distance of two lengths, in tokens.
const STEP: usize = 16;
/// The longest prefix, in tokens.
const MAX_TOKENS: usize = 8192;
/// Blocks of fewer tokens are too short to look inside.
const MIN_UNIT: usize = 4 * STEP;
/// The number of tokens up to which lengths have the smallest distance.
const DENSE_TOKENS: usize = 256;
/// The number of tokens that are read between two lengths. They have equal distances.
const READ_PER_LENGTH: usize = 4;
/// The number of slots in which a fingerprint can be.
const WAYS: usize = 4;

/// The start of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptStart<'a> {
    /// The tokens at the positions that [`crate::Manager::start_positions`] returns.
    pub tokens: &'a [i64],
    /// A number for the salt and the adapter; 0 for neither.
    pub realm: u64,
}

/// Positions in a prompt at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The first position.
    pub first: usize,
    /// The distance from one position to the next.
    pub distance: usize,
    /// The number of positions.
    pub len: usize,
}

impl Positions {
    /// Returns the positions.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |index| self.first + index * self.distance)
    }
}

/// Returns the ends of the parts of a prompt in which lengths have equal distances, with these
/// distances.
fn parts() -> impl Iterator<Item = (usize, usize)> {
    let next = |&(end, distance): &(usize, usize)| Some((2 * end, distance.max(end / 8)));
    successors(Some((DENSE_TOKENS, STEP)), next).take_while(|&(end, _)| end <= MAX_TOKENS)
}

/// Returns the lengths of prefixes that are remembered.
fn lengths() -> impl Iterator<Item = usize> {
    let of_part = |start: &mut usize, (end, distance): (usize, usize)| {
        let start = std::mem::replace(start, end);
        Some((start + distance..=end).step_by(distance))
    };
    parts().scan(0, of_part).flatten()
}

/// Returns the positions of the tokens that identify the prefixes of a prompt, the same number for
/// each length.
pub(crate) fn start_positions(num_tokens: usize) -> impl Iterator<Item = Positions> {
    let of_part = move |start: &mut usize, (end, distance): (usize, usize)| {
        let start = std::mem::replace(start, end);
        let num_lengths = num_tokens.min(end).saturating_sub(start) / distance;
        let distance = distance / READ_PER_LENGTH;
        let (first, len) = (start + distance - 1, num_lengths * READ_PER_LENGTH);
        (len > 0).then_some(Positions { first, distance, len })
    };
    parts().scan(0, of_part)
}

/// The fingerprints of the latest prompts, in one number per slot. A fingerprint can be in
/// [`WAYS`] slots. A new one replaces the oldest one there.
#[derive(Debug)]
pub(super) struct PromptStarts {
    slots: Vec<[u32; WAYS]>,
    /// The distance of the places at which keys of a prompt end.
    unit: usize,
    /// The number of tokens per block hash, if there is a hash at each length.
    hash_block_size: Option<usize>,
    /// Whether a prompt had a salt or an adapter.
    has_realms: bool,
}

impl PromptStarts {
    /// Creates an empty memory.
    pub(super) fn new(num_slots: usize, unit: usize, hash_block_size: usize) -> Self {
        Self {
            slots: vec![[0; WAYS]; num_slots / WAYS],
            unit,
            hash_block_size: Some(hash_block_size).filter(|&size| STEP.is_multiple_of(size)),
            has_realms: false,
        }
    }

    /// Returns whether the tokens of a prompt are of use.
    pub(super) fn reads_tokens(&self, realm: u64, num_hit_tokens: usize) -> bool {
        let has_realms = self.has_realms || realm != 0;
        self.is_needed(realm, num_hit_tokens) && (has_realms || self.hash_block_size.is_none())
    }

    /// Returns whether the start of a prompt can explain misses. If a hit covers all of it, an
    /// earlier prompt with the same start was remembered already.
    fn is_needed(&self, realm: u64, num_hit_tokens: usize) -> bool {
        let can_see_more = self.unit >= MIN_UNIT || self.has_realms || realm != 0;
        can_see_more && num_hit_tokens < MAX_TOKENS && !self.slots.is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots.fill([0; WAYS]);
    }

    /// Corrects the outcomes of a prompt whose first-time tokens share text with an earlier prompt,
    /// and remembers the prompt.
    pub(super) fn observe(
        &mut self,
        hashes: &dyn HashSource,
        start: Option<PromptStart<'_>>,
        outcomes: &mut PromptOutcomes,
    ) {
        let realm = start.map_or(0, |start| start.realm);
        self.has_realms |= realm != 0;
        let hits = [Outcome::HitGpu, Outcome::HitHost, Outcome::HitAnswer];
        let num_hit_tokens: u64 = hits.iter().map(|&hit| outcomes.of(hit)).sum();
        if !self.is_needed(realm, num_hit_tokens as usize) {
            return;
        }
        let texts = start.map_or(Vec::new(), |start| fingerprints(start.tokens));
        let own = match self.hash_block_size {
            Some(size) => hashed_prefixes(hashes, size, outcomes.num_tokens() as usize),
            None => in_realm(&texts, realm),
        };
        let any = if self.has_realms { in_realm(&texts, ANY_REALM) } else { Vec::new() };
        let is_apart = realm != 0 || self.hash_block_size.is_some();
        let plain = if self.has_realms && is_apart { in_realm(&texts, 0) } else { Vec::new() };
        let first_time = outcomes.of(Outcome::FirstTime) as usize;
        if first_time > 0 {
            let seen = outcomes.num_tokens() as usize - first_time;
            let shared = self.last_known(&own);
            let below = if shared < seen + self.unit { shared.saturating_sub(seen) } else { 0 };
            let below = below.min(first_time);
            let elsewhere = self.last_known(&any).max(match realm {
                0 => 0,
                _ => self.last_known(&plain),
            });
            let other = elsewhere.saturating_sub(seen.max(shared)).min(first_time - below);
            outcomes.shift(Outcome::FirstTime, Outcome::BelowBlock, below);
            outcomes.shift(Outcome::FirstTime, Outcome::OtherSaltOrAdapter, other);
        }
        self.insert_all(&own);
        self.insert_all(if realm != 0 { &any } else { &plain });
    }

    fn last_known(&self, prefixes: &[Prefix]) -> usize {
        let known = prefixes.iter().rev().find(|&&(_, fingerprint)| self.knows(fingerprint));
        known.map_or(0, |&(length, _)| length)
    }

    fn knows(&self, fingerprint: u64) -> bool {
        self.slots[self.slot(fingerprint)].contains(&tag(fingerprint))
    }

    fn insert_all(&mut self, prefixes: &[Prefix]) {
        prefixes.iter().for_each(|&(_, fingerprint)| self.insert(fingerprint));
    }

    /// Inserts a fingerprint as the latest of its slots.
    fn insert(&mut self, fingerprint: u64) {
        let (slot, tag) = (self.slot(fingerprint), tag(fingerprint));
        let ways = &mut self.slots[slot];
        let last = ways.iter().position(|&known| known == tag).unwrap_or(WAYS - 1);
        ways.copy_within(..last, 1);
        ways[0] = tag;
    }

    fn slot(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.slots.len() as u128) >> 64) as usize
    }
}

/// The length of a prefix, and its fingerprint.
type Prefix = (usize, u64);

/// The realm of texts under any salt or adapter.
const ANY_REALM: u64 = u64::MAX;

/// Returns the part of a fingerprint that a slot holds. An empty slot holds 0.
fn tag(fingerprint: u64) -> u32 {
    fingerprint as u32 | 1
}

/// Returns the prefixes of a prompt from the tokens that were read, from short to long.
fn fingerprints(tokens: &[i64]) -> Vec<Prefix> {
    let mut state = 0;
    let of_length = |(length, tokens): (usize, &[i64])| {
        state = tokens.iter().fold(state, |state, &token| mixed(state, token as u64));
        (length, state)
    };
    lengths().zip(tokens.chunks_exact(READ_PER_LENGTH)).map(of_length).collect()
}

fn in_realm(texts: &[Prefix], realm: u64) -> Vec<Prefix> {
    texts.iter().map(|&(length, text)| (length, mixed(text, realm))).collect()
}

/// Returns the prefixes of a prompt from its block hashes, which depend on its salt and adapter. A
/// hash that cannot be read ends them.
fn hashed_prefixes(
    hashes: &dyn HashSource,
    hash_block_size: usize,
    num_prompt_tokens: usize,
) -> Vec<Prefix> {
    let most = num_prompt_tokens.min(hashes.len() * hash_block_size);
    let lengths = lengths().take_while(|&length| length <= most);
    let of_length = |length: usize| {
        let hash = hashes.get(length / hash_block_size - 1).ok()?;
        Some((length, mixed(hash.0[0], HASHED)))
    };
    lengths.map_while(of_length).collect()
}

/// Sets fingerprints of block hashes apart from fingerprints of tokens.
const HASHED: u64 = 0x6861_7368_6564_0000;

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
    use crate::block::BlockHash;
    use crate::request::HashWindow;

    fn outcomes(seen: usize, first_time: usize) -> PromptOutcomes {
        let mut outcomes = PromptOutcomes::default();
        outcomes.add(Outcome::HitGpu, seen);
        outcomes.add(Outcome::FirstTime, first_time);
        outcomes
    }

    /// Returns hashes of the blocks of a prompt, which depend on its realm.
    fn hashes(tokens: &[i64], realm: u64, size: usize) -> Vec<BlockHash> {
        let mut state = mixed(realm, 1);
        let hash = |block: &[i64]| {
            state = block.iter().fold(state, |state, &token| mixed(state, token as u64));
            BlockHash([state, 0, 0, 0])
        };
        tokens.chunks_exact(size).map(hash).collect()
    }

    /// Returns the tokens below a block, of another salt, and of the first time.
    fn observe(starts: &mut PromptStarts, tokens: &[i64], realm: u64, seen: usize) -> [u64; 3] {
        let mut counts = outcomes(seen, tokens.len() - seen);
        let size = starts.hash_block_size.unwrap_or(starts.unit);
        let hashes = hashes(tokens, realm, size);
        let most = if starts.reads_tokens(realm, seen) { tokens.len() } else { 0 };
        let positions = start_positions(most).flat_map(Positions::iter);
        let read: Vec<i64> = positions.map(|position| tokens[position]).collect();
        let start = PromptStart { tokens: &read, realm };
        starts.observe(&HashWindow::from(&hashes[..]), Some(start), &mut counts);
        assert_eq!(counts.num_tokens(), tokens.len() as u64);
        [Outcome::BelowBlock, Outcome::OtherSaltOrAdapter, Outcome::FirstTime]
            .map(|it| counts.of(it))
    }

    fn prompt(shared: usize, own: i64, length: usize) -> Vec<i64> {
        (0..length as i64).map(|i| if i < shared as i64 { i } else { own * 10_000 + i }).collect()
    }

    /// Returns memories for blocks of `unit` tokens that read tokens and that read hashes.
    fn memories(unit: usize) -> [PromptStarts; 2] {
        [unit, 8].map(|hash_block_size| PromptStarts::new(4000, unit, hash_block_size))
    }

    #[test]
    fn a_prefix_shorter_than_a_block_is_below_the_block() {
        for mut starts in memories(1600) {
            assert_eq!(observe(&mut starts, &prompt(561, 1, 700), 0, 0), [0, 0, 700]);
            let [below, other, first_time] = observe(&mut starts, &prompt(561, 2, 700), 0, 0);
            assert!((480..=561).contains(&below), "{below}");
            assert_eq!((other, first_time), (0, 700 - below));
        }
    }

    #[test]
    fn a_prefix_that_continues_after_known_blocks_is_below_the_next_block() {
        for mut starts in memories(160) {
            observe(&mut starts, &prompt(256, 1, 700), 0, 0);
            assert_eq!(observe(&mut starts, &prompt(256, 2, 700), 0, 160), [96, 0, 444]);
        }
    }

    #[test]
    fn forgotten_blocks_are_not_below_a_block() {
        for mut starts in memories(160) {
            observe(&mut starts, &prompt(512, 1, 700), 0, 0);
            assert_eq!(observe(&mut starts, &prompt(512, 2, 700), 0, 0), [0, 0, 700]);
        }
    }

    #[test]
    fn text_under_another_salt_is_found_in_both_directions() {
        let text = prompt(128, 1, 128);
        for (unit, hash_block_size) in [(16, 16), (1600, 1600), (1600, 8), (48, 48)] {
            let mut starts = PromptStarts::new(1000, unit, hash_block_size);
            assert_eq!(observe(&mut starts, &text, 7, 0), [0, 0, 128]);
            assert_eq!(observe(&mut starts, &text, 8, 0), [0, 128, 0]);
            assert_eq!(observe(&mut starts, &text, 0, 0), [0, 128, 0]);
            assert_eq!(observe(&mut starts, &text, 7, 112)[1], 0);
            assert_eq!(observe(&mut starts, &text, 9, 0), [0, 128, 0]);
        }
        let mut starts = PromptStarts::new(1000, 1600, 1600);
        assert_eq!(observe(&mut starts, &text, 0, 0), [0, 0, 128]);
        assert_eq!(observe(&mut starts, &text, 9, 0), [0, 128, 0]);
    }

    #[test]
    fn no_tokens_are_read_without_need() {
        let reads = |unit, hash_block_size, realm, hit| {
            PromptStarts::new(1000, unit, hash_block_size).reads_tokens(realm, hit)
        };
        assert!(reads(1600, 1600, 0, 0) && reads(1600, 16, 1, 0) && reads(16, 16, 1, 0));
        assert!(!reads(16, 16, 0, 0) && !reads(1600, 16, 0, 0) && !reads(1600, 1600, 0, 8192));
        assert!(!PromptStarts::new(0, 1600, 1600).reads_tokens(1, 0));
        let mut starts = PromptStarts::new(1000, 16, 16);
        assert_eq!(observe(&mut starts, &prompt(500, 1, 700), 0, 0), [0, 0, 700]);
        assert_eq!(observe(&mut starts, &prompt(500, 1, 700), 0, 0), [0, 0, 700]);
    }

    #[test]
    fn few_tokens_are_read_and_each_fourth_of_the_first() {
        let read = |most| start_positions(most).flat_map(Positions::iter).collect::<Vec<_>>();
        assert_eq!(read(256), (3..256).step_by(4).collect::<Vec<_>>());
        assert_eq!(read(1 << 20)[64..96], (263..512).step_by(8).collect::<Vec<_>>());
        assert!(read(1 << 20).is_sorted_by(|one, next| one < next));
        assert_eq!((read(1 << 20).len(), read(1 << 20).last()), (224, Some(&8191)));
        assert_eq!(
            (read(15).len(), read(100).last(), read(300).last()),
            (0, Some(&95), Some(&287))
        );
        for most in [16, 100, 256, 287, 288, 512, 700, 8191, 8192] {
            let ends: Vec<_> = lengths().take_while(|&length| length <= most).collect();
            assert_eq!(read(most).len(), ends.len() * READ_PER_LENGTH);
            assert!(ends.iter().all(|end| read(most).contains(&(end - 1))));
        }
    }

    #[test]
    fn a_difference_of_four_tokens_is_seen_and_a_single_one_may_not_be() {
        let mut starts = PromptStarts::new(1000, 1600, 1600);
        let text = prompt(700, 1, 700);
        observe(&mut starts, &text, 0, 0);
        let mut other = text.clone();
        other[200] = -1;
        assert_eq!(observe(&mut starts, &other, 0, 0)[0], 640);
        other[200..204].fill(-1);
        assert_eq!(observe(&mut starts, &other, 0, 0)[0], 192);
        let [_, mut starts] = memories(1600);
        observe(&mut starts, &text, 0, 0);
        other.clone_from(&text);
        other[200] = -1;
        assert_eq!(observe(&mut starts, &other, 0, 0)[0], 192);
    }

    #[test]
    fn a_cleared_memory_knows_nothing() {
        for mut starts in memories(1600) {
            observe(&mut starts, &prompt(561, 1, 700), 0, 0);
            starts.clear();
            assert_eq!(observe(&mut starts, &prompt(561, 2, 700), 0, 0), [0, 0, 700]);
        }
    }

    #[test]
    fn different_texts_have_different_fingerprints() {
        let mut starts = PromptStarts::new(100_000, 1600, 1600);
        for own in 0..500 {
            assert_eq!(observe(&mut starts, &prompt(0, own + 1, 700), 0, 0), [0, 0, 700], "{own}");
        }
    }

    #[test]
    fn a_text_that_is_used_again_stays_longer_than_others() {
        let mut starts = PromptStarts::new(400, 1600, 1600);
        let shared = prompt(64, 1, 64);
        for own in 1..200 {
            observe(&mut starts, &shared, 0, 0);
            observe(&mut starts, &prompt(0, own, 128), 0, 0);
            assert_eq!(observe(&mut starts, &shared, 0, 0)[0], 64, "{own}");
        }
    }
}
