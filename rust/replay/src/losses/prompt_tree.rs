//! The prompts of a trace as a tree: what several share from the start on is there once.

use std::collections::HashMap;
use std::ops::Range;

use crate::trace::{Prompt, TraceRequest};

/// A radix tree over tokens, made before anything is played. Its size follows the number of
/// prompts, not their lengths.
#[derive(Debug)]
pub struct PromptTree {
    nodes: Vec<Node>,
    /// The last node of each request's prompt.
    leaves: Vec<usize>,
}

/// A piece of the prompts that go through it.
#[derive(Clone, Debug)]
struct Node {
    parent: Option<usize>,
    tokens: Range<usize>,
    /// A request that has them.
    request: usize,
}

/// Makes the tree.
struct Builder<'a> {
    requests: &'a [TraceRequest],
    tokens_per_id: usize,
    nodes: Vec<Node>,
    /// By the node before and the first token.
    children: HashMap<(Option<usize>, i64), usize>,
}

impl PromptTree {
    /// The tree of these requests' prompts.
    pub fn new(requests: &[TraceRequest], tokens_per_id: usize) -> Self {
        let mut builder =
            Builder { requests, tokens_per_id, nodes: Vec::new(), children: HashMap::new() };
        let leaves = (0..requests.len()).map(|request| builder.add(request)).collect();
        Self { nodes: builder.nodes, leaves }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The tokens that a node stands for, by their positions in its prompts.
    pub fn range(&self, node: usize) -> Range<usize> {
        self.nodes[node].tokens.clone()
    }

    /// The nodes of a request's prompt, the first first. The last one may go on behind the prompt.
    pub fn path(&self, request: usize) -> Vec<usize> {
        let leaf = self.leaves[request];
        let mut path: Vec<_> =
            std::iter::successors(Some(leaf), |&node| self.nodes[node].parent).collect();
        path.reverse();
        path
    }
}

impl Builder<'_> {
    fn token(&self, request: usize, position: usize) -> i64 {
        self.requests[request].prompt.token(position, self.tokens_per_id)
    }

    /// Adds a prompt: its last node.
    fn add(&mut self, request: usize) -> usize {
        let len = self.requests[request].prompt.len();
        let (mut before, mut start) = (None, 0);
        loop {
            let key = (before, self.token(request, start));
            let Some(&node) = self.children.get(&key) else {
                return self.push(before, start..len, request);
            };
            let common = self.common_end(node, request, start..len);
            let end = self.nodes[node].tokens.end;
            let node = if common < end && common < len { self.split(node, common) } else { node };
            if common == len {
                return node;
            }
            (before, start) = (Some(node), common);
        }
    }

    fn push(&mut self, parent: Option<usize>, tokens: Range<usize>, request: usize) -> usize {
        let node = self.nodes.len();
        self.children.insert((parent, self.token(request, tokens.start)), node);
        self.nodes.push(Node { parent, tokens, request });
        node
    }

    /// Where a node and a prompt part, or the first of them ends.
    fn common_end(&self, node: usize, request: usize, range: Range<usize>) -> usize {
        let Node { ref tokens, request: other, .. } = self.nodes[node];
        let end = range.end.min(tokens.end);
        let [a, b] = [request, other].map(|request| &self.requests[request].prompt);
        match (a, b) {
            (Prompt::HashIds { hash_ids: a, .. }, Prompt::HashIds { hash_ids: b, .. }) => {
                let first = range.start / self.tokens_per_id;
                let num_equal = a[first..].iter().zip(&b[first..]).take_while(|(a, b)| a == b);
                ((first + num_equal.count()) * self.tokens_per_id).clamp(range.start, end)
            }
            (Prompt::Tokens(a), Prompt::Tokens(b)) => {
                let pairs = a[range.start..end].iter().zip(&b[range.start..end]);
                range.start + pairs.take_while(|(a, b)| a == b).count()
            }
            _ => (range.start..end)
                .find(|&position| self.token(request, position) != self.token(other, position))
                .unwrap_or(end),
        }
    }

    /// Puts a node of its own before a part of another: the new one. What ended in the other still
    /// does, or in the new one, which is on its way.
    fn split(&mut self, node: usize, at: usize) -> usize {
        let Node { parent, tokens, request } = self.nodes[node].clone();
        let upper = self.push(parent, tokens.start..at, request);
        self.nodes[node].parent = Some(upper);
        self.nodes[node].tokens.start = at;
        self.children.insert((Some(upper), self.token(request, at)), node);
        upper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(prompts: Vec<Prompt>, tokens_per_id: usize) -> PromptTree {
        let request = |prompt| TraceRequest { prompt, ..TraceRequest::of_tokens(vec![], 1) };
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
        let ids =
            |length, hash_ids: &[i64]| Prompt::HashIds { length, hash_ids: hash_ids.to_vec() };
        let prompts = vec![ids(20, &[7, 8]), ids(12, &[7, 8]), ids(32, &[7, 9])];
        let tree = tree(prompts, 16);
        assert_eq!(pieces(&tree, 0, 20), [0..16, 16..20]);
        assert_eq!(pieces(&tree, 1, 12), vec![0..12; 1]);
        assert_eq!(pieces(&tree, 2, 32), [0..16, 16..32]);
    }

    #[test]
    fn ids_and_tokens_can_be_the_same() {
        let ids = Prompt::HashIds { length: 5, hash_ids: vec![1, 2] };
        let tree = tree(vec![ids, Prompt::Tokens(vec![4, 5, 6, 7, 0])], 4);
        assert_eq!(pieces(&tree, 0, 5), [0..4, 4..5]);
        assert_eq!(pieces(&tree, 1, 5), [0..4, 4..5]);
    }
}
