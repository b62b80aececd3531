//! The manager's state in addition to its pool and its block tables. With it, another
//! implementation can continue from the same state.

use super::Manager;
use crate::block::{BlockHash, BlockId, GroupId};
use crate::group::{AlignedStates, Offload, TableRecord};
use crate::request::RequestId;

/// The state that the manager keeps for one group.
#[derive(Clone, Debug)]
pub struct GroupMemory {
    /// Blocks to zero.
    pub to_zero: Vec<BlockId>,
    /// Blocks to copy, as pairs (source, target).
    pub copies: Vec<(BlockId, BlockId)>,
    /// Blocks that a connector can read.
    pub offloads: Vec<Offload>,
    /// Hashes of the states that this step computes.
    pub cached_this_step: Vec<BlockHash>,
    /// The records of the tables of states.
    pub records: Vec<(RequestId, TableRecord)>,
}

impl Manager {
    /// Returns the state that the manager keeps for a group.
    pub fn memory_of(&self, group: GroupId) -> GroupMemory {
        let states = self.groups[usize::from(group)].states();
        GroupMemory {
            to_zero: self.commands.to_zero.get(group).to_vec(),
            copies: self.commands.copies.get(group).to_vec(),
            offloads: self.commands.offloads.get(group).to_vec(),
            cached_this_step: states
                .into_iter()
                .flat_map(AlignedStates::cached_this_step)
                .collect(),
            records: states.into_iter().flat_map(AlignedStates::records).collect(),
        }
    }
}
