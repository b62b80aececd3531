//! Runs operations of the manager, of a host tier, or of both, so that their instructions can be counted.
//! The state before an operation is always the same:
//!
//! ```sh
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*hot_paths*counted*' \
//!     --dump-after='hot_paths::prepared*' target/release/examples/hot_paths gemma free look-up
//! ```
//!
//! Only the operation runs inside `counted`. Its preparation runs inside `prepared` too, so callgrind
//! writes one file for each operation. Without arguments, `hot_paths` prints the names of all layouts
//! and operations, one pair per line.

mod both;
mod host;

use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::Arc;

use kvoxide_core::host::HostPolicy;
use kvoxide_core::{
    AllocateArgs, BlockHash, GroupSpec, HashWindow, Manager, ManagerConfig, Policy, PrefixHit,
    RequestRetention, RequestView, Result,
};

/// Tokens of a long prompt, and tokens of a step of its prefill.
const LONG: usize = 128 * 1024;
const CHUNK: usize = 8192;
/// Tokens of a short prompt, and the number of requests with short prompts.
const SHORT: usize = 256;
const SHORT_REQUESTS: u64 = 64;
/// Tokens of a running request's prompt, the number of running requests, and the number of their
/// steps.
const CONTEXT: usize = 2048;
const RUNNING: u64 = 16;
const STEPS: usize = 32;

/// The layouts. The end of a name is the policy; without such an end, it is vLLM's default. With
/// `-sessions`, the policy is adaptive, and every request names a session.
const LAYOUTS: [&str; 9] = [
    "full",
    "gemma",
    "dsv4",
    "gemma-every-tail",
    "dsv4-every-tail",
    "full-adaptive",
    "gemma-adaptive",
    "dsv4-adaptive",
    "full-sessions",
];

/// The policies of CPU memory with which the calls of a manager and of a host tier are measured.
const BOTH: [&str; 2] = ["lru", "adaptive"];

const SESSIONS: &str = "-sessions";

type Operation = fn(&mut World) -> Result<()>;

const OPERATIONS: [(&str, Operation); 8] = [
    ("chunk-cold", chunk_cold),
    ("chunk-evicting", chunk_evicting),
    ("look-up", look_up),
    ("look-up-again", look_up_again),
    ("admit", admit),
    ("free", free),
    ("decode", decode),
    ("short", short),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => {
            for layout in LAYOUTS {
                OPERATIONS.iter().for_each(|(name, _)| println!("{layout} {name}"));
            }
            for (policy, _) in HostPolicy::OF_VLLM {
                host::OPERATIONS.iter().for_each(|(name, _)| println!("host-{policy} {name}"));
            }
            for policy in BOTH {
                both::OPERATIONS.iter().for_each(|(name, _)| println!("{policy}-both {name}"));
            }
            ExitCode::SUCCESS
        }
        [layout, operations @ ..] if !operations.is_empty() => {
            let run = |operation: &String| run(layout, operation);
            operations.iter().try_for_each(run).map_or_else(usage, |()| ExitCode::SUCCESS)
        }
        _ => usage("give a layout and operations, or nothing for a list".into()),
    }
}

fn run(layout: &str, operation: &str) -> std::result::Result<(), String> {
    let done = if let Some(policy) = layout.strip_prefix("host-").and_then(HostPolicy::named) {
        named(&host::OPERATIONS, operation)
            .map(|operation| prepared(|| host::Tier::new(policy), operation))
    } else if let Some(policy) = layout.strip_suffix("-both").and_then(HostPolicy::named) {
        named(&both::OPERATIONS, operation)
            .map(|operation| prepared(|| both::Both::new(policy), operation))
    } else if let Some(config) = config(layout) {
        let has_sessions = layout.ends_with(SESSIONS);
        named(&OPERATIONS, operation)
            .map(|operation| prepared(|| World::new(config, has_sessions), operation))
    } else {
        return Err("no such layout".into());
    };
    done.ok_or("no such operation")?.map_err(|error| error.to_string())
}

/// Makes a world and runs an operation in it. The world is never freed, so that the allocator serves
/// the next one from fresh memory too.
#[inline(never)]
fn prepared<T>(new: impl FnOnce() -> Result<T>, operation: fn(&mut T) -> Result<()>) -> Result<()> {
    let mut world = ManuallyDrop::new(new()?);
    black_box(operation(&mut world))
}

fn named<T: Copy>(operations: &[(&str, T)], name: &str) -> Option<T> {
    operations.iter().find(|(known, _)| *known == name).map(|&(_, operation)| operation)
}

fn usage(problem: String) -> ExitCode {
    eprintln!("hot_paths: {problem}");
    ExitCode::from(2)
}

/// Returns the configuration of a layout of `kvoxide bench`, with a pool for prompts of [`LONG`]
/// tokens.
fn config(layout: &str) -> Option<ManagerConfig> {
    let window = GroupSpec::sliding_window;
    let (layout, policy) = if let Some(layout) = layout.strip_suffix("-adaptive") {
        (layout, Policy::adaptive())
    } else if let Some(layout) = layout.strip_suffix(SESSIONS) {
        (layout, Policy::adaptive())
    } else if let Some(layout) = layout.strip_suffix("-every-tail") {
        (layout, Policy::every_tail())
    } else {
        (layout, Policy::default())
    };
    let (groups, num_blocks) = match layout {
        "full" => (vec![GroupSpec::full(16)], 8_700),
        "gemma" => {
            let mut groups = vec![GroupSpec::full(16)];
            groups.resize(6, window(16, 1024));
            (groups, 14_000)
        }
        "dsv4" => {
            (vec![GroupSpec::full(256), window(64, 128), window(4, 8), window(8, 128)], 8_000)
        }
        _ => return None,
    };
    Some(ManagerConfig {
        max_in_flight_tokens: Some(CHUNK),
        policy,
        ..ManagerConfig::new(num_blocks, groups, LONG + CHUNK)
    })
}

/// Runs the operation whose instructions callgrind counts. The caller drops the result, which is
/// not counted.
#[inline(never)]
fn counted<T>(operation: impl FnOnce() -> T) -> T {
    black_box(operation())
}

fn chunk_cold(world: &mut World) -> Result<()> {
    world.prefill(0, true)
}

fn chunk_evicting(world: &mut World) -> Result<()> {
    for prompt in 0..3 {
        world.prefill(prompt, false)?;
    }
    world.prefill(3, true)
}

fn look_up(world: &mut World) -> Result<()> {
    world.prefill(0, false)?;
    let request = world.request(0, LONG);
    counted(|| world.look_up(&request)).map(|hit| require(hit.length > LONG - 1024))
}

fn look_up_again(world: &mut World) -> Result<()> {
    world.prefill(0, false)?;
    let request = world.request(0, LONG);
    let first = world.look_up(&request)?;
    counted(|| world.look_up(&request)).map(|hit| require(hit.length == first.length))
}

fn admit(world: &mut World) -> Result<()> {
    world.prefill(0, false)?;
    let mut request = world.request(0, LONG);
    let hit = world.look_up(&request)?;
    counted(|| world.admit(&mut request, &hit, LONG))
}

fn free(world: &mut World) -> Result<()> {
    world.prefill(0, false)?;
    let mut request = world.request(0, LONG);
    let hit = world.look_up(&request)?;
    world.admit(&mut request, &hit, LONG)?;
    counted(|| world.free(&request))
}

fn decode(world: &mut World) -> Result<()> {
    let mut running = Vec::new();
    for prompt in 0..RUNNING {
        let mut request = world.request(prompt, CONTEXT + STEPS + 1);
        (request.num_tokens, request.num_prompt_tokens) = (CONTEXT, CONTEXT);
        let hit = world.look_up(&request)?;
        world.admit(&mut request, &hit, CONTEXT)?;
        // The first step releases the prefill's blocks before the window.
        request.num_tokens += 1;
        world.next(&mut request, 1)?;
        running.push(request);
    }
    for _ in 0..STEPS {
        for request in &mut running {
            request.num_tokens += 1;
            counted(|| world.next(request, 1))?;
        }
    }
    Ok(())
}

fn short(world: &mut World) -> Result<()> {
    world.prefill(0, false)?;
    for prompt in 1..=SHORT_REQUESTS {
        let mut request = world.request(prompt, SHORT);
        counted(|| {
            let hit = world.look_up(&request)?;
            world.admit(&mut request, &hit, SHORT)?;
            world.free(&request)
        })?;
    }
    Ok(())
}

fn require(condition: bool) {
    assert!(condition, "the state is not the one that is to be measured");
}

/// A request, as a scheduler keeps it.
struct Request {
    id: u64,
    hashes: Vec<BlockHash>,
    hash_block_size: usize,
    num_prompt_tokens: usize,
    num_tokens: usize,
    num_computed_tokens: usize,
    is_waiting: bool,
    retention: Option<Arc<RequestRetention>>,
}

impl Request {
    fn view(&self) -> RequestView<'_> {
        let hashes = &self.hashes[..self.num_tokens / self.hash_block_size];
        // A server's request hashes are chained, too.
        let hashes = HashWindow::from(hashes).chained(true);
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            is_waiting: self.is_waiting,
            ..RequestView::new(self.id, hashes, self.num_tokens)
        }
    }
}

/// A manager and the number of requests that it has seen.
struct World {
    manager: Manager,
    /// Whether the requests of a prompt are a session.
    has_sessions: bool,
    num_requests: u64,
}

impl World {
    fn new(config: ManagerConfig, has_sessions: bool) -> Result<Self> {
        Ok(Self { manager: Manager::new(config)?, has_sessions, num_requests: 0 })
    }

    /// Returns a new request with `num_tokens` tokens of a prompt.
    fn request(&mut self, prompt: u64, num_tokens: usize) -> Request {
        self.num_requests += 1;
        let hash_block_size = self.manager.hash_block_size();
        Request {
            id: self.num_requests,
            hashes: (0..num_tokens / hash_block_size).map(|i| hash(prompt, i as u64)).collect(),
            hash_block_size,
            num_prompt_tokens: num_tokens,
            num_tokens,
            num_computed_tokens: 0,
            is_waiting: true,
            retention: self
                .has_sessions
                .then(|| Arc::new(RequestRetention::default().in_session(prompt))),
        }
    }

    /// Computes a long prompt chunk by chunk and frees it. The first chunk, which admits the
    /// request, is not counted.
    fn prefill(&mut self, prompt: u64, is_counted: bool) -> Result<()> {
        let mut request = self.request(prompt, LONG);
        let hit = self.look_up(&request)?;
        self.admit(&mut request, &hit, CHUNK)?;
        while request.num_computed_tokens < LONG {
            match is_counted {
                true => counted(|| self.next(&mut request, CHUNK))?,
                false => self.next(&mut request, CHUNK)?,
            }
        }
        self.free(&request)
    }

    fn free(&mut self, request: &Request) -> Result<()> {
        self.manager.with_retention(request.retention.as_ref(), |manager| manager.free(request.id))
    }

    fn look_up(&mut self, request: &Request) -> Result<PrefixHit> {
        self.manager.get_computed_blocks(request.id, &request.view().hashes, request.num_tokens - 1)
    }

    fn admit(&mut self, request: &mut Request, hit: &PrefixHit, most: usize) -> Result<()> {
        let args = AllocateArgs {
            num_new_tokens: most.min(request.num_tokens - hit.length),
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            full_sequence_must_fit: true,
            has_scheduled_reqs: true,
            ..AllocateArgs::default()
        };
        require(self.allocate(request, &args)?);
        request.num_computed_tokens = hit.length + args.num_new_tokens;
        request.is_waiting = false;
        Ok(())
    }

    fn next(&mut self, request: &mut Request, num_new_tokens: usize) -> Result<()> {
        let args = AllocateArgs { num_new_tokens, ..AllocateArgs::default() };
        require(self.allocate(request, &args)?);
        request.num_computed_tokens += num_new_tokens;
        Ok(())
    }

    fn allocate(&mut self, request: &Request, args: &AllocateArgs<'_>) -> Result<bool> {
        let blocks = self.manager.with_retention(request.retention.as_ref(), |manager| {
            manager.allocate_slots(&request.view(), args)
        })?;
        Ok(blocks.is_some())
    }
}

/// Returns the hash of a block of a prompt. Like cryptographic hashes, the hashes are spread
/// evenly.
fn hash(prompt: u64, index: u64) -> BlockHash {
    let mut state = prompt << 32 | index;
    BlockHash(std::array::from_fn(|_| {
        // SplitMix64's constants.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }))
}
