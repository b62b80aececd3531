//! A set of prefixes of the prompts of a trace.

use std::ops::Range;

use crate::radix_tree::RadixTree;

/// The nodes of one prompt in the radix tree, from first to last.
#[derive(Debug)]
pub struct Path<'a> {
    tree: &'a RadixTree,
    nodes: Vec<usize>,
}

impl<'a> Path<'a> {
    /// Returns the path of a request's prompt.
    pub fn of(tree: &'a RadixTree, request: usize) -> Self {
        Self { tree, nodes: tree.path(request) }
    }

    /// Returns the nodes and the positions of their tokens. The last node can extend past the end
    /// of the prompt.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        self.nodes.iter().map(|&node| (node, self.tree.range(node)))
    }

    /// Returns the node with the last of the first `num_tokens` tokens, and the positions of its
    /// tokens.
    fn node_at(&self, num_tokens: usize) -> Option<(usize, Range<usize>)> {
        let num_before =
            self.nodes.partition_point(|&node| self.tree.range(node).start < num_tokens);
        let node = *self.nodes.get(num_before.checked_sub(1)?)?;
        let range = self.tree.range(node);
        (num_tokens <= range.end).then_some((node, range))
    }
}

/// A set of prefixes whose length is a multiple of a unit. Equal prefixes of several prompts are
/// stored once.
#[derive(Debug)]
pub struct PrefixSet {
    unit: usize,
    /// For each node, one bit per prefix that ends in it.
    bits: Vec<Vec<u64>>,
}

impl PrefixSet {
    /// Returns an empty set.
    pub fn new(unit: usize) -> Self {
        Self { unit, bits: Vec::new() }
    }

    /// Adds the first `num_tokens` tokens of a path. Does nothing if this is no multiple of the
    /// unit, or more tokens than the path has.
    pub fn insert(&mut self, path: &Path<'_>, num_tokens: usize) {
        let Some((node, word, bit)) = self.place(path, num_tokens) else { return };
        if self.bits.len() <= node {
            self.bits.resize(node + 1, Vec::new());
        }
        let words = &mut self.bits[node];
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= bit;
    }

    /// Returns whether the set has the first `num_tokens` tokens of a path.
    pub fn contains(&self, path: &Path<'_>, num_tokens: usize) -> bool {
        let word = self
            .place(path, num_tokens)
            .and_then(|(node, word, bit)| Some(self.bits.get(node)?.get(word)? & bit));
        word.is_some_and(|word| word != 0)
    }

    fn place(&self, path: &Path<'_>, num_tokens: usize) -> Option<(usize, usize, u64)> {
        if num_tokens == 0 || !num_tokens.is_multiple_of(self.unit) {
            return None;
        }
        let (node, range) = path.node_at(num_tokens)?;
        let index = num_tokens / self.unit - range.start / self.unit - 1;
        Some((node, index / 64, 1 << (index % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceRequest;

    fn tree(prompts: &[&[i64]]) -> RadixTree {
        let request = |tokens: &&[i64]| TraceRequest::of_tokens(tokens.to_vec(), 1);
        RadixTree::new(&prompts.iter().map(request).collect::<Vec<_>>(), 1)
    }

    #[test]
    fn shared_prefixes_are_one() {
        let tree = tree(&[&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 9, 9], &[1, 2, 3, 9, 9, 9]]);
        let [first, second, third] = [0, 1, 2].map(|request| Path::of(&tree, request));
        let mut ends = PrefixSet::new(2);
        for num_tokens in [2, 4, 8, 7, 0, 10] {
            ends.insert(&first, num_tokens);
        }
        let of = |path: &Path<'_>| (0..12).filter(|&n| ends.contains(path, n)).collect::<Vec<_>>();
        assert_eq!((of(&first), of(&second), of(&third)), (vec![2, 4, 8], vec![2, 4], vec![2]));
    }

    #[test]
    fn prefixes_beyond_a_word_are_distinguished() {
        let tokens: Vec<i64> = (0..1000).collect();
        let tree = tree(&[&tokens, &tokens[..700]]);
        let [path, shorter] = [0, 1].map(|request| Path::of(&tree, request));
        let mut ends = PrefixSet::new(3);
        (0..1000).step_by(9).for_each(|n| ends.insert(&path, n));
        for n in 1..1000 {
            assert_eq!(ends.contains(&path, n), n % 9 == 0, "{n}");
            assert_eq!(ends.contains(&shorter, n), n % 9 == 0, "{n}");
        }
    }
}
