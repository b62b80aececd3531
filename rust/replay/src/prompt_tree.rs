//! The prompts of a trace, and what is known of the tokens generated behind them, as a tree: what
//! several share from the start on is there once.

use std::collections::HashMap;
use std::ops::Range;

use crate::trace::TraceRequest;

/// A radix tree over tokens, made before anything is played. Its size follows the number of
/// prompts, not their lengths.
#[derive(Debug)]
pub struct PromptTree {
    nodes: Vec<Node>,
    /// The last node of each request's tokens, and how many they are.
    leaves: Vec<(u32, u32)>,
}

/// A piece of the prompts that go through it.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// [`NONE`] before the first.
    parent: u32,
    start: u32,
    end: u32,
    /// A request that has them.
    request: u32,
}

const NONE: u32 = u32::MAX;

/// Makes the tree.
struct Builder<'a> {
    requests: &'a [TraceRequest],
    tokens_per_id: usize,
    nodes: Vec<Node>,
    /// By the node before and the first token.
    children: HashMap<(u32, i64), u32>,
}

impl PromptTree {
    /// The tree of these requests' known tokens.
    pub fn new(requests: &[TraceRequest], tokens_per_id: usize) -> Self {
        let mut builder =
            Builder { requests, tokens_per_id, nodes: Vec::new(), children: HashMap::new() };
        let leaves = (0..requests.len() as u32).map(|request| builder.add(request)).collect();
        Self { nodes: builder.nodes, leaves }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The tokens that a node stands for, by their positions in its prompts.
    pub fn range(&self, node: usize) -> Range<usize> {
        let Node { start, end, .. } = self.nodes[node];
        start as usize..end as usize
    }

    /// How many tokens of a request are known.
    pub fn num_known(&self, request: usize) -> usize {
        self.leaves[request].1 as usize
    }

    /// The nodes of a request's tokens, the first first. The last one may go on behind them.
    pub fn path(&self, request: usize) -> Vec<usize> {
        let mut path: Vec<_> = self.nodes_from_last(request).collect();
        path.reverse();
        path
    }

    /// The nodes of a request's tokens, the last first.
    pub fn nodes_from_last(&self, request: usize) -> impl Iterator<Item = usize> + '_ {
        let existing = |node: u32| (node != NONE).then_some(node as usize);
        let leaf = existing(self.leaves[request].0);
        std::iter::successors(leaf, move |&node| existing(self.nodes[node].parent))
    }
}

impl Builder<'_> {
    fn token(&self, request: u32, position: u32) -> i64 {
        self.requests[request as usize].prompt.token(position as usize, self.tokens_per_id)
    }

    /// Adds the tokens of a request: their last node, and how many they are.
    fn add(&mut self, request: u32) -> (u32, u32) {
        let len = self.requests[request as usize].num_known_tokens(self.tokens_per_id) as u32;
        let (mut before, mut start) = (NONE, 0);
        loop {
            let key = (before, self.token(request, start));
            let Some(&node) = self.children.get(&key) else {
                return (self.push(Node { parent: before, start, end: len, request }), len);
            };
            let common = self.common_end(node, request, start, len);
            let end = self.nodes[node as usize].end;
            let node = if common < end && common < len { self.split(node, common) } else { node };
            if common == len {
                return (node, len);
            }
            (before, start) = (node, common);
        }
    }

    fn push(&mut self, node: Node) -> u32 {
        let index = self.nodes.len() as u32;
        self.children.insert((node.parent, self.token(node.request, node.start)), index);
        self.nodes.push(node);
        index
    }

    /// Where a node and the tokens of a request part, or the first of them ends.
    fn common_end(&self, node: u32, request: u32, start: u32, end: u32) -> u32 {
        let Node { end: node_end, request: other, .. } = self.nodes[node as usize];
        let [a, b] = [request, other].map(|request| &self.requests[request as usize].prompt);
        let end = end.min(node_end) as usize;
        a.common_end(b, start as usize, end, self.tokens_per_id) as u32
    }

    /// Puts a node of its own before a part of another: the new one. What ended in the other still
    /// does, or in the new one, which is on its way.
    fn split(&mut self, node: u32, at: u32) -> u32 {
        let lower = self.nodes[node as usize];
        let upper = self.push(Node { end: at, ..lower });
        self.nodes[node as usize] = Node { parent: upper, start: at, ..lower };
        self.children.insert((upper, self.token(lower.request, at)), node);
        upper
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Prompt;

    fn tree(prompts: Vec<Prompt>, tokens_per_id: usize) -> PromptTree {
        let request = |prompt| TraceRequest::of_prompt(prompt, 1);
        let requests: Vec<_> = prompts.into_iter().map(request).collect();
        PromptTree::new(&requests, tokens_per_id)
    }

    /// The tokens of each node of a request, as far as they are its own.
    fn pieces(tree: &PromptTree, request: usize, len: usize) -> Vec<Range<usize>> {
        let ranges = tree.path(request).into_iter().map(|node| tree.range(node));
        ranges.filter(|range| range.start < len).map(|r| r.start..r.end.min(len)).collect()
    }

    #[test]
    fn prompts_part_where_their_tokens_do() {
        let tokens = |tokens: &[i64]| Prompt::Tokens(tokens.to_vec());
        let prompts =
            vec![tokens(&[1, 2, 3, 4]), tokens(&[1, 2, 3]), tokens(&[1, 2, 9]), tokens(&[5])];
        let tree = tree(prompts, 1);
        assert_eq!(pieces(&tree, 0, 4), [0..2, 2..4]);
        assert_eq!(pieces(&tree, 1, 3), [0..2, 2..3]);
        assert_eq!(pieces(&tree, 2, 3), [0..2, 2..3]);
        assert_eq!(pieces(&tree, 3, 1), vec![0..1; 1]);
        let last = |request| tree.path(request)[1];
        assert!(last(0) == last(1) && last(0) != last(2));
        assert_eq!((tree.path(0)[0], tree.len()), (tree.path(2)[0], 4));
    }

    #[test]
    fn a_prompt_that_ends_before_a_later_split_goes_through_less() {
        let ids = |length, hash_ids: &[i64]| Prompt::of_ids(length, hash_ids.to_vec());
        let prompts = vec![ids(20, &[7, 8]), ids(12, &[7, 8]), ids(32, &[7, 9])];
        let tree = tree(prompts, 16);
        assert_eq!(pieces(&tree, 0, 20), [0..16, 16..20]);
        assert_eq!(pieces(&tree, 1, 12), vec![0..12; 1]);
        assert_eq!(pieces(&tree, 2, 32), [0..16, 16..32]);
    }

    #[test]
    fn ids_and_tokens_can_be_the_same() {
        let ids = Prompt::of_ids(5, [1, 2]);
        let tree = tree(vec![ids, Prompt::Tokens(vec![4, 5, 6, 7, 0])], 4);
        assert_eq!(pieces(&tree, 0, 5), [0..4, 4..5]);
        assert_eq!(pieces(&tree, 1, 5), [0..4, 4..5]);
    }
}
