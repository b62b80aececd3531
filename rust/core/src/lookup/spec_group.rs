//! Groups that are looked up together, vLLM's `SpecGroup`.

use crate::block::GroupId;
use crate::group::Group;
use crate::retention::CacheRules;

/// Groups that share a spec and are looked up together.
#[derive(Clone, Debug)]
pub(crate) struct SpecGroup {
    /// The groups, in ascending order.
    pub groups: Vec<GroupId>,
    /// Tokens per block.
    pub block_size: usize,
    /// Whether hits drop their last block, as EAGLE needs.
    pub drops_eagle_block: bool,
    /// The tokens that such hits match after their end; 0 for states, which drop nothing.
    pub(crate) eagle_margin: usize,
    /// Whether every prefix of a hit is a hit.
    pub is_prefix_closed: bool,
}

impl SpecGroup {
    /// Gathers the groups that take part in prefix caching. Prefix-closed groups come first,
    /// because they limit the search in the other groups.
    ///
    /// A model's only group is included even if it takes no part. vLLM refuses look-ups past the
    /// hashes there, too.
    pub(crate) fn gather(groups: &[Group], rules: &CacheRules) -> Vec<Self> {
        let mut gathered: Vec<Self> = Vec::new();
        for group in groups.iter().filter(|group| group.is_cacheable || groups.len() == 1) {
            let is_same = |other: &&mut Self| {
                groups[usize::from(other.groups[0])].spec.is_looked_up_with(&group.spec)
            };
            match gathered.iter_mut().find(is_same) {
                Some(same) => {
                    same.groups.push(group.id);
                    same.drops_eagle_block |= group.drops_eagle_block;
                }
                None => gathered.push(Self {
                    groups: vec![group.id],
                    block_size: group.block_size,
                    drops_eagle_block: group.drops_eagle_block,
                    eagle_margin: match (group.is_state, group.has_partial_hits) {
                        (true, _) => 0,
                        (false, true) => rules.hash_block_size.min(group.block_size),
                        (false, false) => group.block_size,
                    },
                    is_prefix_closed: group.is_prefix_closed,
                }),
            }
        }
        gathered.sort_by_key(|group| !group.is_prefix_closed);
        gathered
    }
}
