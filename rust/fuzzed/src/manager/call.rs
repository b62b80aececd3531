//! The calls that the fuzzer makes.

use arbitrary::Arbitrary;

/// A number of tokens or blocks.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Amount {
    /// The number that a scheduler would give.
    Fitting,
    /// A small number.
    Small(u8),
    /// Any number.
    Any(u64),
}

impl Amount {
    /// Returns the number. `fitting` is the number that a scheduler would give.
    pub fn tokens(self, fitting: usize) -> usize {
        match self {
            Self::Fitting => fitting,
            Self::Small(number) => usize::from(number),
            Self::Any(number) => number as usize,
        }
    }
}

/// The request of a call, modulo the number of requests.
pub type Which = u8;

/// One call.
#[derive(Arbitrary, Clone, Debug)]
pub enum Call {
    /// A scheduler's step: looks up and admits a waiting request, or serves a running one.
    Step { which: Which, tokens: u8, lookahead: u8, delay: bool },
    /// Frees a request and gives its id a new prompt. The prompt shares a part with its family, one
    /// of four.
    Replace { which: Which, family: u8, len: u16, shared: u16, num_prompt_tokens: Amount },
    /// Appends output tokens.
    Append { which: Which, tokens: u8 },
    /// Sets the scheduler's counts of a request.
    Count { which: Which, computed: Amount, in_flight: Amount, boundary: Amount },
    /// Looks up a request with its memo and without it.
    LookUp { which: Which, max_length: Amount },
    /// Allocates with arbitrary arguments.
    Allocate(Allocation),
    /// Cuts the hit of a request.
    Truncate { which: Which, tokens: Amount },
    /// Reads how many blocks an allocation would take.
    Demand { which: Which, tokens: Amount, computed: Amount, cap: bool, with_hit: bool },
    /// Caches the full blocks of a request.
    CacheBlocks { which: Which, computed: Amount },
    /// Frees a request.
    Free { which: Which },
    /// Ends a request and keeps its blocks.
    Pop { which: Which },
    /// Releases the last blocks among the kept blocks.
    Release { blocks: u8, to_back: bool },
    /// Releases arbitrary blocks.
    ReleaseAny { blocks: Vec<u16> },
    /// Takes blocks that no request holds.
    Take { blocks: Amount },
    /// Adds a reference to cached blocks.
    Touch { blocks: Vec<u16> },
    /// Releases blocks that left a window.
    Skip { which: Which, computed: Amount },
    /// Evicts blocks by id.
    Evict { blocks: Vec<u16> },
    /// Resets the prefix cache.
    Reset,
    /// Lists blocks for zeroing again and takes the list.
    Zero { which: Which, start: Amount },
    /// Reads counts, events and observations.
    Read { which: Which },
    /// Begins a scheduling step.
    StartStep,
    /// Takes the pending copies and keeps their blocks.
    TakeCopies,
    /// Takes the blocks that a connector can read.
    TakeOffloads { which: Which },
    /// Sets the priority of a request and its time to live in tenths of a second; 0 means forever.
    SetPriority { which: Which, priority: u8, tenths: u8 },
    /// Lets time pass.
    Wait { milliseconds: u16 },
}

/// The arguments of an allocation.
#[derive(Arbitrary, Clone, Debug)]
pub struct Allocation {
    pub which: Which,
    pub with_hit: bool,
    pub new: Amount,
    pub hit: Amount,
    pub lookahead: Amount,
    pub external: Amount,
    pub reserved: Amount,
    pub switches: [bool; 4],
    pub skip_zeroing: Option<u8>,
}
