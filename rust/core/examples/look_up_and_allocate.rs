//! Look up the cached prefix of a prompt, and allocate blocks for the rest, without Python.
//!
//! Run it:
//!
//! ```sh
//! cargo run --package kvoxide-core --example look_up_and_allocate
//! ```
//!
//! It prints:
//!
//! ```text
//! request 1: 0 of 72 tokens cached, new blocks [1, 2, 3, 4, 5], 4 blocks left
//! request 2: 48 of 56 tokens cached, new blocks [6], 3 blocks left
//! request 3: 64 of 72 tokens cached, new blocks [6], 4 blocks left
//! ```

use kvoxide_core::{
    AllocateArgs, BlockHash, GroupSpec, Manager, ManagerConfig, RequestView, Result,
};

fn main() -> Result<()> {
    // A pool of 10 blocks for full attention, 16 tokens per block, at most 160 tokens per request.
    let mut manager = Manager::new(ManagerConfig::new(10, vec![GroupSpec::full(16)], 160))?;

    // A hash covers a block and all tokens before it. The prompts share their first three blocks.
    let first = [1, 2, 3, 4].map(|number| BlockHash([number, 0, 0, 0]));
    let second = [1, 2, 3].map(|number| BlockHash([number, 0, 0, 0]));
    serve(&mut manager, &RequestView::new(1, &first[..], 72))?;
    serve(&mut manager, &RequestView::new(2, &second[..], 56))?;

    // Cached blocks stay in the free queue until they are allocated again.
    manager.free(1)?;
    manager.free(2)?;
    serve(&mut manager, &RequestView::new(3, &first[..], 72))
}

/// Gives a request its cached prefix, and slots for the rest of its prompt.
fn serve(manager: &mut Manager, request: &RequestView<'_>) -> Result<()> {
    // The last token is always computed, because the next token depends on its output.
    let limit = request.num_tokens - 1;
    let hit = manager.get_computed_blocks(request.id, &request.hashes, limit)?;
    let args = AllocateArgs {
        num_new_tokens: request.num_tokens - hit.length,
        num_new_computed_tokens: hit.length,
        new_computed_blocks: &hit.blocks,
        ..AllocateArgs::default()
    };
    match manager.allocate_slots(request, &args)? {
        Some(new) => println!(
            "request {}: {} of {} tokens cached, new blocks {:?}, {} blocks left",
            request.id,
            hit.length,
            request.num_tokens,
            new[0],
            manager.pool().num_free_blocks(),
        ),
        None => println!("request {}: the pool is too full", request.id),
    }
    Ok(())
}
