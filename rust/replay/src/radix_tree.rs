//! The known tokens of a trace's requests as a radix tree. Shared prefixes are stored once.

use std::collections::HashMap;
use std::ops::Range;

use crate::trace::TraceRequest;

/// A radix tree over tokens, built before the replay. Its size grows with the number of prompts,
/// not with their lengths.
#[derive(Debug)]
pub struct RadixTree {
    nodes: Vec<Node>,
    /// For each request, its last node and the number of its tokens.
    leaves: Vec<(u32, u32)>,
}

/// A part of all prompts whose path has this node.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The parent node; [`NONE`] for a root.
    parent: u32,
    start: u32,
    end: u32,
    /// A request that has the tokens.
    request: u32,
}

const NONE: u32 = u32::MAX;

struct Builder<'a> {
    requests: &'a [TraceRequest],
    tokens_per_id: usize,
    nodes: Vec<Node>,
    /// The nodes, by parent and first token.
    children: HashMap<(u32, i64), u32>,
}

impl RadixTree {
    /// Returns the tree of the requests' known tokens.
    pub fn new(requests: &[TraceRequest], tokens_per_id: usize) -> Self {
        let mut builder =
            Builder { requests, tokens_per_id, nodes: Vec::new(), children: HashMap::new() };
        let leaves = (0..requests.len() as u32).map(|request| builder.add(request)).collect();
        Self { nodes: builder.nodes, leaves }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the positions of a node's tokens in its prompts.
    pub fn range(&self, node: usize) -> Range<usize> {
        let Node { start, end, .. } = self.nodes[node];
        start as usize..end as usize
    }

    /// Returns the number of known tokens of a request.
    pub fn num_known(&self, request: usize) -> usize {
        self.leaves[request].1 as usize
    }

    /// Returns the nodes of a request's tokens, from first to last. The last node can extend past
    /// these tokens.
    pub fn path(&self, request: usize) -> Vec<usize> {
        let mut path: Vec<_> = self.nodes_from_last(request).collect();
        path.reverse();
        path
    }

    /// Returns the nodes of a request's tokens, from last to first.
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

    /// Adds the tokens of a request. Returns their last node and their number.
    fn add(&mut self, request: u32) -> (u32, u32) {
        let len = self.requests[request as usize].num_known_tokens(self.tokens_per_id) as u32;
        let (mut before, mut start) = (NONE, 0);
        if len == 0 {
            return (NONE, 0);
        }
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

    /// Returns the position where a node and the tokens of a request diverge, or where the shorter
    /// of them ends.
    fn common_end(&self, node: u32, request: u32, start: u32, end: u32) -> u32 {
        let Node { end: node_end, request: other, .. } = self.nodes[node as usize];
        let [a, b] = [request, other].map(|request| &self.requests[request as usize].prompt);
        let end = end.min(node_end) as usize;
        a.common_end(b, start as usize, end, self.tokens_per_id) as u32
    }

    /// Moves the tokens of a node before `at` to a new parent node, and returns that node. Requests
    /// that have the node as their last one keep it, and have the new parent on their path.
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

    fn tree(prompts: Vec<Prompt>, tokens_per_id: usize) -> RadixTree {
        let request = |prompt| TraceRequest::of_prompt(prompt, 1);
        let requests: Vec<_> = prompts.into_iter().map(request).collect();
        RadixTree::new(&requests, tokens_per_id)
    }

    /// Returns the token ranges of a request's nodes.
    fn ranges(tree: &RadixTree, request: usize, len: usize) -> Vec<Range<usize>> {
        let ranges = tree.path(request).into_iter().map(|node| tree.range(node));
        ranges.filter(|range| range.start < len).map(|r| r.start..r.end.min(len)).collect()
    }

    #[test]
    fn prompts_diverge_where_their_tokens_differ() {
        let tokens = |tokens: &[i64]| Prompt::of_tokens(tokens.to_vec());
        let prompts =
            vec![tokens(&[1, 2, 3, 4]), tokens(&[1, 2, 3]), tokens(&[1, 2, 9]), tokens(&[5])];
        let tree = tree(prompts, 1);
        assert_eq!(ranges(&tree, 0, 4), [0..2, 2..4]);
        assert_eq!(ranges(&tree, 1, 3), [0..2, 2..3]);
        assert_eq!(ranges(&tree, 2, 3), [0..2, 2..3]);
        assert_eq!(ranges(&tree, 3, 1), vec![0..1; 1]);
        let last = |request| tree.path(request)[1];
        assert!(last(0) == last(1) && last(0) != last(2));
        assert_eq!((tree.path(0)[0], tree.len()), (tree.path(2)[0], 4));
    }

    #[test]
    fn a_prompt_that_ends_before_a_later_split_has_fewer_nodes() {
        let ids = |length, hash_ids: &[i64]| Prompt::of_ids(length, hash_ids.to_vec());
        let prompts = vec![ids(20, &[7, 8]), ids(12, &[7, 8]), ids(32, &[7, 9])];
        let tree = tree(prompts, 16);
        assert_eq!(ranges(&tree, 0, 20), [0..16, 16..20]);
        assert_eq!(ranges(&tree, 1, 12), vec![0..12; 1]);
        assert_eq!(ranges(&tree, 2, 32), [0..16, 16..32]);
    }

    #[test]
    fn ids_and_tokens_can_be_equal() {
        let ids = Prompt::of_ids(5, [1, 2]);
        let tree = tree(vec![ids, Prompt::of_tokens(vec![4, 5, 6, 7, 0])], 4);
        assert_eq!(ranges(&tree, 0, 5), [0..4, 4..5]);
        assert_eq!(ranges(&tree, 1, 5), [0..4, 4..5]);
    }
}
