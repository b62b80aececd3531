//! A small pool for tests of policies: a manager with full attention, in which requests run one
//! after the other.

use std::sync::Arc;

use kvoxide_core::{
    AllocateArgs, BlockHash, CacheKey, GroupSpec, HashWindow, Manager, ManagerConfig, RequestView,
    check,
};

use super::{Baseline, Caller};

pub const BLOCK_SIZE: usize = 4;

/// Returns the key of a block in the group.
pub fn key(name: u64) -> CacheKey {
    CacheKey { hash: BlockHash([name, 0, 0, 0]), group: 0 }
}

/// A manager, and the session whose calls it gets.
pub struct ToyPool {
    manager: Manager,
    caller: Arc<Caller>,
    next_request: u64,
}

impl ToyPool {
    /// Creates a pool of `capacity` blocks for prompts, and one more for the token after them.
    pub fn new(capacity: usize, baseline: Baseline) -> Self {
        let groups = vec![GroupSpec::full(BLOCK_SIZE)];
        let mut manager =
            Manager::new(ManagerConfig::new(capacity + 2, groups, 1 << 16)).expect("a manager");
        let caller = Arc::new(Caller::default());
        let policy = baseline.policy(capacity, caller.clone());
        manager.pool_mut().evict_by(policy).expect("a new pool");
        Self { manager, caller, next_request: 0 }
    }

    /// Serves a request whose blocks have these names, which are also their hashes.
    pub fn serve(&mut self, session: u64, names: &[u64]) {
        self.caller.begin(session);
        let (id, hashes) = (self.next_request, hashes(names));
        self.next_request += 1;
        let num_tokens = names.len() * BLOCK_SIZE + 1;
        let request = RequestView::new(id, &hashes[..], num_tokens);
        let hit = self.manager.get_computed_blocks(id, &request.hashes, num_tokens - 1);
        let hit = hit.expect("a look-up");
        let args = AllocateArgs {
            num_new_tokens: num_tokens - hit.length,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            ..AllocateArgs::default()
        };
        self.manager.allocate_slots(&request, &args).expect("a valid call").expect("free blocks");
        assert_eq!(check(&self.manager), Ok(()));
        self.caller.begin(session);
        self.manager.free(id).expect("a request that runs");
        assert_eq!(check(&self.manager), Ok(()));
    }

    /// Returns the names of the blocks that are cached.
    pub fn cached(&self, names: &[u64]) -> Vec<u64> {
        let is_cached = |&&name: &&u64| {
            let hashes = hashes(&[name]);
            let window = HashWindow::from(&hashes[..]);
            self.manager.find_longest_hit(&window, BLOCK_SIZE).expect("a look-up").length > 0
        };
        names.iter().filter(is_cached).copied().collect()
    }
}

fn hashes(names: &[u64]) -> Vec<BlockHash> {
    names.iter().map(|&name| key(name).hash).collect()
}
