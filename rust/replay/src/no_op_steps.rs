//! No-op steps: decode steps that start no block, fill no block and move no block out of a window.
//! They change nothing in the manager, so the replay need not call it.

use kvoxide_core::{GroupSpec, Manager, Size};

/// The numbers of computed tokens at which a decode step is not a no-op, as residue classes.
#[derive(Clone, Debug, Default)]
pub struct NoOpSteps {
    calls: Vec<Residue>,
}

/// All numbers with this remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Residue {
    modulus: usize,
    remainder: usize,
}

impl Residue {
    fn next(&self, from: usize) -> usize {
        let phase = from % self.modulus;
        from + (self.remainder + self.modulus - phase) % self.modulus
    }
}

impl NoOpSteps {
    /// Returns the no-op steps of a manager; `None` if its groups can change in every step.
    pub fn of(manager: &Manager) -> Option<Self> {
        let groups = &manager.config().groups;
        if manager.has_partial_hits() {
            return None;
        }
        let mut calls = at_block_ends(manager.hash_block_size()).to_vec();
        for group in groups {
            calls.extend(at_block_ends(group.block_size));
            calls.extend(at_window_starts(group)?);
        }
        calls.sort_by_key(|call| (call.modulus, call.remainder));
        calls.dedup();
        Some(Self { calls })
    }

    /// Returns the number of computed tokens at the next decode step that needs a call. Steps are
    /// counted from `num_computed_tokens` on.
    pub fn next_call(&self, num_computed_tokens: usize) -> usize {
        let next = self.calls.iter().map(|call| call.next(num_computed_tokens));
        next.min().unwrap_or(usize::MAX)
    }
}

/// Returns the steps that start a block and the steps that fill one.
fn at_block_ends(block_size: usize) -> [Residue; 2] {
    [0, block_size - 1].map(|remainder| Residue { modulus: block_size, remainder })
}

/// Returns the steps after which a block is out of reach; `None` for a kind that can change in
/// every step.
fn at_window_starts(group: &GroupSpec) -> Option<Option<Residue>> {
    let modulus = group.block_size;
    match &*group.kind {
        "full_attention" | "mla_attention" => Some(None),
        "sliding_window" | "sliding_window_mla" => {
            let window = group.size(Size::SlidingWindow)?;
            Some(Some(Residue { modulus, remainder: (window + modulus - 1) % modulus }))
        }
        "chunked_local_attention" => {
            let modulus = group.size(Size::AttentionChunkSize)?;
            Some(Some(Residue { modulus, remainder: 0 }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvoxide_core::ManagerConfig;

    fn of(groups: &[GroupSpec]) -> Option<NoOpSteps> {
        let config = ManagerConfig::new(100, groups.to_vec(), 1 << 20);
        NoOpSteps::of(&Manager::new(config).expect("a manager"))
    }

    fn calls(groups: &[GroupSpec], from: usize, count: usize) -> Vec<usize> {
        let steps = of(groups).expect("groups with no-op steps");
        let next = |&at: &usize| Some(steps.next_call(at + 1));
        std::iter::successors(Some(steps.next_call(from)), next).take(count).collect()
    }

    #[test]
    fn blocks_begin_and_become_full() {
        assert_eq!(calls(&[GroupSpec::full(16)], 3, 5), [15, 16, 31, 32, 47]);
    }

    #[test]
    fn blocks_leave_windows() {
        let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 40)];
        // At 55 tokens, 16 of them are before the window of the next token.
        assert_eq!(calls(&groups, 40, 5), [47, 48, 55, 63, 64]);
    }

    #[test]
    fn blocks_leave_chunks_of_attention() {
        let chunk = GroupSpec::new("chunked_local_attention", 16);
        let groups = [chunk.with(Size::AttentionChunkSize, 40)];
        assert_eq!(calls(&groups, 33, 5), [40, 47, 48, 63, 64]);
    }

    #[test]
    fn states_have_no_no_op_steps() {
        assert!(of(&[GroupSpec::full(16), GroupSpec::new("mamba", 16)]).is_none());
    }
}
