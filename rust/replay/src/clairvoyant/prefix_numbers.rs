//! Numbers the prefixes of known tokens. Equal prefixes have the same number.
//!
//! The prefixes of a new prompt get consecutive numbers. A map is needed only where prompts
//! diverge.

use std::collections::HashMap;

use crate::tokens::{HashChain, HashSizes};
use crate::trace::TraceRequest;

/// A hash of 16 bytes over all tokens of a prefix.
type Name = [u64; 2];

/// The numbers of all prefixes seen so far whose length is a multiple of the unit.
#[derive(Debug)]
pub struct Prefixes {
    sizes: HashSizes,
    /// Tokens per unit, a multiple of the hash block size.
    unit: usize,
    /// The names, indexed by number.
    names: Vec<Name>,
    /// The prefixes whose number does not follow the number of the next shorter prefix.
    branches: HashMap<Name, u32>,
}

impl Prefixes {
    /// Returns an empty set of numbers.
    pub fn new(sizes: HashSizes, unit: usize) -> Self {
        Self { sizes, unit, names: Vec::new(), branches: HashMap::new() }
    }

    /// Returns the number of prefixes. It is also the next free number.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the numbers of the prefixes of a request's known tokens, from shortest to longest.
    pub fn of_request(&mut self, request: &TraceRequest) -> Vec<u32> {
        let per_unit = self.unit / self.sizes.block_size;
        let num_known = request.num_known_tokens(self.sizes.tokens_per_id);
        let chain = HashChain::of_first(self.sizes, &request.prompt, num_known);
        let mut before = None;
        let ends = chain.hashes.iter().skip(per_unit - 1).step_by(per_unit);
        ends.map(|hash| {
            let number = self.number([hash.0[0], hash.0[1]], before);
            before = Some(number);
            number
        })
        .collect()
    }

    fn number(&mut self, name: Name, before: Option<u32>) -> u32 {
        let follower = before.map(|before| before + 1);
        if let Some(number) = follower.filter(|&next| self.names.get(next as usize) == Some(&name))
        {
            return number;
        }
        let new = self.names.len() as u32;
        if follower != Some(new) {
            let number = *self.branches.entry(name).or_insert(new);
            if number != new {
                return number;
            }
        }
        self.names.push(name);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_prefixes_have_equal_numbers() {
        let sizes = HashSizes { block_size: 2, tokens_per_id: 1, num_lookahead_tokens: 0 };
        let mut prefixes = Prefixes::new(sizes, 4);
        let mut numbers = |tokens: std::ops::Range<i64>, tail: &[i64]| -> Vec<u32> {
            let tokens = tokens.chain(tail.iter().copied()).collect();
            prefixes.of_request(&TraceRequest::of_tokens(tokens, 1))
        };
        assert_eq!(numbers(0..13, &[]), [0, 1, 2]);
        assert_eq!(numbers(0..8, &[50, 51, 52, 53, 54, 55, 56, 57]), [0, 1, 3, 4]);
        assert_eq!(numbers(9..20, &[]), [5, 6]);
        assert_eq!(numbers(0..20, &[]), [0, 1, 2, 7, 8], "longer than the first");
        assert_eq!(numbers(0..8, &[50, 51, 52, 53, 60, 61, 62, 63]), [0, 1, 3, 9]);
        assert_eq!(numbers(9..18, &[1, 2, 3]), [5, 6, 10]);
        assert_eq!(numbers(0..3, &[]), [0; 0]);
        assert_eq!(prefixes.len(), 11);
    }
}
