//! Prefixes of prompts by name: equal prefixes have the same number.

use std::collections::HashMap;

use crate::tokens::{HashChain, HashSizes};
use crate::trace::Prompt;

/// The numbers of all prefixes seen so far that are whole units long.
#[derive(Debug)]
pub struct Prefixes {
    sizes: HashSizes,
    /// Tokens per unit, a multiple of the hash block size.
    unit: usize,
    /// Hashes of a run have 16 bytes.
    numbers: HashMap<[u64; 2], u32>,
}

impl Prefixes {
    /// No prefix yet.
    pub fn new(sizes: HashSizes, unit: usize) -> Self {
        Self { sizes, unit, numbers: HashMap::new() }
    }

    /// How many there are; their numbers are below.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The numbers of the prefixes of a prompt, of one unit, two and so on.
    pub fn of_prompt(&mut self, prompt: &Prompt) -> Vec<u32> {
        let per_unit = self.unit / self.sizes.block_size;
        let chain = HashChain::new(self.sizes, prompt);
        let ends = chain.hashes.iter().skip(per_unit - 1).step_by(per_unit);
        ends.map(|hash| {
            let next = self.numbers.len() as u32;
            *self.numbers.entry([hash.0[0], hash.0[1]]).or_insert(next)
        })
        .collect()
    }
}
