//! Remembers the starts of all prompts, to tell naively which text was seen before.

use std::collections::HashSet;

use kvoxide_core::{Manager, Outcome};

use crate::oracle::Prompt;

/// The lengths of remembered prefixes, up to the longest prompt of a world.
const LENGTHS: [usize; 20] =
    [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384];

/// The identity of a prefix.
#[derive(PartialEq, Eq, Hash)]
enum Prefix {
    /// The hash of the block that ends it.
    Hash([u64; 4]),
    /// Its length, its salt and the tokens that are read: every fourth of the first 256, every eighth
    /// after these.
    Text(usize, Realm, Vec<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Realm {
    Of(u64),
    Any,
}

/// The prefixes of all prompts.
#[derive(Default)]
pub struct Starts {
    known: HashSet<Prefix>,
    has_salts: bool,
}

impl Starts {
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// Moves first-time tokens of a prompt whose text was seen before to their outcomes.
    pub fn correct(&self, counts: &mut [u64; 10], manager: &Manager, prompt: &Prompt<'_>) {
        if !self.sees(manager, prompt) {
            return;
        }
        let first_time = counts[Outcome::FirstTime as usize] as usize;
        let seen = prompt.num_prompt_tokens - first_time;
        let longest = |prefix: &dyn Fn(usize) -> Option<Prefix>| {
            let known =
                |&length: &usize| prefix(length).is_some_and(|prefix| self.known.contains(&prefix));
            LENGTHS.into_iter().rev().find(known).unwrap_or(0)
        };
        let own = longest(&|length| own(manager, prompt, length));
        let any = longest(&|length| text(prompt, Realm::Any, length));
        let plain = longest(&|length| text(prompt, Realm::Of(0), length));
        let elsewhere = if prompt.realm == 0 { any } else { any.max(plain) };
        let is_inside = own < seen + manager.hit_rules().key_distance();
        let below = if is_inside { own.saturating_sub(seen).min(first_time) } else { 0 };
        let other = elsewhere.saturating_sub(own.max(seen)).min(first_time - below);
        counts[Outcome::FirstTime as usize] -= (below + other) as u64;
        counts[Outcome::BelowBlock as usize] += below as u64;
        counts[Outcome::OtherSaltOrAdapter as usize] += other as u64;
    }

    /// Remembers the prefixes of a prompt.
    pub fn remember(&mut self, manager: &Manager, prompt: &Prompt<'_>) {
        if !self.sees(manager, prompt) {
            return;
        }
        self.has_salts |= prompt.realm != 0;
        for length in LENGTHS {
            self.known.extend(own(manager, prompt, length));
            if self.has_salts {
                let realm = if prompt.realm == 0 { Realm::Of(0) } else { Realm::Any };
                self.known.extend(text(prompt, realm, length));
            }
        }
    }

    /// Returns whether the manager looks at the start of a prompt.
    fn sees(&self, manager: &Manager, prompt: &Prompt<'_>) -> bool {
        self.has_salts || prompt.realm != 0 || manager.hit_rules().key_distance() >= 64
    }
}

/// Returns the identity of a prefix under its own salt.
fn own(manager: &Manager, prompt: &Prompt<'_>, length: usize) -> Option<Prefix> {
    let size = manager.hash_block_size();
    if 16 % size != 0 {
        return text(prompt, Realm::Of(prompt.realm), length);
    }
    let is_hashed = length <= prompt.num_prompt_tokens && length <= prompt.hashes.len() * size;
    is_hashed.then(|| Prefix::Hash(prompt.hashes[length / size - 1].0))
}

fn text(prompt: &Prompt<'_>, realm: Realm, length: usize) -> Option<Prefix> {
    let distance = |position: usize| if position < 256 { 4 } else { 8 };
    let is_read = |&position: &usize| (position + 1).is_multiple_of(distance(position));
    let read = (0..length).filter(is_read);
    (length <= prompt.num_prompt_tokens).then(|| {
        Prefix::Text(length, realm, read.map(|position| prompt.tokens[position]).collect())
    })
}
