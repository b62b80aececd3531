//! Decode steps that change nothing in the manager: no block is begun, none gets full and none
//! leaves a window. They need no call.

use kvoxide_core::{GroupSpec, Manager, Size};

/// Computed tokens at which a decode step is not quiet: those of which one of these is.
#[derive(Clone, Debug, Default)]
pub struct QuietSteps {
    joints: Vec<Joint>,
}

/// All numbers that leave this remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joint {
    modulus: usize,
    remainder: usize,
}

impl Joint {
    fn next(&self, from: usize) -> usize {
        let phase = from % self.modulus;
        from + (self.remainder + self.modulus - phase) % self.modulus
    }
}

impl QuietSteps {
    /// Of a manager; `None` where groups do more than that in a step.
    pub fn of(manager: &Manager) -> Option<Self> {
        let groups = &manager.config().groups;
        if manager.has_partial_hits() {
            return None;
        }
        let mut joints = of_blocks(manager.hash_block_size()).to_vec();
        for group in groups {
            joints.extend(of_blocks(group.block_size));
            joints.extend(of_reach(group)?);
        }
        joints.sort_by_key(|joint| (joint.modulus, joint.remainder));
        joints.dedup();
        Some(Self { joints })
    }

    /// The next decode step from `num_computed_tokens` on that is not quiet.
    pub fn next_call(&self, num_computed_tokens: usize) -> usize {
        let next = self.joints.iter().map(|joint| joint.next(num_computed_tokens));
        next.min().unwrap_or(usize::MAX)
    }
}

/// The first token of a block, and its last.
fn of_blocks(block_size: usize) -> [Joint; 2] {
    [0, block_size - 1].map(|remainder| Joint { modulus: block_size, remainder })
}

/// The tokens after which a block is out of reach.
fn of_reach(group: &GroupSpec) -> Option<Option<Joint>> {
    let modulus = group.block_size;
    match &*group.kind {
        "full_attention" | "mla_attention" => Some(None),
        "sliding_window" | "sliding_window_mla" => {
            let window = group.size(Size::SlidingWindow)?;
            Some(Some(Joint { modulus, remainder: (window + modulus - 1) % modulus }))
        }
        "chunked_local_attention" => {
            let modulus = group.size(Size::AttentionChunkSize)?;
            Some(Some(Joint { modulus, remainder: 0 }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvoxide_core::ManagerConfig;

    fn of(groups: &[GroupSpec]) -> Option<QuietSteps> {
        let config = ManagerConfig::new(100, groups.to_vec(), 1 << 20);
        QuietSteps::of(&Manager::new(config).expect("a manager"))
    }

    fn calls(groups: &[GroupSpec], from: usize, count: usize) -> Vec<usize> {
        let quiet = of(groups).expect("groups with quiet steps");
        let next = |&at: &usize| Some(quiet.next_call(at + 1));
        std::iter::successors(Some(quiet.next_call(from)), next).take(count).collect()
    }

    #[test]
    fn blocks_begin_and_get_full() {
        assert_eq!(calls(&[GroupSpec::full(16)], 3, 5), [15, 16, 31, 32, 47]);
    }

    #[test]
    fn blocks_leave_windows() {
        let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 40)];
        // At 55 tokens, 16 of them are below the window of the next.
        assert_eq!(calls(&groups, 40, 5), [47, 48, 55, 63, 64]);
    }

    #[test]
    fn blocks_leave_chunks_of_attention() {
        let chunk = GroupSpec::new("chunked_local_attention", 16);
        let groups = [chunk.with(Size::AttentionChunkSize, 40)];
        assert_eq!(calls(&groups, 33, 5), [40, 47, 48, 63, 64]);
    }

    #[test]
    fn states_have_no_quiet_steps() {
        assert!(of(&[GroupSpec::full(16), GroupSpec::new("mamba", 16)]).is_none());
    }
}
