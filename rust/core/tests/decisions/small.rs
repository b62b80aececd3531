//! Managers and requests that are small enough to compute every block id by hand.

use kvoxide_core::{
    AllocateArgs, BlockHash, BlockId, GroupBlocks, GroupSpec, Manager, ManagerConfig, Policy,
    PrefixHit, RequestId, RequestView,
};

pub fn config(num_blocks: usize, groups: &[GroupSpec]) -> ManagerConfig {
    // Every tail is kept, so that a test shows which of them a decision reads.
    let policy = Policy::every_tail();
    ManagerConfig { policy, ..ManagerConfig::new(num_blocks, groups.to_vec(), 1024) }
}

pub fn made(config: ManagerConfig) -> Manager {
    Manager::new(config).expect("a configuration that can work")
}

pub fn manager(groups: &[GroupSpec]) -> Manager {
    made(config(61, groups))
}

/// A request of a scheduler.
pub struct Request {
    pub id: RequestId,
    pub hashes: Vec<BlockHash>,
    pub num_computed_tokens: usize,
    pub num_in_flight_tokens: isize,
    pub is_waiting: bool,
    tokens: Vec<u64>,
    num_prompt_tokens: usize,
    hash_block_size: usize,
    boundary: usize,
}

impl Request {
    pub fn new(manager: &Manager, id: RequestId, prompt: impl IntoIterator<Item = u64>) -> Self {
        let tokens: Vec<u64> = prompt.into_iter().collect();
        let mut request = Self {
            id,
            hashes: Vec::new(),
            num_computed_tokens: 0,
            num_in_flight_tokens: 0,
            is_waiting: true,
            num_prompt_tokens: tokens.len(),
            hash_block_size: manager.hash_block_size(),
            boundary: 0,
            tokens,
        };
        request.hash();
        request
    }

    pub fn view(&self) -> RequestView<'_> {
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            num_in_flight_tokens: self.num_in_flight_tokens,
            shared_prefix_boundary: self.boundary,
            is_waiting: self.is_waiting,
            ..RequestView::new(self.id, &self.hashes[..], self.tokens.len())
        }
    }

    /// Appends the hashes of full blocks. Each hash is computed from the previous hash and the
    /// tokens.
    fn hash(&mut self) {
        let blocks = self.tokens.chunks_exact(self.hash_block_size);
        for block in blocks.skip(self.hashes.len()) {
            let parent = self.hashes.last().map_or(7, |hash| hash.0[0]);
            let mix = |state: u64, &token: &u64| {
                (state ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
            };
            self.hashes.push(BlockHash([block.iter().fold(parent, mix), 0, 0, 0]));
        }
    }
}

/// Returns the hit of a request with these tokens. The last token is always computed.
pub fn look_up(manager: &mut Manager, tokens: impl IntoIterator<Item = u64>) -> PrefixHit {
    const UNUSED: RequestId = u64::MAX;
    let request = Request::new(manager, UNUSED, tokens);
    hit_of(manager, &request)
}

fn hit_of(manager: &mut Manager, request: &Request) -> PrefixHit {
    let max_length = request.tokens.len() - 1;
    let hit = manager.get_computed_blocks(request.id, &request.view().hashes, max_length);
    hit.expect("a look-up")
}

/// Allocates slots and counts their tokens as computed. The allocation must succeed.
pub fn allocate(
    manager: &mut Manager,
    request: &mut Request,
    args: &AllocateArgs<'_>,
) -> Vec<Vec<BlockId>> {
    let new =
        manager.allocate_slots(&request.view(), args).expect("a valid call").expect("free blocks");
    request.num_computed_tokens +=
        args.num_new_computed_tokens + args.num_external_computed_tokens + args.num_new_tokens;
    request.is_waiting = false;
    new
}

/// Computes the next tokens of a running request.
pub fn step(manager: &mut Manager, request: &mut Request, num_new_tokens: usize) {
    allocate(manager, request, &AllocateArgs { num_new_tokens, ..AllocateArgs::default() });
}

/// Looks up a request and computes its other tokens. Returns the number of tokens that were hit.
pub fn admit(manager: &mut Manager, request: &mut Request) -> usize {
    let hit = hit_of(manager, request);
    request.boundary = hit.shared_prefix_boundary;
    let args = AllocateArgs {
        num_new_tokens: request.tokens.len() - hit.length,
        num_new_computed_tokens: hit.length,
        new_computed_blocks: &hit.blocks,
        ..AllocateArgs::default()
    };
    allocate(manager, request, &args);
    hit.length
}

/// Appends and computes one token per step.
pub fn decode(manager: &mut Manager, request: &mut Request, tokens: impl IntoIterator<Item = u64>) {
    for token in tokens {
        request.tokens.push(token);
        request.hash();
        step(manager, request, 1);
    }
}

/// Serves a request from look-up to release. Its blocks stay cached.
pub fn serve(
    manager: &mut Manager,
    id: RequestId,
    tokens: impl IntoIterator<Item = u64>,
) -> Request {
    let mut request = Request::new(manager, id, tokens);
    admit(manager, &mut request);
    manager.free(id).expect("a request that runs");
    request
}

pub fn ids(blocks: &[GroupBlocks]) -> Vec<Vec<BlockId>> {
    blocks.iter().map(|group| group.iter().collect()).collect()
}

/// Returns the number of tails that the adaptive policy protects.
pub fn num_protected_tails(manager: &Manager) -> usize {
    manager
        .pool()
        .adaptive()
        .expect("adaptive retention")
        .protected_tails(manager.pool().blocks())
        .count()
}

pub fn held(manager: &Manager, id: RequestId) -> Vec<Vec<BlockId>> {
    let held = manager.blocks_of(id).expect("a request that runs");
    held.groups.iter().map(|group| group.blocks.iter().collect()).collect()
}

pub fn free_ids(manager: &Manager) -> Vec<BlockId> {
    manager.pool().free_blocks().collect()
}

pub fn pinned_ids(manager: &Manager) -> Vec<BlockId> {
    manager.pool().pinned_blocks().collect()
}
